"""A round in one process: in what order cores answer an opening, what each gets from the others, and which winning
records each folds before the closing. Simulation, replay and the planner's dry run decide by it; a live shell folds
winners by its rule.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from largesse.core import Core, OpenRound
from largesse.ids import content_hash
from largesse.log.wanted import Wanted, answer
from schemas import DecisionHash, Record
from schemas.topics import SHARDED


@dataclass(slots=True)
class Hosted:
    """A core with one of its states. `shard`: the shard that the state is of, 0 where a core is not sharded."""

    core: Core[Any]
    state: Any
    shard: int = 0
    _wanted: Wanted | None = None

    def wanted(self, of: int) -> Wanted:
        """Names its answers to a round, by its number of altruism shards."""
        wanted = self._wanted
        if wanted is None or wanted.of != of:
            wanted = self._wanted = Wanted(self.core.TOPIC, self.shard, of)
        return wanted


@dataclass(slots=True)
class Answer:
    """One decision record: whose answer it is, the record, its encoded content."""

    wanted: Wanted
    record: Record
    content: bytes

    def __init__(self, wanted: Wanted, record: Record, content: bytes) -> None:
        self.wanted = wanted
        self.record = record
        self.content = content

    @property
    def named(self) -> DecisionHash:
        """As a closing names it."""
        topic, shard, of = self.wanted
        return DecisionHash(topic, shard, of, content_hash(self.content))


@dataclass(slots=True)
class Answers:
    """All decision records of a round. `closing`: shares, asks by shard, grants, in the order in which a closing names
    them; `forecasts`: those of the estimator and the planner, which enter the log as facts of their own.
    """

    opening: Record
    closing: list[Answer]
    forecasts: list[Answer]

    def __init__(self, opening: Record, closing: list[Answer], forecasts: list[Answer]) -> None:
        self.opening = opening
        self.closing = closing
        self.forecasts = forecasts


Upstream = dict[str, list[Record]]
"""Decision records by topic, in the order of shards."""

Ask = Callable[[Hosted, Record, Upstream, int], list[Answer]]
"""Asks one core to answer an opening, given the decisions of others; the last argument is the number of shards."""


def ask(hosted: Hosted, opening: Record, upstream: Upstream, of: int) -> list[Answer]:
    """A core's decision records for an open round, as shard `hosted.shard` of `of`."""
    needed = {topic: upstream[topic] for topic in hosted.core.UPSTREAM}
    bodies = hosted.core.decide(hosted.state, OpenRound(opening, needed))
    if not bodies:
        return []
    wanted = hosted.wanted(of)
    answers = []
    for body in bodies:
        record, content = answer(opening, wanted, body)
        answers.append(Answer(wanted, record, content))
    return answers


@dataclass(slots=True)
class Deciders:
    """The cores that answer rounds, `altruism` by shard. `forecasters`: their decisions are no part of the closing."""

    fairness: Hosted
    altruism: list[Hosted]
    leftover: Hosted
    forecasters: list[Hosted]

    def decide(self, opening: Record, ask: Ask = ask) -> Answers:
        """Their decisions on an opening, which has to be the last record that each of them has folded."""
        shards = opening.body.shards
        upstream: Upstream = {}
        closing = ask(self.fairness, opening, upstream, 1)
        upstream["shares"] = [each.record for each in closing]
        asks: list[Answer] = []
        for each in self.altruism[:shards]:
            asks += ask(each, opening, upstream, shards)
        upstream["asks"] = [each.record for each in asks]
        closing += asks
        closing += ask(self.leftover, opening, upstream, 1)
        forecasts: list[Answer] = []
        for each in self.forecasters:
            forecasts += ask(each, opening, {}, 1)
        return Answers(opening, closing, forecasts)

    def all(self) -> list[Hosted]:
        """Each of them, in the order in which they answer."""
        return [self.fairness, *self.altruism, self.leftover, *self.forecasters]


def folds(own_topic: str, shard: int, topic: str, of_shard: int) -> bool:
    """Whether a core folds the winning record of shard `of_shard` in a topic that it READS: every shard of another
    core's topic, but of its own topic only its own shard.
    """
    return topic != own_topic or topic not in SHARDED or of_shard == shard


def read_by(hosted: Hosted, winners: list[tuple[Wanted, Record]]) -> list[Record]:
    """The winning records of a round that a core folds before its closing, in the order of its READS."""
    return [winners[at][1] for at in places_read(hosted, [wanted for wanted, _ in winners])]


def places_read(hosted: Hosted, winners: list[Wanted]) -> list[int]:
    """The same, as places in the list of the winners."""
    core = hosted.core
    return [
        at
        for topic in core.READS
        for at, wanted in enumerate(winners)
        if wanted.topic == topic and folds(core.TOPIC, hosted.shard, topic, wanted.shard)
    ]
