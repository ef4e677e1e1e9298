"""When jobs are looked at that wait for a cell, or wait in one, and what comes of it.

A job that waits is looked at when it comes, and then with the others from time to time; a look that changes nothing
leaves no record, but for the first.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Protocol

from schemas.routes import Bid, CellsJudged, Considering, JobRouted, MoveAnswered, RouteAsked, RouteLapsed, RouteTaken
from services.router.core.decide import decide, may_move
from services.router.core.state import Route, State

LOOK_MS = 1_000
"""So often the jobs that wait are looked at."""
PLACED_MOST, MOVES_MOST = 200, 50
"""Jobs that are looked at in one turn."""


class Offers(Protocol):
    """What the cells say."""

    def bids(self, route: Route) -> list[Bid]:
        """Of a job, each cell that it may go to."""

    def has_begun(self, route: Route, name: str) -> bool:
        """Whether something of a job was started in its cell."""

    def expect(self, name: str) -> None:
        """A job is on its way to a cell."""


class Placing:
    """Of one instance that leads. `idle`: jobs in cells that have not begun there, as far as is known."""

    def __init__(self) -> None:
        self._new: dict[str, bool] = {}
        self._old: dict[str, bool] = {}
        self._idle: dict[str, bool] = {}
        self._sent: list[str] = []
        self._looked_ms = 0

    def begin(self, state: State) -> None:
        """Of a state that was just folded."""
        self._new, self._old, self._sent = dict(state.waiting), {}, []
        self._idle = dict(state.taken)
        self._looked_ms = 0

    def note(self, state: State, body: object) -> None:
        """A record was put."""
        match body:
            case RouteAsked():
                self._new[body.spec.job] = True
            case RouteLapsed():
                self._new[body.job] = True
            case MoveAnswered():
                (self._new if body.is_free else self._idle)[body.job] = True
            case RouteTaken():
                self._idle[body.job] = True
            case JobRouted():
                self._sent.append(body.job)

    def next_ms(self, state: State, now_ms: int) -> int:
        """When there is something to look at, on the steady clock."""
        if self._new:
            return now_ms
        return self._looked_ms + LOOK_MS if self._old or self._idle else now_ms + LOOK_MS

    def bodies(self, state: State, offers: Offers, now_ms: int, time_ms: int) -> Iterator[object]:
        """What to put, one after the other: each is folded before the next is asked for. `time_ms`: log time."""
        if now_ms - self._looked_ms >= LOOK_MS:
            self._looked_ms = now_ms
            self._new.update(islice(self._old.items(), PLACED_MOST))
            yield from self._moves(state, offers, time_ms)
        for name in list(islice(self._new, PLACED_MOST)):
            del self._new[name]
            route = state.jobs.get(name)
            if route is not None and route.phase == "waiting":
                self._old.pop(name, None)
                self._old[name] = True  # At the end.
                yield from _judged(state, offers, name, route, "placing", time_ms, always=not route.bids)
            if route is None or route.phase != "waiting":
                self._old.pop(name, None)
        for name in self._sent:
            offers.expect(name)
        self._sent = []

    def _moves(self, state: State, offers: Offers, time_ms: int) -> Iterator[object]:
        looked = 0
        for name in list(self._idle):
            route = state.jobs.get(name)
            if route is None or route.phase != "taken":
                del self._idle[name]
            elif may_move(state, route, time_ms) and looked < MOVES_MOST:
                del self._idle[name]
                if offers.has_begun(route, name):
                    continue
                looked += 1
                self._idle[name] = True  # At the end.
                yield from _judged(state, offers, name, route, "moving", time_ms, always=False)


def _judged(
    state: State, offers: Offers, name: str, route: Route, considering: Considering, time_ms: int, *, always: bool
) -> Iterator[object]:
    judged = CellsJudged(name, considering, offers.bids(route))
    decided = decide(state, judged, time_ms)
    if decided is not None or (always and judged.bids):
        yield judged
    if decided is not None:
        yield decided
