"""Nodes: what they have, which agent speaks for them, which attempts it knows."""

from dataclasses import dataclass, field
from typing import Literal

from schemas.quantities import Vector
from schemas.tasks import Failure, SpareAttempt, TaskRange


@dataclass(slots=True)
class Device:
    """One device of a node, for instance a GPU: its index, its size in milli-units, its model.

    `memory_mib`: 0: not known. `numa`: the NUMA node that it is nearest to; None: not known. `link`: the group of
    devices that are linked to each other, of those of its node; empty: none. `uuid`: as its driver names it; empty: its
    index does. `out`: why nothing may start on it; empty: it may.
    """

    index: int
    milli: int = 1000
    model: str = ""
    memory_mib: int = 0
    numa: int | None = None
    link: str = ""
    uuid: str = ""
    out: str = ""


@dataclass(slots=True)
class KnownAttempt:
    """An attempt that a restarted agent still knows: running, or ended with a result the log has not seen."""

    job: str
    stage: str
    first: int
    count: int
    attempt: int
    state: Literal["running", "succeeded", "failed"]
    run_ms: list[int] = field(default_factory=list)
    reason: Failure | None = None
    exit_code: int | None = None
    detail: str = ""
    peak: Vector = field(default_factory=dict)
    peak_mib: list[int] = field(default_factory=list)
    cpu_ms: list[int] = field(default_factory=list)


@dataclass(slots=True)
class AttemptsKnown:
    """What an agent that is about to register its node under `epoch` still knows of attempts, where one message cannot
    name them all. The registration under that epoch takes them in; until then the node is as it was.

    `part`: the number of this message, from 0. Part 0 begins anew; every other one follows the one before it.
    """

    node: str
    epoch: str
    attempts: list[KnownAttempt]
    author: str = "unknown"
    part: int = 0


@dataclass(slots=True)
class ResultsKept:
    """Where a node keeps what tasks printed and wrote into the folder in which they were started, and for how long
    after their job's end: until the first of the limits is passed, the oldest job first.

    `folder`: the agent's data folder. `age_ms`: so long; `bytes`, `runs`, `inodes`: so much of all that is kept.
    """

    folder: str
    age_ms: int
    bytes: int
    runs: int
    inodes: int


@dataclass(slots=True)
class NodeRegistered:
    """An agent takes charge of a node under a new epoch and names the attempts that it still knows, also those that it
    named before (AttemptsKnown).

    `lost`: attempts held under the older epoch that it does not know, ended by this record (the sequencer fills it in).
    `address`: where its agent shows what tasks print (`HOST:PORT`, with TLS `https://HOST:PORT`); empty: nowhere.
    `unschedulable`: why its agent takes no new tasks at the moment (its disk is full, for instance); empty: it does.
    What runs there runs on.
    `parts`: how many AttemptsKnown went before it; `attempts` has what they named, too. `results`: what it keeps of
    ended jobs; None: it does not say. `spare`: ended attempts that do not end their task. `host`: by which name tasks
    on other nodes reach those on this one; empty: by the node's. `port_first`, `port_last`: from where to where gangs'
    tasks are given ports; 0: none are.
    """

    node: str
    epoch: str
    capacity: Vector
    labels: dict[str, str] = field(default_factory=dict)
    devices: list[Device] = field(default_factory=list)
    attempts: list[KnownAttempt] = field(default_factory=list)
    lost: list[TaskRange] = field(default_factory=list)
    author: str = "unknown"
    address: str = ""
    unschedulable: str = ""
    parts: int = 0
    results: ResultsKept | None = None
    spare: list[SpareAttempt] = field(default_factory=list)
    host: str = ""
    port_first: int = 0
    port_last: int = 0


@dataclass(slots=True)
class NodeReported:
    """A node's capacity, labels or devices have changed, or whether its agent takes new tasks (`unschedulable`: why
    not).
    """

    node: str
    epoch: str
    capacity: Vector
    labels: dict[str, str] = field(default_factory=dict)
    devices: list[Device] = field(default_factory=list)
    author: str = "unknown"
    unschedulable: str = ""


@dataclass(slots=True)
class NodeDrained:
    """An operator stops (`draining`) or resumes new placements on a node. What runs there runs on, or, with
    `within_ms`, is revoked so long after this record and runs elsewhere. The last such record counts, whole.
    """

    node: str
    draining: bool
    author: str = "unknown"
    reason: str = ""
    within_ms: int | None = None


@dataclass(slots=True)
class NodeLost:
    """The node's lease ran out, or its agent said that it goes (`left`). Every attempt it held, listed in `lost`, ends
    by this record. `spare`: those that do not end their task.
    """

    node: str
    epoch: str
    lost: list[TaskRange] = field(default_factory=list)
    left: bool = False
    spare: list[SpareAttempt] = field(default_factory=list)


@dataclass(slots=True)
class NodeRemoved:
    """An operator removes a lost node, draining or not. It is forgotten as soon as no round is open."""

    node: str
    author: str = "unknown"


@dataclass(slots=True)
class NodeForgotten:
    """A node does not count any more: it was lost for `node_kept_ms` and is not draining, so it may not come back; or
    it was lost, and an operator has removed it.
    """

    node: str


def devices_of(capacity: Vector, devices: list[Device]) -> list[Device]:
    """A node's GPUs on which tasks may start: those it lists and that are not out, or one of 1,000 milli for each whole
    GPU of its capacity and one for the rest."""
    if devices:
        return [device for device in devices if not device.out] if out_of(devices) else devices
    whole, rest = divmod(capacity.get("gpu", 0), 1000)
    listed = [Device(i) for i in range(whole)]
    return [*listed, Device(whole, rest)] if rest else listed


def out_of(devices: list[Device]) -> list[Device]:
    """Those of a node's listed devices on which nothing may start."""
    return [device for device in devices if device.out]
