"""What tasks have taken, in this run of a job and in earlier ones. One rule for every core that plans ahead.

How long a task of a stage is expected to run (docs/concepts/altruism.md): what its stage is estimated to take, else the
mean of earlier runs of the same job, else the mean of the tasks of the stage that have succeeded, else a default
(schemas/estimates.py). With the knob `estimates` set to `history`, earlier runs go before the estimate. With
`finished`, which presets that plan jobs have by default, tasks of the stage that succeed from then on go before
everything else once there are SEEN_TASKS_MIN and they show that the estimate is wrong: this corrects it while a job
runs (docs/concepts/altruism.md has what it gains).

Two jobs of one user are runs of the same recurring job if their names are equal without the numbers at the end that a
separator stands before: `report-7`, `report-8` and `report-2026-05-01` are all `report`, and `q21-7` is `q21`.
Earlier runs are looked up once, when a job is admitted; from then on what they say stands in its graph like an
estimate, so that all plans for it agree.
"""

from dataclasses import dataclass, field, replace
from typing import Final

from mypy_extensions import mypyc_attr

from schemas.asks import EstimateSource
from schemas.estimates import duration_ms, total_ms
from schemas.jobs import JobSpec, Stage
from schemas.policy import Estimates, Policy
from schemas.presets import PRESETS

HISTORY_STAGES_MAX = 10_000
"""Earlier runs of so many stages are remembered; beyond, those go first of which no run has ended for longest."""

HISTORY_TASKS_MAX: Final = 1_000
"""The weight, in tasks, of all earlier runs of a stage at most, so that the estimate follows the latest runs."""

SEEN_TASKS_MIN: Final = 5
"""With `estimates` set to `finished`, so many tasks of a stage must have succeeded before they go before its estimate:
a few say little, and those that succeed first are the short ones."""

SEEN_OFF_PERMILLE: Final = 250
"""And only where their mean differs from the estimate by more than this part of it. The first tasks to end differ from
the others in any case: where estimates are right, to follow them makes plans worse (services/DECISIONS.md, 123)."""

PERMILLE: Final = 1_000

_NUMBER = frozenset("0123456789")
_SEPARATOR = frozenset("-_.:@# ")

_last: list[tuple[JobSpec, list[int], tuple[JobSpec, list[int]]]] = []
"""The last answer: the cores of one process ask the same for each admission, one after the other."""


@mypyc_attr(allow_interpreted_subclasses=True)
@dataclass(slots=True)
class Seen:
    """So many tasks of a stage have succeeded, and ran for `ran_ms` in all. `first`: this goes before the estimate of
    the stage, once there are enough."""

    tasks: int
    ran_ms: int
    first: bool = False

    def __init__(self, tasks: int, ran_ms: int, first: bool = False) -> None:
        self.tasks = tasks
        self.ran_ms = ran_ms
        self.first = first


NOTHING_SEEN: dict[str, Seen] = {}
"""Of jobs of which nothing has ended: shared, since such jobs are many, and never changed."""


@dataclass(slots=True)
class History:
    """Earlier runs: by "recurring name/stage/user", the stage that ended last at the end."""

    stages: dict[str, Seen] = field(default_factory=dict)


def recurring_name(job: str) -> str:
    """The name of a job without the numbers at its end that a separator stands before."""
    end = len(job)
    while True:
        at = end
        while at and job[at - 1] in _NUMBER:
            at -= 1
        digits = at
        while at and job[at - 1] in _SEPARATOR:
            at -= 1
        if digits == end or at in (0, digits):
            return job[:end]
        end = at


def rule_of(policy: Policy) -> Estimates:
    """What `estimates` says, or what the preset has where it does not."""
    if policy.estimates != "preset":
        return policy.estimates
    return "finished" if PRESETS[policy.preset].plans_jobs else "spec"


