"""What every service's core is: a fold of the log that can answer an open round. No I/O, no clock, no chance.

A core is a module with these names (mypy checks the protocol). `fold` alone changes state, `decide` alone answers; what
`decide` works out may stay in a `Cache` field, which changes cost and never bytes.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from largesse.open_round import OpenRound as OpenRound
from schemas.envelope import Record
from schemas.rounds import DecisionBody

RULES = 9
"""Raised by every change that can alter a decision's bytes. An instance answers only openings of its own number."""


S = TypeVar("S")  # The state of a core.

Folds = dict[type, Callable[[S, Record], None]]
"""Body type -> what learns a record of it."""


class Core(Protocol[S]):
    """NAME names the service, TOPIC its decisions. UPSTREAM: decision topics that `decide` waits for. READS: decision
    topics whose winners it folds at a closing. FOLDS: the body types that `fold` does anything with, each with the
    function that does it; others are not handed over. LAYOUT is raised by every change in what `fold` keeps."""

    @property
    def NAME(self) -> str: ...  # noqa: N802

    @property
    def TOPIC(self) -> str: ...  # noqa: N802

    @property
    def UPSTREAM(self) -> tuple[str, ...]: ...  # noqa: N802

    @property
    def READS(self) -> tuple[str, ...]: ...  # noqa: N802

    @property
    def FOLDS(self) -> Folds[S]: ...  # noqa: N802

    @property
    def LAYOUT(self) -> int: ...  # noqa: N802

    def start(self, shard: int, of: int) -> S:
        """The state before the first record. Only altruism has more than one shard."""

    def fold(self, state: S, record: Record) -> None:
        """Learns one record."""

    def decide(self, state: S, opened: OpenRound) -> Sequence[DecisionBody]:
        """Answers an open round with bodies of its topic; leaves what a snapshot shows of the state as it was."""
