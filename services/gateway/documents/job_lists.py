"""Lists of jobs in brief: which jobs, in which order, and from which one on."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from largesse.lifecycle.job_classes import class_name
from services.gateway.documents import Document
from services.gateway.documents.jobs import ended_document, live_document, state_of_live
from services.gateway.documents.queueing import Queueing
from services.gateway.view.jobs import EndedJob, LiveJob
from services.gateway.view.state import State

Row = LiveJob | EndedJob

STATES = ("waiting", "running", "succeeded", "failed", "cancelled", "rejected")
"""In the order by which lists are sorted."""

_STATE_AT = {state: at for at, state in enumerate(STATES)}


@dataclass(frozen=True, slots=True)
class WantedJobs:
    """Which jobs are listed. `states`: only jobs in one of these; none: in any. `queue`: only of this queue and those
    below it. `job_class`: only of this class, by its name. `since_ms`: only those submitted, or ended, since then.
    `reservation`: only those that run under it. `text`: only those whose name, queue or user has it as a part.
    """

    states: Sequence[str] = ()
    queue: str | None = None
    user: str | None = None
    job_class: str | None = None
    since_ms: int | None = None
    reservation: str | None = None
    text: str = ""


ANY = WantedJobs()


def job_documents(state: State, wanted: WantedJobs = ANY, *, limit: int) -> list[Document]:
    """Jobs in brief: those that have not ended in order of admission, then ended ones, latest first."""
    return list(each_job_document(state, listed_jobs(state, wanted)[:limit]))


def listed_jobs(state: State, wanted: WantedJobs = ANY, sort: str = "") -> list[str]:
    """Names of the jobs that are wanted. `sort`: one of JOB_SORTS, the highest first where it begins with `-`; jobs
    that have nothing to compare come last either way, and equal ones are in the order of names. Empty: those that have
    not ended in order of admission, then ended ones, latest first.
    """
    rows: list[Row] = [*state.jobs.values(), *reversed(state.ended.values())]
    if wanted != ANY:
        rows = [job for job in rows if _is_wanted(state, wanted, job)]
    return [_name(job) for job in (_sorted(state, rows, sort) if sort else rows)]


def _sorted(state: State, rows: list[Row], sort: str) -> list[Row]:
    by = sort.removeprefix("-")
    key = JOB_SORTS[by]
    rows.sort(key=_name)
    last = [job for job in rows if by == "ended" and isinstance(job, LiveJob)]
    if last:
        rows = [job for job in rows if isinstance(job, EndedJob)]
    rows.sort(key=lambda job: key(state, job), reverse=by != sort)
    return rows + last


def each_job_document(state: State, names: Sequence[str]) -> Iterator[Document]:
    """The documents of these jobs one by one. The view may change in between; each job is shown as it is at its turn,
    and one that is forgotten by then is left out.
    """
    queueing, seq = Queueing(state), state.seq
    for name in names:
        if state.seq != seq:
            queueing, seq = Queueing(state), state.seq
        if (live := state.jobs.get(name)) is not None:
            yield live_document(state, queueing, live, False)
        elif (ended := state.ended.get(name)) is not None:
            yield ended_document(state, ended, False)


def _is_wanted(state: State, wanted: WantedJobs, job: Row) -> bool:
    said = job.spec if isinstance(job, LiveJob) else job
    if wanted.reservation is not None and said.reservation != wanted.reservation:
        return False
    if wanted.queue is not None and said.queue != wanted.queue and not said.queue.startswith(wanted.queue + "/"):
        return False
    if wanted.user is not None and (said.user or job.author) != wanted.user:
        return False
    if wanted.job_class is not None and wanted.job_class != _class_of(state, job):
        return False
    if wanted.since_ms is not None:
        last_ms = job.submitted_ms if isinstance(job, LiveJob) else job.ended_ms
        if last_ms < wanted.since_ms:
            return False
    if wanted.text and not _has_text(wanted.text.casefold(), said.job, said.queue, said.user or job.author):
        return False
    return not wanted.states or _state(job) in wanted.states


def _has_text(text: str, *names: str) -> bool:
    return any(text in name.casefold() for name in names)


def _class_of(state: State, job: Row) -> str | None:
    return class_name(state.policy, job.job_class) if isinstance(job, LiveJob) else job.job_class


def _state(job: Row) -> str:
    return state_of_live(job) if isinstance(job, LiveJob) else job.outcome


# ---------------------------------------------------------------- orders
def _name(job: Row) -> str:
    return job.spec.job if isinstance(job, LiveJob) else job.job


def _queue(state: State, job: Row) -> str:
    return job.spec.queue if isinstance(job, LiveJob) else job.queue


def _user(state: State, job: Row) -> str:
    return (job.spec.user if isinstance(job, LiveJob) else job.user) or job.author


def _waited_ms(state: State, job: Row) -> int:
    """How long it has waited for its first task to start, or did."""
    if job.started_ms is not None:
        return job.started_ms - job.submitted_ms
    return (state.time if isinstance(job, LiveJob) else job.ended_ms) - job.submitted_ms


def _tasks(state: State, job: Row) -> int:
    return sum(job.graph.tasks) if isinstance(job, LiveJob) else job.tasks


JOB_SORTS: dict[str, Callable[[State, Row], str | int]] = {
    "name": lambda _, job: _name(job),
    "queue": _queue,
    "user": _user,
    "state": lambda _, job: _STATE_AT[_state(job)],
    "submitted": lambda _, job: job.submitted_ms,
    "waiting": _waited_ms,
    "ended": lambda _, job: job.ended_ms if isinstance(job, EndedJob) else 0,
    "tasks": _tasks,
}
"""By what a list of jobs can be sorted."""
