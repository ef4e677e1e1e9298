"""Leftover: whole tasks on nodes, best claim first, until nothing that waits fits.

Folds   facts of nodes and jobs, task ends, ConfigChanged; winning Shares, Asks and Grants; openings and closings.
Decides Grants: tasks with their nodes, and the task classes whose reason to wait has changed.
"""

from services.leftover.core.decide import decide
from services.leftover.core.fold import FOLDS, fold, start
from services.leftover.core.state import State

__all__ = ["FOLDS", "LAYOUT", "NAME", "READS", "TOPIC", "UPSTREAM", "State", "decide", "fold", "start"]

NAME = "leftover"
TOPIC = "grants"
UPSTREAM = ("shares", "asks")
READS = ("shares", "asks", "grants")
LAYOUT = 27
