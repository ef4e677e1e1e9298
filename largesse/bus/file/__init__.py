"""The embedded bus: one directory, one journal, one process that appends."""
