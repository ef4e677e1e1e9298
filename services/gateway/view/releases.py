"""When running tasks are expected to give their room back."""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from schemas import Vector
from services.gateway.view.jobs import LiveJob
from services.gateway.view.state import Allocation, State

OUTLIVED = 8
"""A running task that has outlived its estimate is expected to run on for this part of the time that it has run."""


@dataclass(slots=True)
class Release:
    """A running task of a stage, "job/stage", gives its room back."""

    at_ms: int
    node: str
    stage: str
    hold: Allocation

    @property
    def demand(self) -> Vector:
        return self.hold.demand


class Curve(NamedTuple):
    """What comes back of something: when, and how much in all by then."""

    at_ms: list[int]
    total: list[int]

    def reach_ms(self, amount: int, cycle_ms: int) -> int | None:
        """When as much has come back, if what is taken comes back again after `cycle_ms`; None: never."""
        if not self.total:
            return None
        cycles, rest = divmod(max(0, amount - 1), self.total[-1])
        return self.at_ms[bisect_left(self.total, rest + 1)] + cycles * cycle_ms


def curve_of(found: Iterable[tuple[int, int]]) -> Curve:
    """The curve of moments and amounts, in order of time; without amounts of nothing."""
    some = [(at_ms, amount) for at_ms, amount in found if amount]
    return Curve([at_ms for at_ms, _ in some], list(accumulate(amount for _, amount in some)))


def run_ms_of(job: LiveJob, at: int) -> int | None:
    """How long a task of a stage is expected to run; None: unknown."""
    used = job.used[at]
    if not used.attempts:
        return job.graph.stages[at].estimate_ms or None
    known = [ms for ms, attempt in zip(used.run_ms, used.attempts, strict=True) if attempt and ms >= 0]
    if known:
        return sum(known) // len(known)
    return job.graph.stages[at].estimate_ms or None


class Releases:
    """Of one state of the view, which must not change while this is in use."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._all: list[Release] | None = None

    def all(self) -> list[Release]:
        """Those whose moment is known, in order of time."""
        if self._all is None:
            self._all = []
            expected: dict[str, int | None] = {}
            state = self._state
            for key, hold in state.holds.items():
                stage_key = key.rpartition("/")[0]
                if stage_key not in expected:
                    name, _, stage = stage_key.partition("/")
                    job = state.jobs.get(name)
                    expected[stage_key] = 0 if job is None else run_ms_of(job, job.graph.position[stage])
                run_ms = expected[stage_key]
                if run_ms is not None:
                    self._all.append(Release(self._end_ms(hold, run_ms), hold.node, stage_key, hold))
            self._all.sort(key=lambda release: (release.at_ms, release.node))
        return self._all

    def _end_ms(self, hold: Allocation, run_ms: int) -> int:
        """When an attempt ends: one that has outlived its estimate runs on for a part of the time that it has run."""
        since_ms = hold.started_ms if hold.started_ms is not None else self._state.time
        ran_ms = self._state.time - since_ms
        return self._state.time + max(run_ms - ran_ms, ran_ms // OUTLIVED)
