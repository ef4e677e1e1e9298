"""Ways to get at what is another's, by name: each is tried against the real component and refused, and what is told,
logged and counted of it is as docs/attacks.md says, which is made of the same lists (`page.py`)."""
