"""A cell's log kept for years: closed segments in a folder or an object store, proven by a chain of manifests."""
