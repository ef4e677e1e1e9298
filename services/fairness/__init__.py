"""Fairness: what every queue and job is entitled to."""
