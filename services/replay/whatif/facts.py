"""What came from outside into a recorded cell: submissions, words of operators, and what happened to nodes."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from largesse.lifecycle.task_facts import facts_of
from schemas import (
    ConfigChanged,
    InputRefused,
    JobAdmitted,
    JobCancelled,
    JobChanged,
    JobEnded,
    JobRejected,
    NodeDrained,
    NodeForgotten,
    NodeLost,
    NodeRegistered,
    NodeRemoved,
    NodeReported,
    PlanProposed,
    Policy,
    Record,
    ReservationDeleted,
    ReservationRequested,
    ReservationUpdated,
    RoundOpened,
    SeriesEnded,
    SeriesRequested,
    TaskFailed,
    TaskFinished,
    TaskStarted,
    Vector,
)
from schemas.queues import Queue
from services.replay.start import Start

OUTSIDE = (
    *(JobAdmitted, JobRejected, JobCancelled, JobChanged, ConfigChanged),
    *(NodeRegistered, NodeReported, NodeDrained, NodeLost, NodeRemoved),
    *(ReservationRequested, ReservationUpdated, ReservationDeleted, SeriesRequested, SeriesEnded),
)


@dataclass(frozen=True, slots=True)
class NodeFails:
    """The machine of a node stopped at `time`: the cell has not heard of it again before record `noticed`, by which it
    was lost, or registered again."""

    node: str
    time: int
    noticed: int


@dataclass(frozen=True, slots=True)
class Fact:
    """Something from outside. `seq`: of the record of the recording that tells of it."""

    seq: int
    body: object


@dataclass(slots=True)
class Told:
    """What a first reading of a recording finds beside the facts. `fails`: the nodes that stopped; `jobs`, `records`:
    how many; `last`: the seq of the last one. Behind the fork: `refused`, inputs whose content the log has not, since
    they were, and `proposed`, plans that a solver improved. `shards`: of altruism, at most. `policy`, `queues`: in
    force at the end of what was read. `nodes`: what each node had last, but for those that were forgotten before the
    fork. `over`: jobs that had ended by then.
    """

    fails: list[NodeFails] = field(default_factory=list)
    jobs: int = 0
    records: int = 0
    last: int = 0
    refused: int = 0
    proposed: int = 0
    shards: int = 1
    time: int = 0
    first_ms: int | None = None
    policy: Policy = field(default_factory=Policy)
    queues: Queue | None = None
    nodes: dict[str, Vector] = field(default_factory=dict)
    over: int = 0
    _ended: int = 0
    _forgotten: dict[str, bool] = field(default_factory=dict)
    _heard_ms: dict[str, int] = field(default_factory=dict)

    def learn(self, record: Record) -> None:
        """One record, in order."""
        body = record.body
        self.records, self.last, self.time = self.records + 1, record.seq, record.time
        if self.first_ms is None:
            self.first_ms = record.time
        if isinstance(body, TaskStarted | TaskFinished | TaskFailed):
            for item in body.items:
                self._heard_ms[item.node] = record.time
        elif isinstance(body, NodeRegistered | NodeReported):
            if isinstance(body, NodeRegistered) and is_restart(body):
                heard_ms = self._heard_ms.get(body.node, record.time)
                self.fails.append(NodeFails(body.node, min(heard_ms + 1, record.time), record.seq))
            self.nodes[body.node] = body.capacity
            self._heard_ms[body.node] = record.time
            self._forgotten.pop(body.node, None)
        elif isinstance(body, NodeForgotten):
            self._forgotten[body.node] = True
        elif isinstance(body, JobEnded):
            self._ended += len(body.jobs)
        elif isinstance(body, NodeLost):
            silent_ms = 0 if body.left else self.policy.node_lease_ms
            self.fails.append(NodeFails(body.node, record.time - silent_ms, record.seq))
        elif isinstance(body, ConfigChanged):
            self.policy, self.queues = body.policy or self.policy, body.queues or self.queues
        elif isinstance(body, RoundOpened):
            self.shards = max(self.shards, body.shards)
        elif isinstance(body, JobAdmitted | JobRejected):
            self.jobs += 1
        elif isinstance(body, InputRefused):
            self.refused += 1
        elif isinstance(body, PlanProposed):
            self.proposed += 1

    def take_up(self, start: Start) -> None:
        """The recording begins there, behind the records that were learned."""
        self._heard_ms |= start.heard_ms
        self._ended, self.shards = start.over, max(self.shards, start.shards)

    def forks(self) -> None:
        """Both worlds share what was learned so far."""
        self.refused, self.proposed, self.over = 0, 0, self._ended
        for node in self._forgotten:
            self.nodes.pop(node, None)
            self._heard_ms.pop(node, None)
        self._forgotten.clear()

    @property
    def capacity(self) -> Vector:
        """The sum over all nodes, as they were last."""
        total: Vector = {}
        for node in self.nodes.values():
            for resource, amount in node.items():
                total[resource] = total.get(resource, 0) + amount
        return dict(sorted(total.items()))


def user_of(body: JobAdmitted | JobRejected) -> str:
    """Whose job it is: who sent it, where it names nobody."""
    return body.spec.user or body.author


def is_restart(body: NodeRegistered) -> bool:
    """Whether the machine itself began again: nothing that ran there goes on."""
    return bool(body.lost) and not any(fact for fact in facts_of(body)[len(body.lost) :])


def facts_after(seq: int, records: Iterable[Record], fails: list[NodeFails]) -> Iterator[tuple[int, Fact]]:
    """The facts behind record `seq` with their times, in order: a node fails before what was heard at that time.
    `fails`: by time."""
    coming = deque(fail for fail in fails if fail.noticed > seq)
    for record in records:
        while coming and coming[0].time <= record.time:
            fail = coming.popleft()
            yield fail.time, Fact(0, fail)
        if isinstance(record.body, OUTSIDE):
            yield record.time, Fact(record.seq, record.body)
