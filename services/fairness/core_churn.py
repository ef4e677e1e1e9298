"""Levels that go by what is held: naive hierarchical DRF, and `capacity`, which is that over what is guaranteed.

From an empty cell both give what H-DRF gives; what they are known for (a leaf starves beside a sibling that nobody
competes with) comes of tasks that end and start. So a walk begins at what units hold now and hands out what is free,
one task of the mean size of those that could start at a time; a unit's level is what it then holds. Leftover serves who
has least of its level first: those to whom the walk gave tasks. Costs the whole subtree in every round.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from services.fairness.core_rests import could_start
from services.fairness.core_state import State, kinds_of
from services.fairness.core_tree import Planting
from services.fairness.ledger import Ledger
from services.fairness.tree import Node
from services.fairness.whole import held_at_last


def handed_out(
    state: State, ledger: Ledger, planting: Planting, top: Node, cell: Sequence[int]
) -> Mapping[str, Sequence[int]]:
    """What the units below `top` hold, in base units, once nothing is left of `cell` that one of them could use."""
    return held_at_last(_standing(state, ledger, planting, top), cell)


def _standing(state: State, ledger: Ledger, planting: Planting, node: Node) -> Node:
    """A copy whose units hold what they hold now, and wait for tasks of one size."""
    if node.children:
        return replace(node, children=[_standing(state, ledger, planting, child) for child in node.children])
    kinds = kinds_of(state)
    used, waits, waiting = list(ledger.seats[node.name].used), 0, [0] * len(kinds)
    for leaf in planting.leaves_of(node.name):
        tasks, vector = could_start(state, leaf)
        waits += tasks
        waiting = [has + vector.get(kind, 0) for has, kind in zip(waiting, kinds, strict=True)]
    each = [max(1, amount // waits) if amount > 0 else 0 for amount in waiting] if waits > 0 else [0] * len(kinds)
    if planting.is_clipped(node.name):
        most = [amount >> planting.bits for amount in node.demand]
        room = [max(0, have - held) // need for have, held, need in zip(most, used, each, strict=True) if need]
        waits = min([waits, *room])
    return replace(node, demand=each, tasks=max(0, waits) if any(each) else 0, held=used)
