"""Jobs and stages, as admitted: normalised, in base units, every default filled in."""

from dataclasses import dataclass, field, replace
from typing import Literal

from schemas.quantities import Vector

UNJUDGED = -1
"""The class of a job that was admitted while the cell had no capacity to judge it by."""

OnFailure = Literal["fail", "continue"]
Network = Literal["none", "bridge", "host"]
"""What a container reaches: nothing, others through the node, or all that the node itself reaches."""
Pull = Literal["missing", "always", "never"]
"""When an image is fetched before a task starts: where the node does not have it, each time, or not at all."""
Outcome = Literal["succeeded", "failed", "cancelled"]
Revocable = Literal["auto", "never", "always"]
"""When tasks start on room that is promised to a reservation before they end: as far as it cannot be foreseen, never,
or wherever there is room."""
DependencyOn = Literal["success", "failure", "any"]
OnUnmet = Literal["cancel", "hold"]
Rejection = Literal[
    "name_taken",
    "exceeds_capacity",
    "gang_too_wide",
    "unknown_resource",
    "unknown_queue",
    "too_many_jobs",
    "too_many_tasks",
    "not_allowed",
    "exceeds_queue_max",
    "unknown_reservation",
    "wrong_queue",
]


@dataclass(slots=True, frozen=True)
class AntiAffinity:
    """At most one task of a group on a node. `group`: tasks of all stages that name it, in jobs of the same queue; "":
    the tasks of this stage. Not `required`: as far as other nodes have room.
    """

    group: str = ""
    required: bool = True


@dataclass(slots=True, frozen=True)
class Spread:
    """The running tasks of the stage are spread over the values that nodes have of `label`: their numbers differ by at
    most `max_skew`. Not `required`: as far as there is room.
    """

    label: str
    max_skew: int = 1
    required: bool = True


@dataclass(slots=True, frozen=True)
class Axis:
    """A variable of a stage's matrix, and the values that it takes."""

    name: str
    values: list[str]


@dataclass(slots=True, frozen=True)
class RetryRule:
    """How often a task is retried after failures of some kinds (schemas/retries.py), and after which pause:
    `backoff_ms` (None: as the policy), times `backoff_factor_permille` with each retry, `backoff_max_ms` at most (None:
    as the policy, and no less than `backoff_ms`).
    """

    on: list[str] = field(hash=False)
    limit: int
    backoff_ms: int | None = None
    backoff_factor_permille: int = 2_000
    backoff_max_ms: int | None = None


@dataclass(slots=True)
class PlacementRule:
    """A rule of a class of tasks. `label` "": at most one task of the group on a node; else the numbers of the group's
    tasks on nodes with the same value of the label differ by at most `max_skew`. With `nodes`, nothing but that: the
    task has failed there, and is tried again on others, where any of those could run it.
    """

    group: str
    label: str = ""
    max_skew: int = 1
    required: bool = True
    nodes: list[str] = field(default_factory=list)


ENGINE_LABEL, ENGINE_THERE = "largesse/engine", "true"
"""What nodes have that run containers, and what stages with a container ask for."""


@dataclass(slots=True, frozen=True)
class Mount:
    """A path of the node that tasks see as `target` in their container."""

    source: str
    target: str
    read_only: bool = True


@dataclass(slots=True)
class Container:
    """In what tasks of a stage run. `user`: as the image's names or numbers have it; None: the image's, or the node's.
    `shm_mib`: the size of /dev/shm; None: the engine's.
    """

    image: str
    mounts: list[Mount] = field(default_factory=list)
    user: str | None = None
    network: Network = "bridge"
    read_only_root: bool = False
    shm_mib: int | None = None
    pull: Pull = "missing"


