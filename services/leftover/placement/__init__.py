"""The board: which task is next, on which node, and why the others wait."""
