"""Ways in which attempts are run on a node, each behind one port."""
