"""Answers of the gateway as models: /openapi.json is made from them. The routes write plain documents (`documents/`,
`http/dry_runs/`); tests hold each recorded answer against its model.

Quantities are strings that read back (`"500m"`, `"2Gi"`), times Unix milliseconds, shares parts of 1.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from schemas.access import RoleName
from schemas.grants import HoldReason
from schemas.plans import PlanForm, PlanReason
from schemas.presets import Preset

Quantities = Annotated[dict[str, str], Field(examples=[{"cpu": "500m", "memory": "2Gi"}])]
Share = Annotated[float, Field(ge=0, description="part of the cell: 0.25 is a quarter")]
Ms = Annotated[int, Field(ge=0, description="Unix time in milliseconds")]
Count = Annotated[int, Field(ge=0)]

JobState = Literal["waiting", "running", "succeeded", "failed", "cancelled", "rejected"]


class Moment(BaseModel):
    """The last record of the log up to a moment, and log time then."""

    seq: Count
    time: Ms


At = Annotated[Moment | None, Field(description="of the past, where it was asked for")]


class ReservationAnswer(BaseModel):
    accepted: bool
    reason: PlanReason
    detail: str
    offer_from_ms: int | None
    offer_to_ms: int | None
    size_permille: int | None
    form: PlanForm
    retry_until_ms: Ms | None


class Problem(BaseModel):
    """Why a request failed (RFC 9457). `type` is permanent; `field` is the path of what is wrong in the request."""

    type: Annotated[str, Field(pattern="^urn:largesse:", examples=["urn:largesse:refused:unknown_queue"])]
    title: str
    status: Annotated[int, Field(ge=400, le=599)]
    detail: str
    field: str | None = None
    reason: Annotated[str | None, Field(description="the cell's reason to refuse, or the detail without its field")] = (
        None
    )
    job: Annotated[str | None, Field(description="the job that was refused")] = None
    job_state: Annotated[JobState | None, Field(description="of the job that has the name already")] = None
    answer: Annotated[ReservationAnswer | None, Field(description="of the planner, to a reservation")] = None
    update_refused: Annotated[
        bool | None, Field(description="of a reservation: the terms accepted before stay in force")
    ] = None
    warnings: list[str] | None = None
    reservation: Annotated[str | None, Field(description="the occurrence that the job was bound to")] = None
    limit: Annotated[int | None, Field(description="in bytes")] = None
    size: Annotated[int | None, Field(description="in bytes")] = None
    node: Annotated[str | None, Field(description="the node that keeps the output")] = None
    live: Annotated[bool | None, Field(description="whether the job of the task has yet to end")] = None
    role: Annotated[RoleName | None, Field(description="the least one that may do it")] = None
    retry_after_s: Annotated[int | None, Field(description="after which to try again, as in Retry-After")] = None


# ---------------------------------------------------------------- health
class Live(BaseModel):
    status: Literal["live"]


class Ready(BaseModel):
    """How far the gateway, of release `version`, has read the log: `seq`, `round` and `time` of the last record.
    `silent_ms`: for how long nothing was heard of the sequencer, which writes a record or gives a sign of life every
    three seconds at least. `recorded`: that is no cell's log any more, and nothing can be changed."""

    status: Literal["ready"]
    version: str
    cell: str
    seq: Count
    round: Count
    time: Ms
    silent_ms: Count
    recorded: bool = False


class CellInBrief(BaseModel):
    """A cell. `ready`: whether what its log had has been read."""

    cell: str
    ready: bool


class CellOfRouter(BaseModel):
    """`silent`: its sequencer has said nothing to the router for a while; `unread`: its log cannot be read there, or is
    not yet. Neither gets jobs."""

    cell: str
    state: Literal["heard", "silent", "unread"]


class RouterInBrief(BaseModel):
    """`silent_ms`: since it last wrote into its log, which it does every second. `behind`: messages that wait for it.
    `jobs`: those that are not over, by state. `cells`: which it hears."""

    silent_ms: Count
    behind: Count
    jobs: dict[Literal["waiting", "sent", "taken", "moving"], Count]
    cells: list[CellOfRouter]


class Cells(BaseModel):
    """`cell`: the one that has answered. `router`: of jobs that name no cell; null: there has never been one."""

    cell: str
    cells: list[CellInBrief]
    router: RouterInBrief | None


class Instance(BaseModel):
    """`name`: by which the bus knows it."""

    name: str
    host: str
    serves: Annotated[bool, Field(description="false: it stands by")]
    shards: Annotated[list[int], Field(description="that are its own, of those in use")]


class Service(BaseModel):
    """`instances`: those that take part. `lost`: how many fewer there are than there were, `lost_since_ms` since when:
    told for a day."""

    service: str
    instances: list[Instance]
    lost: Count
    lost_since_ms: Ms | None


