"""Records of the router's log in one line for people."""

from collections.abc import Callable

from schemas.routes import (
    Bid,
    CellLoad,
    CellsHeard,
    CellsJudged,
    JobRouted,
    MoveAnswered,
    MoveAsked,
    RouteAsked,
    RouteDeclined,
    RouteEnded,
    RouteLapsed,
    RouteReason,
    RouterSet,
    RouteTaken,
)

LISTED_MAX = 4
"""Of cells that a record lists: how many more there are is said."""
PPM_OF_PERCENT = 10_000
_WHY: dict[RouteReason, str] = {
    "there_already": "which has it already",
    "only_one": "the only one that could",
    "least_load": "which has the least load",
    "drawn": "drawn of those with the least load",
    "moved": "where it moves to",
}


def _some(texts: list[str]) -> str:
    more = len(texts) - LISTED_MAX
    return ", ".join(texts[:LISTED_MAX]) + (f" and {more:,} more" if more > 0 else "")


def _asked(body: RouteAsked) -> str:
    spec = body.spec
    where = f", for {_some(body.cells)}" if body.cells else ""
    author = spec.user or body.author
    return f"{spec.job} in {spec.queue}{where}{f' (by {author})' if author not in ('', 'unknown') else ''}"


def _judged(body: CellsJudged) -> str:
    return f"{body.job} ({body.considering}): {_some([_bid(each) for each in body.bids])}"


def _bid(bid: Bid) -> str:
    if bid.is_there:
        return f"{bid.cell} has it"
    if bid.problem is not None:
        return f"{bid.cell} refuses: {bid.problem.reason}"
    return f"{bid.cell} {'could run it' if bid.is_able else 'cannot run it now'}"


def _loads(loads: list[CellLoad]) -> str:
    return _some([f"{each.cell} {min(each.cell_ppm, each.queue_ppm) // PPM_OF_PERCENT}%" for each in loads])


def _declined(body: RouteDeclined) -> str:
    return f"{body.job}: {_some([f'{each.cell}: {each.field}: {each.detail}' for each in body.problems])}"


SAY: dict[type, Callable[..., str]] = {
    RouterSet: lambda body: f"lease {body.lease_ms} ms, moves after {body.move_after_ms} ms",
    CellsHeard: lambda body: _some([f"{each.cell} {each.state}" for each in body.cells]) or "no cell is listed",
    RouteAsked: _asked,
    CellsJudged: _judged,
    JobRouted: lambda body: f"{body.job} to {body.cell}, {_WHY[body.why]}: {_loads(body.loads)}",
    RouteDeclined: _declined,
    RouteTaken: lambda body: f"{body.job} by {body.cell}, at its record {body.admitted:,}",
    RouteLapsed: lambda body: f"{body.job}: {body.cell} has not admitted it in time",
    MoveAsked: lambda body: f"{body.job} from {body.cell} to {body.to}: {_loads(body.loads)}",
    MoveAnswered: lambda body: f"{body.job}: {body.cell} {'lets it go' if body.is_free else 'keeps it'}",
    RouteEnded: lambda body: f"{body.job} {body.outcome}{f' in {body.cell}' if body.cell else ''}",
}


def named(body: object) -> list[str]:
    """The job that a record speaks of."""
    if isinstance(body, RouteAsked):
        return [body.spec.job]
    return [body.job] if type(body) in SAY and not isinstance(body, RouterSet | CellsHeard) else []  # type: ignore[attr-defined]
