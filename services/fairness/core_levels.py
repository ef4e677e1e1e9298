"""The levels: what every queue comes to, from what all ask for. Filled anew only if a change can alter the outcome."""

from dataclasses import dataclass, field

from schemas import Queue, Vector
from schemas.queue_tree import below, upwards
from services.fairness.core_state import State, direction_of, kinds_of
from services.fairness.hdrf import fill
from services.fairness.tree import ONE, ONE_BITS, Node, share_units

_ROOT = "/"  # No path of a queue is called so.


@dataclass(slots=True)
class Filled:
    """The last filling. `levels`: of the leaves that ask; `nodes`: of the queues above them, in billionths of the cell.

    For each leaf what of its demand the filling depends on: its direction and whether it was satisfied. `moved`: leaves
    whose demand has changed since. `all_fits`: nobody was held back.
    """

    levels: dict[str, int]
    nodes: dict[str, int]
    direction: dict[str, tuple[tuple[str, int], ...]]
    satisfied: dict[str, bool]
    moved: dict[str, bool] = field(default_factory=dict)
    all_fits: bool = False


def levels_in(state: State) -> Filled | None:
    """The levels of the present demand; None where the cell is not shared out. The same object while none changed but
    those of leaves that get all they ask for.
    """
    if state.queues is None or not state.queues.children or state.policy.preset == "fifo":
        return None
    filled: Filled | None = state.filled
    if _all_fits(state):
        filled = _satisfied(state, filled)
    elif filled is None or filled.all_fits or any(_matters(state, filled, leaf) for leaf in filled.moved):
        filled = _fill(state)
    state.filled = filled
    filled.moved = {}
    return filled


def _all_fits(state: State) -> bool:
    """Whether everybody can have all that they ask for. A kind that the cell has not got never counts."""
    have = state.capacity
    return all(amount <= have.get(kind, 0) or not have.get(kind) for kind, amount in state.total.items())


def _satisfied(state: State, before: Filled | None) -> Filled:
    """Nobody is held back, so every leaf's level is its own demand, and only leaves that moved have another level."""
    if before is None or not before.all_fits:
        levels = {leaf: _dominant(demand, state.capacity) for leaf, demand in state.demand.items() if demand}
        return Filled(levels, {}, {}, {}, all_fits=True)
    for leaf in before.moved:
        demand = state.demand.get(leaf)
        if demand:
            before.levels[leaf] = _dominant(demand, state.capacity)
        else:
            before.levels.pop(leaf, None)
    return before


def _matters(state: State, filled: Filled, leaf: str) -> bool:
    """Whether the leaf's new demand can lead to another filling: it can unless the leaf asks in the same direction as
    before, was held back by a full kind then, and still asks for more than it got."""
    demand = state.demand.get(leaf)
    if not demand or leaf not in filled.levels:
        return bool(demand) or leaf in filled.levels
    if filled.satisfied[leaf] or direction_of(demand) != filled.direction[leaf]:
        return True
    return _dominant(demand, state.capacity) <= filled.levels[leaf] + 1


def _dominant(demand: Vector, capacity: Vector) -> int:
    """The share of a leaf that gets all it asks for, rounded as a filling rounds it."""
    shares = [(amount << ONE_BITS) // capacity[r] for r, amount in demand.items() if capacity.get(r, 0) > 0]
    return share_units(max(shares, default=0))


def _fill(state: State) -> Filled:
    kinds = kinds_of(state)
    assert state.queues is not None
    demand = {leaf: vector for leaf, vector in state.demand.items() if vector}
    is_flat = state.policy.preset == "drf"
    nodes = _leaf_nodes(state.queues, demand, kinds) if is_flat else None
    root = Node(_ROOT, children=nodes) if nodes is not None else _tree(state.queues, "", demand, kinds)
    if root is None or not root.children:
        return Filled({}, {}, {}, {})
    found = fill(root, [state.capacity[kind] for kind in kinds])
    levels = {leaf: at.share_units for leaf, at in found.leaves.items()}
    if is_flat:
        shares = {leaf: at.share for leaf, at in found.leaves.items()}
        inner = _inner(shares, {leaf: [demand[leaf].get(kind, 0) for kind in kinds] for leaf in shares}, state, kinds)
    else:
        inner = {path: at.share_units for path, at in found.nodes.items() if path != _ROOT}
    satisfied = {leaf: at.satisfied for leaf, at in found.leaves.items()}
    return Filled(levels, inner, {leaf: direction_of(demand[leaf]) for leaf in levels}, satisfied)


def _inner(shares: dict[str, int], demand: dict[str, list[int]], state: State, kinds: list[str]) -> dict[str, int]:
    """What queues come to that the filling passed over: the sum of their leaves."""
    sums: dict[str, list[int]] = {}
    for leaf, share in shares.items():
        parts = [(asked << ONE_BITS) // state.capacity[kind] for asked, kind in zip(demand[leaf], kinds, strict=True)]
        most = max(parts)
        got = [part * share // most if most else 0 for part in parts]
        for path in upwards(leaf.rpartition("/")[0]):
            before = sums.get(path)
            sums[path] = got if before is None else [a + b for a, b in zip(before, got, strict=True)]
    return {path: share_units(min(ONE, max(vector))) for path, vector in sums.items() if path}


def _tree(queue: Queue, path: str, demand: dict[str, Vector], kinds: list[str]) -> Node | None:
    """The part of the tree that asks for something; None where nothing does."""
    if not queue.children:
        vector = demand.get(path)
        return Node(path, queue.weight, demand=[vector.get(kind, 0) for kind in kinds]) if vector else None
    nodes = [_tree(child, below(path, child.name), demand, kinds) for child in queue.children]
    asking = [node for node in nodes if node is not None]
    return Node(path or _ROOT, queue.weight, asking) if asking else None


def _leaf_nodes(queue: Queue, demand: dict[str, Vector], kinds: list[str]) -> list[Node]:
    """The leaves that ask for something, side by side, each with its own weight (flat DRF)."""
    root = _tree(queue, "", demand, kinds)
    flat: list[Node] = []
    todo = [root] if root is not None else []
    while todo:
        node = todo.pop()
        todo.extend(reversed(node.children))
        if not node.children:
            flat.append(node)
    return flat
