"""How queues below their guarantee take capacity back (docs/concepts/preemption.md)."""
