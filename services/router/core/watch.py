"""What a cell's log says of a job that was sent there, as a fact for the router's log."""

from dataclasses import dataclass

from schemas.routes import MoveAnswered, RouteEnded, RouteLapsed, RouteOutcome, RouteTaken
from services.router.core.state import Route


@dataclass(frozen=True, slots=True)
class Seen:
    """A job in a cell's log, read up to log time `time_ms`. `admitted`: the seq of the admission of one that has not
    ended; 0: there is none. `has_begun`: something of it was started, or it is not any more what was submitted.
    `is_over`: a record has ended it; `outcome`: of one that has ended; `moved_to`: the cell that it was cancelled for.
    """

    time_ms: int
    admitted: int = 0
    has_begun: bool = False
    is_over: bool = False
    outcome: RouteOutcome | None = None
    moved_to: str = ""


Fact = RouteTaken | RouteLapsed | MoveAnswered | RouteEnded


def fact_of(name: str, route: Route, seen: Seen) -> Fact | None:
    """What is new of a job in its cell; None: nothing is."""
    if route.phase == "sent":
        if seen.admitted or seen.is_over or seen.outcome is not None:
            return RouteTaken(name, route.cell, seen.admitted)
        return RouteLapsed(name, route.cell) if seen.time_ms > route.before_ms else None
    if route.phase == "moving":
        if seen.moved_to:
            return MoveAnswered(name, route.cell, is_free=True)
        stays = seen.has_begun or seen.is_over or seen.outcome is not None
        if stays or not seen.admitted:
            return MoveAnswered(name, route.cell, is_free=False)
        return None
    if route.phase == "taken" and not seen.admitted and not seen.is_over:
        return RouteEnded(name, route.cell, seen.outcome or "unknown")
    return None
