"""Estimator: how many running tasks will have given their capacity back soon.

Folds   Releases (what the log says it said).
Decides Releases. Until phases are followed the forecast is empty: it is said once, and never changes.
"""

from dataclasses import dataclass

from largesse.core import Folds, OpenRound
from schemas import Record, Releases

NAME = "estimator"
TOPIC = "releases"
UPSTREAM = ()
READS = ()
LAYOUT = 1


@dataclass(slots=True)
class State:
    """The seq of the last forecast in the log; 0 is none."""

    told_seq: int = 0


def start(shard: int = 0, of: int = 1) -> State:
    """Nothing said yet."""
    return State()


def fold(state: State, record: Record) -> None:
    """What the log says was said."""
    state.told_seq = record.seq


def decide(state: State, opened: OpenRound) -> list[Releases]:
    """The forecast, if it is not the one in force."""
    if state.told_seq:
        return []
    return [Releases(after=0, at_ms=opened.time)]


FOLDS: Folds[State] = {Releases: fold}
