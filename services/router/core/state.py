"""What the router keeps: jobs that it was asked for, where each of them is, and what is on its way to each cell."""

from dataclasses import dataclass, field
from typing import Literal

from schemas import JobSpec, Vector
from schemas.routes import Bid, CellsHeard, RouteOutcome, RouterSet

Phase = Literal["waiting", "sent", "taken", "moving"]
"""In no cell; sent to one that has not taken it; in one; in one that was asked to let it go."""

JOBS_MAX = 1_000_000
"""Jobs that are not over. One more is rejected with `too_many_jobs`."""
OVER_MAX = 200_000
"""Names of jobs that are over, which stay taken for OVER_KEPT_MS; of more than that the oldest go."""
OVER_KEPT_MS = 7 * 24 * 3_600_000


@dataclass(slots=True)
class Route:
    """A job that is not over. `cells`: those that it may go to; empty: all. `cell`: where it is, or was sent to;
    `before_ms`: up to which log time of that cell it may be admitted; `admitted`: the seq of its admission there.
    `number`: how many cells it was sent to. `since_ms`: when it came into its phase; `moved_ms`: when it was last freed
    for a move, 0: never. `to`: where it moves to. `been`: cells that had it, and let it go. `was_taken`: whether any
    cell has admitted it. `bids`: what was said of it last, while it waits.
    """

    spec: JobSpec
    author: str
    cells: list[str]
    since_ms: int
    phase: Phase = "waiting"
    cell: str = ""
    number: int = 0
    before_ms: int = 0
    admitted: int = 0
    moved_ms: int = 0
    to: str = ""
    been: list[str] = field(default_factory=list)
    was_taken: bool = False
    is_cancelled: bool = False
    bids: list[Bid] = field(default_factory=list)


@dataclass(slots=True)
class Over:
    """A name that stays taken for a while. `digest`: of the spec."""

    digest: str
    at_ms: int
    cell: str
    outcome: RouteOutcome


@dataclass(slots=True)
class State:
    """`heard`: which cells are. `coming`: by cell, what jobs ask for that were sent there, or are to move there, and
    that its log does not have yet. `waiting`, `sent`, `taken`: names by phase, in the order in which they came into it.
    `ending`: of those that wait, the ones that a user has cancelled. `over`: the oldest first."""

    knobs: RouterSet = field(default_factory=RouterSet)
    heard: CellsHeard = field(default_factory=CellsHeard)
    jobs: dict[str, Route] = field(default_factory=dict)
    over: dict[str, Over] = field(default_factory=dict)
    coming: dict[str, Vector] = field(default_factory=dict)
    waiting: dict[str, bool] = field(default_factory=dict)
    sent: dict[str, bool] = field(default_factory=dict)
    taken: dict[str, bool] = field(default_factory=dict)
    ending: dict[str, bool] = field(default_factory=dict)


def wanted_of(spec: JobSpec) -> Vector:
    """What all tasks of a job ask for together, by kind."""
    total: Vector = {}
    for stage in spec.stages:
        for kind, amount in stage.demand.items():
            total[kind] = total.get(kind, 0) + amount * stage.tasks
    return dict(sorted(total.items()))


def phases(state: State) -> dict[Phase, int]:
    """How many jobs are in each phase."""
    waiting, taken, sent = len(state.waiting), len(state.taken), len(state.sent)
    return {"waiting": waiting, "sent": sent, "taken": taken, "moving": len(state.jobs) - waiting - taken - sent}
