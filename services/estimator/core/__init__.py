"""Estimator: how much running tasks of each class of jobs will have given back soon.

Folds   starts and ends of tasks, admissions and ends of jobs, capacity of nodes, ConfigChanged; openings; Releases
(what the log says it said).
Decides Releases, when a forecast has moved or another forecaster is better; nothing while there are no class pools:
then it follows no task either.
"""

from services.estimator.core.decide import decide
from services.estimator.core.fold import FOLDS, fold, start
from services.estimator.core.state import State

__all__ = ["FOLDS", "LAYOUT", "NAME", "READS", "TOPIC", "UPSTREAM", "State", "decide", "fold", "start"]

NAME = "estimator"
TOPIC = "releases"
UPSTREAM = ()
READS = ()
LAYOUT = 10
