"""Which nodes are reserved for what finds no room, and until when, by what runs there (docs/concepts/gathering.md)."""
