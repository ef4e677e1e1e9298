"""Whose capacity is taken back for a queue below its guarantee (docs/concepts/preemption.md)."""