def observe(
    seen: dict[str, Seen], stage: Stage, count: int, run_ms: list[int], estimates: Estimates
) -> dict[str, Seen]:
    """Tasks of a job's stage have succeeded: what to keep as seen from now on. Nothing is added where nobody would ask
    for it."""
    unused = not run_ms or (estimates == "spec" and stage.estimate_ms > 0)
    if unused and not seen:
        return seen
    known = seen.get(stage.stage)
    if unused:
        if known is not None:
            known.first = False
        return seen
    if seen is NOTHING_SEEN:
        seen = {}
    if known is None:
        seen[stage.stage] = Seen(count, total_ms(run_ms, count), estimates == "finished")
    else:
        known.tasks += count
        known.ran_ms += total_ms(run_ms, count)
        known.first = estimates == "finished"
    return seen


def learn(history: History, job: str, user: str, seen: dict[str, Seen]) -> None:
    """A job is over: what was seen of it is an earlier run of its user from now on."""
    if not seen:
        return
    stages, name = history.stages, recurring_name(job)
    for stage, now in seen.items():
        key = f"{name}/{stage}/{user}"
        before = stages.pop(key, None)
        after = Seen(now.tasks, now.ran_ms)
        if before is not None:
            after.tasks += before.tasks
            after.ran_ms += before.ran_ms
        if after.tasks > HISTORY_TASKS_MAX:
            after.ran_ms = after.ran_ms * HISTORY_TASKS_MAX // after.tasks
            after.tasks = HISTORY_TASKS_MAX
        stages[key] = after
    while len(stages) > HISTORY_STAGES_MAX:
        del stages[next(iter(stages))]


def informed(history: History, spec: JobSpec, policy: Policy) -> tuple[JobSpec, list[int]]:
    """The spec of a job that is admitted, with what earlier runs say of its stages, and the positions of those stages.
    The spec itself where they say nothing."""
    if not history.stages:
        return spec, []
    estimates = rule_of(policy)
    name, lasts = recurring_name(spec.job), []
    for stage in spec.stages:
        seen = None
        if estimates == "history" or not stage.estimate_ms:
            seen = history.stages.get(f"{name}/{stage.stage}/{spec.user}")
        lasts.append(duration_ms(0, seen.tasks, seen.ran_ms) if seen is not None else 0)
    if not any(lasts):
        return spec, []
    if _last and _last[0][0] is spec and _last[0][1] == lasts:
        return _last[0][2]
    stages = [replace(stage, estimate_ms=ms) if ms else stage for stage, ms in zip(spec.stages, lasts, strict=True)]
    found = replace(spec, stages=stages), [at for at, ms in enumerate(lasts) if ms]
    _last[:] = [(spec, lasts, found)]
    return found


def expected_ms(stage: Stage, seen: dict[str, Seen]) -> int:
    """The expected run time of a task of a stage in the graph of an admitted job, at least 1 ms."""
    known = seen.get(stage.stage) if seen else None
    if known is None or (stage.estimate_ms and not _goes_first(stage, known)):
        return duration_ms(stage.estimate_ms, 0, 0)
    return duration_ms(0, known.tasks, known.ran_ms)


def _goes_first(stage: Stage, known: Seen) -> bool:
    """Whether what was seen of a stage goes before its estimate."""
    if not known.first or known.tasks < SEEN_TASKS_MIN:
        return False
    estimated_ms = stage.estimate_ms * known.tasks
    return abs(known.ran_ms - estimated_ms) * PERMILLE > estimated_ms * SEEN_OFF_PERMILLE


def known_ms(stage: Stage, seen: dict[str, Seen]) -> int | None:
    """What is known of how long a task of a stage runs: what is expected of it, where that is no mere guess, else its
    time-out; None: nothing.
    """
    if stage.estimate_ms or stage.stage in seen:
        return expected_ms(stage, seen)
    return stage.timeout_ms or None


def source_of(stage: Stage, at: int, from_history: list[int], seen: dict[str, Seen]) -> EstimateSource:
    """Where `expected_ms` has it from."""
    known = seen.get(stage.stage)
    if stage.estimate_ms and (known is None or not _goes_first(stage, known)):
        return "history" if at in from_history else "spec"
    return "finished" if known is not None else "default"
