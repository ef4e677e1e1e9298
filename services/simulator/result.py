"""What a simulation's result has, field by field, as `largesse simulate --json` prints it (docs/simulation.md).

Times in milliseconds of virtual time. A section that a run has nothing for is left out.
"""

from typing import NotRequired, TypedDict

from schemas.jobs import Outcome

RESULTS = "results.json"
"""The file in the folder of a report that has the results which it shows."""


class Spread(TypedDict):
    """Of one figure over all jobs: its mean and nearest-rank percentiles."""

    mean: float
    p50: float
    p95: float
    p99: float


class JainIndex(TypedDict):
    """Jain's index of fairness over the windows that count."""

    mean: float
    min: float
    max: float
    window_ms: int


JobRow = TypedDict(
    "JobRow",
    {
        "job": str,
        "queue": str,
        "class": str | None,
        "submit_ms": int,
        "start_ms": int | None,
        "end_ms": int | None,
        "tasks": int,
        "outcome": Outcome | None,
        "donated": NotRequired[dict[str, str]],
        "received": NotRequired[dict[str, str]],
        "waited": NotRequired[dict[str, str]],
        "lost_ms": NotRequired[int],
    },
)
"""An admitted job. Where jobs are planned also what it gave away, received and waited for, as quantities."""


class RejectedJob(TypedDict):
    """A job that was not admitted."""

    job: str
    reason: str


class ReservationRow(TypedDict):
    """What became of a reservation. `met`: all its jobs succeeded by its deadline; None where it has none, or no job
    ran under it.
    """

    reservation: str
    queue: str
    submit_ms: int
    answered_ms: int | None
    accepted: bool
    reason: str
    detail: str
    moved: int
    followed: int
    broken: bool
    deadline_ms: int | None
    jobs: int
    end_ms: int | None
    met: bool | None
    restored: NotRequired[int]
    series: NotRequired[str]


class OutagesResult(TypedDict):
    """What failures of nodes did. `unfinished`: jobs that could not end, since nodes that they need did not return."""

    node_failures: int
    attempts_lost: int
    unfinished: list[str]


class CopiesResult(TypedDict):
    """Copies of slow tasks: how many started and ended their task, and what attempts of copied tasks held in vain, in
    base units x seconds.
    """

    started: int
    won: int
    in_vain: dict[str, int]


class UtilisationOverTime(TypedDict):
    """By resource the part of the capacity that tasks hold, from each time on; means over `mean_ms`, where not 0."""

    times_ms: list[int]
    mean_ms: int
    used: dict[str, list[float]]


class Measured(TypedDict):
    """What is measured from outside the cores. `utilisation`: by resource, of the capacity over the makespan."""

    jobs: int
    tasks: int
    rejected: list[RejectedJob]
    makespan_ms: int
    jct_ms: Spread
    waiting_ms: Spread
    jain: JainIndex
    utilisation: dict[str, float]
    placements: int
    per_job: list[JobRow]


class UsageResult(TypedDict):
    """What of the cell was used over time. `leftover`: by `donated`, `received`, `waited` and resource, as parts of the
    cell over the makespan.
    """

    utilisation_over_time: UtilisationOverTime
    leftover: NotRequired[dict[str, dict[str, float]]]
    ledger: NotRequired[dict[str, dict[str, object]]]


class SimulationResult(Measured, UsageResult):
    """The whole result of one run. `digest` covers the log and every decision; all but `wall_s` and
    `placements_per_s` is the same wherever it is run.
    """

    preset: str
    version: str
    rounds: int
    records: int
    seed: int
    wall_s: float
    placements_per_s: float
    digest: str
    outages: NotRequired[OutagesResult]
    copies: NotRequired[CopiesResult]
    reservations: NotRequired[list[ReservationRow]]
