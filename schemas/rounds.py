"""Rounds and the sequencer's own records; what cores answer an opening with is in
`shares`, `asks`, `grants`, `releases` and `plans`.

Fairness, altruism and leftover answer every opening with exactly one body; estimator and planner with one or none. A
decision carries what changed since the last closed round; `full` marks one that carries everything.
"""

from dataclasses import dataclass, field
from typing import Literal

from schemas.asks import Asks
from schemas.grants import Grant, Grants, Revocation
from schemas.plans import Plans
from schemas.releases import Releases
from schemas.shares import Shares

Strike = Literal["node_lost", "node_draining", "node_epoch", "no_room", "job_over", "gang", "task_over"]


@dataclass(slots=True)
class Position:
    """The last offset taken from an input topic's partition."""

    topic: str
    partition: int
    offset: int


@dataclass(slots=True)
class SequencerClaimed:
    """A sequencer takes the log over: from here on only records with this token count. It has no seq. `beats`: it hears
    of nodes by the topic of that name, too.
    """

    token: str
    beats: bool = False


@dataclass(slots=True)
class SequencerAlive:
    """Positions reached, when no other record has said so for a while."""

    positions: list[Position]


@dataclass(slots=True)
class TimeReached:
    """A wake-up: log time has come to a moment at which an answer may differ without a new fact."""

    wake_ms: int


@dataclass(slots=True)
class JobJudged:
    """The class of a live job, by index: it was admitted before there was capacity to judge it by, or the thresholds
    between the classes have changed since.
    """

    job: str
    job_class: int


@dataclass
class RoundOpened:
    """The question. `prefix` is the hash chain over all valid records before it; `rules` names the code that may
    answer. `pools_ppm`: the part of the cell's capacity that each class of jobs has as its pool, in millionths that
    sum to 1,000,000; empty: there are no pools. `judged`: live jobs that have another class from here on than their
    admission, or an earlier opening, said.
    """

    rules: int
    prefix: str
    shards: int = 1
    pools_ppm: list[int] = field(default_factory=list)
    judged: list[JobJudged] = field(default_factory=list)


@dataclass(slots=True)
class Struck:
    """A grant that newer facts have overtaken. Its tasks wait again; no attempt is used. `job_over`: the job that was
    looked at is no more: it is over, a user holds it, or it is of another queue.
    """

    grant: Grant
    reason: Strike


@dataclass
class DecisionHash:
    """Which decision record a round used: its topic, its shard, SHA-256 of its content."""

    topic: str
    shard: int
    of: int
    hash: str


@dataclass(slots=True)
class GangPorts:
    """For the tasks of a gang from `first` on, as a grant has them, each a port of its own on the host of its node."""

    job: str
    stage: str
    first: int
    ports: list[int]


@dataclass
class RoundClosed:
    """The answer. What it grants binds; its hashes verify every service from the log alone. `ports`: of tasks of gangs
    on nodes that offer some.
    """

    grants: list[Grant]
    struck: list[Struck]
    revoked: list[Revocation]
    wake_ms: int | None
    hashes: list[DecisionHash]
    ports: list[GangPorts] = field(default_factory=list)


@dataclass(slots=True)
class RoundAbandoned:
    """Nothing is granted; everything that waited goes to the next round."""

    reason: Literal["rules", "operator"]
    author: str = "unknown"


DecisionBody = Releases | Plans | Shares | Asks | Grants
"""What a core answers an opening with."""
