"""Where a job goes, and whether it moves: from what cells have said of it, and from what the log says."""

from collections.abc import Iterable

from largesse.ids import draw
from schemas.routes import (
    Bid,
    CellLoad,
    CellProblem,
    CellsJudged,
    JobRouted,
    MoveAsked,
    RouteDeclined,
    RouteEnded,
    RouteReason,
)
from services.router.choosing import Demand, Load, is_clearly_better, least, load_of
from services.router.core.state import Route, State, wanted_of

PROBLEMS_MAX = 100
"""Cells whose reason a refusal names."""


def decide(state: State, judged: CellsJudged, time: int) -> JobRouted | RouteDeclined | MoveAsked | None:
    """What follows, at log time `time` (ms), from what cells have said of a job. None: it stays where it is."""
    route = state.jobs.get(judged.job)
    if route is None or route.is_cancelled:
        return None
    if judged.considering == "moving":
        return _move(state, judged.job, route, judged.bids, time)
    return _place(state, judged.job, route, judged.bids)


def due(state: State) -> RouteEnded | None:
    """What follows from the log alone."""
    for name in state.ending:
        return RouteEnded(name, "", "cancelled")
    return None


def may_move(state: State, route: Route, time: int) -> bool:
    """Whether it is time to ask other cells for a job."""
    knobs = state.knobs
    return (
        bool(knobs.move_after_ms)
        and route.phase == "taken"
        and not route.is_cancelled
        and time - route.since_ms >= knobs.move_after_ms
        and (not route.moved_ms or time - route.moved_ms >= knobs.move_gap_ms)
    )


# ---------------------------------------------------------------- a cell
def _place(state: State, name: str, route: Route, bids: list[Bid]) -> JobRouted | RouteDeclined | None:
    if route.phase != "waiting" or not bids:
        return None
    there = [bid for bid in bids if bid.is_there]
    able = there[:1] or _able(route, bids)
    if not able:
        # A job that some cell has let go for another one is never refused any more: it waits for a cell.
        refuses = not route.was_taken and all(bid.problem is not None for bid in bids)
        return RouteDeclined(name, _problems(bids)) if refuses else None
    loads = [_load(state, route, bid) for bid in able]
    chosen, why = _chosen(name, route, loads, is_there=bool(there))
    (bid,) = [bid for bid in able if bid.cell == chosen.cell]
    before_ms = bid.time_ms + state.knobs.lease_ms
    return JobRouted(name, route.number + 1, bid.cell, before_ms, why, _said(loads))


def _able(route: Route, bids: Iterable[Bid]) -> list[Bid]:
    """Those that could run it now, and have not let it go before: there its name is taken by that."""
    return [bid for bid in bids if bid.is_able and bid.problem is None and bid.cell not in route.been]


def _chosen(name: str, route: Route, loads: list[Load], *, is_there: bool) -> tuple[Load, RouteReason]:
    if is_there:
        return loads[0], "there_already"
    for load in loads:
        if load.cell == route.to:
            return load, "moved"
    best = least(loads, lambda cell: draw(0, 0, f"route {name}", cell))
    if len(loads) == 1:
        return best, "only_one"
    alike = [load for load in loads if (load.ppm, load.cell_ppm) == (best.ppm, best.cell_ppm)]
    return best, "least_load" if len(alike) == 1 else "drawn"


# ---------------------------------------------------------------- a move
def _move(state: State, name: str, route: Route, bids: list[Bid], time: int) -> MoveAsked | None:
    if not may_move(state, route, time):
        return None
    own = [bid for bid in bids if bid.cell == route.cell]
    others = [_load(state, route, bid) for bid in _able(route, bids) if bid.cell != route.cell]
    if not own or not others:
        return None
    here = _load(state, route, own[0], is_in_it=True)
    there = least(others, lambda cell: draw(0, route.number, f"move {name}", cell))
    if own[0].is_able and not is_clearly_better(there, here, state.knobs.move_gain_permille):
        return None
    return MoveAsked(name, route.cell, there.cell, route.admitted, _said([here, there]))


# ---------------------------------------------------------------- loads
def _load(state: State, route: Route, bid: Bid, *, is_in_it: bool = False) -> Load:
    wanted = {} if is_in_it else wanted_of(route.spec)
    demand = Demand(bid.ahead, bid.queue_ahead, state.coming.get(bid.cell, {}), wanted)
    return load_of(bid.cell, bid.capacity, bid.queue_permille, demand)


def _said(loads: Iterable[Load]) -> list[CellLoad]:
    return [CellLoad(load.cell, load.cell_ppm, load.queue_ppm) for load in loads]


def _problems(bids: Iterable[Bid]) -> list[CellProblem]:
    return [bid.problem for bid in bids if bid.problem is not None][:PROBLEMS_MAX]
