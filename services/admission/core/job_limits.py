"""Why a job is refused: it asks for more than any node has, than its queues may hold, or than the cell takes."""

from largesse.lifecycle.queue_rules import named
from schemas import (
    JobSpec,
    Stage,
    Vector,
)
from schemas.jobs import Rejection
from schemas.quantities import RESOURCES, fits_in, quantity_text, tasks_on_devices, vector_text
from schemas.queue_tree import upwards
from schemas.wording import nearest
from services.admission.core.apart import rules_problem
from services.admission.core.state import NodeState, State


def tasks_problem(state: State, spec: JobSpec) -> tuple[Rejection, str, str] | None:
    """More tasks than a job, a user's live jobs, or all live jobs together may have. What no user is named for counts
    as one user's.
    """
    tasks, policy = sum(stage.tasks for stage in spec.stages), state.policy
    if tasks > policy.job_tasks_max:
        detail = (
            f"the job has {tasks} tasks, and one job may have {policy.job_tasks_max} (knob job_tasks_max): split it"
        )
        return "too_many_tasks", "stages", detail
    live = state.user_tasks.get(spec.user, 0)
    if live + tasks > policy.user_tasks_max:
        who, may = (
            (f'live jobs of user "{spec.user}" have', "a user's jobs")
            if spec.user
            else ("live jobs that name no user have", "those")
        )
        limit = f"{may} may have {policy.user_tasks_max} together (knob user_tasks_max)"
        return "too_many_tasks", "user", f"{who} {live} tasks, this one has {tasks}, and {limit}: wait for some to end"
    if state.live_tasks + tasks > policy.live_tasks_max:
        limit = f"the cell takes {policy.live_tasks_max} together (knob live_tasks_max)"
        detail = f"all live jobs have {state.live_tasks} tasks, this one has {tasks}, and {limit}: wait for some to end"
        return "too_many_tasks", "job", detail
    return None


def ceiling_problem(state: State, spec: JobSpec) -> tuple[Rejection, str, str] | None:
    """A task, or a gang that starts as one, that is more than its queue, or one above it, may ever hold."""
    if not state.ceilings:
        return None
    for path in upwards(spec.queue):
        ceiling = state.ceilings.get(path, {})
        for i, stage in enumerate(spec.stages):
            tasks = stage.tasks if stage.gang else 1
            for resource, amount in stage.demand.items():
                if amount * tasks > ceiling.get(resource, amount * tasks):
                    what = f"a gang of {tasks} tasks asks for" if stage.gang else "one task asks for"
                    asked, most = quantity_text(resource, amount * tasks), quantity_text(resource, ceiling[resource])
                    detail = f"{what} {resource} {asked}; {named(path)} has a max of {most}"
                    return "exceeds_queue_max", f"stages[{i}].demand.{resource}", detail
    return None


def size_problem(state: State, spec: JobSpec) -> tuple[Rejection, str, str] | None:
    """What no node, or not all nodes together, can ever run. Nodes that are down or draining count: they may return."""
    if not state.nodes:
        return None  # No node has registered yet; the job waits.
    for i, stage in enumerate(spec.stages):
        for resource in stage.demand:
            if not state.capacity.get(resource) and not _is_known(state, resource):
                have = sorted({r for node in state.nodes.values() for r in node.capacity})
                where = f"stages[{i}].demand.{resource}"
                close = nearest(resource, [*have, *RESOURCES])
                what = f'"{resource}" (did you mean "{close}"?)' if close else f'"{resource}"'
                return "unknown_resource", where, f"no node has {what}; there is {', '.join(have)}"
        rooms = _rooms(state, stage)
        if not any(rooms):
            where, text = _too_large(state, stage)
            return "exceeds_capacity", f"stages[{i}].{where}", text
        if stage.gang and sum(rooms) < stage.tasks:
            detail = f"a gang of {stage.tasks} tasks, but all nodes together have room for {sum(rooms)}"
            return "gang_too_wide", f"stages[{i}].tasks", detail
        if (problem := rules_problem(state, stage, rooms)) is not None:
            reason, field, detail = problem
            return reason, f"stages[{i}].{field}", detail
    return None


def _is_known(state: State, resource: str) -> bool:
    """Whether any node has the resource, though it may be down."""
    return any(node.capacity.get(resource) for node in state.nodes.values())


def _rooms(state: State, stage: Stage) -> list[int]:
    """How many tasks of a stage each node could hold if it were empty; stops at the first where one is enough."""
    whole = stage.gang or (stage.spread is not None and stage.spread.required)
    rooms = []
    for node in state.nodes.values():
        room = room_on(node, stage)
        rooms.append(room)
        if room and not whole:
            break
    return rooms


def room_on(node: NodeState, stage: Stage) -> int:
    if (stage.labels and not _has_labels(node, stage.labels)) or not fits_in(stage.demand, node.capacity):
        return 0
    room = min([node.capacity[r] // amount for r, amount in stage.demand.items() if amount], default=stage.tasks)
    gpu = stage.demand.get("gpu", 0)
    return tasks_on_devices(gpu, [device.milli for device in node.devices], room) if gpu else room


def _has_labels(node: NodeState, labels: dict[str, str]) -> bool:
    return all(node.labels.get(key) == value for key, value in labels.items())


def _too_large(state: State, stage: Stage) -> tuple[str, str]:
    """The field of a stage that no node can serve, and what is wrong with it."""
    fitting = {name: node for name, node in state.nodes.items() if _has_labels(node, stage.labels)}
    # Exact beside rounded down: never alike where one is more than the other.
    wanted = ", ".join(f"{resource} {quantity_text(resource, amount)}" for resource, amount in stage.demand.items())
    if not fitting:
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
