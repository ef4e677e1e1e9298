"""Jobs held back by `running_jobs_max` of a queue. They cannot use a pool, so they do not count as demand of their
class.

The rule is that of the cores that place tasks (largesse/lifecycle/running_limit.py), folded from the same records.
Where no queue has a limit nothing is kept.
"""

from largesse.lifecycle.running_limit import leave, may_run, relimit
from schemas import Queue
from services.admission.core.demand import note_job
from services.admission.core.state import JobState, State


def admit_job(state: State, name: str, job: JobState) -> None:
    """A job was admitted: it may run, or is parked."""
    if not may_run(state.running_limits, name, job.spec.queue, job.spec.priority, job.seq):
        job.parked = True


def leave_queue(state: State, name: str) -> None:
    """A job was cancelled, or has ended: others may run."""
    if state.running_limits.limits:
        _let_run(state, leave(state.running_limits, name))


def limit_queues(state: State, tree: Queue) -> None:
    """Another tree is in force."""
    cancelled = {end.job: True for end in state.over if end.outcome == "cancelled"}  # Those have left.
    queues = [(name, job.spec.queue) for name, job in state.jobs.items() if name not in cancelled]
    _let_run(state, relimit(state.running_limits, tree, queues))


def _let_run(state: State, names: list[str]) -> None:
    for name in names:
        state.jobs[name].parked = False
        note_job(state, name)
