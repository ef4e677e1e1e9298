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
from schemas.tasks import DeviceShare
from services.gateway.view.jobs import ClassClock, EndedJob, LiveJob
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
    it, at `granted_ms`, and `why`. `devices`: its shares of the node's devices; None: it has none.
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
    devices: list[DeviceShare] | None = None


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
class TakenRow:
    """An attempt that is being taken back by record `seq`, as the queue `claimant` holds less than it is guaranteed.
    `at`: the queue where its path and the attempt's meet.
    """

    attempt: int
    claimant: str
    at: str
    seq: int


@dataclass(slots=True)
class TakingRow:
    """A queue took the room of `tasks` of another back, by record `seq`. `at`: where their paths meet."""

    seq: int
    at_ms: int
    claimant: str
    at: str
    loser: str
    tasks: int


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
    `drain`: what was last said of draining it, or of an end of that. `results`: what it keeps of ended jobs. `devices`:
    those on which tasks may start; `out`: the others that it lists.
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
    out: list[Device] = field(default_factory=list)


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
    `replaced`, `replaced_guaranteed`: of a round that is just being closed, levels, and what top-level queues were
    guaranteed, as they were before its decisions; None: there was none.
    """

    every_ms: int = 60_000
    first_ms: int = 0
    next_ms: int | None = None
    samples: list[Sample] = field(default_factory=list)
    replaced: Cache[dict[str, int | None] | None] = None
    replaced_guaranteed: Cache[dict[str, int] | None] = None


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
class EndedTokenRow:
    """A token that ended: was revoked, by whom, or expired, by nobody (""). Its name may be another token's since."""

    token: TokenRow
    ended_ms: int
    by: str


@dataclass(slots=True)
class Touched:
    """Names of the jobs and nodes that have changed, or have left the view, since metrics were counted last."""

    jobs: dict[str, bool] = field(default_factory=dict)
    nodes: dict[str, bool] = field(default_factory=dict)


