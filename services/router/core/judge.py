"""What becomes of one message to the router: the record that it turns into."""

from schemas import InputRefused, InputRepeated, JobCancelled, JobRejected, JobSpec
from schemas.edge.routes import AskedRoute
from schemas.jobs import Outcome
from schemas.routes import RouteAsked
from schemas.topics import ROUTER_JOBS
from services.router.core.names import digest_of
from services.router.core.state import JOBS_MAX, State

Judged = RouteAsked | JobRejected | JobCancelled | InputRepeated | InputRefused


def judge(state: State, body: AskedRoute | JobCancelled, author: str) -> Judged:
    """The body of the record."""
    if isinstance(body, JobCancelled):
        return _cancel(state, body, author)
    return _ask(state, body.spec, body.cells, author)


def _ask(state: State, spec: JobSpec, cells: list[str], author: str) -> RouteAsked | JobRejected | InputRepeated:
    live, over = state.jobs.get(spec.job), state.over.get(spec.job)
    if live is not None or over is not None:
        outcome: Outcome | None = None
        if over is not None and over.outcome != "unknown":
            outcome = over.outcome
        if (live is not None and live.spec == spec) or (over is not None and over.digest == digest_of(spec)):
            return InputRepeated(spec.job, author, outcome=outcome)
        return JobRejected(
            spec, "name_taken", "job", f'"{spec.job}" names another job; choose a new name, or name a cell', author
        )
    if len(state.jobs) >= JOBS_MAX:
        detail = f"the router holds {JOBS_MAX} jobs; wait for some to end, or name a cell"
        return JobRejected(spec, "too_many_jobs", "job", detail, author)
    return RouteAsked(spec, cells, author)


def _cancel(state: State, body: JobCancelled, author: str) -> JobCancelled | InputRefused:
    if body.if_unstarted:
        return InputRefused(ROUTER_JOBS, "is for a cell: name the one that has the job", "if_unstarted", 0, "", author)
    if body.job in state.jobs:
        return JobCancelled(body.job, author)
    what = "has ended" if body.job in state.over else "did not come by way of the router"
    return InputRefused(ROUTER_JOBS, f'job "{body.job}" {what}', "cancel", 0, "", author)
