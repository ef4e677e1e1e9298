"""The config topic: queue tree, weights, policy knobs. A knob that can change an answer is a record."""

from dataclasses import dataclass, field
from typing import Literal

from schemas.quantities import MILLIONTHS, Vector

Preset = Literal[
    "fifo",
    "sjf",
    "srtf",
    "tetris",
    "tetris-fair",
    "drf",
    "hdrf",
    "naive-hdrf",
    "collapsed",
    "capacity",
    "dress",
    "rayon",
    "slots",
    "carbyne",
    "carbyne-dag",
    "largesse",
]
"""How a whole cell is shared out, and by which services (docs/queues.md)."""

Sharing = Literal[
    "",
    "hdrf",
    "drf",
    "naive-hdrf",
    "collapsed",
    "capacity",
    "fifo",
    "fair",
    "sjf",
    "srtf",
    "tetris",
    "tetris-fair",
    "priority",
]
"""How a subtree is shared out among its jobs (H-DRF, section 3.5: recursive scheduling); empty: as the queue above it,
at the top as the preset says."""

ServingOrder = Literal["drf", "fifo", "fair", "sjf", "srtf", "tetris", "tetris-fair", "priority", "giving", "fsp"]
"""How the jobs of one queue, or of a subtree that is one list, are served. What goes first, after the highest priority
(under all but `fifo`):

- `drf`: the job with the least dominant share;
- `fifo`: the job admitted first; nobody overtakes it;
- `fair`: the job with the fewest running tasks;
- `sjf`: the job whose critical path was the shortest when it was admitted;
- `srtf`: the job with the least remaining work;
- `tetris`: the task that fits best;
- `tetris-fair`: the task that fits best, among the jobs furthest below their share;
- `priority`: nothing else;
- `giving`: required tasks before optional ones, among either the job with the least remaining work;
- `fsp`: the job with the least product of its remaining work and the square of the time until it ends in a virtual
  cluster under H-DRF.
"""

LIST_POLICIES: tuple[Sharing, ...] = ("fifo", "fair", "sjf", "srtf", "tetris", "tetris-fair", "priority")
"""Policies that take the jobs of a whole subtree as one list."""

Estimates = Literal["preset", "spec", "history", "finished"]
"""What goes first where several say how long a task runs: what the job was submitted with, its earlier runs, or the
tasks of its stage that have succeeded in this run, once there are a few that show another run time. `preset`: the last
where jobs are planned (PLANNING), elsewhere the first."""

Demands = Literal["spec", "history"]
"""What tasks count for in scheduling: what they ask for, or what earlier runs of their job used, where that is less."""

LeftoverOrder = Literal["work_left", "packing"]
"""How what is left over goes to optional tasks: to jobs with the least work left, or to the tasks that fit best."""

Placing = Literal["packed", "spread", "aligned"]
"""Which of the nodes with room a task goes to: where it spoils least for others, where least is in use, or where demand
and free room align most."""

JobOrder = Literal["tetris", "critical_path", "breadth_first", "dagps"]
"""Which stage of a job goes first inside the job's share, when the job is planned (CARBYNE, section 5.1)."""


@dataclass(slots=True)
class Queue:
    """A node of the queue tree. `weight` in millionths. A leaf has no children and holds jobs.

    `policy` holds for the queue and all below it. `guaranteed` and `max`: base units by resource that the queue may
    claim before weights count, and never goes beyond; a resource not named has no limit. `running_jobs_max`: so many
    jobs of the queue, and of those below it together, run at once; the others wait in order of admission.
    `submitters`: users who may submit here; empty: those of the queue above it, at the top everybody.
    `altruism_permille`: as the policy's, for jobs of the queue and of those below it; None: as the queue above it.
    `user_jobs_max`: so many jobs of one user that have not ended may be in the queue and those below it together.
    `user_running_max`: so many tasks of one user run at a time in the queue and those below it together; others wait.
    """

    name: str
    weight: int = MILLIONTHS
    children: list["Queue"] = field(default_factory=list)
    policy: Sharing = ""
    guaranteed: Vector = field(default_factory=dict)
    max: Vector = field(default_factory=dict)
    running_jobs_max: int | None = None
    submitters: list[str] = field(default_factory=list)
    altruism_permille: int | None = None
    user_jobs_max: int | None = None
    user_running_max: int | None = None


