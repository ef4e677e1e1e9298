"""Altruism: what each job asks for now, split into what must start and what could.

Folds   JobAdmitted, task ends, lost nodes, cancels and ends; RoundOpened (how many shards there are) and closings;
capacity, ConfigChanged; winning Shares and its own winning Asks. Decides Asks for the jobs of its shard that ask for
something else than they did: a job asks from its admission on for every task of the stages without parents, which
nobody has to say. Every runnable task is required, in the order of the graph, but under a preset that gives
(queue_policy.py): then the job's plan says which tasks have to start now, unless its reservation is accepted.
"""

from services.altruism.core.decide import decide
from services.altruism.core.fold import FOLDS, fold, start
from services.altruism.core.state import State

__all__ = ["FOLDS", "LAYOUT", "NAME", "READS", "TOPIC", "UPSTREAM", "State", "decide", "fold", "start"]

NAME = "altruism"
TOPIC = "asks"
UPSTREAM = ("shares",)
READS = ("shares", "asks")
LAYOUT = 17
