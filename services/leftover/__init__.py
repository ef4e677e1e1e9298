"""Leftover: which tasks start on which nodes."""
