"""A cell that runs, looked at from a process of its own: what it would do, and what it would have done."""
