"""How fairness answers an open round."""

from largesse.core import OpenRound
from schemas import Level, Shares
from services.fairness.core.levels import kinds_levels, lent_in, levels_in
from services.fairness.core.queue_report import breaches, ledger_of, queue_shares
from services.fairness.core.state import State

SETTLE_MS = 1_000
"""So long after a round that may have granted something to who waits it is told what came of it, if no other round
has opened meanwhile."""


def decide(state: State, opened: OpenRound) -> list[Shares]:
    """Levels that differ from those in force, queues that have something else; all of them every `keyframe_rounds`."""
    ledger = ledger_of(state)
    filled, dues = levels_in(state, ledger)
    levels = filled.levels if filled is not None else {}
    parts = filled.parts if filled is not None else {}
    lent = lent_in(state, levels, dues)
    moved: list[str] = []
    full = opened.record.round - state.full_round >= state.policy.keyframe_rounds
    shares = Shares([], full=full)
    if full:
        moved = list(levels)
    elif levels != state.told or dues != state.dues or parts != state.parts or lent != state.lent:
        part = state.parts
        moved = [at for at in levels if not _is_as_told(state, at, levels, dues, lent) or part.get(at) != parts.get(at)]
    shares.levels = [
        Level(at, levels[at], dues.get(at), kinds_levels(parts.get(at)), lent.get(at, 0)) for at in sorted(moved)
    ]
    if full or levels != state.told:
        shares.gone = sorted(queue for queue in state.told if queue not in levels)
    if ledger is not None:
        shares.queues = queue_shares(state, ledger, filled, full=full)
        shares.breaches = breaches(state, ledger, dues, opened.time)
        if state.waits and state.stirred > state.settled:
            shares.wake_ms = opened.time + SETTLE_MS
    return [shares]


def _is_as_told(state: State, unit: str, levels: dict[str, int], dues: dict[str, int], lent: dict[str, int]) -> bool:
    if levels[unit] != state.told.get(unit) or dues.get(unit) != state.dues.get(unit):
        return False
    return lent.get(unit, 0) == state.lent.get(unit, 0)


# ---------------------------------------------------------------- facts
