"""What the gateway keeps of jobs that have ended, so that they can run again."""

from dataclasses import asdict
from json import dumps

from schemas import JobAdmitted, JobSpec
from services.gateway.view.jobs import LiveJob
from services.gateway.view.state import State
from services.gateway.view.used import use_of

SPECS_CHARACTERS_MAX = 16 << 20
"""Specs of ended jobs that are kept have so many characters together at most, written out; the oldest go first."""


def keep_stages(state: State, job: LiveJob, body: JobAdmitted) -> None:
    """A job runs again: of stages that stay as they were it is known where they ran, and what they used."""
    name, before = body.spec.job, state.ended.get(body.spec.job)
    places, used = state.places.get(name), state.used_by.get(name)
    kept_before = before.kept if before is not None and body.kept else {}
    for stage in body.kept:
        at = job.graph.position[stage]
        if before is not None and places is not None and used is not None:
            job.places[at], job.used[at] = places[at], use_of(used[at])
            job.kept[at] = kept_before.get(at, before.admitted)


def keep_spec(state: State, name: str, spec: JobSpec) -> None:
    """A job has ended: what it was submitted with is kept for a while, as one text: few of thousands are asked for."""
    text = dumps(asdict(state.submitted.pop(name, spec)), separators=(",", ":"))
    state.specs[name] = text
    state.specs_kept += len(text)
    while state.specs_kept > SPECS_CHARACTERS_MAX:
        forget_spec(state, next(iter(state.specs)))


def forget_spec(state: State, name: str) -> None:
    """The job has left the view, or runs again."""
    state.specs_kept -= len(state.specs.pop(name, ""))
