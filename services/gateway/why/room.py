"""What the nodes of a cell lack for the tasks of a stage: by node, added up by cause and by group of like nodes."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from largesse.lifecycle.slots import counted_capacity, counted_demand
from schemas import HeldRoom, Stage, Vector
from schemas.quantities import quantity_text, quantity_texts, tasks_on_devices
from schemas.reasons import Reason
from schemas.wording import plural
from services.gateway.documents import Document
from services.gateway.view.room import free_devices, free_of, has_labels, is_closed
from services.gateway.view.state import NodeRow, State

GROUPS_SHOWN_MAX = 10
NEAR_SHOWN_MAX = 3


@dataclass(slots=True)
class Group:
    """Nodes with the same capacity and labels. `free`: of all of them; `room`: for how many tasks."""

    capacity: Vector
    labels: dict[str, str]
    nodes: int = 0
    free: Vector = field(default_factory=dict)
    room: int = 0

    def document(self) -> Document:
        """As the API shows it."""
        return {
            "nodes": self.nodes,
            "capacity": quantity_texts(self.capacity),
            "labels": self.labels,
            "free": quantity_texts(self.free),
            "room": self.room,
        }


@dataclass(slots=True)
class Census:
    """How many nodes fail for what: `closed` (lost, draining, or their agent takes nothing), `labels` (with
    `labels_room`: how many of those would have room), `small`: by resource, those that have too little of it when they
    are empty; `full`: by resource, those that could run a task and have too little of it now; `room`: for how many
    tasks there is some, on `able` nodes, for `kept_room` only where room is gathered for others, and for `barred_room`
    more on nodes that the stage's rules bar to it. `short`: by
    resource, what a task would have to ask for less, where it lacks nothing else, with the number of such nodes.
    """

    nodes: int = 0
    closed: int = 0
    labels: int = 0
    labels_room: int = 0
    small: dict[str, int] = field(default_factory=dict)
    full: dict[str, int] = field(default_factory=dict)
    able: int = 0
    room: int = 0
    kept_nodes: list[str] = field(default_factory=list)
    kept_room: int = 0
    barred_room: int = 0
    short: dict[str, list[int]] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)

    def numbers(self) -> Document:
        """As the API shows it."""
        groups = sorted(self.groups.values(), key=lambda group: (-group.room, -group.nodes))[:GROUPS_SHOWN_MAX]
        return {
            "nodes": self.nodes,
            "closed": self.closed,
            "other_labels": self.labels,
            "other_labels_with_room": self.labels_room,
            "too_small": self.small,
            "full": self.full,
            "with_room": self.able,
            "room_for_tasks": self.room,
            "kept": self.kept_room,
            "groups": [group.document() for group in groups],
        }

    def finer(self, needed: int) -> Reason | None:
        """What keeps `needed` tasks, which start as one, from room that there is; None: there is none."""
        if self.room >= needed:
            return "kept" if self.room - self.kept_room < needed else None
        if self.barred_room and self.room + self.barred_room >= needed:
            return "spread"
        return "labels" if self.room + self.labels_room >= needed and self.labels_room else None


def census(
    state: State,
    stage: Stage,
    *,
    gathered: Mapping[str, HeldRoom] | None = None,
    promised: bool = False,
    barred: Mapping[str, int] | None = None,
) -> Census:
    """Looks at every node for tasks of a stage. `gathered`: by node, the room held for others that counts, None:
    all that is held; `promised`: a reservation promises them room now; `barred`: nodes that
    their rules bar to them, which leave one task to every other; None: there are no such rules.
    """
    found, policy = Census(), state.policy
    if gathered is None:
        gathered = {**state.vacated, **state.kept}
    devices = free_devices(state) if stage.demand.get("gpu") else {}
    demand = {kind: amount for kind, amount in counted_demand(policy, stage.demand).items() if amount}
    for name, node in state.nodes.items():
        found.nodes += 1
        capacity, free = counted_capacity(policy, node.capacity), free_of(policy, node)
        if is_closed(node):
            found.closed += 1
            continue
        room = _room(devices.get(name, []), stage, demand, free)
        if not has_labels(node, stage):
            found.labels += 1
            found.labels_room += room
            continue
        small = [kind for kind, amount in demand.items() if capacity.get(kind, 0) < amount]
        for kind in small:
            found.small[kind] = found.small.get(kind, 0) + 1
        if small:
            continue
        if barred is not None:
            if name in barred:
                found.barred_room += min(room, 1)
                continue
            room = min(room, 1)
        _count_group(found, node, free, room)
        lacks = [(kind, amount - free.get(kind, 0)) for kind, amount in demand.items() if free.get(kind, 0) < amount]
        for kind, _ in lacks:
            found.full[kind] = found.full.get(kind, 0) + 1
        if len(lacks) == 1 and lacks[0][1] < demand[lacks[0][0]]:
            found.short.setdefault(lacks[0][0], []).append(lacks[0][1])
        if room:
            found.able += 1
            found.room += room
            held = gathered.get(name)
            if held is not None and not (is_for(held, stage) and (promised or held.why != "promise")):
                left = {kind: free.get(kind, 0) - held.demand.get(kind, 0) for kind in demand}
                beside = min(room, _room(devices.get(name, []), stage, demand, left))
                if beside < room:
                    found.kept_nodes.append(name)
                    found.kept_room += room - beside
    return found


def _count_group(found: Census, node: NodeRow, free: Vector, room: int) -> None:
    key = f"{sorted(node.capacity.items())}{sorted(node.labels.items())}"
    group = found.groups.setdefault(key, Group(node.capacity, node.labels))
    group.nodes += 1
    group.room += room
    for kind, amount in free.items():
        group.free[kind] = group.free.get(kind, 0) + max(0, amount)


def is_for(held: HeldRoom, stage: Stage) -> bool:
    """Whether room is gathered for tasks of this stage."""
    gang = stage.tasks if stage.gang else 0
    return (held.task, held.labels, held.gang) == (stage.demand, stage.labels, gang)


def _room(devices: list[int], stage: Stage, demand: Vector, free: Vector) -> int:
    """For how many tasks there is room; `devices`: what is free of each GPU, where a node lists them."""
    room = min([stage.tasks, *[max(0, free.get(kind, 0)) // amount for kind, amount in demand.items()]])
    return tasks_on_devices(demand.get("gpu", 0), devices, room) if devices else room


def less_texts(found: Census, stage: Stage) -> list[str]:
    """How much less a task would have to ask for to start now, and on how many nodes it then fits."""
    if stage.gang:
        missing = stage.tasks - found.room
        return [f"a gang of {found.room}, {missing} fewer, fits"] if 0 < found.room < stage.tasks else []
    texts = []
    for kind, shorts in sorted(found.short.items()):
        least = min(shorts)
        wanted = stage.demand.get(kind, 0) - least
        if wanted > 0:
            nodes = plural(shorts.count(least), "node")
            texts.append(f"{quantity_text(kind, least)} less {kind} fits on {nodes}")
            most = max(shorts)
            if most != least and stage.demand.get(kind, 0) > most:
                texts.append(f"{quantity_text(kind, most)} less {kind} fits on {plural(len(shorts), 'node')}")
    return texts[:NEAR_SHOWN_MAX]