@dataclass(slots=True)
class Policy:
    """Every knob of a cell that can change a decision, each with its default.

    Times in milliseconds, shares in permille. `seed` names every draw. `round_gap_ms`: least distance between openings.
    `estimates`: what goes first of what a stage is told to take, what earlier runs of the job took, and what its
    finished tasks took. `demands`: what tasks count for, of jobs that are admitted from then on.
    `leftover_order`: who gets first what is left over under `carbyne`. `placement`: which of the nodes with
    room a task goes to. `tetris_fairness_permille`: under `tetris-fair`, so much of the jobs may not pack, those
    closest to their share (Tetris, section 4.3).
    `retry_backoff_ms` doubles with every failed attempt up to `retry_backoff_ms_max`. `theta_permille`: a job whose
    largest stage asks at most this part of the reference capacity is small (DRESS, section 3.2).
    `ageing_ms`: a job that holds nothing and could have started so long ago is served first among the jobs of its
    queue, whatever their order but `fifo`, so that none starves; 0: never. `headroom`: whether room is gathered for
    queues that hold less than they are due, and for tasks that find none: never, once the wait has cost as much as the
    room will cost by standing idle, at the latest after `headroom_after_ms`, or always. `headroom_nodes_permille`: on
    at most this part of the nodes at a time.
    `locality_wait_ms`: for so long tasks wait for nodes with the labels that they prefer, where their stage says
    nothing else (delay scheduling; Zaharia et al., EuroSys 2010).
    `demand_tolerance_permille`, `demand_tolerance_ms`: what queues ask for may move by so much of the cell, and for so
    long, before the levels follow; 0: they follow in every round. `node_kept_ms`: for so long a lost node counts as one
    that may come back. `slots_per_node`: under the preset `slots` so many tasks run on a node, whatever they ask for.
    `job_tasks_max`, `user_tasks_max`, `live_tasks_max`: most tasks of one job, of one user's live jobs and of all live
    jobs together; a job that would go beyond is refused. `names_kept_max`: names of so many ended jobs stay taken, the
    oldest are free before `name_kept_ms` are over. Under `carbyne`: of a thousand plans so many give away what the job
    does not need now (`altruism_permille`); a job is planned anew when what it is entitled to has moved by more than
    `share_tolerance_permille`; `job_order`: which of its stages goes first in a plan. Under
    `largesse`, `altruism` says whether jobs of a queue are served by the work that is left and the time until they end
    in a virtual cluster under H-DRF, or by their shares; `isolation_permille`: that part of each job's share goes
    before that order; `shadow_steps`: how far the virtual cluster is moved in a round at most. `reservations`: whether
    promises of the planner count; `revoke_grace_ms`: an attempt that is taken back has so long to end by itself.
    Reservations are planned by `reservation_agent` in steps of `reservation_step_ms`, up to `reservation_horizon_ms`
    ahead; at most `reservations_per_round_max` are answered in a round. After a loss of capacity, promises are mended
    that lack room within `reservation_check_ms`: for others it may come back. `reservation_best_effort_permille` of the
    capacity is never promised; a queue is promised at most `reservation_instant_permille` of the rest at any moment,
    and `reservation_average_permille` on average over every `reservation_average_ms`; a user, in all queues together,
    at most `reservation_user_permille` at any moment. Every `reservation_solver_ms`,
    where it is not 0, a solver beside the planner looks for a better plan of what is promised, for at most
    `reservation_solver_limit_ms`. `reservation_progress`: whether plans follow the progress of the reservations' jobs.
    `classes`: whether jobs of different size have pools of their own (DRESS); `preset`: as the preset has it.
    `pool_lending`: whether what no job can use inside its pool goes to others. `class_thresholds_permille`: further
    thresholds above `theta_permille`, for more than two classes, ascending. `reserve_ratio_permille`: with what part of
    the cell the pools of all classes but the largest begin; together they stay within `_min` and `_max`. The others are
    the estimator's (DRESS, algorithms 1 and 2).

    `speculation_permille`: a task that has run for longer than this part of the median run time of its stage's finished
    tasks is a straggler, of which a second attempt may start on another node with room that nobody else can use; 0:
    there are none. With fewer finished tasks than `speculation_finished_min` the estimate of the stage stands in. At
    most `speculation_copies_max` such attempts of a job run at a time.
    """

    preset: Preset = "largesse"
    seed: int = 0
    round_gap_ms: int = 0
    altruism_shards: int = 1
    fifo_order: Literal["job", "stage"] = "job"
    estimates: Estimates = "preset"
    demands: Demands = "spec"
    leftover_order: LeftoverOrder = "work_left"
    placement: Placing = "packed"
    tetris_fairness_permille: int = 250
    theta_permille: int = 100
    node_lease_ms: int = 10_000
    sequencer_lease_ms: int = 3_000
    keyframe_rounds: int = 1_000
    retry_backoff_ms: int = 1_000
    retry_backoff_ms_max: int = 60_000
    name_kept_ms: int = 7 * 24 * 3_600 * 1_000
    ageing_ms: int = 3_600 * 1_000
    headroom: Literal["off", "aged", "always"] = "aged"
    headroom_after_ms: int = 60 * 1_000
    headroom_nodes_permille: int = 1_000
    locality_wait_ms: int = 0
    demand_tolerance_permille: int = 1
    demand_tolerance_ms: int = 1_000
    node_kept_ms: int = 24 * 3_600 * 1_000
    slots_per_node: int = 4
    job_tasks_max: int = 1_000_000
    user_tasks_max: int = 5_000_000
    live_tasks_max: int = 10_000_000
    names_kept_max: int = 500_000
    altruism_permille: int = 1_000
    share_tolerance_permille: int = 50
    job_order: JobOrder = "tetris"
    altruism: Literal["on", "off"] = "on"
    isolation_permille: int = 0
    shadow_steps: int = 1_000
    reservations: Literal["on", "off"] = "on"
    revoke_grace_ms: int = 10_000
    reservation_agent: Literal["default", "gree", "gree-l", "early"] = "default"
    reservation_step_ms: int = 60_000
    reservation_horizon_ms: int = 7 * 24 * 3_600 * 1_000
    reservation_check_ms: int = 3_600 * 1_000
    reservations_per_round_max: int = 64
    reservation_best_effort_permille: int = 0
    reservation_instant_permille: int = 1_000
    reservation_average_permille: int = 1_000
    reservation_average_ms: int = 24 * 3_600 * 1_000
    reservation_user_permille: int = 1_000
    reservation_solver_ms: int = 0
    reservation_solver_limit_ms: int = 10_000
    reservation_progress: Literal["on", "off"] = "on"
    classes: Literal["preset", "on", "off"] = "preset"
    pool_lending: Literal["on", "off"] = "on"
    class_thresholds_permille: list[int] = field(default_factory=list)
    class_reference: Literal["total", "available"] = "total"
    reserve_ratio_permille: int = 100
    reserve_ratio_permille_min: int = 200
    reserve_ratio_permille_max: int = 500
    phase_window_ms: int = 10_000
    phase_start_tasks: int = 5
    phase_end_tasks: int = 5
    forecast_horizon_ms: int = 30_000
    speculation_permille: int = 0
    speculation_finished_min: int = 3
    speculation_copies_max: int = 10


