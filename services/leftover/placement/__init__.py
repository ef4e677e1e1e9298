"""Placement: which waiting task starts next, on which node, and why the others wait."""
