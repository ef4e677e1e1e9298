"""Why a job is refused: it asks for more than any node has, than its queues may hold, or than the cell takes."""

from largesse.lifecycle.empty_nodes import stage_problem, when_mended
from largesse.lifecycle.queue_rules import named
from schemas import (
    JobSpec,
)
from schemas.jobs import Rejection
from schemas.quantities import RESOURCES, quantity_text
from schemas.queue_tree import upwards
from schemas.wording import nearest, plural
from services.admission.core.state import State


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


def jobs_problem(state: State, spec: JobSpec, before: str | None = None) -> tuple[Rejection, str, str] | None:
    """More live jobs than one user may have in a queue, the job's own or one above it. Those that name no user count
    as one user's. `before`: the queue of a live job that is to have another, which counts there and above already.
    """
    if not state.user_jobs_max:
        return None
    mine, counted = state.user_jobs.get(spec.user, {}), list(upwards(before)) if before is not None else []
    for path in [path for path in upwards(spec.queue) if path not in counted]:
        most = state.user_jobs_max.get(path)
        if most is not None and mine.get(path, 0) >= most:
            live, where = plural(mine[path], "live job"), named(path) if path else "the cell"
            has = f'user "{spec.user}" has {live} in {where}'
            if not spec.user:
                has = f"{live} in {where} {'names' if mine[path] == 1 else 'name'} no user"
            limit = f"one user may have {most} there (user_jobs_max of {named(path)})"
            detail = f"{has}, and {limit}: wait for one to end"
            return "too_many_jobs", "user", detail
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


def gang_problem(state: State, spec: JobSpec) -> tuple[Rejection, str, str] | None:
    """A gang of more tasks than one user may run at a time in its queue, or in one above it."""
    for path in upwards(spec.queue) if state.user_running_max else ():
        most = state.user_running_max.get(path)
        for i, stage in enumerate(spec.stages):
            if most is not None and stage.gang and stage.tasks > most:
                limit = f"{named(path)} lets one user run {plural(most, 'task')} at a time (user_running_max)"
                fix = "make the gang smaller, or take another queue"
                detail = f"the {stage.tasks} tasks of a gang run together, and {limit}: {fix}"
                return "exceeds_queue_max", f"stages[{i}].tasks", detail
    return None


def size_problem(state: State, spec: JobSpec) -> tuple[Rejection, str, str] | None:
    """What no node, or not all nodes together, can ever run. Nodes that are down or draining, and their GPUs
    that are out, count: they may return."""
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
        problem = stage_problem(state.nodes, stage)
        if problem is not None and (problem := stage_problem(when_mended(state.nodes), stage)) is not None:
            reason, field, detail = problem
            return reason, f"stages[{i}].{field}", detail
    return None


def _is_known(state: State, resource: str) -> bool:
    """Whether any node has the resource, though it may be down."""
    return any(node.capacity.get(resource) or (resource == "gpu" and node.out) for node in state.nodes.values())
