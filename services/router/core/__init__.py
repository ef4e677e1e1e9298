"""The router: which cell a job goes to that names none, and whether it moves to another one.

Folds   its own log: what it was asked for, what cells said of jobs, where it sent them, and what became of them there.
Decides JobRouted, RouteDeclined and MoveAsked by what cells have said (decide.py), RouteEnded by the log alone.

One law is kept at every step, whatever ends or repeats: a job can run in one cell at most. It is sent to another one
only once the log of the cell before says that it will not run there: its log time is later than the job may be admitted
at, and it has not admitted it; or it has cancelled it, before any attempt of it was granted, for this move.
"""

from services.router.core.fold import FOLDS, fold, start
from services.router.core.state import State

__all__ = ["CELL", "FOLDS", "LAYOUT", "NAME", "State", "fold", "start"]

NAME = "router"
LAYOUT = 2
CELL = ".router"
"""What stands as the cell in records of the router's log. No cell has such a name."""
