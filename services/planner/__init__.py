"""Planner: reservations of capacity in time, after Rayon."""
