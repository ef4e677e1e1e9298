"""The nodes topic: what agents say of their nodes, and operators' drains.

Capacities round down: others build on them.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Literal, Protocol

from pydantic import Field

from schemas.edge.base import (
    BATCH_MAX,
    TASKS_MAX,
    TEXT_PATTERN,
    Amounts,
    DurationMs,
    Epoch,
    Input,
    Labels,
    Malformed,
    Name,
    NewName,
    Tasks,
    Text,
    Whole,
    author_of,
    check_one_form,
    shown,
    sorted_map,
    validated,
    vector_of,
)
from schemas.nodes import (
    AttemptsKnown,
    Device,
    KnownAttempt,
    NodeDrained,
    NodeRegistered,
    NodeRemoved,
    NodeReported,
    ResultsKept,
)
from schemas.quantities import QUANTITY_MAX, Vector
from schemas.tasks import Failure

DEVICES_MAX = 1_024  # GPUs of one node, listed or not.
DEVICE_MILLI = 1_000  # A device as a whole; a smaller one is a part of a device that was divided.
DETAIL_MAX = 500  # Characters of an agent's own words that are kept; a fact is not refused for a long story.
MESSAGE_TASKS_MAX = TASKS_MAX  # Tasks that the ranges of one message come to, together.
EXIT_CODE_MAX = 2**31 - 1
ADDRESS_MAX = 300
FOLDER_MAX = 4_096  # Characters of a path on a node.
UNSCHEDULABLE_MAX = 300
"""Characters of the reason why an agent takes no new tasks."""
DRAIN_REASON_MAX = 300
"""Characters of the reason for a drain."""
KNOWN_PARTS_MAX = 1_000
"""Messages in which an agent may name the attempts that it still knows, before its registration."""
PORT_MAX = 65_535

RunMs = Annotated[list[DurationMs], Field(max_length=TASKS_MAX, fail_fast=True)]
Measured = Annotated[list[Whole], Field(max_length=TASKS_MAX, fail_fast=True)]
Count = Tasks
First = Annotated[int, Field(ge=0, lt=TASKS_MAX)]
Attempt = Annotated[int, Field(ge=1, le=QUANTITY_MAX)]
ExitCode = Annotated[int, Field(ge=-EXIT_CODE_MAX, le=EXIT_CODE_MAX)]


class DeviceInput(Input):
    """One device: its index on the node, its size in thousandths of a whole one, its model."""

    index: Annotated[int, Field(ge=0, le=QUANTITY_MAX)]
    milli: Annotated[int, Field(ge=1, le=DEVICE_MILLI)] = DEVICE_MILLI
    model: Text = ""


class DevicesInput(Input):
    """Devices by resource. Only GPUs are given out one by one."""

    gpu: Annotated[list[DeviceInput], Field(max_length=DEVICES_MAX)] = []


class KnownAttemptInput(Input):
    """Attempts of tasks `first` .. `first + count - 1` of a stage that an agent still knows after a restart."""

    job: Name
    stage: Name
    first: First
    count: Count
    attempt: Attempt
    state: Literal["running", "succeeded", "failed"]
    run_ms: RunMs = []
    reason: Failure | None = None
    exit_code: ExitCode | None = None
    detail: str = ""
    peak: Amounts = {}
    peak_mib: Measured = []
    cpu_ms: Measured = []


class NodeReport(Input):
    """What a node has. Listed devices say what `capacity.gpu` is; without them it counts as whole devices.
    `unschedulable`: why the agent takes no new tasks at the moment (its disk is full, for instance); empty: it does.
    """

    node: Name
    epoch: Epoch
    capacity: Amounts
    labels: Labels = {}
    devices: DevicesInput = DevicesInput()
    unschedulable: Annotated[str, Field(max_length=UNSCHEDULABLE_MAX)] = ""


class KnownMessage(Input):
    """Attempts that an agent still knows and that its registration has no room for: message `part` (from 0) of those
    that precede the registration of `node` under `epoch`.
    """

    node: Name
    epoch: Epoch
    part: Annotated[int, Field(ge=0, lt=KNOWN_PARTS_MAX)]
    attempts: Annotated[list[KnownAttemptInput], Field(max_length=BATCH_MAX, fail_fast=True)]


class ResultsInput(Input):
    """Where a node keeps what tasks of ended jobs left, and its limits: how long, bytes, runs of jobs, and files."""

    folder: Annotated[str, Field(max_length=FOLDER_MAX, pattern=TEXT_PATTERN)]
    age_ms: Whole
    bytes: Whole
    runs: Whole
    inodes: Whole


class NodeRegistration(NodeReport):
    """An agent takes charge of a node under a new epoch, and says which attempts it knows, and where it shows what
    tasks print (`HOST:PORT`). `parts`: how many messages of the form `known` went before it and name attempts too.
    Unless all of them have come in, the registration is refused, and the agent has to send everything again.
    """

    node: NewName
    attempts: Annotated[list[KnownAttemptInput], Field(max_length=BATCH_MAX, fail_fast=True)] = []
    address: Annotated[str, Field(max_length=ADDRESS_MAX)] = ""
    parts: Annotated[int, Field(ge=0, le=KNOWN_PARTS_MAX)] = 0
    results: ResultsInput | None = None


class NodeLeave(Input):
    """An agent goes, and nothing runs on its node any more: what the log says it holds is lost."""

    node: Name
    epoch: Epoch


class Drain(Input):
    """An operator stops (`draining`: true) or resumes new placements on a node. `within_ms`: what runs there is revoked
    after so long, and runs elsewhere; without it, it runs on. The last word counts, whole.
    """

    node: Name
    draining: bool
    reason: Annotated[str, Field(max_length=DRAIN_REASON_MAX, pattern=TEXT_PATTERN)] = ""
    within_ms: DurationMs | None = None


class Removal(Input):
    """An operator removes a node that is lost and does not come back."""

    node: Name


class NodeInput(Input):
    """A message of the nodes topic: exactly one of its fields."""

    register_: Annotated[NodeRegistration | None, Field(alias="register")] = None
    known: KnownMessage | None = None
    report: NodeReport | None = None
    drain: Drain | None = None
    leave: NodeLeave | None = None
    remove: Removal | None = None


@dataclass(slots=True)
class NodeLeft:
    """What an agent says that goes; the log calls its node lost."""

    node: str
    epoch: str


NodeMessage = NodeRegistered | NodeReported | AttemptsKnown | NodeDrained | NodeLeft | NodeRemoved


def read_node(document: object, author: str) -> NodeMessage:
    """A message of the nodes topic. Raises Malformed."""
    message = validated(NodeInput, document)
    check_one_form(message)
    author = author_of(author)
    if message.drain is not None:
        drain = message.drain
        if drain.within_ms is not None and not drain.draining:
            raise Malformed("drain.within_ms", "a node that is resumed has no deadline: leave it out")
        return NodeDrained(drain.node, drain.draining, author, drain.reason, drain.within_ms)
    if message.remove is not None:
        return NodeRemoved(message.remove.node, author)
    if message.leave is not None:
        return NodeLeft(message.leave.node, message.leave.epoch)
    if message.report is not None:
        report = message.report
        capacity, devices = offered(report.capacity, report.devices, "report")
        labels = sorted_map(report.labels)
        return NodeReported(
            report.node, report.epoch, capacity, labels, devices, author, unschedulable=report.unschedulable
        )
    if message.known is not None:
        known = message.known
        check_tasks((attempt.count for attempt in known.attempts), "known.attempts")
        attempts = [_known(attempt, f"known.attempts[{i}]") for i, attempt in enumerate(known.attempts)]
        return AttemptsKnown(known.node, known.epoch, attempts, author, known.part)
    assert message.register_ is not None
    node = message.register_
    check_tasks((attempt.count for attempt in node.attempts), "register.attempts")
    capacity, devices = offered(node.capacity, node.devices, "register")
    attempts = [_known(attempt, f"register.attempts[{i}]") for i, attempt in enumerate(node.attempts)]
    check_address(node.address, "register.address")
    return NodeRegistered(
        node.node,
        node.epoch,
        capacity,
        sorted_map(node.labels),
        devices,
        attempts,
        author=author,
        address=node.address,
        unschedulable=node.unschedulable,
        parts=node.parts,
        results=None if node.results is None else ResultsKept(**node.results.model_dump()),
    )


def check_address(address: str, field: str) -> None:
    """Nothing, or `HOST:PORT` with a name or a number as its host (`[::1]:9464`). Raises Malformed."""
    host, _, port = address.rpartition(":")
    named = re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\]", host)
    if address and not (named and re.fullmatch("[0-9]{1,5}", port) and 0 < int(port) <= PORT_MAX):
        raise Malformed(field, f"has to be HOST:PORT, like node-1:9464, is {shown(address)}")


def offered(amounts: Mapping[str, object], listed: DevicesInput, parent: str) -> tuple[Vector, list[Device]]:
    """A node's capacity, rounded down, and its devices by index. Raises Malformed under `parent`."""
    try:
        capacity = vector_of(amounts, round_up=False)
    except Malformed as fault:
        raise fault.under(f"{parent}.capacity") from None
    devices = sorted((Device(d.index, d.milli, d.model) for d in listed.gpu), key=lambda device: device.index)
    for before, device in pairwise(devices):
        if before.index == device.index:
            at = max(i for i, d in enumerate(listed.gpu) if d.index == device.index)
            raise Malformed(f"{parent}.devices.gpu[{at}].index", f"{device.index} is the index of another device too")
    if devices:
        milli = sum(device.milli for device in devices)
        if "gpu" in amounts and capacity.get("gpu", 0) != milli:
            said = capacity.get("gpu", 0)
            raise Malformed(f"{parent}.capacity.gpu", f"is {said}, but the devices add up to {milli}: leave it out")
        capacity = dict(sorted({**capacity, "gpu": milli}.items()))
    elif capacity.get("gpu", 0) > DEVICES_MAX * DEVICE_MILLI:
        # Each whole GPU is a device of its own in every core.
        whole = capacity["gpu"] // DEVICE_MILLI
        raise Malformed(f"{parent}.capacity.gpu", f"comes to {whole} devices: a node has at most {DEVICES_MAX}")
    if not capacity:
        raise Malformed(
            f"{parent}.capacity",
            'has to offer something, like {"cpu": "20", "memory": "128Gi"}; to stop a node, drain it',
        )
    return capacity, devices


