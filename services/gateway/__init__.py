"""Gateway: the HTTP API of a cell."""