PLANNING: tuple[Preset, ...] = ("carbyne", "carbyne-dag")
"""Presets under which jobs are planned and give away what they do not need now, across all queues."""

PLANNED_SHARINGS: tuple[Sharing, ...] = ("", "hdrf", "drf", "collapsed")
"""Policies of a queue that count under these presets. The others are refused there: they say which job of a queue
goes first, which follows from the plans of all jobs of the cell, or go by what queues hold."""

STARVING: tuple[Preset, ...] = ("fifo", "sjf", "srtf", "tetris", "tetris-fair", "naive-hdrf")
"""Presets that are baselines to compare with: under them a queue may get nothing for as long as others have work."""

KNOBS = {
    "preset": "how capacity is shared in the whole cell",
    "seed": "seed of every random draw",
    "round_gap_ms": "least time between two rounds; a larger value means fewer and cheaper rounds",
    "altruism_shards": "number of instances of the altruism service that divide the jobs among themselves",
    "fifo_order": "under `fifo`: jobs by admission (`job`), or stages by the time they became ready (`stage`)",
    "estimates": "how long a task is expected to run: first what its stage was submitted with (`spec`), or first what"
    " earlier runs of the job took (`history`), or, once five tasks of the stage have succeeded, what those took where"
    " that differs by more than a quarter (`finished`); `preset`: `finished` under `carbyne` and `carbyne-dag`, else"
    " `spec`",
    "demands": "what a task counts for in scheduling: the CPU that it asks for (`spec`), or, once three runs of a"
    " recurring job have succeeded, their peak and a quarter more, where that is less, but at least half of what it"
    " asks for (`history`). Holds for jobs that come after the change; memory and all else count as asked",
    "leftover_order": "under `carbyne` and `carbyne-dag`, who first gets what tasks that have to start leave over: the"
    " jobs with the least work left (`work_left`), or the tasks that fit best into what is free (`packing`). Counts"
    " among tasks that may wait alone: nothing changes where those that have to start take all room, as where many jobs"
    " without slack fill the cell, nor under other presets",
    "placement": "which of the nodes with room a task goes to: where it leaves most for large tasks and for those that"
    " need scarce resources (`packed`), where the least part is in use (`spread`), or where demand and free room align"
    " most (`aligned`)",
    "tetris_fairness_permille": "under `tetris-fair`: this part of the waiting jobs, those closest to their share, has"
    " to wait until the others have been served",
    "theta_permille": "a job that requests at most this part of the cell is in class `small`, others are `large`",
    "node_lease_ms": "a node that is silent for longer is lost",
    "sequencer_lease_ms": "a standby takes over from a sequencer that is silent for longer",
    "keyframe_rounds": "decisions are written in full, not only what changed, about once in so many rounds",
    "retry_backoff_ms": "pause before a failed task is tried again; doubles with every failure",
    "retry_backoff_ms_max": "longest such pause",
    "name_kept_ms": "the name of an ended job stays taken for so long",
    "ageing_ms": "a job that has held nothing for so long is served first in its queue (not under `fifo`); 0: never",
    "headroom": "gathering of room for queues below their share and for large tasks: `off`, once the wait has cost as"
    " much as the room will cost by standing idle (`aged`), or at once (`always`)",
    "headroom_after_ms": "how long they wait at most before room is gathered",
    "headroom_nodes_permille": "part of the nodes on which room may be gathered at a time, at least one node",
    "locality_wait_ms": "a task that could run elsewhere waits for so long for a node with the labels that its stage"
    " prefers, where the stage says nothing else; 0: it does not wait",
    "demand_tolerance_permille": "levels of queues are computed again once what all of them ask for has changed by this"
    " part of the cell; 0: in every round",
    "demand_tolerance_ms": "a smaller change is taken into account after so long",
    "node_kept_ms": "a lost node is forgotten after so long",
    "slots_per_node": "under `slots`: number of tasks on a node at a time, whatever they request",
    "job_tasks_max": "most tasks of one job; a job with more is refused (`too_many_tasks`), as with the next two",
    "user_tasks_max": "most tasks of one user's live jobs together; jobs without a user count as one user's",
    "live_tasks_max": "most tasks of all live jobs together",
    "names_kept_max": "so many names of ended jobs stay taken (300 bytes each); the oldest are free earlier",
    "altruism_permille": "under `carbyne`: part of the plans in which a job gives away what it does not need now, where"
    " neither the job nor a queue above it says otherwise",
    "share_tolerance_permille": "under `carbyne`: a job is planned again when its entitlement has changed by this part"
    " of itself",
    "job_order": "under `carbyne`: which stage goes first within a job's share: best fit (`tetris`), longest way to the"
    " end (`critical_path`), nearest to the start (`breadth_first`), or around the tasks that are long or hard to pack"
    " (`dagps`, as under `carbyne-dag`). Tasks that need not start yet go nearest to the start first under `tetris`,"
    " too, and as the job lists its stages under `dagps`",
    "altruism": "under `largesse`: `on`, jobs of a queue are served by the work that is left of them and the time until"
    " they would end if all had their shares; `off`, each has its share, as under `hdrf`",
    "isolation_permille": "under `largesse`: this part of each job's share is handed out first, as under `hdrf`; more"
    " makes jobs even, less makes them end sooner",
    "shadow_steps": "under `largesse`: the virtual cluster in which jobs have their shares is moved by at most so many"
    " steps in a round",
    "reservations": "whether capacity that is promised to reservations is kept for them",
    "revoke_grace_ms": "revocable tasks are taken back so long before the room is promised to a reservation, and have"
    " so long to end by themselves",
    "reservation_agent": "how reservations are planned: as flat as possible, then earlier, later, or by moving others"
    " (`default`); as late and tall as possible (`gree`), as flat as possible (`gree-l`), or as early (`early`)",
    "reservation_step_ms": "reservations are planned in steps of this length; a new value takes effect once nothing is"
    " promised",
    "reservation_horizon_ms": "so far ahead capacity can be reserved",
    "reservation_check_ms": "after a loss of capacity, reservations are moved that lack room within so long",
    "reservations_per_round_max": "most requests for reservations that are answered in a round",
    "reservation_best_effort_permille": "part of the capacity that is never promised to reservations",
    "reservation_instant_permille": "most that one queue may have promised at any moment, of what can be promised",
    "reservation_average_permille": "most that one queue may have promised on average, of what can be promised",
    "reservation_average_ms": "the time over which that average is taken, wherever it begins",
    "reservation_user_permille": "most that one user may have promised at any moment in all queues together, of what"
    " can be promised; `largesse up` sets 800 in a new cell, and so does `infra/config.yaml`",
    "reservation_solver_ms": "so often at most a solver beside the planner looks for a better plan of what is promised;"
    " 0: never (needs the extra `planner`; simulations leave it out)",
    "reservation_solver_limit_ms": "how long that solver may look for it",
    "reservation_progress": "whether plans follow jobs that run ahead (what they will not use is given back) or behind"
    " (their leases are lengthened where there is room)",
    "classes": "whether classes of jobs have pools of capacity of their own: `on`, `off`, or as the preset has it"
    " (`preset`)",
    "pool_lending": "whether what no job can use inside the pool of its class is lent to others; `off`: it stays idle,"
    " so that jobs of the class start at once when they come",
    "class_thresholds_permille": "further thresholds above `theta_permille`, ascending, for more than two classes: a"
    " list, on the command line separated by commas",
    "class_reference": "what a request is compared with: the whole cell (`total`), or what no task holds at the moment"
    " (`available`)",
    "reserve_ratio_permille": "part of the cell with which the pools of all classes but the largest begin, together;"
    " at least `reserve_ratio_permille_min`",
    "reserve_ratio_permille_min": "they never have less together",
    "reserve_ratio_permille_max": "they never have more together",
    "phase_window_ms": "a phase of a job has started, or its last tasks trail, when so long none started, or ended",
    "phase_start_tasks": "while tasks of a phase still start, what it gives back is forecast only if more than this"
    " have started within a window (at most half of its tasks); values up to 5 make no difference that was measured",
    "phase_end_tasks": "it gives capacity back once more tasks than this have ended within the window; fewer where it"
    " has fewer tasks",
    "forecast_horizon_ms": "how far ahead it is forecast what running tasks give back",
    "speculation_permille": "a task that has run for longer than this part of the median run time of its stage (2000:"
    " twice as long) is a straggler, and a copy of it may run on another node, in room that nobody else can use; 0: no"
    " task is copied",
    "speculation_finished_min": "with fewer finished tasks of the stage, its estimate counts instead of the median",
    "speculation_copies_max": "most copies of one job's tasks at a time",
}
"""What each knob does, for the reference of settings; `Policy` has the defaults."""

NEW_CELL_KNOBS = {"reservation_user_permille": 800}
"""What the first config of a new cell sets beside what its operator says. A cell that has none decides as `Policy`
says, so that earlier cells decide as they did.
"""

KnobValue = int | str | list[int]
"""What a knob can be set to."""


@dataclass(slots=True)
class ConfigChanged:
    """The whole policy and the whole tree in force from here on; None leaves one as it was."""

    policy: Policy | None = None
    queues: Queue | None = None
    author: str = "unknown"
