"""The sharing policy of reservations: nothing is promised twice, and no user gets more than its limits over time.

A limit by user is a share of the capacity: of what it holds at any moment, and of its average over every window of a
given length, wherever the window begins.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from services.planner.planning.profile import Profile

_OF = "\n"
"""Neither the path of a queue nor the name of an owner has one."""


def account(queue: str, owner: str) -> str:
    """The user under which what is promised to a queue is booked where its owner has a limit, too."""
    return f"{queue}{_OF}{owner}"


def queue_of(user: str) -> str:
    """The queue of an account; any other user is one itself."""
    return user.partition(_OF)[0]


def owner_of(user: str) -> str | None:
    """The owner of an account; of any other user None."""
    _, of, owner = user.partition(_OF)
    return owner if of else None


@dataclass(slots=True, frozen=True)
class UserLimits:
    """Shares of the capacity, `None` for no limit. `window`: steps over which the average is taken."""

    instant: Fraction | None = None
    average: Fraction | None = None
    window: int = 1

    def instant_most(self, capacity: Sequence[int]) -> list[int] | None:
        """What a user may hold at any moment, by resource."""
        if self.instant is None:
            return None
        return [have * self.instant.numerator // self.instant.denominator for have in capacity]


def first_above(profile: Profile, most: Sequence[int], begin: int, end: int) -> tuple[int, int] | None:
    """The first step in `[begin, end)` at which a profile is above its most: the step and the resource."""
    for first, _, amounts in profile.runs(begin, end):
        for resource, amount in enumerate(amounts):
            if amount > most[resource]:
                return first, resource
    return None


def average_above(profile: Profile, capacity: Sequence[int], limits: UserLimits, begin: int, end: int) -> int | None:
    """The resource of which some window that meets `[begin, end)` averages more than the limit, or None.

    As a window moves, what it holds changes in proportion until one of its ends meets a change of the profile, so
    windows that begin or end at a change are enough.
    """
    if limits.average is None or begin >= end:
        return None
    window = limits.window
    runs = list(profile.runs(max(0, begin - window), end + window))
    edges = [first for first, _, _ in runs] + [runs[-1][1]]
    starts = [at for at in edges + [edge - window for edge in edges] if at < end and at + window > begin]
    for resource, have in enumerate(capacity):
        areas = [0]  # Resource-steps from the first edge to each.
        for first, last, amounts in runs:
            areas.append(areas[-1] + amounts[resource] * (last - first))
        most = have * window * limits.average
        if any(_area(edges, areas, at + window) - _area(edges, areas, at) > most for at in starts):
            return resource
    return None


def _area(edges: Sequence[int], areas: Sequence[int], until: int) -> int:
    """Resource-steps from the first edge until a step; none outside the edges."""
    i = bisect_right(edges, until) - 1
    if i < 0:
        return 0
    if i == len(edges) - 1:
        return areas[i]
    return areas[i] + (areas[i + 1] - areas[i]) * (until - edges[i]) // (edges[i + 1] - edges[i])
