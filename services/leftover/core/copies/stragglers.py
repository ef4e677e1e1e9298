"""What leftover keeps to detect stragglers (tasks that run far longer than the others of their stage), and their
copies.

Only tasks that start while `speculation_permille` is set are watched. A copy holds room on its node but does not count
for any queue: of a task with several attempts, exactly one counts. If that attempt ends and the task does not, another
attempt counts from then on.
"""

from bisect import insort
from typing import Final

from largesse.lifecycle.task_facts import SpareEnd
from largesse.lifecycle.task_keys import stage_in
from schemas import Grant, Stage
from schemas.placement_rules import rules_of
from schemas.tasks import Failure, TaskEnd, TaskFailure
from services.leftover.core.job import Job
from services.leftover.core.reservations.runs import note_runs
from services.leftover.core.state import Allocation, Copied, Run, StageRuns, State
from services.leftover.placement.apart import counters_of

SAMPLES_MAX: Final = 1_000
"""Tasks of which the median of a stage is taken: those that succeeded first."""

ENDED_BY_OTHERS: tuple[Failure, ...] = ("superseded", "revoked", "lost", "killed")
"""How attempts end that might have succeeded: another copy may."""


def may_be_copied(state: State, name: str, stage: Stage) -> bool:
    """Whether tasks of a stage may have copies at all. Those of a gang run together, and those of a job with a
    reservation where that has its room; where so many may run at a time, a copy would be one more."""
    return stage.speculative and not stage.gang and stage.running_max is None and name not in state.reserving


def note_change(state: State, job: str, at: int) -> None:
    """Another task of a stage may be the next straggler by now (overdue.py)."""
    if state.watch is not None:
        state.watch.changed[job, at] = True


def forget(state: State, job: str) -> None:
    """A job is over."""
    for at in state.runs.pop(job, {}):
        note_change(state, job, at)


def note_start(state: State, grant: Grant, stage: Stage, time: int) -> None:
    """Tasks have been granted, which are watched from now on."""
    if not may_be_copied(state, grant.job, stage):
        return
    at = state.jobs[grant.job].graph.position[grant.stage]
    runs = state.runs.setdefault(grant.job, {}).setdefault(at, StageRuns()).runs
    note_change(state, grant.job, at)
    for index in range(grant.first, grant.first + grant.count):
        runs[index] = Run(time, grant.node, grant.attempt)


def note_end(state: State, ended: TaskEnd | TaskFailure) -> None:
    """Tasks have ended, or wait for another attempt."""
    job = state.jobs.get(ended.job)
    stages = state.runs.get(ended.job)
    if job is None or stages is None:
        return
    of_stage = stages.get(job.graph.position[ended.stage])
    if of_stage is None:
        return
    note_change(state, ended.job, job.graph.position[ended.stage])
    for index in range(ended.first, ended.first + ended.count):
        of_stage.runs.pop(index, None)
    if isinstance(ended, TaskEnd):
        times = ended.run_ms if len(ended.run_ms) == ended.count else ended.run_ms * ended.count
        for run_ms in times[: SAMPLES_MAX - len(of_stage.ran_ms)]:
            insort(of_stage.ran_ms, run_ms)


def note_spare_end(state: State, ended: SpareEnd) -> None:
    """One attempt of a task has ended and another runs: that is the one to be watched from now on."""
    job = state.jobs.get(ended.job)
    stages = state.runs.get(ended.job)
    of_stage = stages.get(job.graph.position[ended.stage]) if job is not None and stages is not None else None
    run = of_stage.runs.get(ended.first) if of_stage is not None else None
    if job is None or of_stage is None or run is None:
        return
    note_change(state, ended.job, job.graph.position[ended.stage])
    if ended.reason not in ENDED_BY_OTHERS:
        run.alone = True
    if run.node == ended.node:
        run.node = _elsewhere(state, ended.job, f"{ended.stage}/{ended.first}", ended.node)
        run.start_ms = state.held[run.node][f"{ended.job}/{ended.stage}/{ended.first}"].start_ms
        of_stage.runs[ended.first] = of_stage.runs.pop(ended.first)  # They stay in order of start.


def _elsewhere(state: State, job: str, task: str, but: str) -> str:
    """The first other node where an attempt of a task holds room."""
    copied = state.copied.get(job, {}).get(task)
    if copied is not None:
        return copied.nodes[0]
    key = f"{job}/{task}"
    return next(node for node, on_node in state.held.items() if key in on_node and node != but)


# ---------------------------------------------------------------- copies
def bind(state: State, job: Job, grant: Grant, time: int) -> None:
    """A copy holds room from now on."""
    stage = job.graph.stages[job.graph.position[grant.stage]]
    key, task = f"{grant.job}/{grant.stage}/{grant.first}", f"{grant.stage}/{grant.first}"
    devices = grant.devices[0] if grant.devices else []
    held = Allocation(grant.job, grant.stage, job.queue, time, stage.demand, devices, job.user)
    if counted := counters_of(rules_of(grant.job, job.queue, stage)):
        held.counted = counted
    state.held.setdefault(grant.node, {})[key] = held
    state.ending = {}  # Either attempt may end the job while the other holds room still.
    note_runs(state, grant)
    of_stage = state.runs.get(grant.job, {}).get(job.graph.position[grant.stage])
    run = of_stage.runs.get(grant.first) if of_stage is not None else None
    if run is not None:
        run.attempt = grant.attempt
        note_change(state, grant.job, job.graph.position[grant.stage])
    copies = state.copied.setdefault(grant.job, {})
    if task not in copies:  # What is watched says where the task runs, unless that was switched off since.
        first = run.node if run is not None else _elsewhere(state, grant.job, task, grant.node)
        copies[task] = Copied([first], first)
    copies[task].nodes.append(grant.node)


def leave(state: State, node: str, job: str, task: str, *, spare: bool) -> None:
    """An attempt of a task ("stage/index") holds nothing any more; the task ends with it, unless it is `spare`."""
    copied = state.copied.get(job, {}).get(task)
    if copied is None:
        return
    copied.nodes.remove(node)
    if not spare:
        copied.counted = ""
    elif copied.counted == node:
        copied.counted = copied.nodes[0]
    if not copied.nodes or copied.nodes == [copied.counted]:
        del state.copied[job][task]
        live = state.jobs.get(job)
        if live is not None:
            note_change(state, job, live.graph.position[stage_in(task)])
        if not state.copied[job]:
            del state.copied[job]
