"""Simulator: workloads on clusters in virtual time."""
