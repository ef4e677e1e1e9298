"""The shadow: the jobs of a cell in virtual time, and the order that follows from it (docs/concepts/shadow.md)."""
