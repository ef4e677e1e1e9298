"""Levels of leaf queues: from what fairness publishes to what placement takes and the state keeps."""

from schemas import Level, Shares
from schemas.quantities import SHARE_UNITS
from services.leftover.core.preemption.changes import note_change
from services.leftover.core.state import State
from services.leftover.placement.board import LeafLevel


def said_levels(shares: Shares) -> list[LeafLevel]:
    """What these shares change. A leaf that is gone has no level of its own: it may take what there is."""
    gone = [LeafLevel(queue, SHARE_UNITS) for queue in shares.gone]
    return gone + [_leaf_level(level) for level in shares.levels]


def kept_levels(state: State) -> list[LeafLevel]:
    """All levels that the state keeps."""
    return [_leaf_level(level) for level in state.levels.values()]


def keep_levels(state: State, shares: Shares) -> None:
    """Folds what these shares change into the state."""
    for queue in shares.gone:
        state.levels.pop(queue, None)
    for level in shares.levels:
        before = state.levels.get(level.queue)
        if before is None or before.guaranteed != level.guaranteed:
            note_change(state)
        state.levels[level.queue] = level


def _leaf_level(level: Level) -> LeafLevel:
    whole = max(level.target, level.due or 0)  # What siblings have of the due is its own again once there is room.
    own = (level.target if level.due is None else level.due) - level.lent
    kinds = tuple([(part.kinds, part.target) for part in level.kinds])
    return LeafLevel(level.queue, whole, own, level.guaranteed, kinds)
