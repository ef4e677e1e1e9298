"""Levels of leaf queues: from what fairness publishes to what placement takes and the state keeps."""

from largesse.lifecycle.remaining import KINDS
from schemas import Level, Shares
from schemas.quantities import SHARE_UNITS
from services.leftover.core.state import State
from services.leftover.placement.board_state import LeafLevel


def said_levels(shares: Shares) -> list[LeafLevel]:
    """What these shares change. A leaf that is gone has no level of its own: it may take what there is."""
    gone = [LeafLevel(queue, SHARE_UNITS) for queue in shares.gone]
    return gone + [_leaf_level(level) for level in shares.levels]


def kept_levels(state: State) -> list[LeafLevel]:
    """All levels that the state keeps."""
    found: list[LeafLevel] = []
    for queue, target in state.targets.items():
        due = state.dues.get(queue, target)
        kinds = tuple([(kinds.split(KINDS), part) for kinds, part in state.parts.get(queue, {}).items()])
        found.append(LeafLevel(queue, target, due, state.guarantees.get(queue, 0), kinds))
    return found


def keep_levels(state: State, shares: Shares) -> None:
    """Folds what these shares change into the state."""
    for queue in shares.gone:
        state.targets.pop(queue, None)
        state.dues.pop(queue, None)
        state.guarantees.pop(queue, None)
        state.parts.pop(queue, None)
    for said in shares.levels:
        level = _leaf_level(said)
        queue = level.queue
        state.targets[queue] = level.target
        if level.kinds:
            state.parts[queue] = {KINDS.join(kinds): target for kinds, target in level.kinds}
        else:
            state.parts.pop(queue, None)
        if level.due is None or level.due == level.target:
            state.dues.pop(queue, None)
        else:
            state.dues[queue] = level.due
        if level.guaranteed:
            state.guarantees[queue] = level.guaranteed
        else:
            state.guarantees.pop(queue, None)


def _leaf_level(level: Level) -> LeafLevel:
    target = max(level.target, level.due or 0)  # What siblings have of the due is its own again once there is room.
    due = (level.target if level.due is None else level.due) - level.lent
    kinds = tuple([(part.kinds, part.target) for part in level.kinds])
    return LeafLevel(level.queue, target, due, level.guaranteed, kinds)
