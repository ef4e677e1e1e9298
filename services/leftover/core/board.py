"""Builds the board, the working data of placement, from what the state keeps, and translates jobs and what they ask for
into its terms. The board is a cache: it is kept up to date while records are folded, and built again when in doubt.
"""

from largesse.lifecycle.dag import critical_path_ms
from largesse.lifecycle.promises import divisible, is_accepted
from largesse.lifecycle.queue_policy import cell_list, order_of, serving_leaf, uses_shadow_order
from largesse.lifecycle.run_times import expected_ms
from largesse.lifecycle.slots import counted_promises, slots_of
from largesse.lifecycle.task_keys import in_job
from schemas import HeldRoom, PlacementRule, Stage, StageAsk, Vector
from schemas.presets import PRESETS
from schemas.queue_tree import user_limits, walk
from schemas.sharing import ServingOrder
from services.leftover.core import failed_on
from services.leftover.core.asks import asks_of, does_ask
from services.leftover.core.job import Job
from services.leftover.core.levels import kept_levels
from services.leftover.core.locality import next_over_ms, over, parts_of, wait_ms
from services.leftover.core.mix import mix_of
from services.leftover.core.state import State
from services.leftover.placement.board import Board
from services.leftover.placement.entries import Discipline
from services.leftover.placement.node_table import NodeTable
from services.leftover.placement.orders import JOB_ORDERS
from services.leftover.placement.packing import Alignment
from services.leftover.placement.task_class import TaskClass
from services.leftover.placement.task_span import TaskSpan


def build(state: State) -> Board:
    """The board that corresponds to everything folded so far."""
    nodes = {name: node for name, node in state.nodes.items() if not node.lost}
    table = NodeTable([node.capacity for node in nodes.values()], slots_of(state.policy), state.policy.placement)
    for name, node in nodes.items():
        devices = [(device.index, device.milli) for device in node.devices]
        is_open, near = not (node.draining or node.unschedulable), [(each.link, each.numa) for each in node.devices]
        table.add(name, node.epoch, node.capacity, node.labels, devices, is_open, near)
    table.set_mix(mix_of(state))
    for name, failures in state.failures.items():
        if failures.until_ms and table.find(name) is not None:
            table.put_last(name, True)
    alignment = Alignment(state.policy.tetris_fairness_permille, state.policy.leftover_order == "packing")
    orders, maxima = _orders(state), _maxima(state)
    board = Board(
        table,
        _discipline(state),
        orders,
        maxima,
        state.pools_ppm,
        alignment,
        cell_list(state.groups),
        pools_lend=state.policy.pool_lending == "on",
        user_running_max=user_limits(state.queues),
    )
    for leaf, seq in state.served.items():
        board.serve(leaf, seq)
    if state.promises.amount:
        divide(state, table)
    for name, job in state.jobs.items():
        add_job(state, board, name, job)
    state.ending = {}
    for node_name, on_node in state.held.items():
        for key, held in on_node.items():
            shape = board.classes.shape_of(held.demand)
            held.expected = None
            devices = [(share.index, share.milli) for share in held.devices]
            board.occupy(node_name, shape, devices, held.counted, held.queue, held.user)
            if not state.copied or counts(state, node_name, held.job, key):
                board.hold(held.job, shape.pairs, 1, held.queue)
                board.run(leaf_at(state, held.queue), shape, 1)
    board.set_levels(kept_levels(state))
    for name, job in state.jobs.items():
        if does_ask(job) and board.has_job(name):
            board.wait(name, spans_of(state, board, name, job, asks_of(job)))
    for said in state.reasons.values():  # What was said to wait may wait no longer.
        board.classes.class_for(said.demand, said.labels, said.prefer, said.gang, said.rules, said.near)
    kept = [(number, held) for name, held in state.kept.items() if (number := table.find(name)) is not None]
    table.hold_nodes({number: task_class_of(board, held) for number, held in kept})
    board.recheck_all()
    return board


def counts(state: State, node: str, job: str, key: str) -> bool:
    """Whether an attempt's room counts for its queue: of a task with copies one attempt's does, until it ends."""
    copied = state.copied.get(job, {}).get(in_job(key))
    return copied is None or copied.counted == node


def divide(state: State, table: NodeTable) -> None:
    """Shares are parts of what the queues divide: the capacity of the nodes less what is promised to reservations."""
    promised = counted_promises(state.policy, state.promises)
    table.divide(divisible(table.totals(), promised))


def divisible_of(state: State) -> Vector:
    """What the queues divide."""
    total: Vector = {}
    for node in state.nodes.values():
        for kind, amount in node.capacity.items() if not node.lost else ():
            total[kind] = total.get(kind, 0) + amount
    return divisible(total, counted_promises(state.policy, state.promises))


