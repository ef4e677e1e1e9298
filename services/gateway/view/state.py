"""The gateway's view of a cell: jobs, attempts that hold room, nodes, shares of queues, why classes of tasks wait."""

from dataclasses import dataclass, field
from typing import Literal

from largesse.lifecycle.failing_nodes import NodeFailures
from largesse.lifecycle.ledger import LedgerSum
from largesse.lifecycle.state import RunningLimits
from schemas import (
    Cache,
    Device,
    JobSpec,
    LedgerEntry,
    PlanAnswer,
    PlanStep,
    Policy,
    PromisedWait,
    Queue,
    Record,
    Releases,
    Stage,
    Vector,
)
from schemas.access import Role
from schemas.grants import HeldRoom, WaitReason
from schemas.nodes import ResultsKept
from schemas.placement_rules import class_key, near_key, rules_of
from schemas.plans import AtomOrder
from schemas.quantities import SHARE_UNITS
from schemas.shares import Breach, QueueShare
from services.gateway.view.jobs import ClassClock, EndedJob, LiveJob, StageUse
from services.gateway.view.predictions import Predictions

ENDED_JOBS_MAX = 10_000
"""Ended and rejected jobs that are kept; the oldest are forgotten first."""

ENDED_CHARACTERS_MAX = 32 << 20
"""What is kept of their stages, failed attempts and reasons has so many characters at most; a job of one stage has
about 50.
"""

FAILURES_KEPT = 20
"""Failed attempts that are kept for each job, the last ones."""

PLACES_KEPT_MAX = 200_000
"""Tasks of ended jobs whose nodes are remembered; those of the oldest jobs are forgotten first."""

TOUCHED_MAX = 100_000
"""Most jobs, and nodes, that are noted as changed; beyond it, metrics count all of them again."""

POOLS_KEPT = 1_000
"""Changes of the pools of classes that are kept, the last ones."""

NAMED = ("jobs", "nodes", "reservations", "series")
"""Kinds of documents that have names."""

EVERY = "every"
"""In place of a kind: every document of the kinds that are named here may be another."""


@dataclass(slots=True)
class Allocation:
    """An attempt that holds room on a node, for a job that may have ended already. `granted`: the record that granted
    it, at `granted_ms`, and `why`.
    """

    attempt: int
    node: str
    queue: str
    demand: Vector
    user: str = ""
    started: bool = False
    why: str = ""
    granted: int = 0
    granted_ms: int = 0
    started_ms: int | None = None


@dataclass(slots=True)
class LentRow:
    """An attempt that may be taken back, first for the lease of a reservation from `from_ms` to `until_ms`.
    `taken_for`: the reservation for which it has been; empty: it has not.
    """

    attempt: int
    reservation: str
    from_ms: int
    until_ms: int
    taken_for: str = ""


@dataclass(slots=True)
class DrainRow:
    """A drain: by whom, why and when. `within_ms`: after so long what runs there is revoked; None: it runs on."""

    author: str
    reason: str
    at_ms: int
    within_ms: int | None


@dataclass(slots=True)
class NodeRow:
    """A node as the log knows it. `used`: what attempts hold of it. `left`: lost because its agent went. `address`:
    where the agent shows what tasks print. `unschedulable`: why its agent takes no new tasks; empty: it does.
    `drain`: what was last said of draining it, or of an end of that. `results`: what it keeps of ended jobs.
    """

    epoch: str
    capacity: Vector
    labels: dict[str, str]
    devices: list[Device]
    author: str
    used: Vector = field(default_factory=dict)
    holds: int = 0
    draining: bool = False
    lost: bool = False
    left: bool = False
    address: str = ""
    unschedulable: str = ""
    drain: DrainRow | None = None
    results: ResultsKept | None = None


ReservationState = Literal["requested", "accepted", "rejected", "broken", "ended", "deleted"]

RESERVATIONS_KEPT_MAX = 1_000
"""Reservations that are over which the view still shows; beyond it the oldest go."""

