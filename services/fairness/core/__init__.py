"""Fairness: what every queue of the tree is entitled to, from what its jobs could use now, and what it has.

Folds   facts of nodes and jobs, task ends, ConfigChanged; openings and closings; its own winning Shares.
Decides Shares: the levels of the queues that moved, what queues have where that moved by a permille, guarantees that
broke or hold again; where jobs are planned, what they are entitled to. Presets: `drf` (leaves side by side), `hdrf`,
`carbyne` and `largesse` (the tree).
"""

from services.fairness.core.decide import decide
from services.fairness.core.fold import FOLDS, fold, start
from services.fairness.core.state import State

__all__ = ["FOLDS", "LAYOUT", "NAME", "READS", "TOPIC", "UPSTREAM", "State", "decide", "fold", "start"]

NAME = "fairness"
TOPIC = "shares"
UPSTREAM = ()
READS = ("shares",)
LAYOUT = 22
