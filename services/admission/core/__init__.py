"""Admission: the sequencer's fold. What it learns here decides which inputs count, when rounds open and what is struck.

Folds   every log record that tells of nodes, jobs, tasks, config, forecasts, plans, rounds and time.
Decides nothing by `decide`: it judges inputs (judge.py) and says what is due and what a round comes to
(rounds.py).
"""

from services.admission.core.fold import FOLDS, fold, start
from services.admission.core.state import State

__all__ = ["FOLDS", "LAYOUT", "NAME", "READS", "TOPIC", "UPSTREAM", "State", "fold", "start"]

NAME = "admission"
TOPIC = ""
UPSTREAM = ()
READS = ()
LAYOUT = 23