RESERVATIONS_KEPT_BYTES_MAX = 16 * 1024 * 1024
"""What those may take together, about: the oldest go before."""

STEP_BYTES = 500
"""About what a lease takes."""


@dataclass(slots=True)
class ReservationRow:
    """A reservation. `rdl`: the terms that were accepted last, or are asked for; `asked_rdl`, `asked_queue`: those of
    an update that is not answered, else empty, and `asked_ms` when it came. `at_ms`: when the terms in force were asked
    for. `steps`, `order`: what the planner promised, also where that is over,
    and which part comes after which. `answer`: the last one; `unanswered`: requests that wait for theirs. `moved`: how
    often the promise was moved, and why last; `ahead`, `behind`: how often the plan followed its jobs, `progress` what
    was said of that last. `works`: by atom, unit-milliseconds that the plan has for it, where that is another amount
    than it asked for. `series`: of an occurrence, the series that it was requested for. `retry_until_ms`: while its
    promise is broken, until when it is tried again; `restored`: how often it was promised again after that.
    `weight`: what it counts beside others; `asked_weight`: that of an update that is not answered.
    """

    reservation: str
    user: str
    queue: str
    rdl: str
    at_ms: int
    state: ReservationState = "requested"
    steps: list[PlanStep] = field(default_factory=list)
    order: list[AtomOrder] = field(default_factory=list)
    answer: PlanAnswer | None = None
    answered_ms: int | None = None
    unanswered: int = 1
    asked_rdl: str = ""
    asked_queue: str = ""
    asked_ms: int = 0
    moved: int = 0
    moved_why: str = ""
    ahead: int = 0
    behind: int = 0
    progress: str = ""
    works: dict[str, int] = field(default_factory=dict)
    series: str = ""
    retry_until_ms: int | None = None
    restored: int = 0
    weight: int = 1
    asked_weight: int = 1


@dataclass(slots=True)
class SeriesRow:
    """A reservation that recurs, as `schemas.SeriesRequested` has it. `at_ms`: when it was asked for. `occurrences`:
    those that were requested; `asked_s`: the latest of them, in seconds of Unix time, None is none.
    """

    series: str
    user: str
    queue: str
    rdl: str
    every: str
    zone: str
    start_s: int
    at_ms: int
    occurrences: int = 0
    asked_s: int | None = None
    weight: int = 1


@dataclass(slots=True)
class PoolsRow:
    """The pools of the classes from a moment on, in millionths of the cell; empty: none."""

    since_ms: int
    pools_ppm: list[int]


@dataclass(slots=True)
class ShortRow:
    """A queue has held less than it is due since the round that record `seq` opened: what it held and was due then, and
    in what was published before; None: nothing had been. In 10^-9 of the cell.
    """

    seq: int
    since_ms: int
    held: int
    due: int
    held_before: int | None = None
    due_before: int | None = None


SHORT_LEAST = SHARE_UNITS // 1_000
"""What a queue lacks, to be told."""

REFUSED_KEPT = 20
"""Inputs refused for good that are kept, the last ones."""


@dataclass(slots=True)
class RefusedRow:
    """An input that record `seq` refused for good, to be found in `deadletter` under that number."""

    seq: int
    time_ms: int
    topic: str
    field: str
    reason: str
    author: str


@dataclass(slots=True)
class Sample:
    """How the cell was at a boundary of log time, and at those behind it up to the next sample. `numbers`: as one text
    (see history.py): many are kept, few are looked at.
    """

    at_ms: int
    numbers: str


@dataclass(slots=True)
class History:
    """Samples at multiples of `every_ms`, from `first_ms` on. `next_ms`: the next one; None: the log has not begun.
    `replaced`: of a round that is just being closed, levels as they were before its decisions; None: there was none.
    """

    every_ms: int = 60_000
    first_ms: int = 0
    next_ms: int | None = None
    samples: list[Sample] = field(default_factory=list)
    replaced: Cache[dict[str, int | None] | None] = None


