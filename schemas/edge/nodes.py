"""The nodes topic: what agents say of their nodes, and operators' drains.

Capacities round down: others build on them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from schemas.edge.base import (
    BATCH_MAX,
    TEXT_PATTERN,
    Amounts,
    DurationMs,
    Epoch,
    Input,
    Labels,
    Malformed,
    Name,
    NewName,
    Text,
    Whole,
    author_of,
    check_one_form,
    shown,
    sorted_map,
    vector_of,
)
from schemas.edge.known_attempts import KNOWN_PARTS_MAX, KnownAttemptInput, KnownMessage, known_attempt
from schemas.edge.task_checks import check_tasks
from schemas.edge.validated import validated
from schemas.nodes import (
    AttemptsKnown,
    Device,
    NodeDrained,
    NodeRegistered,
    NodeRemoved,
    NodeReported,
    ResultsKept,
)
from schemas.quantities import QUANTITY_MAX, Vector

DEVICES_MAX = 1_024  # GPUs of one node, listed or not.
NUMA_MAX = 1_023
UUID_MAX = 96
UUID_PATTERN = r"^[A-Za-z0-9/_.-]*$"
"""It goes into a list with commas: `GPU-...`, `MIG-...`."""
OUT_MAX = 300
"""Characters of the reason why a device is out."""
DEVICE_MILLI = 1_000  # A device as a whole; a smaller one is a part of a device that was divided.

ADDRESS_MAX = 300
HTTPS = "https://"
"""Before the address of an agent that speaks TLS."""
HOST_MAX = 255
FOLDER_MAX = 4_096  # Characters of a path on a node.
UNSCHEDULABLE_MAX = 300
"""Characters of the reason why an agent takes no new tasks."""
DRAIN_REASON_MAX = 300
"""Characters of the reason for a drain."""

PORT_MAX = 65_535


class DeviceInput(Input):
    """One device: its index on the node, its size in thousandths of a whole one, its model.

    `memory_mib`: its memory; 0: not said. `numa`: the NUMA node that it is nearest to. `link`: a name that devices of
    the node share which are linked to each other (NVLink, for instance). `uuid`: as its driver names it. `out`: why
    nothing may start on it at the moment; empty: it may.
    """

    index: Annotated[int, Field(ge=0, le=QUANTITY_MAX)]
    milli: Annotated[int, Field(ge=1, le=DEVICE_MILLI)] = DEVICE_MILLI
    model: Text = ""
    memory_mib: Annotated[int, Field(ge=0, le=QUANTITY_MAX)] = 0
    numa: Annotated[int, Field(ge=0, le=NUMA_MAX)] | None = None
    link: Text = ""
    uuid: Annotated[str, Field(max_length=UUID_MAX, pattern=UUID_PATTERN)] = ""
    out: Annotated[str, Field(max_length=OUT_MAX, pattern=TEXT_PATTERN)] = ""


class DevicesInput(Input):
    """Devices by resource. Only GPUs are given out one by one."""

    gpu: Annotated[list[DeviceInput], Field(max_length=DEVICES_MAX)] = []


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
    Unless all of them have come in, the registration is refused, and the agent has to send everything again. `host`: by
    which tasks on other nodes reach those on this one; `port_first`, `port_last`: ports that gangs' tasks are given.
    """

    node: NewName
    attempts: Annotated[list[KnownAttemptInput], Field(max_length=BATCH_MAX, fail_fast=True)] = []
    address: Annotated[str, Field(max_length=ADDRESS_MAX)] = ""
    parts: Annotated[int, Field(ge=0, le=KNOWN_PARTS_MAX)] = 0
    results: ResultsInput | None = None
    host: Annotated[str, Field(max_length=HOST_MAX)] = ""
    port_first: Annotated[int, Field(ge=0, le=PORT_MAX)] = 0
    port_last: Annotated[int, Field(ge=0, le=PORT_MAX)] = 0


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
        attempts = [known_attempt(attempt, f"known.attempts[{i}]") for i, attempt in enumerate(known.attempts)]
        return AttemptsKnown(known.node, known.epoch, attempts, author, known.part)
    assert message.register_ is not None
    node = message.register_
    check_tasks((attempt.count for attempt in node.attempts), "register.attempts")
    capacity, devices = offered(node.capacity, node.devices, "register")
    attempts = [known_attempt(attempt, f"register.attempts[{i}]") for i, attempt in enumerate(node.attempts)]
    check_address(node.address, "register.address")
    check_host(node.host, "register.host")
    check_ports(node.port_first, node.port_last, "register.port_last")
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
        host=node.host,
        port_first=node.port_first,
        port_last=node.port_last,
    )


