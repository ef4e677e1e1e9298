"""Planner: answers requests for capacity in time, and keeps what it has promised (Rayon).

Folds   ReservationRequested, ReservationUpdated, ReservationDeleted; PlanProposed (what a solver beside it found);
SeriesRequested, SeriesEnded (the shell requests the occurrences, occurrences.py); nodes (how much capacity there is);
jobs that name a reservation and their tasks (how far they have come);
ConfigChanged, RoundOpened (how much time there was for an answer), Plans (what the log says it said).
Decides Plans, when there is something to say: answers in the order of the requests, promises that were made, moved,
broken or given back, or follow their jobs, whether a proposal is adopted, and when the next lease begins or ends.
A promise that is broken is tried again until its window ends, whenever there is more room.
Planning costs at most WORK_MAX a round: what is not done by then goes on in the next round.
"""

from services.planner.core.decide import WORK_MAX, decide
from services.planner.core.fold import FOLDS, fold, start
from services.planner.core.state import State

__all__ = ["FOLDS", "LAYOUT", "NAME", "READS", "TOPIC", "UPSTREAM", "WORK_MAX", "State", "decide", "fold", "start"]

NAME = "planner"
TOPIC = "plans"
UPSTREAM = ()
READS = ()
LAYOUT = 10
