"""The policy of a cell: its knobs, each declared once with its type, default, range and meaning.

A knob that can change an answer is a record: the config topic sets it, and `ConfigChanged` says the whole policy.
docs/settings.md is written from here (`make docs`).
"""

from dataclasses import dataclass, field, fields
from typing import Final, Literal, TypeVar, cast

from schemas.presets import Preset
from schemas.quantities import QUANTITY_MAX

T = TypeVar("T")

SHARDS_MAX: Final = 64
ROUND_GAP_MS_MAX: Final = 3_600_000
LEASE_MS_MIN: Final = 100
LEASE_MS_MAX: Final = 24 * 3_600_000
KNOB_ITEMS_MAX: Final = 6
"""Of a knob that is a list: with `theta_permille` that makes eight classes."""
KNOB_MS_MAX: Final = 366 * 24 * 3_600_000
PHASE_TASKS_MAX: Final = 1_000
HORIZON_MS_MIN: Final = 1_000
HORIZON_MS_MAX: Final = 600_000
"""A forecast names every second of it, by class and resource."""
RESERVATION_STEP_MS_MIN: Final = 1_000
SOLVER_LIMIT_MS_MIN: Final = 1_000
SOLVER_LIMIT_MS_MAX: Final = 3_600_000
JOB_TASKS_MAX: Final = 1_000_000
SLOTS_MAX: Final = 10_000
SHADOW_STEPS_MAX: Final = 1_000_000
"""A round that takes them all takes seconds."""
SPECULATION_PERMILLE_MAX: Final = 1_000_000
"""A thousand times as long as the others."""
SPECULATION_COPIES_MAX: Final = 10_000

_MOST_BY_UNIT = {"_ms": KNOB_MS_MAX, "_permille": 1_000}

Estimates = Literal["preset", "spec", "history", "finished"]
"""What goes first where several say how long a task runs: what the job was submitted with, its earlier runs, or the
tasks of its stage that have succeeded in this run, once there are a few that show another run time. `preset`: the last
under presets that plan jobs, elsewhere the first."""

Demands = Literal["spec", "history"]
"""What tasks count for in scheduling: what they ask for, or what earlier runs of their job used, where that is less."""

LeftoverOrder = Literal["work_left", "packing"]
"""How what is left over goes to optional tasks: to jobs with the least work left, or to the tasks that fit best."""

Placing = Literal["packed", "spread", "aligned"]
"""Which of the nodes with room a task goes to: where it spoils least for others, where least is in use, or where demand
and free room align most."""

JobOrder = Literal["tetris", "critical_path", "breadth_first", "dagps"]
"""Which stage of a job goes first inside the job's share, when the job is planned (CARBYNE, section 5.1)."""


@dataclass(frozen=True, slots=True)
class Knob:
    """What is declared of a knob beside its type and default. `least`, `most`: its range; of a list, that of each item;
    of a choice or a switch, nothing.
    """

    help: str
    least: int
    most: int


def knob(default: T, description: str, *, least: int = 0, most: int | None = None) -> T:
    """A field of `Policy`. Without a `most`, the unit that its name ends in says what it may be at most."""
    metadata = {"description": description, "least": least, "most": most}  # Published schemas have the description.
    if isinstance(default, list):
        return cast("T", field(default_factory=default.copy, metadata=metadata))
    return field(default=default, metadata=metadata)