@dataclass(slots=True)
class TokenRow:
    """A token that was not revoked: whose it is, what it may do, by whom and when it was made. `expires_ms`: from then
    on it does not count; None: until it is revoked.
    """

    name: str
    user: str
    roles: list[Role]
    sha256: str
    expires_ms: int | None
    author: str
    made_ms: int


@dataclass(slots=True)
class Touched:
    """Names of the jobs and nodes that have changed, or have left the view, since metrics were counted last."""

    jobs: dict[str, bool] = field(default_factory=dict)
    nodes: dict[str, bool] = field(default_factory=dict)


@dataclass(slots=True)
class State:
    """One cell. `configured`: whether a config has ever been set. `submitted`: of live jobs that users have changed,
    what was submitted; `specs`: of jobs that have ended, as texts, of `specs_kept` characters in all.
    `ended_kept`: characters of `ended`. `running_limits`: which jobs may run. `opened`: seq of the last opening;
    `answered`: of the last one whose round has closed. `failures`: by node, what has failed there in a row. `holds`: by
    "job/stage/index"; `copies`: the same of attempts beside that one, or after its success. `used`, `tasks`: by leaf,
    what attempts hold, and how many. `levels`: by queue, in 10^-9 of the cell. `shares`, `breaches`: by queue, as
    fairness published them last; `ceilings`: by queue, its maximum, where it has one. `user_tasks`: by leaf and user,
    how many attempts hold room; `user_running_max`: by queue, how many tasks of one user run at a time. `waits`: by
    task class, why its tasks wait; `retries`: the same of tasks that have failed on some node, by the class of their
    stage and then their own. `kept`: nodes of which room is kept free on purpose. `promised`: by "job/stage", the lease
    that keeps it from starting; `lent`: by job and "stage/index", attempts that may be taken back for one. `latest`:
    the record folded last, which answers the input it came from. `places`: where tasks of ended jobs were granted last,
    the oldest job first, `places_kept` tasks in all; `used_by`: what those tasks used. `reservations_over`: those that
    are over, the oldest first. `series`: reservations that recur. `reserving`: by reservation, the live jobs that name
    it. `ledger`: accounts of jobs, the one published last at the end; `ledger_sums`: by queue, of its jobs that are
    over. `pools`: of the classes, each change of them; `forecast`: of the estimator, the latest. `clocks`: by task
    class for which jobs wait, how long for which reason; `jobs_changed`, `reasons_changed`: by name and class, what has
    to be looked at once the record is folded; `limits_changed`: so have the queues with a `max`. `predictions`: of
    starts. `short`: by queue, since when it has held less than it is due. `touched`: what has changed since metrics
    were last exported; None: never exported, or too much has changed. `noted`: by kind, names of the documents that
    the record being folded changes; None: nobody asks. `tasks_waiting`: tasks of live jobs that wait. `history`: how
    the cell was over log time. `tokens`: by name; `token_names`: their names by SHA-256; `tokens_made`: whether there
    has ever been one.
    """

    cell: str = ""
    seq: int = 0
    time: int = 0
    round: int = 0
    open: bool = False
    policy: Policy = field(default_factory=Policy)
    queues: Queue | None = None
    configured: bool = False
    submitted: dict[str, JobSpec] = field(default_factory=dict)
    specs: dict[str, str] = field(default_factory=dict)
    specs_kept: int = 0
    ended_kept: int = 0
    running_limits: RunningLimits = field(default_factory=RunningLimits)
    opened: int = 0
    opened_ms: int = 0
    answered: int = 0
    nodes: dict[str, NodeRow] = field(default_factory=dict)
    failures: dict[str, NodeFailures] = field(default_factory=dict)
    jobs: dict[str, LiveJob] = field(default_factory=dict)
    ended: dict[str, EndedJob] = field(default_factory=dict)
    places: dict[str, list[list[str]]] = field(default_factory=dict)
    places_kept: int = 0
    used_by: dict[str, list[StageUse]] = field(default_factory=dict)
    holds: dict[str, Allocation] = field(default_factory=dict)
    copies: dict[str, list[Allocation]] = field(default_factory=dict)
    used: dict[str, Vector] = field(default_factory=dict)
    tasks: dict[str, int] = field(default_factory=dict)
    user_tasks: dict[str, dict[str, int]] = field(default_factory=dict)
    user_running_max: dict[str, int] = field(default_factory=dict)
    levels: dict[str, int] = field(default_factory=dict)
    shares: dict[str, QueueShare] = field(default_factory=dict)
    breaches: dict[str, Breach] = field(default_factory=dict)
    short: dict[str, ShortRow] = field(default_factory=dict)
    ceilings: dict[str, Vector] = field(default_factory=dict)
    waits: dict[str, WaitReason] = field(default_factory=dict)
    retries: dict[str, dict[str, WaitReason]] = field(default_factory=dict)
    kept: dict[str, HeldRoom] = field(default_factory=dict)
    vacated: dict[str, HeldRoom] = field(default_factory=dict)
    promised: dict[str, PromisedWait] = field(default_factory=dict)
    lent: dict[str, dict[str, LentRow]] = field(default_factory=dict)
    reservations: dict[str, ReservationRow] = field(default_factory=dict)
    reservations_over: dict[str, bool] = field(default_factory=dict)
    series: dict[str, SeriesRow] = field(default_factory=dict)
    reserving: dict[str, dict[str, bool]] = field(default_factory=dict)
    ledger: dict[str, LedgerEntry] = field(default_factory=dict)
    ledger_sums: dict[str, LedgerSum] = field(default_factory=dict)
    pools: list[PoolsRow] = field(default_factory=list)
    forecast: Releases | None = None
    clocks: dict[str, ClassClock] = field(default_factory=dict)
    jobs_changed: dict[str, bool] = field(default_factory=dict)
    reasons_changed: dict[str, bool] = field(default_factory=dict)
    limits_changed: bool = False
    predictions: Predictions = field(default_factory=Predictions)
    tasks_waiting: int = 0
    history: History = field(default_factory=History)
    refused: list[RefusedRow] = field(default_factory=list)
    refused_count: int = 0
    tokens: dict[str, TokenRow] = field(default_factory=dict)
    token_names: dict[str, str] = field(default_factory=dict)
    tokens_made: bool = False
    latest: Cache[Record | None] = None
    touched: Cache[Touched | None] = None
    noted: Cache[dict[str, dict[str, bool]] | None] = None


