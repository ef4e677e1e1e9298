"""Jobs held back by `running_jobs_max` of a queue. They cannot use a pool, so they do not count as demand of their
class.

The rule is that of the cores that place tasks (largesse/lifecycle/running_limit.py), folded from the same records.
Where no queue has a limit nothing is kept.
"""

from largesse.lifecycle.running_limit import leave, limited, may_run, relimit, take_turns
from schemas import JobTurns, Queue, Record
from services.admission.core.demand import note_job
from services.admission.core.state import JobState, State


def admit_job(state: State, name: str, job: JobState) -> None:
    """A job was admitted: it may run, or is parked."""
    if not may_run(state.running_limits, name, job.spec.queue, job.spec.priority, job.seq):
        job.parked = True
    elif limited(state.running_limits, job.spec.queue):
        state.through[name] = True


def leave_queue(state: State, name: str) -> None:
    """A job was cancelled, or has ended: others may run."""
    state.through.pop(name, None)
    if state.running_limits.limits:
        _let_run(state, leave(state.running_limits, name))


def limit_queues(state: State, tree: Queue) -> None:
    """Another tree is in force."""
    cancelled = {end.job: True for end in state.over if end.outcome == "cancelled"}  # Those have left.
    queues = [(name, job.spec.queue) for name, job in state.jobs.items() if name not in cancelled]
    _let_run(state, relimit(state.running_limits, tree, queues))
    running = state.running_limits
    state.through = {
        name: True for name, queue in running.leaf.items() if limited(running, queue) and not state.jobs[name].parked
    }


def fold_turns(state: State, record: Record[JobTurns]) -> None:
    """Jobs that held nothing gave way to others (turns.py)."""
    body = record.body
    take_turns(state.running_limits, body)
    for back in body.held_back:
        del state.through[back.job]
        state.jobs[back.job].parked = True
        note_job(state, back.job)
    _let_run(state, body.let_run)
    state.needs_round = True


def _let_run(state: State, names: list[str]) -> None:
    for name in names:
        job = state.jobs[name]
        job.parked = False
        if limited(state.running_limits, job.spec.queue):
            state.through[name] = True
        note_job(state, name)
