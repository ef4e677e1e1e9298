"""Further runs of jobs that have ended: which may be, where they begin, and what is remembered for them."""

from largesse.lifecycle.dag import graph_of
from largesse.lifecycle.job_life import has_failed, is_skipped
from largesse.lifecycle.state import Graph
from schemas import InputRefused, JobRerun
from schemas.jobs import Outcome
from services.admission.core.granted import attempt_of
from services.admission.core.keys import digest_of, is_free
from services.admission.core.state import Ended, JobState, State


def rerun_problem(state: State, body: JobRerun, author: str, time: int) -> InputRefused | None:
    """Why a job may not run again; None: it may."""
    name = body.spec.job
    if name in state.jobs:
        return _refused(f'job "{name}" has not ended: cancel it first, or wait', author)
    ended = state.ended.get(name)
    if ended is None or is_free(state, ended, time):
        return _refused(f'no job "{name}" has ended here of late: submit it without "rerun"', author)
    if ended.digest != digest_of(body.spec):
        return _refused(f'"{name}" is another job: a job runs again as it was submitted; choose a new name', author)
    if ended.job is not None:
        return _refused(f'attempts of job "{name}" are still ending: ask again in a moment', author)
    return None


def _refused(reason: str, author: str) -> InputRefused:
    return InputRefused("jobs", reason, "rerun", 0, "", author)


def kept_stages(ended: Ended, body: JobRerun) -> list[str]:
    """The stages that stay as they succeeded: all that did and neither are where the run begins nor come after it."""
    if not body.from_stage:
        return []
    graph = graph_of(body.spec)
    again = [graph.position[body.from_stage]]
    for at in again:
        again += [child for child in graph.children[at] if child not in again]
    done = range(len(graph.stages)) if ended.outcome == "succeeded" else ended.succeeded
    return [graph.stages[at].stage for at in done if at not in again]


def ended_of(state: State, name: str, job: JobState, digest: str, time: int, outcome: Outcome) -> Ended:
    """What is remembered of a job that has ended."""
    before = state.runs.get(name)
    ended = Ended(digest, time, outcome, job if job.held else None, moved_to=state.moved.get(name, ""))
    if before is not None:
        ended.run, ended.attempts = before.run, before.attempts
    for granted in job.granted:
        for mark in granted[1::2]:
            ended.attempts = max(ended.attempts, attempt_of(mark))
    if outcome != "succeeded" and len(job.graph.stages) > 1:
        ended.succeeded = _succeeded(job, job.graph)
    return ended


def _succeeded(job: JobState, graph: Graph) -> list[int]:
    left = job.progress.left
    return [at for at in range(len(left)) if not left[at] and not is_skipped(job, at) and not has_failed(job, at)]
