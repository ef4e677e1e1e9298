"""Backfilling: whom room is gathered for, when it is complete on a node, and who may use it meanwhile."""
