"""What the gateway's view learns of tasks: attempts begin and end."""

from largesse.lifecycle.failing_nodes import note_failure, note_success
from largesse.lifecycle.job_life import COUNTED, backoff_ms, fail, gang_backoff_ms, give_up, succeed
from largesse.lifecycle.task_facts import SpareEnd, facts_of
from schemas import (
    Record,
)
from schemas.tasks import TaskEnd, TaskFailure, TaskRange
from services.gateway.view.copies import end_spare, find_hold, leave_over, own
from services.gateway.view.jobs import FailedAttempt, add_span
from services.gateway.view.places import move
from services.gateway.view.preempted import end_taken, taken_for_text
from services.gateway.view.revocable import end_lent, taken_text
from services.gateway.view.rounds import (
    add_amounts,
)
from services.gateway.view.scoring import note_start
from services.gateway.view.state import FAILURES_KEPT, Allocation, LentRow, State, note, touch
from services.gateway.view.used import failed_attempt, note_used
from services.gateway.view.user_tasks import count_user


# ---------------------------------------------------------------- tasks
def fold_tasks(state: State, record: Record) -> None:
    for fact in facts_of(record.body):
        indices = range(fact.first, fact.first + fact.count)
        if isinstance(fact, TaskEnd):
            for node in note_success(state.failures, fact) if state.failures else ():
                note(state, "nodes", node)
            for index in indices:
                own(state, fact.job, fact.stage, index, fact.attempt)
                note_used(state, fact, index, state.holds[f"{fact.job}/{fact.stage}/{index}"].granted)
                _release(state, fact.job, fact.stage, index)
                leave_over(state, fact.job, fact.stage, index)
            job = state.jobs.get(fact.job)
            if job is not None:
                succeed(job, job.graph.position[fact.stage], fact.count, fact.attempt)
        elif isinstance(fact, TaskFailure):
            note_failure(state.failures, fact, record.time)
            for index in indices:
                own(state, fact.job, fact.stage, index, fact.attempt)
                _fail(state, fact.job, failed_attempt(fact, index, record))
        elif isinstance(fact, SpareEnd):
            _end_spare(state, fact, record)
        else:
            for index in indices:
                _begin(state, record, fact, index)


def _begin(state: State, record: Record, tasks: TaskRange, index: int) -> None:
    name, stage = tasks.job, tasks.stage
    hold = find_hold(state, name, stage, index, tasks.attempt)
    if hold.started:
        return
    hold.started, hold.started_ms = True, record.time
    job = state.jobs.get(name)
    if job is not None and state.holds.get(f"{name}/{stage}/{index}") is hold:
        at = job.graph.position[stage]
        job.starting[at] -= 1
        job.running[at] += 1
        touch(state, name)
        if job.started_ms is None:
            job.started_ms = record.time
            note_start(state, job, record.time)


def _fail(state: State, name: str, failed: FailedAttempt) -> None:
    taken = end_taken(state, name, failed.stage, failed.index, failed.attempt) if state.taken else None
    lent = _release(state, name, failed.stage, failed.index)
    if failed.reason == "revoked":
        failed.detail = taken_for_text(taken, taken_text(lent, failed.detail))
    job = state.jobs.get(name)
    if job is None:
        return
    at = job.graph.position[failed.stage]
    after = fail(job, at, failed.index, failed.attempt, failed.reason, failed.exit_code)
    job.failures = [*job.failures, failed][-FAILURES_KEPT:]
    if failed.reason in COUNTED:
        job.failed[at] += 1
    if after != "again":
        gang = job.graph.stages[at].gang
        first, last = (0, job.graph.tasks[at] - 1) if gang else (failed.index, failed.index)
        job.given_up[at] += last + 1 - first
        add_span(job.failed_tasks[at], first, last)
    if after == "given_up":
        give_up(job, at)
    elif failed.reason in COUNTED or job.graph.stages[at].retry:
        if job.graph.stages[at].gang:
            wait_ms = gang_backoff_ms(state.policy, job, at)
        else:
            wait_ms = backoff_ms(state.policy, job, at, failed.index, failed.reason)
        job.retry_ms[at] = max(job.retry_ms[at], failed.at_ms + wait_ms)


def _end_spare(state: State, ended: SpareEnd, record: Record) -> None:
    """An attempt of a task that goes on, or has succeeded, in another one."""
    name, stage, index = ended.job, ended.stage, ended.first
    hold = end_spare(state, name, stage, index, ended.attempt)
    job = state.jobs.get(name)
    _give_back(state, hold)
    touch(state, name, hold.node)
    if job is not None:
        move(job.nodes[job.graph.position[stage]], hold.node, -1)
        run_ms = ended.run_ms[0] if ended.run_ms else None
        failed = FailedAttempt(
            stage, index, ended.attempt, ended.node, ended.reason, ended.exit_code, ended.detail, record.time, run_ms
        )
        failed.seq = record.seq
        job.failures = [*job.failures, failed][-FAILURES_KEPT:]


def _give_back(state: State, hold: Allocation) -> None:
    node = state.nodes[hold.node]
    node.holds -= 1
    add_amounts(node.used, hold.demand, -1)
    add_amounts(state.used[hold.queue], hold.demand, -1)
    state.tasks[hold.queue] -= 1
    count_user(state, hold, -1)


def _release(state: State, name: str, stage: str, index: int) -> LentRow | None:
    """The task holds its room no longer. What was known of the attempt, if it could be taken back."""
    hold = state.holds.pop(f"{name}/{stage}/{index}")
    _give_back(state, hold)
    touch(state, name, hold.node)
    job = state.jobs.get(name)
    if job is not None:
        at = job.graph.position[stage]
        counts = job.running if hold.started else job.starting
        counts[at] -= 1
        move(job.nodes[at], hold.node, -1)
    if state.taken:
        end_taken(state, name, stage, index, hold.attempt)  # It has ended by itself.
    return end_lent(state, name, stage, index) if state.lent else None