@dataclass(slots=True)
class Stage:
    """Tasks alike. `estimate_ms` is what the scheduler is told of one task; `durations_ms` (one a task, or one for all)
    is what a simulated task lasts, and no core may read it. `retries` bounds attempts that ended `failed`.
    `locality_wait_ms`: for so long a task that could run elsewhere waits for a node with the labels that it prefers;
    None: as the policy. `speculative`: whether slow tasks may be copied, where the policy has copies made.
    `max_failed`: so many tasks may fail for good without the stage failing; `on_failure`: whether a failed stage ends
    the job at once, or only keeps the stages that come after it from running. `running_max`: so many of its tasks run
    at a time at most; None: all. `inputs`: stages among `after` whose results a task finds on its node. `array`: the
    indexes that its tasks are told, in their order (schemas/arrays.py); "": from 0. `matrix`: a task for each
    combination of values, those of the last axis first. `secrets`: by variable, the name of the secret that a node
    keeps and its agent puts there. `grace_ms`: how long a task has to end by itself once its time is over, between
    SIGTERM and SIGKILL; None: as its node. `retry`: rules for failures of some kinds; for all others `retries` counts.
    `container`: where its command runs; None: as a process of the node.
    """

    stage: str
    tasks: int
    demand: Vector
    after: list[str] = field(default_factory=list)
    estimate_ms: int = 0
    durations_ms: list[int] = field(default_factory=list)
    gang: bool = False
    retries: int = 0
    timeout_ms: int | None = None
    labels: dict[str, str] = field(default_factory=dict)
    prefer: dict[str, str] = field(default_factory=dict)
    command: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    cwd: str | None = None
    true_demand: Vector = field(default_factory=dict)
    locality_wait_ms: int | None = None
    anti_affinity: AntiAffinity | None = None
    spread: Spread | None = None
    speculative: bool = True
    max_failed: int = 0
    on_failure: OnFailure = "fail"
    running_max: int | None = None
    inputs: list[str] = field(default_factory=list)
    array: str = ""
    matrix: list[Axis] = field(default_factory=list)
    secrets: dict[str, str] = field(default_factory=dict)
    grace_ms: int | None = None
    retry: list[RetryRule] = field(default_factory=list)
    container: Container | None = None

    @property
    def width(self) -> int:
        """How many of its tasks run at a time at most."""
        most = self.running_max
        return self.tasks if most is None or most > self.tasks else most


@dataclass(slots=True, frozen=True)
class JobDependency:
    """Another job that has to end first, in success, in failure (also cancelled), or in any way."""

    job: str
    on: DependencyOn = "success"


@dataclass(slots=True)
class JobSpec:
    """One job. `queue` is a path without `root`; stages are in the submitter's order. `reservation`: what it runs
    under; `reservation_atom`: the part of it, as the path of an atom or of what holds it; empty: any part.
    `altruism_permille`: in so many of a thousand plans the job gives away what it does not need; None: as its queue.
    `revocable`: whether its tasks may run on room that is promised to others. `hold`: none of its tasks starts until a
    change says so. `after_jobs`: jobs that have to end before any of them starts; `on_unmet`: whether it is cancelled
    where one ends otherwise, or stays held.
    """

    job: str
    queue: str
    stages: list[Stage]
    priority: int = 0
    user: str = ""
    reservation: str | None = None
    reservation_atom: str = ""
    altruism_permille: int | None = None
    revocable: Revocable = "auto"
    hold: bool = False
    after_jobs: list[JobDependency] = field(default_factory=list)
    on_unmet: OnUnmet = "cancel"


@dataclass(slots=True)
class Counted:
    """What a task of a stage counts for in scheduling, by resource, where that is less than it asks for: by the largest
    `peak` that any of the latest `runs` of its job was seen to have.
    """

    stage: str
    demand: Vector
    runs: int
    peak: Vector