class Services(BaseModel):
    """`alone`: all services are one process. `settled`: all shards are dealt out; otherwise instances have come or gone
    just now. `refused`: why the bus does not tell; empty: it does."""

    cell: str
    alone: bool
    settled: bool
    looked_ms: Ms
    services: list[Service]
    refused: str


# ---------------------------------------------------------------- queues
class QueueLimits(BaseModel):
    guaranteed: Quantities
    max: Quantities
    running_jobs_max: int | None
    user_jobs_max: int | None
    user_running_max: int | None
    submitters: list[str]


class IgnoredLimits(BaseModel):
    """Resources of which a limit does not count under the preset in force, or below a queue that is served as a
    list."""

    guaranteed: list[str]
    max: list[str]


class JobCounts(BaseModel):
    """Jobs that have not ended. `parked`: those of the waiting ones that `running_jobs_max` holds back."""

    waiting: Count
    running: Count
    parked: Count


class Shortage(BaseModel):
    """A guarantee that is broken. `winner`: the queue that holds most beyond its own. `placeable`: whether anything
    that waits finds room."""

    since_ms: Ms
    guaranteed: Share
    allocated: Share
    winner: str | None
    placeable: bool


class QueueStatus(BaseModel):
    """A queue and those below it. Shares are dominant shares of the cell; null where a queue has none of its own: the
    root, and queues inside a list that is served as a whole. `held` and `target` are older names of `allocated` and of
    the level."""

    queue: Annotated[str, Field(description='the path, "" for the root')]
    weight: Annotated[float, Field(gt=0)]
    policy: str | None
    limits: QueueLimits
    ignored: IgnoredLimits
    policy_in_force: str
    guaranteed: Share | None
    fair: Share | None
    allocated: Share
    lent: Share | None
    borrowed: Share | None
    resource: Annotated[str | None, Field(description="the resource of which it holds the largest part")]
    held: Share
    used: Quantities
    promised: Annotated[Quantities, Field(description="what its reservations may have now")]
    jobs: JobCounts
    target: Share | None
    breach: Shortage | None
    short_since_ms: Annotated[Ms | None, Field(description="since when it has held less than it is due")]
    children: list["QueueStatus"]
    preset: Annotated[Preset | None, Field(description="the preset in force; at the root alone")] = None
    at: At = None


class WaitingTasks(BaseModel):
    """Tasks of a leaf queue that wait for one reason. `since_ms`: when the oldest of their jobs was submitted."""

    queue: str
    reason: str
    tasks: Count
    since_ms: Ms | None


class RefusedInput(BaseModel):
    """An input that record `seq` refused for good, as it lies in `deadletter` under that number. `field`: the path of
    what is wrong in it."""

    seq: Count
    time_ms: Ms
    topic: str
    field: str
    reason: str
    author: str


class RefusedInputs(BaseModel):
    """`count`: of the whole log; `latest`: the last 20, the last one first."""

    count: Count
    latest: list[RefusedInput]


class LateJob(BaseModel):
    """A job that has not ended although the window of its reservation has, at `since_ms`."""

    reservation: str
    job: str
    since_ms: Ms


class Summary(BaseModel):
    """The cell at one record of its log. `capacity`, `used`: of nodes that are there; `waiting`: most tasks first.
    `open_since_ms`: since when a round is open, null where none is; `late`: at most 20."""

    cell: str
    seq: Count
    round: Count
    time: Ms
    preset: Preset
    jobs: dict[JobState, Count]
    nodes: dict[str, Count]
    capacity: Quantities
    used: Quantities
    waiting: list[WaitingTasks]
    queues: QueueStatus
    open_since_ms: Ms | None
    refused: RefusedInputs
    late: list[LateJob]
    at: At = None


# ---------------------------------------------------------------- changes
class ChangedNames(BaseModel):
    """`count`: how many documents of a kind have changed, or may have; `names`: those that did last, at most 100. Fewer
    names than that: any of them may have."""

    count: Count
    names: list[str]


class ChangedJobs(ChangedNames):
    """`reasons`: true where jobs whose tasks wait may say other reasons for it, whether or not they are named."""

    reasons: bool = False


class ChangedKinds(BaseModel):
    """What has changed, by kind of document. A kind that has not is left out."""

    jobs: ChangedJobs | None = None
    nodes: ChangedNames | None = None
    reservations: ChangedNames | None = None
    series: ChangedNames | None = None
    queues: bool = False
    classes: bool = False
    config: bool = False
    rounds: bool = False
    ledger: bool = False
    refused: bool = False


