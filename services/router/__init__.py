"""Chooses a cell for jobs that name none."""
