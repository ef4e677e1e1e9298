"""What tasks of recurring jobs count for, learnt from the peaks of CPU of earlier runs (the knob `demands`).

A run teaches what its stages used if it succeeded and every task of the stage was measured. All of this is kept while
the knob says so, and forgotten when it no longer does. What a job counts for is in its admission.
"""

from typing import Final

from largesse.ids import content_hash
from largesse.lifecycle.job_life import given_up
from largesse.lifecycle.run_times import HISTORY_STAGES_MAX, recurring_name
from schemas import JobSpec, Policy, Stage
from schemas.jobs import Counted
from schemas.quantities import Vector
from services.admission.core.state import JobState, RunPeaks, State

CPU: Final = "cpu"
"""The one resource that can count for less: whoever gets less CPU for a while ends later, where other tasks need it.
Memory cannot: a node with too little for all that runs there kills, and a larger input may need more than ever before.
Devices and resources of an operator's own are not measured."""

RUNS_MIN: Final = 3
RUNS_MAX: Final = 10
"""Of so many runs at least tasks count for what was used; of so many, the latest, the peaks are kept."""

MARGIN_NUMERATOR, MARGIN_DENOMINATOR = 5, 4
"""Tasks count for their peak and a quarter more. Where CPU was short the peak is what they got, not what they needed:
then their peak grows with what they count for, run by run, until it is enough."""

ASKED_DENOMINATOR: Final = 2
"""They count for at least half of what they ask for: no history makes more than two cores of one."""

UNMEASURED: Final = -1

_NO_DIGITS: Final = dict.fromkeys(map(ord, "0123456789"))


def keep_peaks(state: State, policy: Policy) -> None:
    """Another policy is in force."""
    if policy.demands != "history":
        state.peaks, state.run_peaks = {}, {}


def begin_peaks(state: State, name: str) -> None:
    """A job is admitted: it can teach something if it is watched from its beginning."""
    if state.policy.demands == "history":
        state.peaks[name] = {}


def note_peak(state: State, name: str, stage: str, peak: Vector) -> None:
    """Tasks of a stage have succeeded, and the largest peak of any of them was this."""
    peaks = state.peaks.get(name)
    if peaks is None:
        return
    before, now = peaks.get(stage, 0), peak.get(CPU, UNMEASURED)
    peaks[stage] = UNMEASURED if UNMEASURED in (before, now) else max(before, now)


def end_peaks(state: State, name: str, job: JobState, *, succeeded: bool) -> None:
    """A job is over: what was seen of it is an earlier run from now on."""
    peaks = state.peaks.pop(name, None)
    if not peaks or not succeeded:
        return
    for at, stage in enumerate(job.spec.stages):
        peak, asked = peaks.get(stage.stage, UNMEASURED), stage.demand.get(CPU, 0)
        if peak != UNMEASURED and asked and not given_up(job, at):
            _learn(state, _key(job.spec, stage), asked, peak)


def _learn(state: State, key: str, asked: int, peak: int) -> None:
    known = state.run_peaks.pop(key, None)
    if known is None or known.asked != asked:
        known = RunPeaks(asked, [])
    known.peaks = [*known.peaks[1 - RUNS_MAX :], peak]
    state.run_peaks[key] = known
    while len(state.run_peaks) > HISTORY_STAGES_MAX:
        del state.run_peaks[next(iter(state.run_peaks))]


def counted_of(state: State, spec: JobSpec) -> list[Counted]:
    """The stages of a job that is admitted now whose tasks count for less than they ask for. None of a job with a
    reservation: it gets what it was promised.
    """
    if not state.run_peaks or spec.reservation is not None:
        return []
    found = []
    for stage in spec.stages:
        known, asked = state.run_peaks.get(_key(spec, stage)), stage.demand.get(CPU, 0)
        if known is None or known.asked != asked or len(known.peaks) < RUNS_MIN:
            continue
        peak = max(known.peaks)
        if (cpu := counted_cpu(asked, peak)) < asked:
            found.append(Counted(stage.stage, {CPU: cpu}, len(known.peaks), {CPU: peak}))
    return found


def counted_cpu(asked: int, peak: int) -> int:
    """Millicores that a task counts for which asks for so many, and whose kind used so many at most."""
    used = -(-peak * MARGIN_NUMERATOR // MARGIN_DENOMINATOR)
    return min(asked, max(used, -(-asked // ASKED_DENOMINATOR)))


def _key(spec: JobSpec, stage: Stage) -> str:
    """Names a stage of a recurring job of one user. What runs is the same but for numbers: other programs have other
    peaks, and all jobs of a user who names none recur under one name.
    """
    runs = content_hash("\0".join(stage.command).translate(_NO_DIGITS).encode("utf-8", "backslashreplace"))
    return f"{recurring_name(spec.job)}/{stage.stage}/{runs[:16]}/{spec.user}"
