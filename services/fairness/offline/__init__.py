"""Fairness as a filter: one problem or question on stdin, the answer on stdout."""
