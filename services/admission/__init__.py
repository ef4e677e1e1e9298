"""Admission: the sequencer, which puts every outside fact into the log's one order."""