@dataclass(slots=True)
class Policy:
    """Every knob of a cell that can change a decision. Times in milliseconds, shares in permille."""

    preset: Preset = knob("largesse", "how capacity is shared in the whole cell")
    seed: int = knob(0, "seed of every random draw")
    round_gap_ms: int = knob(
        0, "least time between two rounds; a larger value means fewer and cheaper rounds", most=ROUND_GAP_MS_MAX
    )
    altruism_shards: int = knob(
        1, "number of instances of the altruism service that divide the jobs among themselves", least=1, most=SHARDS_MAX
    )
    fifo_order: Literal["job", "stage"] = knob(
        "job", "under `fifo`: jobs by admission (`job`), or stages by the time they became ready (`stage`)"
    )
    estimates: Estimates = knob(
        "preset",
        "how long a task is expected to run: first what its stage was submitted with (`spec`), or first what"
        " earlier runs of the job took (`history`), or, once five tasks of the stage have succeeded, what those took"
        " where that differs by more than a quarter (`finished`); `preset`: `finished` under `carbyne` and"
        " `carbyne-dag`, else `spec`",
    )
    demands: Demands = knob(
        "spec",
        "what a task counts for in scheduling: the CPU that it asks for (`spec`), or, once three runs of a"
        " recurring job have succeeded, their peak and a quarter more, where that is less, but at least half of what"
        " it asks for (`history`). Holds for jobs that come after the change; memory and all else count as asked",
    )
    leftover_order: LeftoverOrder = knob(
        "work_left",
        "under `carbyne` and `carbyne-dag`, who first gets what tasks that have to start leave over: the jobs with"
        " the least work left (`work_left`), or the tasks that fit best into what is free (`packing`). Counts among"
        " tasks that may wait alone: nothing changes where those that have to start take all room, as where many"
        " jobs without slack fill the cell, nor under other presets",
    )
    placement: Placing = knob(
        "packed",
        "which of the nodes with room a task goes to: where it leaves most for large tasks and for those that need"
        " scarce resources (`packed`), where the least part is in use (`spread`), or where demand and free room"
        " align most (`aligned`)",
    )
    tetris_fairness_permille: int = knob(
        250,
        "under `tetris-fair`: this part of the waiting jobs, those closest to their share, has to wait until the"
        " others have been served",
    )
    theta_permille: int = knob(
        100, "a job that requests at most this part of the cell is in class `small`, others are `large`"
    )
    node_lease_ms: int = knob(10_000, "a node that is silent for longer is lost", least=LEASE_MS_MIN, most=LEASE_MS_MAX)
    sequencer_lease_ms: int = knob(
        3_000, "a standby takes over from a sequencer that is silent for longer", least=LEASE_MS_MIN, most=LEASE_MS_MAX
    )
    keyframe_rounds: int = knob(
        1_000, "decisions are written in full, not only what changed, about once in so many rounds", least=1
    )
    retry_backoff_ms: int = knob(1_000, "pause before a failed task is tried again; doubles with every failure")
    retry_backoff_ms_max: int = knob(60_000, "longest such pause")
    name_kept_ms: int = knob(7 * 24 * 3_600 * 1_000, "the name of an ended job stays taken for so long")
    ageing_ms: int = knob(
        3_600 * 1_000,
        "a job that has held nothing for so long is served first in its queue (not under `fifo`); 0: never",
    )
    headroom: Literal["off", "aged", "always"] = knob(
        "aged",
        "gathering of room for queues below their share and for large tasks: `off`, once the wait has cost as much"
        " as the room will cost by standing idle (`aged`), or at once (`always`)",
    )
    headroom_after_ms: int = knob(60 * 1_000, "how long they wait at most before room is gathered")
    headroom_nodes_permille: int = knob(
        1_000, "part of the nodes on which room may be gathered at a time, at least one node", least=1
    )
    locality_wait_ms: int = knob(
        0,
        "a task that could run elsewhere waits for so long for a node with the labels that its stage prefers, where"
        " the stage says nothing else; 0: it does not wait",
    )
    demand_tolerance_permille: int = knob(
        1,
        "levels of queues are computed again once what all of them ask for has changed by this part of the cell; 0:"
        " in every round",
    )
    demand_tolerance_ms: int = knob(1_000, "a smaller change is taken into account after so long")
    node_kept_ms: int = knob(24 * 3_600 * 1_000, "a lost node is forgotten after so long")
    slots_per_node: int = knob(
        4, "under `slots`: number of tasks on a node at a time, whatever they request", least=1, most=SLOTS_MAX
    )
    job_tasks_max: int = knob(
        1_000_000,
        "most tasks of one job; a job with more is refused (`too_many_tasks`), as with the next two",
        least=1,
        most=JOB_TASKS_MAX,
    )
    user_tasks_max: int = knob(
        5_000_000, "most tasks of one user's live jobs together; jobs without a user count as one user's", least=1
    )
    live_tasks_max: int = knob(10_000_000, "most tasks of all live jobs together", least=1)
    names_kept_max: int = knob(
        500_000, "so many names of ended jobs stay taken (300 bytes each); the oldest are free earlier"
    )
    altruism_permille: int = knob(
        1_000,
        "under `carbyne`: part of the plans in which a job gives away what it does not need now, where neither the"
        " job nor a queue above it says otherwise",
    )
    share_tolerance_permille: int = knob(
        50, "under `carbyne`: a job is planned again when its entitlement has changed by this part of itself"
    )
    job_order: JobOrder = knob(
        "tetris",
        "under `carbyne`: which stage goes first within a job's share: best fit (`tetris`), longest way to the end"
        " (`critical_path`), nearest to the start (`breadth_first`), or around the tasks that are long or hard to"
        " pack (`dagps`, as under `carbyne-dag`). Tasks that need not start yet go nearest to the start first under"
        " `tetris`, too, and as the job lists its stages under `dagps`",
    )
    altruism: Literal["on", "off"] = knob(
        "on",
        "under `largesse`: `on`, jobs of a queue are served by the work that is left of them and the time until"
        " they would end if all had their shares; `off`, each has its share, as under `hdrf`",
    )
    isolation_permille: int = knob(
        0,
        "under `largesse`: this part of each job's share is handed out first, as under `hdrf`; more makes jobs"
        " even, less makes them end sooner",
    )
    shadow_steps: int = knob(
        1_000,
        "under `largesse`: the virtual cluster in which jobs have their shares is moved by at most so many steps in"
        " a round",
        least=1,
        most=SHADOW_STEPS_MAX,
    )
    reservations: Literal["on", "off"] = knob(
        "on", "whether capacity that is promised to reservations is kept for them"
    )
    revoke_grace_ms: int = knob(
        10_000,
        "revocable tasks are taken back so long before the room is promised to a reservation, and have so long to"
        " end by themselves",
    )
    reservation_agent: Literal["default", "gree", "gree-l", "early"] = knob(
        "default",
        "how reservations are planned: as flat as possible, then earlier, later, or by moving others (`default`);"
        " as late and tall as possible (`gree`), as flat as possible (`gree-l`), or as early (`early`)",
    )
    reservation_step_ms: int = knob(
        60_000,
        "reservations are planned in steps of this length; a new value takes effect once nothing is promised",
        least=RESERVATION_STEP_MS_MIN,
        most=ROUND_GAP_MS_MAX,
    )
    reservation_horizon_ms: int = knob(7 * 24 * 3_600 * 1_000, "so far ahead capacity can be reserved", least=1)
    reservation_check_ms: int = knob(
        3_600 * 1_000, "after a loss of capacity, reservations are moved that lack room within so long"
    )
    reservations_per_round_max: int = knob(64, "most requests for reservations that are answered in a round", least=1)
    reservation_best_effort_permille: int = knob(0, "part of the capacity that is never promised to reservations")
    reservation_instant_permille: int = knob(
        1_000, "most that one queue may have promised at any moment, of what can be promised"
    )
    reservation_average_permille: int = knob(
        1_000, "most that one queue may have promised on average, of what can be promised"
    )
    reservation_average_ms: int = knob(
        24 * 3_600 * 1_000, "the time over which that average is taken, wherever it begins", least=1
    )
    reservation_user_permille: int = knob(
        1_000,
        "most that one user may have promised at any moment in all queues together, of what can be promised;"
        " `largesse up` sets 800 in a new cell, and so does `infra/config.yaml`",
    )
    reservation_solver_ms: int = knob(
        0,
        "so often at most a solver beside the planner looks for a better plan of what is promised; 0: never (needs"
        " the extra `planner`; simulations leave it out)",
    )
    reservation_solver_limit_ms: int = knob(
        10_000, "how long that solver may look for it", least=SOLVER_LIMIT_MS_MIN, most=SOLVER_LIMIT_MS_MAX
    )
    reservation_progress: Literal["on", "off"] = knob(
        "on",
        "whether plans follow jobs that run ahead (what they will not use is given back) or behind (their leases"
        " are lengthened where there is room)",
    )
    classes: Literal["preset", "on", "off"] = knob(
        "preset",
        "whether classes of jobs have pools of capacity of their own: `on`, `off`, or as the preset has it (`preset`)",
    )
    pool_lending: Literal["on", "off"] = knob(
        "on",
        "whether what no job can use inside the pool of its class is lent to others; `off`: it stays idle, so that"
        " jobs of the class start at once when they come",
    )
    class_thresholds_permille: list[int] = knob(
        [],
        "further thresholds above `theta_permille`, ascending, for more than two classes: a list, on the command"
        " line separated by commas",
    )
    class_reference: Literal["total", "available"] = knob(
        "total",
        "what a request is compared with: the whole cell (`total`), or what no task holds at the moment (`available`)",
    )
    reserve_ratio_permille: int = knob(
        100,
        "part of the cell with which the pools of all classes but the largest begin, together; at least"
        " `reserve_ratio_permille_min`",
    )
    reserve_ratio_permille_min: int = knob(200, "they never have less together")
    reserve_ratio_permille_max: int = knob(500, "they never have more together")
    phase_window_ms: int = knob(
        10_000, "a phase of a job has started, or its last tasks trail, when so long none started, or ended", least=1
    )
    phase_start_tasks: int = knob(
        5,
        "while tasks of a phase still start, what it gives back is forecast only if more than this have started"
        " within a window (at most half of its tasks); values up to 5 make no difference that was measured",
        most=PHASE_TASKS_MAX,
    )
    phase_end_tasks: int = knob(
        5,
        "it gives capacity back once more tasks than this have ended within the window; fewer where it has fewer tasks",
        most=PHASE_TASKS_MAX,
    )
    forecast_horizon_ms: int = knob(
        30_000, "how far ahead it is forecast what running tasks give back", least=HORIZON_MS_MIN, most=HORIZON_MS_MAX
    )
    speculation_permille: int = knob(
        0,
        "a task that has run for longer than this part of the median run time of its stage (2000: twice as long) is"
        " a straggler, and a copy of it may run on another node, in room that nobody else can use; 0: no task is"
        " copied",
        most=SPECULATION_PERMILLE_MAX,
    )
    speculation_finished_min: int = knob(
        3, "with fewer finished tasks of the stage, its estimate counts instead of the median"
    )
    speculation_copies_max: int = knob(
        10, "most copies of one job's tasks at a time", least=1, most=SPECULATION_COPIES_MAX
    )
    preemption: Literal["off", "on"] = knob(
        "off",
        "`on`: a queue that has waited below its guarantee takes capacity back that others hold beyond theirs; their"
        " tasks have `revoke_grace_ms` to end by themselves",
    )
    preempt_after_ms: int = knob(
        300_000, "how long a queue waits below its guarantee before tasks are taken back for it"
    )
    preempt_min_run_ms: int = knob(60_000, "a task that has run for less is never taken back for a guarantee")
    preempt_rate_permille: int = knob(
        100,
        "most that is taken back for guarantees within any `preempt_window_ms`, of what the queues divide; 0: nothing",
    )
    preempt_window_ms: int = knob(60_000, "the time over which `preempt_rate_permille` counts", least=1)


def _declared() -> dict[str, Knob]:
    knobs = {}
    for each in fields(Policy):
        by_unit = next((most for unit, most in _MOST_BY_UNIT.items() if unit in each.name), QUANTITY_MAX)
        said = each.metadata
        knobs[each.name] = Knob(said["description"], said["least"], by_unit if said["most"] is None else said["most"])
    return knobs


KNOBS: Final = _declared()
"""What is declared of each knob, by name, in the order of `Policy`."""

NEW_CELL_KNOBS = {"reservation_user_permille": 800}
"""What the first config of a new cell sets beside what its operator says. A cell that has none decides as `Policy`
says, so that earlier cells decide as they did.
"""

KnobValue = int | str | list[int]
"""What a knob can be set to."""
