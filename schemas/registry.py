"""(type, version) -> body model. Decoding lifts old versions to the newest (history.py); every body here is at its
newest.
"""

from dataclasses import dataclass
from typing import get_args

from schemas import (
    access,
    asks,
    checkpoints,
    grants,
    jobs,
    nodes,
    plans,
    queues,
    releases,
    reservations,
    rounds,
    routes,
    shares,
    tasks,
)

LogBody = (
    jobs.JobAdmitted | jobs.JobRejected | jobs.JobCancelled | jobs.JobChanged | jobs.JobEnded | jobs.JobTurns
    | jobs.InputRefused | jobs.InputRepeated | jobs.InputSkipped
    | nodes.NodeRegistered | nodes.NodeReported | nodes.NodeDrained | nodes.NodeLost | nodes.NodeRemoved
    | nodes.NodeForgotten | nodes.AttemptsKnown
    | tasks.TaskStarted | tasks.TaskFinished | tasks.TaskFailed
    | queues.ConfigChanged
    | reservations.ReservationRequested | reservations.ReservationUpdated | reservations.ReservationDeleted
    | reservations.SeriesRequested | reservations.SeriesEnded
    | rounds.SequencerClaimed | rounds.SequencerAlive | rounds.TimeReached | rounds.RoundOpened | rounds.RoundClosed
    | rounds.RoundAbandoned | releases.Releases | plans.Plans | plans.PlanProposed
    | access.TokenMade | access.TokenRevoked | checkpoints.Checkpoint
)  # fmt: skip
"""What a record of the log can hold."""


RouterBody = (
    routes.RouterSet | routes.CellsHeard | routes.RouteAsked | routes.CellsJudged | routes.JobRouted
    | routes.RouteDeclined
    | routes.RouteTaken | routes.RouteLapsed | routes.MoveAsked | routes.MoveAnswered | routes.RouteEnded
)  # fmt: skip
"""What a record of the router's log can hold beside some of those."""


@dataclass(frozen=True, slots=True)
class Released:
    """One body version: its class and where it may stand."""

    model: type
    version: int


_VERSIONS = {"JobAdmitted": 2}
"""Of the bodies that are not at version 1."""

NEWEST: dict[str, Released] = {
    model.__name__: Released(model, _VERSIONS.get(model.__name__, 1))
    for model in (*get_args(LogBody), shares.Shares, asks.Asks, grants.Grants, *get_args(RouterBody))
}

VERSION_OF: dict[type, int] = {released.model: released.version for released in NEWEST.values()}
