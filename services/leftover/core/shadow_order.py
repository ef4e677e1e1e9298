"""Jobs in the order of the shadow, where the policy serves them so: what the shadow is told of nodes and jobs, and the
part of its share that each job has before that order counts.
"""

from largesse.lifecycle.queue_policy import uses_shadow_order
from schemas import Vector
from schemas.quantities import SHARE_UNITS
from services.leftover.core.job import Job, leaf_path
from services.leftover.core.shadow.cell import ShadowCell
from services.leftover.core.state import State
from services.leftover.placement.board import Board


def set_up(state: State, time: int) -> None:
    """The queues or the order of jobs are others: the shadow starts over, with what is left to be done of each job."""
    state.shadow = ShadowCell(tree=state.queues)
    for node in state.nodes.values():
        if not node.lost:
            note_capacity(state, {}, node.capacity)
    for name, job in state.jobs.items():
        if job.began:
            join(state, name, job, time)


def note_capacity(state: State, before: Vector, after: Vector) -> None:
    """A node has another capacity: that of a node which is not there is empty."""
    if before != after and uses_shadow_order(state.policy):
        state.shadow.resize(before, after)


def join(state: State, name: str, job: Job, time: int) -> None:
    """A job may run from now on."""
    if uses_shadow_order(state.policy):
        state.shadow.join(name, job, state.groups, time, state.board)


def follow(state: State, time: int) -> None:
    """A round opens: the shadow follows log time."""
    if uses_shadow_order(state.policy):
        state.shadow.move(state.jobs, state.groups, state.policy.shadow_steps, time, state.board)


def set_floors(state: State, board: Board) -> None:
    """Of the share of each job, `isolation_permille` go before the order of the shadow: its queue's level, by the jobs
    there are."""
    if not uses_shadow_order(state.policy):
        return
    live: dict[str, int] = {}
    for job in state.jobs.values():
        if job.began:
            leaf = leaf_path(state.groups, job)
            live[leaf] = live.get(leaf, 0) + 1
    for leaf, count in live.items():
        level = min(SHARE_UNITS, board.leaf(leaf).level)
        board.set_floor(leaf, level * state.policy.isolation_permille // (1_000 * count))
