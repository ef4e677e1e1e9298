"""Fairness as a filter: one problem as JSON on stdin, its answer as JSON on stdout (docs/command-line.md).

Exit 0 with the answer; 2 with one line on stderr if the problem is malformed. What was passed over is said on stderr,
too.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from schemas.edge.base import Malformed
from schemas.edge.strict_json import loads_exact
from services.fairness.hdrf.baselines import collapsed, flat
from services.fairness.hdrf.dynamic import LiveTree
from services.fairness.hdrf.exact import Exact
from services.fairness.hdrf.static import fill
from services.fairness.hdrf.whole_tasks import fill_whole, hand_out
from services.fairness.offline.problem import BadProblem, Problem, read
from services.fairness.tree import ONE, TreeNode, leaves, walk

Answer = dict[str, object]


def main() -> int:
    """Read stdin, write stdout. Returns the exit code."""
    try:
        answer = solve(loads_exact(sys.stdin.read()))
    except (BadProblem, Malformed, ValueError, RecursionError) as error:  # ValueError: not JSON, or not UTF-8.
        print(f"cannot solve this: {error}", file=sys.stderr)
        return 2
    print(json.dumps(answer, ensure_ascii=False))
    return 0


def solve(raw: object) -> Answer:
    """The answer to a problem as parsed from JSON, decimals as Fractions. Raises BadProblem."""
    problem = read(raw)
    for remark in problem.remarks:
        print(f"note: {remark}", file=sys.stderr)
    return _SOLVERS[problem.kind](problem)


def _static(problem: Problem) -> Answer:
    """The allocation from empty."""
    asked: Waiting = {leaf.name: None if leaf.tasks is None else Fraction(leaf.tasks) for leaf in leaves(problem.root)}
    root = _bent(problem, {}, asked)
    if problem.mode == "whole":
        tasks = {name: Fraction(held) for name, held in fill_whole(root, problem.capacity).tasks().items()}
        return {"mode": problem.mode, **_allocation(problem, tasks)}
    reached, tasks = fill(root, problem.capacity).leaves, {}
    for leaf in leaves(root):
        each = max(_shares(problem, leaf.demand), default=Fraction(0))
        part = Fraction(reached[leaf.name].share, ONE) / each if each else Fraction(0)
        tasks[leaf.name] = Fraction(leaf.tasks or 0) if reached[leaf.name].satisfied else part
    return {"mode": problem.mode, **_allocation(problem, tasks)}


def _allocation(problem: Problem, tasks: Mapping[str, Fraction]) -> Answer:
    usage = {leaf.name: [need * tasks[leaf.name] for need in leaf.demand] for leaf in _members(problem, problem.root)}
    return {
        "allocation": {
            name: {
                "tasks": _plain(tasks[name]),
                "share": _plain(max(_shares(problem, held), default=Fraction(0))),
                "usage": {kind: _plain(Fraction(held[j]) / problem.units[j]) for j, kind in enumerate(problem.kinds)},
            }
            for name, held in usage.items()
        },
        "nodes": {
            node.name: {"share": _plain(max(_shares(problem, _total(problem, node, usage)), default=Fraction(0)))}
            for node in walk(problem.root)
            if node.name in problem.groups
        },
    }


def _order(problem: Problem) -> Answer:
    """All leaves in a walk of the tree."""
    return {"order": [name for name in _standing(problem).order() if name not in problem.groups]}


def _next(problem: Problem) -> Answer:
    """Who may get the next task."""
    return {"next": [name for name in _standing(problem).next_leaves() if name not in problem.groups]}


def _attributed_share(problem: Problem) -> Answer:
    """Shares attributed to inner nodes."""
    found = _standing(problem).stand()
    return {"nodes": {name: {"share": _plain(found[name].share)} for name in problem.groups if name in found}}


def _churn(problem: Problem) -> Answer:
    """Allocate from empty; after each event, give out what finished tasks have freed. `tasks` is what a leaf wants to
    hold at once: it asks again for every task that finished.
    """
    members = _members(problem, problem.root)
    waiting: Waiting = {leaf.name: None if leaf.tasks is None else Fraction(leaf.tasks) for leaf in members}
    tasks = {leaf.name: Fraction(0) for leaf in members}
    tree = LiveTree(_bent(problem, tasks, waiting), problem.capacity, foresees=True) if _stands(problem) else None
    tasks = _refilled(problem, tasks, waiting, tree)
    after = []
    for at, event in enumerate(problem.events):
        for name, finished in event.items():
            if finished > tasks[name]:
                print(f"note: input.events[{at}].finish.{name}: it holds {_plain(tasks[name])} only", file=sys.stderr)
            ended = min(finished, tasks[name])
            tasks[name] -= ended
            if (left := waiting[name]) is not None:
                waiting[name] = left + ended
            if tree is not None and ended:
                tree.finish(name, int(ended))
                tree.ask_again(name, int(ended))
        tasks = _refilled(problem, tasks, waiting, tree)
        after.append({"allocation": {name: {"tasks": _plain(held)} for name, held in tasks.items()}})
    return {"mode": problem.mode, "after_events": after}


Tasks = dict[str, Fraction]
Waiting = dict[str, Fraction | None]


def _stands(problem: Problem) -> bool:
    """Whether one tree serves all events: whole tasks, and weights that do not depend on which leaves ask."""
    return problem.mode == "whole" and problem.policy != "collapsed"


def _refilled(problem: Problem, tasks: Tasks, waiting: Waiting, tree: LiveTree | None) -> Tasks:
    """What leaves hold once nothing is free that anybody could use. `waiting` is brought up to date."""
    if problem.mode == "whole":
        tree = tree or LiveTree(_bent(problem, tasks, waiting), problem.capacity)
        hand_out(tree)
        found = {name: Fraction(held) for name, held in tree.tasks().items()}
    else:
        root = _bent(problem, tasks, waiting)
        flow = Exact(root, problem.capacity)
        for leaf in leaves(root):
            flow.put(leaf, tasks.get(leaf.name, Fraction(0)), waiting.get(leaf.name, Fraction(0)))
        flow.refill()
        found = flow.tasks
    for name, left in waiting.items():
        waiting[name] = None if left is None else left - (found[name] - tasks[name])
    return {name: found[name] for name in tasks}


def _dominant_share(problem: Problem) -> Answer:
    """Dominant share / weight of single nodes, and of which kind it is."""
    nodes = {node.name: node for node in walk(problem.root)}
    usage = {leaf.name: list(leaf.held) for leaf in _members(problem, problem.root)}
    found = {}
    for name in problem.nodes:
        shares = _shares(problem, _total(problem, nodes[name], usage))
        most = max(shares, default=Fraction(0))
        kind = problem.kinds[shares.index(most)] if most else None
        found[name] = {"share": _plain(most / nodes[name].weight), "resource": kind}
    return {"dominant": found}


_SOLVERS: dict[str, Callable[[Problem], Answer]] = {
    "hdrf": _static,
    "drf": _static,
    "hdrf-order": _order,
    "drf-order": _order,
    "hdrf-next": _next,
    "hdrf-churn": _churn,
    "hdrf-attributed-share": _attributed_share,
    "drf-share": _dominant_share,
}


def _standing(problem: Problem) -> Exact:
    """The tree with what leaves hold and what they wait for besides."""
    waiting: Waiting = {}
    for leaf in leaves(problem.root):
        asked = None if leaf.tasks is None else Fraction(leaf.tasks)
        waiting[leaf.name] = None if asked is None else max(Fraction(0), asked - problem.allocated[leaf.name])
    root = _bent(problem, None, waiting)
    standing = Exact(root, problem.capacity, whole=problem.mode == "whole")
    standing.waiting.update(waiting)
    return standing


def _bent(problem: Problem, tasks: Tasks | None, waiting: Waiting) -> TreeNode:
    """The tree as the problem's policy wants it. Leaves hold `tasks`, or what they hold in the problem, and wait for
    more.

    Only whole tasks can be held and waited for in a `Node`; a flow is told its parts of tasks besides.
    """
    root = _copied(problem, problem.root, tasks, waiting)
    if not root.children:
        root = TreeNode("", children=[root])
    if problem.policy == "drf":
        return flat(root)
    if problem.policy == "collapsed":
        return collapsed(root, lambda leaf: not leaf.demand or (waiting.get(leaf.name, 0) != 0 and any(leaf.demand)))
    return root


def _copied(problem: Problem, node: TreeNode, tasks: Tasks | None, waiting: Waiting) -> TreeNode:
    if not node.children:
        asked, held = waiting.get(node.name, Fraction(0)), node.held
        if tasks is not None and problem.mode == "whole":
            held = [need * int(tasks.get(node.name, 0)) for need in node.demand]
        return replace(node, tasks=None if asked is None else -(-asked.numerator // asked.denominator), held=held)
    copy = replace(node, children=[_copied(problem, child, tasks, waiting) for child in node.children])
    if node.order == "fifo":
        for rank, child in enumerate(copy.children):
            child.rank = rank
    elif node.order == "srtf":
        work = {child.name: _work(problem, child, waiting) for child in copy.children}
        for rank, child in enumerate(sorted(copy.children, key=lambda child: (work[child.name], child.name))):
            child.rank = rank
    return copy


def _work(problem: Problem, node: TreeNode, waiting: Waiting) -> tuple[bool, Fraction]:
    """How much is still to be done below a node: whether it is endless, and the dominant shares of all tasks waited
    for."""
    left = [waiting.get(leaf.name, Fraction(0)) for leaf in leaves(node)]
    each = [max(_shares(problem, leaf.demand), default=Fraction(0)) for leaf in leaves(node)]
    total = sum([(tasks or Fraction(0)) * share for tasks, share in zip(left, each, strict=True)], Fraction(0))
    return any(tasks is None for tasks in left), total


def _members(problem: Problem, node: TreeNode) -> list[TreeNode]:
    """The leaves that are no empty groups."""
    return [leaf for leaf in leaves(node) if leaf.name not in problem.groups]


def _total(problem: Problem, node: TreeNode, usage: Mapping[str, Sequence[Fraction | int]]) -> list[Fraction]:
    held = [usage[leaf.name] for leaf in _members(problem, node)]
    return [sum([Fraction(units[j]) for units in held], Fraction(0)) for j in range(len(problem.capacity))]


def _shares(problem: Problem, units: Sequence[Fraction | int]) -> list[Fraction]:
    """Of the cell, kind by kind. Of a kind that the cell has not got nothing counts."""
    return [Fraction(each) / have if have else Fraction(0) for each, have in zip(units, problem.capacity, strict=False)]


def _plain(value: Fraction) -> int | float:
    """A number as JSON writes it: whole where it is whole, or where a flow came so near that nothing else is left."""
    if value.denominator == 1:
        return int(value)
    near = float(value)
    return int(near) if near.is_integer() else near
