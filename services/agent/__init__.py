"""Agent: the processes of one node."""
