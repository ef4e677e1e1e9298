"""Planner: what the cell has promised to reservations."""