class Changes(BaseModel):
    """What has changed behind record `since_seq` up to record `seq`, when round `round` was the last one, at log time
    `time_ms`. `all`: anything may have, since the stream begins, or goes on behind a record that lies too far back."""

    seq: Count
    round: Count
    time_ms: Ms
    since_seq: Count | None
    all: bool
    changed: ChangedKinds


# ---------------------------------------------------------------- nodes
class HeldRoom(BaseModel):
    """Room of a node that is kept free on purpose."""

    why: HoldReason
    demand: Quantities


class DeviceStatus(BaseModel):
    """`milli`: its size in thousandths of a whole device. `memory_mib`: 0: not known. `link`: those with the same one
    are linked to each other. `out`: why nothing starts on it, empty if it may; it is none of the node's capacity then.
    """

    index: Count
    milli: int
    model: str
    memory_mib: Count
    numa: int | None
    link: str
    uuid: str
    out: str


class Drain(BaseModel):
    """`until_ms`: when what runs there is ended and placed elsewhere; null: it runs on."""

    author: str
    reason: str
    until_ms: Ms | None


class Failing(BaseModel):
    """`jobs`: of which attempts have failed there, with no success in between. `until_ms`: until then the node is
    placed last, if nothing else fails there and nothing succeeds.
    """

    jobs: list[str]
    until_ms: Ms


NodeState = Literal["ready", "draining", "unschedulable", "lost", "left"]


class Node(BaseModel):
    """`running`: tasks that hold room there. `unschedulable`: why its agent takes no new tasks, empty if it does.
    `failing`: why it is placed last; null: it is not. `reached`, `heard_ms`: by which way its agent was last heard (on
    the bus itself, or over MQTT by a bridge), and when; null: not since the gateway was started.
    """

    node: str
    state: Literal[NodeState, "removed"]
    capacity: Quantities
    used: Quantities
    free: Quantities
    kept: HeldRoom | None
    running: Count
    labels: dict[str, str]
    devices: dict[str, list[DeviceStatus]]
    epoch: str
    address: str
    reached: Literal["direct", "bridge"] | None
    heard_ms: Ms | None
    unschedulable: str
    drain: Drain | None
    failing: Failing | None


class NodeMapResource(BaseModel):
    """By node, in units that `unit` names as a quantity; null: the node has none of it."""

    unit: str
    capacity: list[int | None]
    used: list[int | None]


class NodeMap(BaseModel):
    """Nodes in columns, in the order of `nodes`, as of record `seq`."""

    seq: Count
    time_ms: Ms
    nodes: list[str]
    states: list[NodeState]
    running: list[Count]
    resources: dict[str, NodeMapResource]
    total: Count
    at: At = None


class Nodes(BaseModel):
    """`total`: how many there are that are as asked for; `offset`: how many of them come before the first one here."""

    nodes: list[Node]
    total: Count
    offset: Count
    at: At = None


# ---------------------------------------------------------------- classes
class ClassJobs(BaseModel):
    running: Count
    waiting: Count


class Coming(BaseModel):
    """What running tasks are forecast to give back within so many seconds."""

    seconds: Count
    amount: Quantities


class ClassStatus(BaseModel):
    """A class of jobs. `threshold`: its largest request; null: of the class of all others. `pool`: null where classes
    have no pools. `room`: what the pool is; `held`: what tasks of the class hold."""

    class_: Annotated[str, Field(alias="class")]
    threshold: Share | None
    pool: Share | None
    room: Quantities
    held: Quantities
    jobs: ClassJobs
    coming: list[Coming]


class HorizonError(BaseModel):
    """The mean absolute error of forecasts so many seconds ahead, as a part of the cell."""

    seconds: Count
    error: Share
    forecasts: Count


class ForecasterScore(BaseModel):
    forecaster: Literal["ramp", "durations"]
    errors: list[HorizonError]


class PoolsSince(BaseModel):
    """By class, in their order; empty: there were no pools."""

    since_ms: Ms
    pools: list[Share]


class Classes(BaseModel):
    """`forecaster`: the one whose forecast is in force, made at `forecast_ms`. `history`: every change of the pools,
    the last ones."""

    pools: Literal["on", "off"]
    classes: list[ClassStatus]
    forecaster: Literal["ramp", "durations"] | None
    forecast_ms: Ms | None
    scores: list[ForecasterScore]
    history: list[PoolsSince]
    at: At = None


# ---------------------------------------------------------------- rounds, inputs
class Abandoned(BaseModel):
    """`abandoned`: whether the log has said so."""

    round: int
    abandoned: bool


class CheckpointNoted(BaseModel):
    """`noted`: whether the log has said so."""

    closing: int
    noted: bool


class Skipped(BaseModel):
    """`skipped`: whether the log has said so."""

    topic: str
    offset: int
    skipped: bool
