"""What admission learns of tasks: attempts begin, end or are lost, and give back the room that they held."""

from largesse.lifecycle.job_life import COUNTED, fail, give_up, given_up, has_failed, is_skipped, rule_of, succeed
from largesse.lifecycle.state import Graph
from largesse.lifecycle.task_facts import SpareEnd, facts_of
from largesse.lifecycle.task_keys import task_key
from schemas import (
    JobEnd,
    JobSpec,
    Record,
    TaskFailed,
    TaskFinished,
    TaskRange,
)
from schemas.quantities import add_amounts
from schemas.queue_tree import upwards
from schemas.tasks import Failure, TaskEnd, TaskFailure
from schemas.wording import plural
from services.admission.core.copies import end_own, end_spare
from services.admission.core.demand import forget_job, note_job
from services.admission.core.granted import mark_of, put_in
from services.admission.core.peaks import note_peak
from services.admission.core.round_fold import use_room
from services.admission.core.state import JobState, State


def tasks_of(graph: Graph) -> int:
    return graph.tasks[0] if len(graph.tasks) == 1 else sum(graph.tasks)


def count_tasks(state: State, user: str, tasks: int) -> None:
    """So many tasks more (fewer, where negative) belong to jobs that are not over."""
    state.live_tasks += tasks
    of_user = state.user_tasks.get(user, 0) + tasks
    if of_user:
        state.user_tasks[user] = of_user
    else:
        del state.user_tasks[user]


def count_job(state: State, spec: JobSpec, jobs: int) -> None:
    """A job more, or less, that is not over: of its user, in its queue and in all above it."""
    mine = state.user_jobs.setdefault(spec.user, {})
    for path in upwards(spec.queue):
        mine[path] = mine.get(path, 0) + jobs
        if not mine[path]:
            del mine[path]
    if not mine:
        del state.user_jobs[spec.user]


def end_job(state: State, record: Record, end: JobEnd) -> None:
    job = state.jobs[end.job]
    if not job.over:
        job.over = True
        forget_job(state, end.job)
        count_tasks(state, job.spec.user, -tasks_of(job.graph))
        count_job(state, job.spec, -1)
        state.over.append(end)
        state.over_cause = record.id
        state.needs_round = True


def fold_tasks(state: State, record: Record[TaskFinished | TaskFailed]) -> None:
    take_facts(state, record)
    state.needs_round = True


def take_facts(state: State, record: Record) -> None:
    for fact in facts_of(record.body):
        if isinstance(fact, TaskEnd):
            _succeed(state, record, fact)
        elif isinstance(fact, TaskFailure):
            for index in range(fact.first, fact.first + fact.count):
                _fail(state, record, fact, index)
        elif isinstance(fact, SpareEnd):
            _release(state, fact.node, fact.job, fact.stage, fact.first, fact.count, fact.attempt, spare=True)
        else:
            _begin(state, fact)


def _begin(state: State, tasks: TaskRange) -> None:
    """Attempts run, under this epoch: one that goes on under a new agent is that agent's from now on."""
    holds = state.nodes[tasks.node].holds
    name, stage, first, epoch = tasks.job, tasks.stage, tasks.first, tasks.epoch
    for index in range(first, first + tasks.count):
        hold = holds[task_key(name, stage, index)]
        hold.epoch, hold.started = epoch, True


def _succeed(state: State, record: Record, ended: TaskEnd) -> None:
    name, stage, count, attempt = ended.job, ended.stage, ended.count, ended.attempt
    job = _release(state, ended.node, name, stage, ended.first, count, attempt)
    if job is None or job.over:
        return
    at = job.graph.position[stage]
    if succeed(job, at, count, attempt) is None:
        return
    note_peak(state, name, stage, ended.peak)
    if job.progress.left[at] == 0 and not any(job.progress.left):
        end_job(state, record, _end_of(job))


def _fail(state: State, record: Record, failed: TaskFailure, index: int) -> None:
    name, stage, reason = failed.job, failed.stage, failed.reason
    job = _release(state, failed.node, name, stage, index, 1, failed.attempt)
    if job is None or job.over:
        return
    at = job.graph.position[stage]
    after = fail(job, at, index, failed.attempt, reason, failed.exit_code)
    if after == "given_up":
        give_up(job, at)
        if not any(job.progress.left):
            end_job(state, record, _end_of(job))
    elif after == "over":
        cause = f"{reason}: {failed.detail}" if failed.detail else reason
        tried = _tried(job, at, index, reason)
        bound = job.graph.stages[at].max_failed
        beyond = f" (failed task {bound + 1}, at most {bound} may fail)" if bound else ""
        end_job(state, record, JobEnd(name, "failed", f"{stage}/{index} {cause}{tried}{beyond}"))


def _tried(job: JobState, at: int, index: int, reason: Failure) -> str:
    """What the end of a job adds to the cause of its last failure."""
    ruled = rule_of(job, at, index)
    if ruled is not None:
        return f" (retried {ruled[0].limit} times at most for {', '.join(ruled[0].on)})"
    return "" if reason in COUNTED else " (too many lost attempts)"


def _end_of(job: JobState) -> JobEnd:
    """How a job ends that has nothing left to do: it has failed where a stage has."""
    name, stages = job.spec.job, job.graph.stages
    if job.tries is None or not job.tries.given_up:
        return JobEnd(name, "succeeded")
    ended = [at for at in range(len(stages)) if has_failed(job, at)] or [int(at) for at in job.tries.given_up]
    at = min(ended)
    said = f"{given_up(job, at)} of {stages[at].tasks} tasks of {stages[at].stage} failed"
    if len(ended) > 1:
        said += f", and tasks of {plural(len(ended) - 1, 'other stage')}"
    if not has_failed(job, at):
        return JobEnd(name, "succeeded", f"{said}, within max_failed")
    skipped = sum(is_skipped(job, at) for at in range(len(stages)))
    return JobEnd(name, "failed", f"{said}; {plural(skipped, 'stage')} skipped" if skipped else said)


def _release(
    state: State, on: str, name: str, stage: str, first: int, count: int, attempt: int, *, spare: bool = False
) -> JobState | None:
    """Attempts hold no room any more; their tasks end with them, unless they are `spare`. Returns their job; None where
    it has ended.
    """
    node = state.nodes[on]
    for index in range(first, first + count):
        hold = node.holds.pop(task_key(name, stage, index))
        add_amounts(node.free, hold.demand, 1)
        if hold.devices:
            add_amounts(node.devices_free, hold.devices, 1)
    live = state.jobs.get(name)
    ended = state.ended[name] if live is None else None
    job = live if ended is None else ended.job
    assert job is not None, f"job {name} has ended and holds nothing"
    at = job.graph.position[stage]
    if spare:
        end_spare(state, job, name, stage, first)
    else:
        mark = mark_of(attempt, False)
        job.granted = put_in(job.granted, at, first, first + count, mark, job.graph.tasks[at])
        if state.copied:
            end_own(state, job, name, at, first, first + count)
    job.held -= count
    use_room(state, job, at, -count)
    if live is not None:
        note_job(state, name)
    if ended is not None and not job.held:
        ended.job = None
    return live
