"""What no node, or not all nodes together, could run if nothing else ran there: why, in words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from schemas import Device, Stage, Vector
from schemas.jobs import ENGINE_LABEL, Rejection
from schemas.quantities import fits_in, quantity_text, tasks_on_devices, vector_text


class EmptyNode(Protocol):
    """What counts of a node."""

    @property
    def capacity(self) -> Vector:
        """In base units."""

    @property
    def labels(self) -> Mapping[str, str]:
        """As its agent told them."""

    @property
    def devices(self) -> Sequence[Device]:
        """Its GPUs."""


class ListedNode(EmptyNode, Protocol):
    """A node that says which of its GPUs are out, beside those that are not."""

    @property
    def out(self) -> Sequence[Device]:
        """None of its capacity."""


@dataclass(slots=True)
class WholeNode:
    """A node as it is once all its GPUs are well."""

    capacity: Vector
    labels: Mapping[str, str]
    devices: Sequence[Device]


def when_mended(nodes: Mapping[str, ListedNode]) -> Mapping[str, EmptyNode]:
    """The nodes as they are once all their GPUs are well again: what needs those waits for them."""
    if not any(node.out for node in nodes.values()):
        return nodes
    return {name: _mended(node) if node.out else node for name, node in nodes.items()}


def _mended(node: ListedNode) -> EmptyNode:
    capacity = dict(node.capacity)
    capacity["gpu"] = capacity.get("gpu", 0) + sum([device.milli for device in node.out])
    return WholeNode(capacity, node.labels, [*node.devices, *node.out])


def stage_problem(nodes: Mapping[str, EmptyNode], stage: Stage) -> tuple[Rejection, str, str] | None:
    """Why a stage could never start, or its gang never as a whole, as (reason, field of the stage, detail). `nodes`:
    all that may ever be there, by name.
    """
    rooms = _rooms(nodes, stage)
    if not any(rooms):
        where, text = _too_large(nodes, stage)
        return "exceeds_capacity", where, text
    if stage.gang and sum(rooms) < stage.tasks:
        detail = f"a gang of {stage.tasks} tasks, but all nodes together have room for {sum(rooms)}"
        return "gang_too_wide", "tasks", detail
    return _rules_problem(nodes, stage, rooms)


def _rules_problem(nodes: Mapping[str, EmptyNode], stage: Stage, rooms: list[int]) -> tuple[Rejection, str, str] | None:
    """Why a stage that would fit could never start under its required rules, as (reason, field of the stage, detail).
    `rooms`: how many of its tasks each node holds if it is empty; for a stage that is no gang and has no required
    spread, those up to the first.
    """
    apart = stage.anti_affinity is not None and stage.anti_affinity.required
    if apart and stage.gang and sum(room > 0 for room in rooms) < stage.tasks:
        there = sum(room > 0 for room in rooms)
        return (
            "gang_too_wide",
            "anti_affinity",
            f"a gang of {stage.tasks} tasks, one a node; {there} nodes could run one",
        )
    spread = stage.spread
    if spread is None or not spread.required:
        return None
    by_value: dict[str, int] = {}
    for node, room in zip(nodes.values(), rooms, strict=True):
        if room and spread.label in node.labels:
            value = node.labels[spread.label]
            by_value[value] = by_value.get(value, 0) + (1 if apart else room)
    if not by_value:
        return "exceeds_capacity", "spread.label", f'no node that could run a task has the label "{spread.label}"'
    if not stage.gang:
        return None
    most = min(by_value.values()) + spread.max_skew
    together = sum(min(room, most) for room in by_value.values())
    if together < stage.tasks:
        have = ", ".join(f"{value} {room}" for value, room in sorted(by_value.items()))
        detail = f"room by {spread.label}: {have}; with a max_skew of {spread.max_skew} that is {together} together"
        return "gang_too_wide", "spread", f"a gang of {stage.tasks} tasks; {detail}"
    return None


def _rooms(nodes: Mapping[str, EmptyNode], stage: Stage) -> list[int]:
    """How many tasks of a stage each node could hold if it were empty; stops at the first where one is enough."""
    whole = stage.gang or (stage.spread is not None and stage.spread.required)
    rooms = []
    for node in nodes.values():
        room = room_on(node, stage)
        rooms.append(room)
        if room and not whole:
            break
    return rooms


def room_on(node: EmptyNode, stage: Stage) -> int:
    """How many tasks of a stage a node holds if it is empty."""
    if (stage.labels and not _has_labels(node, stage.labels)) or not fits_in(stage.demand, node.capacity):
        return 0
    room = min([node.capacity[r] // amount for r, amount in stage.demand.items() if amount], default=stage.tasks)
    gpu = stage.demand.get("gpu", 0)
    return tasks_on_devices(gpu, [device.milli for device in node.devices], room) if gpu else room


def _has_labels(node: EmptyNode, labels: dict[str, str]) -> bool:
    return all(node.labels.get(key) == value for key, value in labels.items())


def _too_large(nodes: Mapping[str, EmptyNode], stage: Stage) -> tuple[str, str]:
    """The field of a stage that no node can serve, and what is wrong with it."""
    fitting = {name: node for name, node in nodes.items() if _has_labels(node, stage.labels)}
    # Exact beside rounded down: never alike where one is more than the other.
    wanted = ", ".join(f"{resource} {quantity_text(resource, amount)}" for resource, amount in stage.demand.items())
    if not fitting:
        if ENGINE_LABEL in stage.labels and not any(ENGINE_LABEL in node.labels for node in nodes.values()):
            return "labels", f"no node has a container engine (label {ENGINE_LABEL})"
        return "labels", f"no node has the labels {_text_labels(stage.labels)}"
    name = max(fitting, key=lambda n: (_closeness(stage.demand, fitting[n].capacity), n))
    has = vector_text(fitting[name].capacity)
    return "demand", f"one task asks for {wanted}; the largest node that could take it, {name}, has {has}"


def _closeness(demand: Vector, capacity: Vector) -> tuple[int, int]:
    """How many of the asked resources a node covers, then how much of the scarcest, in millionths."""
    parts = [min(1_000_000, capacity.get(r, 0) * 1_000_000 // amount) for r, amount in sorted(demand.items()) if amount]
    return sum(part == 1_000_000 for part in parts), min(parts, default=0)


def _text_labels(labels: dict[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(labels.items()))