def check_address(address: str, field: str) -> None:
    """Nothing, or `HOST:PORT` with a name or a number as its host (`[::1]:9464`), `https://` before it where TLS is
    spoken there. Raises Malformed."""
    host, _, port = address.removeprefix(HTTPS).rpartition(":")
    if address and not (_is_host(host) and re.fullmatch("[0-9]{1,5}", port) and 0 < int(port) <= PORT_MAX):
        raise Malformed(field, f"has to be [https://]HOST:PORT, like node-1:9464, is {shown(address)}")


def check_host(host: str, field: str) -> None:
    """Nothing, or a name or a number of a machine (`[::1]`). Raises Malformed."""
    if host and not _is_host(host):
        raise Malformed(field, f"has to be a name or an address of a machine, like node-1 or [::1], is {shown(host)}")


def check_ports(first: int, last: int, field: str) -> None:
    """No ports (0 and 0), or those from `first` to `last`. Raises Malformed."""
    if (first or last) and not 1 <= first <= last:
        raise Malformed(
            field, f"is {last}, but the first port is {first}: write two ports, the first one first, or 0 0"
        )


def _is_host(text: str) -> bool:
    return re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\]", text) is not None


def offered(amounts: Mapping[str, object], listed: DevicesInput, parent: str) -> tuple[Vector, list[Device]]:
    """A node's capacity, rounded down, and its devices by index. Those that are out are none of its capacity. Raises
    Malformed under `parent`."""
    try:
        capacity = vector_of(amounts, round_up=False)
    except Malformed as fault:
        raise fault.under(f"{parent}.capacity") from None
    devices = devices_in(listed, f"{parent}.devices")
    if devices:
        milli = sum(device.milli for device in devices if not device.out)
        if "gpu" in amounts and capacity.get("gpu", 0) != milli:
            said = capacity.get("gpu", 0)
            raise Malformed(f"{parent}.capacity.gpu", f"is {said}, but the devices add up to {milli}: leave it out")
        capacity = with_gpus(capacity, milli)
    elif capacity.get("gpu", 0) > DEVICES_MAX * DEVICE_MILLI:
        # Each whole GPU is a device of its own in every core.
        whole = capacity["gpu"] // DEVICE_MILLI
        raise Malformed(f"{parent}.capacity.gpu", f"comes to {whole} devices: a node has at most {DEVICES_MAX}")
    if not capacity and not devices:
        raise Malformed(
            f"{parent}.capacity",
            'has to offer something, like {"cpu": "20", "memory": "128Gi"}; to stop a node, drain it',
        )
    return capacity, devices


def devices_in(listed: DevicesInput, parent: str) -> list[Device]:
    """The devices by index. Raises Malformed under `parent`."""
    devices = [Device(**device.model_dump()) for device in listed.gpu]
    for field in ("index", "uuid"):
        seen: dict[object, int] = {}
        for at, device in enumerate(devices):
            name = getattr(device, field)
            if name != "" and seen.setdefault(name, at) != at:
                raise Malformed(f"{parent}.gpu[{at}].{field}", f"{name} is the {field} of another device too")
    return sorted(devices, key=lambda device: device.index)


def with_gpus(capacity: Vector, milli: int) -> Vector:
    """The capacity with so much of GPUs; 0: none."""
    others = {resource: amount for resource, amount in capacity.items() if resource != "gpu"}
    return dict(sorted(({**others, "gpu": milli} if milli else others).items()))
