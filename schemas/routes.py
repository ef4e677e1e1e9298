"""The router's log: jobs that name no cell, what each cell said of them, and where they went."""

from dataclasses import dataclass, field
from typing import Literal

from schemas.jobs import JobSpec
from schemas.quantities import Vector

RouteOutcome = Literal["succeeded", "failed", "cancelled", "unknown"]
"""`unknown`: its cell has forgotten the job's name before the router could look."""
RouteReason = Literal["there_already", "only_one", "least_load", "drawn", "moved"]
"""Why a cell was chosen: it has the job, word for word; no other could run it; it has the least load; several had, and
one of them was drawn by the job's name; the job moves there."""
Considering = Literal["placing", "moving"]
HeardState = Literal["heard", "silent", "unread"]


@dataclass(slots=True)
class RouterSet:
    """How the router decides from here on. `lease_ms`: for so long a cell may take a job that was sent to it. A job
    that has waited in its cell for `move_after_ms`, and was not moved for `move_gap_ms`, moves to a cell where it would
    start at once, if its load is smaller by `move_gain_permille` of that of its own. `move_after_ms` 0: none moves.
    """

    lease_ms: int = 30_000
    move_after_ms: int = 60_000
    move_gap_ms: int = 600_000
    move_gain_permille: int = 300


@dataclass(slots=True)
class RouteAsked:
    """A job that names no cell. `cells`: those that it may go to; empty: all."""

    spec: JobSpec
    cells: list[str] = field(default_factory=list)
    author: str = "unknown"


@dataclass(slots=True)
class CellProblem:
    """Why a cell does not take a job."""

    cell: str
    reason: str
    field: str
    detail: str


@dataclass(slots=True)
class Bid:
    """What one cell offers a job, once its log had been read up to `seq`, of log time `time_ms`.

    `problem`: why it would refuse the job; None: it would not. `is_there`: it has the job already. `is_able`: nodes
    that are up could run every stage. `capacity`: of nodes that are up and could run a task of it, by the kinds that
    the job asks for; `ahead`: what all jobs of the cell still have to run; `queue_ahead`: what those of the job's queue
    have; `queue_permille`: the part of the cell that its queue is entitled to.
    """

    cell: str
    seq: int
    time_ms: int
    problem: CellProblem | None = None
    is_there: bool = False
    is_able: bool = False
    capacity: Vector = field(default_factory=dict)
    ahead: Vector = field(default_factory=dict)
    queue_ahead: Vector = field(default_factory=dict)
    queue_permille: int = 1_000


@dataclass(slots=True)
class CellsJudged:
    """What cells say of a job that waits for one, or that may move."""

    job: str
    considering: Considering
    bids: list[Bid]


@dataclass(slots=True)
class CellHeard:
    """A cell of the list. `heard`: its log is read, and its sequencer lives; `silent`: that has said nothing for a
    while; `unread`: its log is not read up to its end yet, or cannot be.
    """

    cell: str
    state: HeardState


@dataclass(slots=True)
class CellsHeard:
    """Which cells the router hears from here on, of all that are listed, by name."""

    cells: list[CellHeard] = field(default_factory=list)


@dataclass(slots=True)
class CellLoad:
    """How full a cell would be with the job, in millionths: what is ahead of it, what is on its way there, and itself,
    against the capacity (`cell_ppm`) or against the part of the job's queue (`queue_ppm`); the smaller counts.
    """

    cell: str
    cell_ppm: int
    queue_ppm: int


@dataclass(slots=True)
class JobRouted:
    """The job is sent to a cell, which may admit it up to its log time `before_ms`. `number`: how often it
    was sent to one, with this. `loads`: of the cells that could run it, the chosen one among them.
    """

    job: str
    number: int
    cell: str
    before_ms: int
    why: RouteReason
    loads: list[CellLoad]


@dataclass(slots=True)
class RouteDeclined:
    """No cell could ever run the job."""

    job: str
    problems: list[CellProblem]


@dataclass(slots=True)
class RouteTaken:
    """The cell's log has admitted the job. `admitted`: the seq of that."""

    job: str
    cell: str
    admitted: int


@dataclass(slots=True)
class RouteLapsed:
    """The cell has not admitted the job in time, and will not any more."""

    job: str
    cell: str


@dataclass(slots=True)
class MoveAsked:
    """The job is to move: its cell cancels it, if nothing of it has been started. `admitted`: see RouteTaken. `loads`:
    of both cells.
    """

    job: str
    cell: str
    to: str
    admitted: int
    loads: list[CellLoad]


@dataclass(slots=True)
class MoveAnswered:
    """The cell's log has cancelled the job for the move (`is_free`), or the job stays: something of it was started, or
    it was changed.
    """

    job: str
    cell: str
    is_free: bool


@dataclass(slots=True)
class RouteEnded:
    """The job is over, in its cell or, if that is empty, before one had it."""

    job: str
    cell: str
    outcome: RouteOutcome
