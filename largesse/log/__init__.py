"""The log and the decision topics: codec, fencing, reading, writing, dead letters, snapshots, export."""
