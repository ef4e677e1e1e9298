"""Every core of a cell over one recorded log: folds what happened, and decides a round as the services did.

The caller brings records in order, asks for answers directly after an opening, and gives the winners before a closing.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from largesse.core import OpenRound
from largesse.ids import PREFIX_OF_NOTHING, chain, content_hash
from largesse.log.decisions import Wanted, answer
from largesse.log.fencing import Accepted
from schemas import DecisionHash, Record
from schemas.topics import SHARDED
from services.admission import core as admission
from services.altruism import core as altruism
from services.estimator import core as estimator
from services.fairness import core as fairness
from services.leftover import core as leftover
from services.planner import core as planner


class CoreRaised(Exception):
    """A core raised while it folded or decided: says which, and the error is its cause."""


@dataclass(slots=True)
class Answer:
    """One decision record: whose, the record, its content."""

    wanted: Wanted
    record: Record
    content: bytes

    @property
    def named(self) -> DecisionHash:
        """As a closing names it."""
        return DecisionHash(*self.wanted, content_hash(self.content))


@dataclass(slots=True)
class Answers:
    """What a round came to: shares, asks by shard and grants in the order of a closing; what forecasters said."""

    opening: Record
    closing: list[Answer] = field(default_factory=list)
    forecasts: list[Answer] = field(default_factory=list)


@dataclass(slots=True)
class _Hosted:
    core: Any
    state: object
    shard: int = 0


class Refold:
    """All states of one cell. `before_round` is called before a round is decided; `hosted` lists the states."""

    def __init__(self, shards: int, before_round: Callable[["Refold"], None] | None = None) -> None:
        self.prefix = PREFIX_OF_NOTHING
        self.records = 0
        self._before_round = before_round
        self._altruism = [_Hosted(altruism, altruism.start(shard, shards), shard) for shard in range(shards)]
        self._fairness = _Hosted(fairness, fairness.start())
        self._leftover = _Hosted(leftover, leftover.start())
        self._forecasters = [_Hosted(estimator, estimator.start()), _Hosted(planner, planner.start())]
        self._admission = _Hosted(admission, admission.start())

    @property
    def admission(self) -> Any:
        """The sequencer's state."""
        return self._admission.state

    @property
    def hosted(self) -> list[tuple[object, int, object]]:
        """Core, shard and state of every service."""
        return [(each.core, each.shard, each.state) for each in self._all()]

    def fold(self, accepted: Accepted) -> None:
        """Learns one record. Raises CoreRaised."""
        record = accepted.record
        self.prefix = chain(self.prefix, accepted.content)
        self.records += 1
        for each in self._all():
            _fold(each, record)

    def decide(self, opening: Record) -> Answers:
        """What every service answers to an opening that was folded last. Raises CoreRaised."""
        if self._before_round is not None:
            self._before_round(self)
        shards = opening.body.shards
        answers = Answers(opening)
        shares = _decide(self._fairness, opening, {}, 1)
        asks = [a for each in self._altruism[:shards] for a in _decide(each, opening, _records(shares), shards)]
        grants = _decide(self._leftover, opening, _records([*shares, *asks]), 1)
        answers.closing = [*shares, *asks, *grants]
        answers.forecasts = [a for each in self._forecasters for a in _decide(each, opening, {}, 1)]
        return answers

    def feed(self, winners: list[tuple[Wanted, Record]]) -> None:
        """Gives every core the winning records that it reads, in the order of its READS. Raises CoreRaised."""
        for each in self._all():
            for topic in each.core.READS:
                for wanted, record in winners:
                    own = topic not in SHARDED or topic != each.core.TOPIC or wanted.shard == each.shard
                    if wanted.topic == topic and own:
                        _fold(each, record)

    def _all(self) -> list[_Hosted]:
        return [self._admission, self._fairness, *self._altruism, self._leftover, *self._forecasters]


def _fold(hosted: _Hosted, record: Record) -> None:
    learn = hosted.core.FOLDS.get(type(record.body))
    if learn is None:
        return
    try:
        learn(hosted.state, record)
    except Exception as error:
        raise CoreRaised(f"{hosted.core.NAME} raised {error!r} folding {record.type} {record.id}") from error


def _decide(hosted: _Hosted, opening: Record, upstream: dict[str, list[Record]], of: int) -> list[Answer]:
    wanted = Wanted(hosted.core.TOPIC, hosted.shard, of)
    needed = {topic: upstream[topic] for topic in hosted.core.UPSTREAM}
    try:
        bodies = hosted.core.decide(hosted.state, OpenRound(opening, needed))
    except Exception as error:
        raise CoreRaised(f"{hosted.core.NAME} raised {error!r} answering {opening.id}") from error
    return [Answer(wanted, *answer(opening, wanted, body)) for body in bodies]


def _records(answers: list[Answer]) -> dict[str, list[Record]]:
    by_topic: dict[str, list[Record]] = {}
    for each in answers:
        by_topic.setdefault(each.wanted.topic, []).append(each.record)
    return by_topic
