"""What the log says of states that are kept outside of it: a reader may begin there in place of the first record."""

from dataclasses import dataclass

from schemas.rounds import Position

CHECKPOINT_STATES_MAX = 1_024
"""States of one checkpoint: one a core and shard."""


@dataclass(slots=True)
class KeptState:
    """The state of one core. `sha256`: of its canonical JSON; `layout`: which versions can read it."""

    service: str
    shard: int
    layout: int
    sha256: str


@dataclass(slots=True)
class Checkpoint:
    """Directly behind the closing (or abandoned round) with seq `closing`, two folds came to the same `states`. They
    are kept in one file, which `file` (SHA-256 of its bytes) recognises. `prefix`: the hash chain up to the
    closing; `positions`: what had been taken of each input topic by then.
    """

    closing: int
    prefix: str
    positions: list[Position]
    states: list[KeptState]
    file: str
    author: str = "unknown"