def peak_of(amounts: Mapping[str, object], parent: str) -> Vector:
    """The largest use that an agent saw. Raises Malformed under `parent`."""
    try:
        return vector_of(amounts, round_up=True)
    except Malformed as fault:
        raise fault.under(f"{parent}.peak") from None


def check_range(first: int, count: int, parent: str) -> None:
    """Indexes stay below the most tasks that a stage can have. Raises Malformed under `parent`."""
    if first + count > TASKS_MAX:
        raise Malformed(f"{parent}.count", f"goes beyond task {TASKS_MAX - 1}, the last that a stage can have")


def check_tasks(counts: Iterable[int], field: str) -> None:
    """The ranges of one message speak of at most MESSAGE_TASKS_MAX tasks. Raises Malformed for `field`."""
    if (tasks := sum(counts)) > MESSAGE_TASKS_MAX:
        raise Malformed(
            field, f"speaks of {tasks} tasks: a message may speak of at most {MESSAGE_TASKS_MAX}; send several"
        )


def check_run_ms(run_ms: list[int], count: int, parent: str, *, needed: bool) -> None:
    """One run time for all tasks or one for each. Raises Malformed under `parent`."""
    if len(run_ms) not in (1, count) and (run_ms or needed):
        raise Malformed(
            f"{parent}.run_ms", f"has {len(run_ms)} entries: give one for all {count} tasks, or one for each"
        )


