"""Hierarchical dominant resource fairness, static and dynamic, and the baselines beside it."""
