"""Workload files, and importers of public traces."""