def is_reserved(state: State, name: str) -> bool:
    """Whether a live job stands outside the board, as its reservation is accepted."""
    reserving = state.reserving.get(name) if state.reserving else None
    return reserving is not None and is_accepted(state.promises, reserving.reservation)


def task_class_of(board: Board, of: HeldRoom) -> TaskClass:
    """The class that room is kept for."""
    return board.classes.class_for(of.task, of.labels, of.prefer, of.gang, of.rules)


def _discipline(state: State) -> Discipline:
    if PRESETS[state.policy.preset].has_queues:
        return "fair"
    return "fifo_stage" if state.policy.fifo_order == "stage" else "fifo_job"


def _orders(state: State) -> dict[str, ServingOrder]:
    orders = {serving_leaf(state.groups, queue): group.order for queue, group in state.groups.items()}
    if not orders and uses_shadow_order(state.policy):
        orders[""] = "fsp"
    elif not orders and (order := order_of(state.policy.preset)) is not None:
        orders[""] = order
    return orders


def _maxima(state: State) -> dict[str, Vector]:
    if state.queues is None or not PRESETS[state.policy.preset].has_queues:
        return {}
    return {path: queue.max for path, queue in walk(state.queues) if queue.max}


def leaf_of(state: State, job: Job) -> str:
    """The queue that a job is served in; "" where there is none."""
    return leaf_at(state, job.queue)


def leaf_at(state: State, queue: str) -> str:
    """The same for any job of a queue."""
    return serving_leaf(state.groups, queue)


def add_job(state: State, board: Board, name: str, job: Job) -> None:
    """Puts a job on the board, still without allocations or waiting tasks. A job with an accepted reservation is not
    put there.
    """
    if is_reserved(state, name):
        return
    leaf = leaf_of(state, job)
    order = board.leaf(leaf).order
    value, sorted_by = 0, JOB_ORDERS[order].value
    if sorted_by == "work_left":
        value = work_left(board, job)
    elif sorted_by == "critical_path":
        value = critical_path_ms(job.graph)
    elif sorted_by == "shadow_key":
        value = state.shadow.key_of(job)
    board.add_job(name, job.admitted, leaf, job.priority, job.queue, value, job.job_class, job.user)


def stage_of(job: Job, name: str) -> Stage:
    """A stage by its name."""
    return job.graph.stages[job.graph.position[name]]


def estimate_of(job: Job, stage: Stage) -> int:
    """What a task of a stage is expected to take, in ms."""
    return expected_ms(stage, job.seen)


def work_left(board: Board, job: Job) -> int:
    """What is left to be done of a job, in share units x ms: tasks not ended x dominant share x what one is expected to
    take.
    """
    left = 0
    for stage, tasks in zip(job.graph.stages, job.progress.left, strict=True):
        left += tasks * board.node_table.share_of(stage.demand) * estimate_of(job, stage)
    return left


def spans_of(state: State, board: Board, name: str, job: Job, asks: list[StageAsk]) -> list[TaskSpan]:
    """What a job asks for, as the board takes it, without stages that are barred for now; in the order of the shadow,
    where that is kept.
    """
    graph = job.graph
    spans: list[TaskSpan] = []
    free: dict[str, int] = {}  # By stage, how many tasks more go anywhere, where others wait for preferred nodes.
    barred = board.barred.stages(name)
    for ask in asks:
        if barred is not None and ask.stage in barred:
            continue
        stage_at = graph.position[ask.stage]
        stage = graph.stages[stage_at]
        parts = [(ask.first, ask.count, False)]
        if stage.prefer and wait_ms(state.policy, stage):
            free.setdefault(ask.stage, over(state, name, stage))
            parts = parts_of(stage, ask, free)
        for part_first, part_count, near in parts:
            for first, count in failed_on.parts_of(state, name, job, stage_at, part_first, part_count):
                task = stage_class(state, board, name, job, stage, first, near)
                span = TaskSpan(ask.stage, stage_at, task, first, count, ask.attempt, ask.since_ms)
                span.optional = ask.kind == "optional"
                spans.append(span)
    if free:
        board.delays.end_at(name, next_over_ms(state, name, job))
    if len(spans) > 1:
        state.shadow.longest_first(job, spans)
    return spans


def stage_class(
    state: State, board: Board, name: str, job: Job, stage: Stage, index: int, near: bool = False
) -> TaskClass:
    """The class of a task of a job's stage; `near`: it still waits for nodes that it prefers."""
    gang = stage.tasks if stage.gang else 0
    rules = failed_on.rules_for(state, name, job, stage, index)
    return board.classes.class_for(stage.demand, stage.labels, stage.prefer, gang, rules, near)


def rules_said(task: TaskClass) -> list[PlacementRule]:
    """The rules of a class, for a record that names it."""
    return task.bounds.said if task.bounds is not None else []
