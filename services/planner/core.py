"""Planner: what the cell has promised to reservations, step by step.

Folds   Plans (what the log says it said).
Decides Plans. While no reservation is accepted the plan is empty: it is said once, and never changes.
"""

from dataclasses import dataclass

from largesse.core import Folds, OpenRound
from schemas import Plans, Record

NAME = "planner"
TOPIC = "plans"
UPSTREAM = ()
READS = ()
LAYOUT = 1


@dataclass(slots=True)
class State:
    """The seq of the last plan in the log; 0 is none."""

    told_seq: int = 0


def start(shard: int = 0, of: int = 1) -> State:
    """Nothing said yet."""
    return State()


def fold(state: State, record: Record) -> None:
    """What the log says was said."""
    state.told_seq = record.seq


def decide(state: State, opened: OpenRound) -> list[Plans]:
    """The plan, if it is not the one in force."""
    if state.told_seq:
        return []
    return [Plans(after=0)]


FOLDS: Folds[State] = {Plans: fold}