class Ended(Protocol):
    """An item that speaks of attempts which ended."""

    count: int
    peak_mib: list[int]
    cpu_ms: list[int]


def check_measured(item: Ended, parent: str) -> None:
    """What was measured is told of every task of an item, or of none. Raises Malformed under `parent`."""
    for field, measured in (("peak_mib", item.peak_mib), ("cpu_ms", item.cpu_ms)):
        if len(measured) not in (0, item.count):
            raise Malformed(
                f"{parent}.{field}", f"has {len(measured)} entries: give one for each of {item.count} tasks"
            )


def _known(attempt: KnownAttemptInput, parent: str) -> KnownAttempt:
    check_range(attempt.first, attempt.count, parent)
    check_run_ms(attempt.run_ms, attempt.count, parent, needed=attempt.state == "succeeded")
    check_measured(attempt, parent)
    if (attempt.state == "failed") != (attempt.reason is not None):
        raise Malformed(f"{parent}.reason", "belongs to an attempt that failed, and only to one")
    return KnownAttempt(
        job=attempt.job,
        stage=attempt.stage,
        first=attempt.first,
        count=attempt.count,
        attempt=attempt.attempt,
        state=attempt.state,
        run_ms=attempt.run_ms,
        reason=attempt.reason,
        exit_code=attempt.exit_code,
        detail=attempt.detail[:DETAIL_MAX],
        peak=peak_of(attempt.peak, parent),
        peak_mib=attempt.peak_mib,
        cpu_ms=attempt.cpu_ms,
    )
