"""Leases in order of time, kept as long as the same is promised: a round costs the leases that it may meet, and all
those behind them only once another one begins, not in each round.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from mypy_extensions import mypyc_attr

from schemas import PlanProfile, PlanStep
from services.leftover.core.reservations.peaks import most_of_each
from services.leftover.placement.board import Board
from services.leftover.placement.task_class import TaskClass

Left = dict[str, list[tuple[TaskClass, int]]]
"""By reservation, the units that wait for room."""


@mypyc_attr(allow_interpreted_subclasses=True)
@dataclass(slots=True, eq=False)
class Behind:
    """Leases that hold at `from_ms` or later, all at once (peaks.py). `steps`: by reservation, the most that it has at
    a time; on `board`, `left` and `times` are what waits for room then and when, if no task is inside any of them.
    """

    from_ms: int
    steps: dict[str, list[PlanStep]]
    board: Board | None
    left: Left
    times: dict[str, int]

    def __init__(self, from_ms: int, steps: dict[str, list[PlanStep]]) -> None:
        self.from_ms = from_ms
        self.steps = steps
        self.board = None
        self.left = {}
        self.times = {}


@mypyc_attr(allow_interpreted_subclasses=True)
@dataclass(slots=True, eq=False)
class Leases:
    """`starts`: the list that is made again with the promises, so that it tells of which these leases are. `order`: all
    leases as (when it begins, number of the reservation in `profiles`, number in its profile), in that order; of them
    `reached` have come into `open`, from which those go that are over.
    """

    starts: list[int]
    profiles: list[PlanProfile]
    order: list[tuple[int, int, int]]
    reached: int
    open: list[tuple[int, int, int]]
    behind: Behind | None

    def __init__(self, starts: list[int], profiles: Mapping[str, PlanProfile]) -> None:
        self.starts = starts
        self.profiles = list(profiles.values())
        self.order = sorted(
            [
                (step.from_ms, at, nth)
                for at, profile in enumerate(self.profiles)
                for nth, step in enumerate(profile.steps)
            ]
        )
        self.reached = 0
        self.open = []
        self.behind = None

    def near(self, now_ms: int, last_ms: int) -> dict[str, list[PlanStep]]:
        """By reservation, in the order of the promises, the leases that hold at some time from `now_ms` to `last_ms`
        (and maybe later ones), in order of time."""
        order, profiles = self.order, self.profiles
        while self.reached < len(order) and order[self.reached][0] <= last_ms:
            self.open.append(order[self.reached])
            self.reached += 1
        self.open = [each for each in self.open if profiles[each[1]].steps[each[2]].to_ms > now_ms]
        found: dict[str, list[PlanStep]] = {}
        for at, nth in sorted([(at, nth) for _, at, nth in self.open]):
            profile = profiles[at]
            found.setdefault(profile.reservation, []).append(profile.steps[nth])
        return found

    def behind_of(self, from_ms: int) -> Behind:
        """The leases from a time on."""
        behind = self.behind
        if behind is None or behind.from_ms != from_ms:
            steps: dict[str, list[PlanStep]] = {}
            for profile in self.profiles:
                if any(step.to_ms > from_ms for step in profile.steps):
                    steps[profile.reservation] = most_of_each(profile.steps, from_ms)
            behind = self.behind = Behind(from_ms, steps)
        return behind
