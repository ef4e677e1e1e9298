"""The services of a cell, and the hosts that run their cores: one folder each."""
