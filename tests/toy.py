"""A core small enough to see through: it lists cancelled jobs, and says so as shares, asks or grants of a round."""

from dataclasses import dataclass, field
from typing import Any

from largesse.core import Folds, OpenRound
from schemas import Asks, Cache, Grants, JobAsk, JobCancelled, Level, Record, Releases, RoundClosed, Shares
from schemas.grants import ClassWait


@dataclass(slots=True)
class State:
    """What it has seen: jobs in order, closings, and the winning answers it was fed."""

    jobs: list[str] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)
    fed: list[str] = field(default_factory=list)
    decided: Cache[int] = 0


def _cancelled(state: State, record: Record) -> None:
    if record.body.job == "poison":
        raise AssertionError("this job cannot be")
    state.jobs.append(record.body.job)


def _closed(state: State, record: Record) -> None:
    state.closed.append(record.round)


def _winner(state: State, record: Record) -> None:
    state.fed.append(record.id.rpartition("/")[0])


class Toy:
    """A core as an object: a test says which topic it writes, what it waits for and what it reads."""

    NAME = "toy"
    LAYOUT = 1

    def __init__(self, topic: str = "shares", upstream: tuple[str, ...] = (), reads: tuple[str, ...] = ()) -> None:
        self.TOPIC, self.UPSTREAM, self.READS = topic, upstream, reads
        self.FOLDS: Folds = {JobCancelled: _cancelled, RoundClosed: _closed}
        self.FOLDS |= dict.fromkeys((Shares, Asks, Grants), _winner)
        self.asked = self.shard = 0

    def start(self, shard: int, of: int) -> State:
        self.shard = shard
        return State()

    def fold(self, state: State, record: Record) -> None:
        self.FOLDS[type(record.body)](state, record)

    def decide(self, state: State, opened: OpenRound) -> list[Any]:
        self.asked += 1
        if state.jobs[-1:] == ["stumble"]:
            raise AssertionError("this round cannot be")
        if state.jobs[-1:] == ["silence"]:
            return []
        return [self._body(state, opened)]

    def _body(self, state: State, opened: OpenRound) -> Any:
        said = sum(len(records) for records in opened.upstream.values())
        match self.TOPIC:
            case "shares":
                return Shares([Level(name, said) for name in state.jobs])
            case "asks":
                jobs = [JobAsk(name, []) for name in state.jobs]
                return Asks(self.shard, opened.record.body.shards, jobs)
            case "releases":
                return Releases(0, len(state.jobs))
        return Grants([], waits=[ClassWait({"cpu": said}, {}, {}, 0, "no_room") for _ in state.jobs])