def note(state: State, kind: str, name: str = "") -> None:
    """Notes, for whoever is told of changes, that a document is another now."""
    if state.noted is not None:
        state.noted.setdefault(kind, {})[name] = True


def touch(state: State, job: str = "", node: str = "") -> None:
    """Notes what has changed, and, if metrics are being counted, what they have to count again."""
    if job:
        state.jobs_changed[job] = True
        note(state, "jobs", job)
    if node:
        note(state, "nodes", node)
    touched = state.touched
    if touched is None:
        return
    if job:
        touched.jobs[job] = True
    if node:
        touched.nodes[node] = True
    if len(touched.jobs) > TOUCHED_MAX or len(touched.nodes) > TOUCHED_MAX:
        state.touched = None


def stage_class_key(spec: JobSpec, stage: Stage) -> str:
    """The class that a stage's tasks belong to, once they wait for no nodes that they prefer."""
    like = (stage.demand, stage.labels, stage.prefer, stage.tasks if stage.gang else 0)
    return class_key(*like, rules_of(spec.job, spec.queue, stage))


def said_of(state: State, key: str) -> WaitReason | Literal["failed_there"] | None:
    """Why tasks of a class wait; None where nothing was said. What is barred to tasks that are tried again, and to no
    others, is where they have failed.
    """
    found = state.waits.get(near_key(key)) or state.waits.get(key)
    if found is None:
        for reason in state.retries.get(key, {}).values():
            return "failed_there" if reason == "spread" else reason
    return found
