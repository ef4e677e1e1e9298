"""The planner as a filter: one problem of reservations on stdin, the answer on stdout."""
