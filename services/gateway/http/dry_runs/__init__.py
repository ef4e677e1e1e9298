"""What a config or a reservation would bring, worked out in a process of its own. Nothing is sent."""
