"""What is free of the nodes, and how much of it the tasks that wait could use: free room in pieces is of no use to
tasks that are larger than the pieces.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from largesse.lifecycle.slots import counted_demand
from schemas import Stage, Vector
from schemas.quantities import quantity_texts, tasks_on_devices
from services.gateway.documents import Document
from services.gateway.documents.counting import added
from services.gateway.view.pending import Pending
from services.gateway.view.room import free_of, has_labels, is_closed
from services.gateway.view.state import NodeRow, State, stage_class_key

CLASSES_SHOWN_MAX = 30
QUEUES_SHOWN_MAX = 3


@dataclass(slots=True)
class _Class:
    """Tasks alike that wait. `stage`: one of theirs."""

    stage: Stage
    tasks: int = 0
    jobs: dict[str, bool] = field(default_factory=dict)
    queues: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class _Alike:
    """Nodes that have the same free. `node`: one of them."""

    node: NodeRow
    free: Vector
    nodes: int = 0


def fitting_document(state: State) -> Document:
    """By class of waiting tasks, those of most tasks first: for how many there is room on nodes that take tasks
    (`fits`, on `nodes` of them), and for how many there would be, were all that is free on one node (`in_one`).
    """
    classes = sorted(_classes(state).items(), key=lambda each: (-each[1].tasks, each[0]))
    alike, free = _free(state)
    rows = [_row(state, found, alike, free) for _, found in classes[:CLASSES_SHOWN_MAX]]
    return {
        "seq": state.seq,
        "time_ms": state.time,
        "free": quantity_texts({kind: amount for kind, amount in sorted(free.items()) if amount}),
        "classes": rows,
        "classes_left_out": len(classes) - len(rows),
    }


def _classes(state: State) -> dict[str, _Class]:
    found: dict[str, _Class] = {}
    known: dict[int, str] = {}  # Jobs alike share their stages.
    for queue, rows in Pending(state).leaves.items():
        for job, at, tasks in rows:
            stage = job.graph.stages[at]
            key = known.get(id(stage))
            if key is None:
                key = stage_class_key(job.spec, stage)
                if stage.anti_affinity is None and stage.spread is None:
                    known[id(stage)] = key
            row = found.setdefault(key, _Class(stage))
            row.tasks += tasks
            row.jobs[job.spec.job] = True
            row.queues[queue] += tasks
    return found


def _free(state: State) -> tuple[list[_Alike], Vector]:
    """Nodes that take tasks, those that have the same free together, and what is free of all of them."""
    groups: dict[str, _Alike] = {}
    free: Vector = {}
    for node in state.nodes.values():
        if is_closed(node):
            continue
        left = {kind: max(0, amount) for kind, amount in free_of(state.policy, node).items()}
        added(free, left)
        key = f"{sorted(left.items())}{sorted(node.labels.items())}{[device.milli for device in node.devices]}"
        groups.setdefault(key, _Alike(node, left)).nodes += 1
    return list(groups.values()), free


def _row(state: State, found: _Class, alike: Iterable[_Alike], free: Vector) -> Document:
    stage, tasks = found.stage, found.tasks
    demand = {kind: amount for kind, amount in counted_demand(state.policy, stage.demand).items() if amount}
    fits = nodes = 0
    for each in alike:
        if has_labels(each.node, stage) and (room := _room(each, demand)):
            fits += room * each.nodes
            nodes += each.nodes
    in_one = min((free.get(kind, 0) // amount for kind, amount in demand.items()), default=0)
    return {
        "demand": quantity_texts(stage.demand),
        "labels": stage.labels,
        "gang": stage.tasks if stage.gang else None,
        "tasks": tasks,
        "jobs": len(found.jobs),
        "job": next(iter(found.jobs)),
        "queues": [queue for queue, _ in sorted(found.queues.items(), key=_most_first)[:QUEUES_SHOWN_MAX]],
        "queues_left_out": max(0, len(found.queues) - QUEUES_SHOWN_MAX),
        "fits": fits,
        "nodes": nodes,
        "in_one": in_one,
        "usable": quantity_texts({kind: amount * fits for kind, amount in demand.items()}),
    }


def _most_first(queue: tuple[str, int]) -> tuple[int, str]:
    path, tasks = queue
    return -tasks, path


def _room(each: _Alike, demand: Vector) -> int:
    """For how many tasks one of these nodes has room; of fractions of GPUs perhaps fewer."""
    room = min((each.free.get(kind, 0) // amount for kind, amount in demand.items()), default=0)
    return tasks_on_devices(demand.get("gpu", 0), [device.milli for device in each.node.devices], room)
