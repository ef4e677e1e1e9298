"""Estimator: a forecast of what running tasks will give back."""
