"""What fairness costs in CPU time: a static filling, one task's change, a kind that fills up and frees again.

Trees are drawn with one seed, flat and up to eight levels deep, over three kinds. Fillings: `limited` asks for twice
the cell, so that most leaves are satisfied one after the other, `endless` has none of these events, `whole` gives
whole tasks. A live tree: to build it, one task starts or ends, one leaf asks for something else or gets another weight,
the scarcest kind fills up or frees again (`first`: for the first time). `full`: on a cluster that is full of every
kind, one task ends and the next one starts, so that a kind frees and fills up each time. Medians. Run it with
`make bench`, or `python -m benchmarks.fairness [--quick]` for the small
sizes.
"""

import sys
import time
from collections.abc import Callable
from random import Random
from statistics import median

from services.fairness.hdrf.dynamic import LiveTree
from services.fairness.hdrf.static import fill
from services.fairness.hdrf.whole_tasks import fill_whole
from services.fairness.tree import TreeNode

KINDS = 3
CAPACITY = [10**9] * KINDS
DEPTHS = (1, 2, 4, 8)
CHANGES = 500
TITLES = (
    *("limited", "endless", "whole", "build", "next + give", "finish", "demand", "weight", "toggle", "toggle first"),
    "full",
)
WIDTH = 12


def main() -> None:
    """Prints one table."""
    sizes = (100, 1_000) if "--quick" in sys.argv else (100, 1_000, 10_000, 100_000)
    print(f"{'leaves':>7} {'depth':>5} | " + " ".join(f"{title:>{WIDTH}}" for title in TITLES))
    for leaves in sizes:
        for depth in DEPTHS:
            costs = measured(leaves, depth)
            print(f"{leaves:>7} {depth:>5} | " + " ".join(f"{_shown(cost):>{WIDTH}}" for cost in costs), flush=True)


def measured(leaves: int, depth: int) -> list[float | None]:
    """One line of the table, in seconds."""
    runs = 5 if leaves <= 10_000 else 1
    limited, endless = (tree(leaves, depth, limit, Random(1)) for limit in (True, False))
    fillings = [_cost(lambda: fill(limited, CAPACITY), runs), _cost(lambda: fill(endless, CAPACITY), runs)]
    whole = _cost(lambda: fill_whole(limited, CAPACITY), 1) if leaves <= 1_000 else None
    return [*fillings, whole, *live(endless, Random(2))]


def tree(leaves: int, depth: int, limited: bool, draw: Random) -> TreeNode:
    """A tree of so many leaves, each inner node with as many children as its depth makes even."""
    nodes = []
    for at in range(leaves):
        demand = [draw.randint(1, 2000) if draw.random() < 0.75 else 0 for _ in range(KINDS)]
        demand[draw.randrange(KINDS)] += 1
        tasks = max(1, int(draw.random() * 4 * CAPACITY[0] / leaves / max(demand))) if limited else None
        nodes.append(TreeNode(f"leaf {at}", draw.randint(1, 5), demand=demand, tasks=tasks))
    fan = max(2, round(leaves ** (1 / depth)))
    for level in range(depth - 1):
        if len(nodes) > fan:
            groups = [nodes[at : at + fan] for at in range(0, len(nodes), fan)]
            nodes = [TreeNode(f"{level}.{at}", draw.randint(1, 5), children=group) for at, group in enumerate(groups)]
    return TreeNode("root", children=nodes)


def live(root: TreeNode, draw: Random) -> list[float | None]:
    """Seconds to build a live tree, and per change: a task starts, a task ends, a kind fills up or frees again."""
    began = time.process_time()
    live_tree = LiveTree(root, CAPACITY, foresees=True)
    build = time.process_time() - began
    names = sorted(live_tree.leaf_states)
    for name in names[:: max(1, len(names) // 2_000)]:
        live_tree.give(name, draw.randint(1, 20))
    holding = [name for name in names if live_tree.leaf_states[name].tasks]

    def start() -> None:
        name = live_tree.next()
        if name is not None:
            live_tree.give(name)

    give = _cost(start, CHANGES)
    finish = _cost(lambda: live_tree.finish(holding.pop(draw.randrange(len(holding)))), min(CHANGES, len(holding) // 2))
    changes = [draw.choice(names) for _ in range(2 * CHANGES)]
    demand = _cost(
        lambda: live_tree.set_demand(changes.pop(), [draw.randint(1, 2000) for _ in range(KINDS)], None), CHANGES
    )
    weight = _cost(lambda: live_tree.set_weight(changes.pop(), draw.randint(1, 5)), CHANGES)
    return [build, give, finish, demand, weight, *toggled(root, live_tree, start), full(live_tree, holding, draw)]


def toggled(root: TreeNode, live_tree: LiveTree, start: Callable[[], None]) -> tuple[float, float]:
    """Seconds to fill a kind up, or free it again: the median, and the worst of the first two."""
    # A leaf that takes all that is free of the scarcest kind, and gives it back.
    kind = min(range(KINDS), key=lambda j: live_tree.free[j])
    live_tree.add(root.name, TreeNode("hog", demand=[1] * KINDS, tasks=0))
    costs = []
    for _ in range(CHANGES // 10):
        start()  # Something else changes meanwhile, so that each view has to catch up.
        costs.append(_cost(lambda: take_all(live_tree, "hog", kind), 1))
        start()
        costs.append(_cost(lambda: live_tree.finish("hog"), 1))
    return median(costs[2:]), max(costs[:2])


def full(live_tree: LiveTree, holding: list[str], draw: Random) -> float:
    """Seconds for one task's end and the start of who comes next, where nothing at all was free."""
    live_tree.set_demand("hog", list(live_tree.free), 1)
    live_tree.give("hog")
    running = [name for name in holding for _ in range(live_tree.leaf_states[name].tasks)]

    def change() -> None:
        at = draw.randrange(len(running))
        running[at], running[-1] = running[-1], running[at]
        live_tree.finish(running.pop())
        name = live_tree.next()
        if name is not None:
            live_tree.give(name)
            running.append(name)
        live_tree.set_demand("hog", list(live_tree.free), 1)
        live_tree.give("hog")

    return _cost(change, min(CHANGES // 5, len(running) // 2))


def take_all(live_tree: LiveTree, leaf: str, kind: int) -> None:
    """A kind fills up: one change of demand, one task."""
    live_tree.set_demand(leaf, [live_tree.free[j] if j == kind else 0 for j in range(KINDS)], 1)
    live_tree.give(leaf)


def _cost(work: Callable[[], object], runs: int) -> float:
    """Median CPU seconds of one run."""
    costs = []
    for _ in range(max(1, runs)):
        began = time.process_time()
        work()
        costs.append(time.process_time() - began)
    return median(costs)


def _shown(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds * 1e3:.1f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} us"


if __name__ == "__main__":
    main()