@dataclass
class JobAdmitted:
    """The cell took the job. `job_class`: an index into the classes of the policy, 0 the smallest requests
    (largesse/lifecycle/job_classes.py); UNJUDGED where the cell had no capacity: a later opening says the class.
    `reference` names the capacity that it was judged against. `run`: 2 where a job of this name has ended before and
    runs anew, and so on. Then `attempts` is the highest number that an attempt of it had, and `kept` names the stages
    that stay as they succeeded: of those that do not come after `from_stage`. `counted`: the stages whose tasks count
    for less than they ask for. `waits_for`: the jobs among its `after_jobs` that have not ended; then the spec has it
    as held, and `held` is what was submitted.
    """

    spec: JobSpec
    job_class: int
    reference: Literal["total", "available"] = "total"
    author: str = "unknown"
    run: int = 1
    attempts: int = 0
    kept: list[str] = field(default_factory=list)
    from_stage: str = ""
    counted: list[Counted] = field(default_factory=list)
    waits_for: list[str] = field(default_factory=list)
    held: bool = False

    @property
    def submitted(self) -> JobSpec:
        """The spec as it was submitted."""
        return replace(self.spec, hold=self.held) if self.waits_for else self.spec


@dataclass(slots=True)
class JobRerun:
    """A user asks for another run of a job that has ended; of `from_stage` and what comes after it, or of all ("")."""

    spec: JobSpec
    from_stage: str = ""


@dataclass(slots=True)
class JobRejected:
    """Well formed, refused by the cell. Carries the spec, so that another policy can admit it."""

    spec: JobSpec
    reason: Rejection
    field: str
    detail: str
    author: str = "unknown"


@dataclass(slots=True)
class JobCancelled:
    """A user asked for the job's end. Its running tasks are killed. `if_unstarted`: only if no attempt of it was ever
    granted; then `admitted` is the seq of its admission, and `moved_to` the cell that it goes to, if it goes to one.
    """

    job: str
    author: str = "unknown"
    if_unstarted: bool = False
    admitted: int = 0
    moved_to: str = ""


@dataclass(slots=True)
class JobChanged:
    """A user changed a live job; what is None stays as it is. `hold`: no task of it starts from now on (those that run
    go on), or tasks of it may start again. With `queue` there is always a `priority`: of the job, from now on.
    `admitted`: the seq of its admission.
    """

    job: str
    hold: bool | None = None
    priority: int | None = None
    queue: str | None = None
    admitted: int = 0
    author: str = "unknown"


@dataclass(slots=True)
class HeldBack:
    """A job that may run no more until it is named again. `admitted`: the seq of its admission."""

    job: str
    priority: int
    admitted: int


@dataclass(slots=True)
class JobTurns:
    """Where `running_jobs_max` of a queue holds jobs back: jobs that held nothing and wait from now on (`held_back`),
    and those that may run from now on (`let_run`), in their places or because the lease of their reservation has begun.
    """

    held_back: list[HeldBack]
    let_run: list[str]


@dataclass
class JobEnd:
    """How one job ended; `detail` names the stage and task that failed it."""

    job: str
    outcome: Outcome
    detail: str = ""


@dataclass
class JobEnded:
    """Jobs that are over: every core forgets them, agents kill what still runs of them."""

    jobs: list[JobEnd]


@dataclass(slots=True)
class InputRefused:
    """An input that could not be read or is malformed, or that an operator had skipped: nothing else is lost. `offset`:
    its place in the topic, where it was skipped.
    """

    topic: str
    reason: str
    field: str
    size: int
    hash: str
    author: str = "unknown"
    offset: int | None = None


@dataclass(slots=True)
class InputRepeated:
    """A submission of a job, or a request for a reservation, that the cell already has, word for word. `outcome`: of a
    job that has ended; None: it lives, or it is none.
    """

    job: str
    author: str = "unknown"
    reservation: str = ""
    outcome: Outcome | None = None


@dataclass(slots=True)
class InputSkipped:
    """An operator takes one message out of an input topic, which the sequencer cannot read or judge. The message at
    `offset` is not looked at: when its turn comes, it is refused with this author and reason.
    """

    topic: str
    partition: int
    offset: int
    reason: str
    author: str = "unknown"
