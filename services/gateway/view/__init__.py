"""Gateway: what people ask about a cell, folded from the log and from the winning decision records.

Folds   every fact of jobs, tasks, nodes, config and reservations; winning Shares, Asks and Grants; closings.
Decides nothing. `documents/` words what is kept here for the outside.
"""

from services.gateway.view.fold import FOLDS, decide, fold, start
from services.gateway.view.state import State

__all__ = ["FOLDS", "LAYOUT", "NAME", "READS", "SETTLED", "TOPIC", "UPSTREAM", "State", "decide", "fold", "start"]

NAME = "gateway"
TOPIC = ""
UPSTREAM = ()
READS = ("shares", "asks", "grants")
LAYOUT = 34
SETTLED = ("ended", "places", "used_by", "specs")
"""Fields of the state whose entries stay as they are until they go (largesse/log/past_states.py)."""