@dataclass(slots=True)
class State:
    """One cell, as it is shown."""

    cell: str = ""
    seq: int = 0
    time: int = 0
    round: int = 0
    open: bool = False
    policy: Policy = field(default_factory=Policy)
    queues: Queue | None = None
    configured: bool = False
    """Whether a config has ever been set."""
    submitted: dict[str, JobSpec] = field(default_factory=dict)
    """Of live jobs that users have changed, what was submitted."""
    specs: dict[str, str] = field(default_factory=dict)
    """Of jobs that have ended, what was submitted, as texts."""
    specs_kept: int = 0
    """Characters of those in all."""
    ended_kept: int = 0
    """Characters of `ended`."""
    running_limits: RunningLimits = field(default_factory=RunningLimits)
    """Which jobs may run."""
    opened: int = 0
    """Seq of the last opening."""
    opened_ms: int = 0
    """Its time."""
    answered: int = 0
    """Seq of the last opening whose round has closed."""
    nodes: dict[str, NodeRow] = field(default_factory=dict)
    failures: dict[str, NodeFailures] = field(default_factory=dict)
    """By node, what has failed there in a row."""
    jobs: dict[str, LiveJob] = field(default_factory=dict)
    ended: dict[str, EndedJob] = field(default_factory=dict)
    places: dict[str, list[list[str]]] = field(default_factory=dict)
    """Where tasks of ended jobs were granted last, the oldest job first."""
    places_kept: int = 0
    """Tasks of those in all."""
    used_by: dict[str, list[str]] = field(default_factory=dict)
    """What those tasks used, by stage as a text (used.py)."""
    holds: dict[str, Allocation] = field(default_factory=dict)
    """By "job/stage/index"."""
    copies: dict[str, list[Allocation]] = field(default_factory=dict)
    """The same of attempts beside that one, or after its success."""
    used: dict[str, Vector] = field(default_factory=dict)
    """By leaf, what attempts hold."""
    tasks: dict[str, int] = field(default_factory=dict)
    """By leaf, how many attempts hold something."""
    user_tasks: dict[str, dict[str, int]] = field(default_factory=dict)
    """The same by leaf and user."""
    user_running_max: dict[str, int] = field(default_factory=dict)
    """By queue, how many tasks of one user run at a time."""
    levels: dict[str, int] = field(default_factory=dict)
    """By queue, in billionths of the cell."""
    shares: dict[str, QueueShare] = field(default_factory=dict)
    """By queue, as fairness published them last."""
    breaches: dict[str, Breach] = field(default_factory=dict)
    """By queue, guarantees that do not hold, as fairness published them last."""
    short: dict[str, ShortRow] = field(default_factory=dict)
    """By queue, since when it has held less than it is due."""
    ceilings: dict[str, Vector] = field(default_factory=dict)
    """By queue, its maximum, where it has one."""
    waits: dict[str, WaitReason] = field(default_factory=dict)
    """By task class, why its tasks wait."""
    retries: dict[str, dict[str, WaitReason]] = field(default_factory=dict)
    """The same of tasks that have failed on some node, by the class of their stage and then their own."""
    kept: dict[str, HeldRoom] = field(default_factory=dict)
    """By node, room that is kept free for a class."""
    vacated: dict[str, HeldRoom] = field(default_factory=dict)
    """By node, room that is kept free for a promise."""
    promised: dict[str, PromisedWait] = field(default_factory=dict)
    """By "job/stage", the lease that keeps it from starting."""
    lent: dict[str, dict[str, LentRow]] = field(default_factory=dict)
    """By job and "stage/index", attempts that may be taken back for a promise."""
    taken: dict[str, dict[str, TakenRow]] = field(default_factory=dict)
    """By job and "stage/index", attempts that are being taken back for a guarantee."""
    takings: list[TakingRow] = field(default_factory=list)
    """The last times that a queue took something from another, the latest at the end."""
    taken_tasks: dict[str, int] = field(default_factory=dict)
    """By queue, how many attempts it has lost so."""
    reservations: dict[str, ReservationRow] = field(default_factory=dict)
    reservations_over: dict[str, bool] = field(default_factory=dict)
    """Reservations that are over, the oldest first."""
    series: dict[str, SeriesRow] = field(default_factory=dict)
    """Reservations that recur."""
    reserving: dict[str, dict[str, bool]] = field(default_factory=dict)
    """By reservation, the live jobs that name it."""
    ledger: dict[str, LedgerEntry] = field(default_factory=dict)
    """Accounts of jobs, the one published last at the end."""
    ledger_sums: dict[str, LedgerSum] = field(default_factory=dict)
    """By queue, of its jobs that are over."""
    pools: list[PoolsRow] = field(default_factory=list)
    """Pools of the classes, each change of them."""
    forecast: Releases | None = None
    """The estimator's latest."""
    clocks: dict[str, ClassClock] = field(default_factory=dict)
    """By task class for which jobs wait, how long for which reason."""
    jobs_changed: dict[str, bool] = field(default_factory=dict)
    """Jobs that have to be looked at once the record is folded."""
    reasons_changed: dict[str, bool] = field(default_factory=dict)
    """Classes that have to be, too."""
    limits_changed: bool = False
    """Whether queues with a `max` have to be, too."""
    predictions: Predictions = field(default_factory=Predictions)
    """Of starts, with how right they were."""
    tasks_waiting: int = 0
    """Tasks of live jobs that wait."""
    history: History = field(default_factory=History)
    """How the cell was over log time."""
    refused: list[RefusedRow] = field(default_factory=list)
    """Inputs that were refused, the latest at the end."""
    refused_count: int = 0
    """How many there have been in all."""
    tokens: dict[str, TokenRow] = field(default_factory=dict)
    """By name."""
    token_names: dict[str, str] = field(default_factory=dict)
    """Names of tokens by their SHA-256, of those that have not ended."""
    tokens_made: bool = False
    """Whether there has ever been a token."""
    tokens_ended: list[EndedTokenRow] = field(default_factory=list)
    """Those that ended last, the latest at the end."""
    latest: Cache[Record | None] = None
    """The record folded last, which answers the input it came from."""
    touched: Cache[Touched | None] = None
    """What has changed since metrics were last exported; None: never exported, or too much has changed."""
    noted: Cache[dict[str, dict[str, bool]] | None] = None
    """By kind, names of the documents that the record being folded changes; None: nobody asks."""


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
