"""What a service has as a process of its own: settings at start, shards, health pages, an orderly end."""
