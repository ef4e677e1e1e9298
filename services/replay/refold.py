"""Every core of a cell over one recorded log: folds what happened, and decides a round as the services did.

The caller brings records in order, asks for answers directly after an opening, and gives the winners before a closing.
"""

from collections.abc import Callable
from typing import Any, cast

from largesse.ids import PREFIX_OF_NOTHING, chain
from largesse.log.fencing import Accepted
from largesse.log.wanted import Wanted
from largesse.rounds import Answer, Answers, Hosted, Upstream, ask, read_by
from schemas import Record
from services.admission import core as admission
from services.replay.deciders import started
from services.replay.start import Start


class CoreRaised(Exception):
    """A core raised while it folded or decided: says which, and the error is its cause."""


class Refold:
    """All states of one cell. `before_round` is called before a round is decided; `hosted` lists the states. `start`:
    where its log begins, None: with the first record."""

    def __init__(
        self,
        shards: int,
        before_round: Callable[["Refold"], None] | None = None,
        start: Start | None = None,
    ) -> None:
        """Raises StartRefused."""
        self.prefix = PREFIX_OF_NOTHING if start is None else start.prefix
        self.records = 0
        self._before_round = before_round
        self._deciders = started(shards)
        # It judges inputs and answers no opening, so it has no `decide`.
        self._admission = Hosted(cast(Any, admission), admission.start())
        if start is not None:
            for each in self.all():
                each.state = start.state(each.core, type(each.state), each.shard)

    @property
    def admission(self) -> Any:
        """The sequencer's state."""
        return self._admission.state

    @property
    def hosted(self) -> list[tuple[object, int, object]]:
        """Core, shard and state of every service."""
        return [(each.core, each.shard, each.state) for each in self.all()]

    def fold(self, accepted: Accepted) -> None:
        """Folds one record. Raises CoreRaised."""
        record = accepted.record
        self.prefix = chain(self.prefix, accepted.content)
        self.records += 1
        for each in self.all():
            _fold(each, record)

    def decide(self, opening: Record) -> Answers:
        """What every service answers to an opening that was folded last. Raises CoreRaised."""
        if self._before_round is not None:
            self._before_round(self)
        return self._deciders.decide(opening, _ask)

    def feed(self, winners: list[tuple[Wanted, Record]]) -> None:
        """Gives every core the winning records that it reads, in the order of its READS. Raises CoreRaised."""
        for each in self.all():
            for record in read_by(each, winners):
                _fold(each, record)

    def all(self) -> list[Hosted]:
        """Admission, then the others in the order in which they answer."""
        return [self._admission, *self._deciders.all()]


def _fold(hosted: Hosted, record: Record) -> None:
    learn = hosted.core.FOLDS.get(type(record.body))
    if learn is None:
        return
    try:
        learn(hosted.state, record)
    except Exception as error:
        raise CoreRaised(f"{hosted.core.NAME} raised {error!r} folding {record.type} {record.id}") from error


def _ask(hosted: Hosted, opening: Record, upstream: Upstream, of: int) -> list[Answer]:
    try:
        return ask(hosted, opening, upstream, of)
    except Exception as error:
        raise CoreRaised(f"{hosted.core.NAME} raised {error!r} answering {opening.id}") from error
