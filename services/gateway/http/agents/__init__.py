"""What the gateway asks of the agents of nodes: output of tasks, and what tasks have left."""
