"""What a log begins with that does not begin with its first record: the states of all cores there, and what is left of
the records before.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from largesse.beginning import SHARDED_SERVICE
from largesse.core import Core
from largesse.log.snapshots import SnapshotRefused, load
from schemas import (
    ConfigChanged,
    Grant,
    JobAdmitted,
    JobCancelled,
    JobChanged,
    JobEnded,
    NodeLost,
    NodeRegistered,
    NodeReported,
    Plans,
    Record,
    ReservationRequested,
    ReservationUpdated,
    Revocation,
    RoundClosed,
    SeriesRequested,
    TaskEnd,
    TaskFailed,
    TaskFailure,
    TaskFinished,
    TaskRange,
    TaskStarted,
)
from schemas.nodes import KnownAttempt

S = TypeVar("S")


class StartRefused(Exception):
    """Why a log cannot be taken up where it begins: says which state is in the way."""


@dataclass(slots=True)
class Start:
    """Directly behind record `seq`, while no round is open. `rules`: of the last opening, None before the first.

    `states`: by service and shard the layout and the JSON of its state; altruism has `shards`. `before`: what the
    records up to there say of what still lives, for those who follow jobs, nodes and reservations and are no cores.
    `heard_ms`: when each node was heard of last; `over`: how many jobs had ended; neither is known of a bundle.
    """

    cell: str
    seq: int
    round: int
    time: int
    rules: int | None
    prefix: bytes
    shards: int
    version: str
    states: dict[tuple[str, int], tuple[int, bytes]] = field(default_factory=dict)
    before: list[Record] = field(default_factory=list)
    heard_ms: dict[str, int] = field(default_factory=dict)
    over: int = 0

    def last(self) -> Record:
        """The record before the first, as far as those behind it have to agree with it."""
        return Record("", 0, self.cell, self.seq, self.round, self.time, "", "", None)

    def state(self, core: Core[S], kind: type[S], shard: int = 0) -> S:
        """The state of a core, of type `kind`. Each call gives one of its own. Raises StartRefused."""
        name = f"{core.NAME}, shard {shard}" if shard else core.NAME
        # Behind its shards a checkpoint has the state of any further one.
        kept = min(shard, self.shards) if core.NAME == SHARDED_SERVICE else shard
        if (core.NAME, kept) not in self.states:
            raise StartRefused(f"there is no state of {name} where the log begins (it has {self.shards} of altruism)")
        layout, data = self.states[core.NAME, kept]
        if layout != core.LAYOUT:
            raise StartRefused(
                f"the state of {name} has layout {layout}, this version has {core.LAYOUT}: "
                f"version {self.version} reads it"
            )
        try:
            state = load(kind, data)
        except SnapshotRefused as refused:
            raise StartRefused(f"the state of {name}: {refused}") from None
        if kept != shard:
            state.shard = shard  # type: ignore[attr-defined]
        return state


Item = TypeVar("Item", TaskRange, TaskEnd, TaskFailure, KnownAttempt, Grant, Revocation)
"""What speaks of tasks of one job."""


class Remains:
    """Told of the records of a log in order: what is left of them to say of what lives. `live`: the jobs that will, by
    name with the seq of their admission.
    """

    def __init__(self, live: dict[str, int]) -> None:
        self._live = live
        self._kept: list[Record] = []
        self._policy: Record | None = None
        self._queues: Record | None = None
        self._nodes: dict[tuple[str, type], Record] = {}
        self._reservations: list[Record] = []

    def learn(self, record: Record) -> None:
        """One record."""
        body = record.body
        if isinstance(body, JobAdmitted):
            if self._live.get(body.spec.job) == record.seq:
                self._kept.append(record)
        elif isinstance(body, JobChanged | JobCancelled):
            if self._lives(body.job, record.seq):
                self._kept.append(record)
        elif isinstance(body, RoundClosed):
            grants, revoked = self._living(body.grants, record), self._living(body.revoked, record)
            if grants or revoked:
                self._keep(record, replace(body, grants=grants, revoked=revoked, struck=[], hashes=[]))
        elif isinstance(body, TaskStarted):
            if started := self._living(body.items, record):
                self._keep(record, replace(body, items=started))
        elif isinstance(body, TaskFinished):
            if finished := self._living(body.items, record):
                self._keep(record, replace(body, items=finished))
        elif isinstance(body, TaskFailed):
            if failed := self._living(body.items, record):
                self._keep(record, replace(body, items=failed))
        elif isinstance(body, NodeLost | NodeRegistered | NodeReported):
            self._learn_node(record)
        elif isinstance(body, ConfigChanged):
            self._policy = record if body.policy is not None else self._policy
            self._queues = record if body.queues is not None else self._queues
        elif isinstance(body, ReservationRequested | ReservationUpdated | SeriesRequested | Plans):
            self._reservations.append(record)

    def _learn_node(self, record: Record) -> None:
        """A node has said what it has, or was lost: the newest of each, and all that speaks of attempts."""
        body = record.body
        short, speaks = body, False
        if not isinstance(body, NodeReported):
            short = replace(body, lost=self._living(body.lost, record))
            speaks = bool(short.lost)
        if isinstance(short, NodeRegistered):
            short.attempts = self._living(short.attempts, record)
            speaks = speaks or bool(short.attempts)
        if speaks:
            self._keep(record, short)
        elif not isinstance(body, NodeLost):
            self._nodes[body.node, type(body)] = replace(record, body=short)

    def _lives(self, job: str, seq: int) -> bool:
        return self._live.get(job, seq) < seq

    def _living(self, items: list[Item], record: Record) -> list[Item]:
        return [each for each in items if self._lives(each.job, record.seq)]

    def _keep(self, record: Record, body: object) -> None:
        self._kept.append(replace(record, body=body))

    def result(self, reservations: Iterable[str]) -> list[Record]:
        """What is left, in order. `reservations`: the names of those that are known at the end."""
        known = dict.fromkeys([*reservations, *_reservations_of(self._kept)], True)
        found = {record.seq: record for record in self._nodes.values()}
        for record in self._reservations:
            body = record.body
            if isinstance(body, Plans):
                answers = [each for each in body.answers if each.reservation in known]
                if answers:
                    found[record.seq] = replace(record, body=replace(body, answers=answers, profiles=[], gone=[]))
            elif isinstance(body, SeriesRequested) or body.reservation in known:
                found[record.seq] = record
        for config in (self._policy, self._queues):
            if config is not None:
                found[config.seq] = config
        found |= {record.seq: record for record in self._kept}
        return [record for _, record in sorted(found.items())]


def _reservations_of(records: list[Record]) -> list[str]:
    return [each.body.spec.reservation or "" for each in records if isinstance(each.body, JobAdmitted)]


def live_after(live: dict[str, int], record: Record) -> None:
    """Follows which jobs live, by name with the seq of their admission."""
    if isinstance(record.body, JobAdmitted):
        live[record.body.spec.job] = record.seq
    elif isinstance(record.body, JobEnded):
        for end in record.body.jobs:
            live.pop(end.job, None)
