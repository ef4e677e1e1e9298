"""Nodes that have room for a class of tasks but may not take it at the moment: because of anti-affinity or spread rules
(apart.py), or because its tasks still wait for nodes with labels that they prefer (locality).
"""

from schemas.jobs import PlacementRule
from schemas.placement_rules import class_key
from services.leftover.placement.apart import Bounds, Rule, counter_id, matches
from services.leftover.placement.backfill.timeline import fitting
from services.leftover.placement.fits import members
from services.leftover.placement.node_table import NodeTable
from services.leftover.placement.task_class import NodeRoom, TaskClass


def bind(table: NodeTable, task: TaskClass, rules: list[PlacementRule], near: bool) -> None:
    """Puts a new class under rules; `near`: it takes only nodes that have as many of its preferred labels as any."""
    able = [node for node in table.nodes if table.holds_empty(task, node)]
    bounds = task.bounds = Bounds(rules, task.prefer)
    task.key = class_key(task.demand, task.labels, task.prefer, task.gang, rules, near)
    if near:
        bounds.is_near = True
        bounds.matches = max([matches(task.prefer, node.labels) for node in able], default=0)
    for said in rules:
        if said.nodes:
            table.avoid(task, bounds, said.nodes)
            continue
        counter = table.counters.of(counter_id(said))
        counter.classes[task.index] = True
        values = {node.labels[said.label]: True for node in able if said.label in node.labels}
        bounds.rules.append(Rule(counter, said.max_skew, said.required, list(values) if said.label else []))
    task.is_plain = task.is_ranked_at_once = False


def elsewhere(table: NodeTable, task: TaskClass) -> list[int]:
    """Numbers of the nodes on which one task would fit now, were they not barred to it; of a class that waits for
    preferred nodes, those that no rule bars.
    """
    bounds = task.bounds
    assert bounds is not None, f"{task.key}: no rule and no preference bars nodes to it"
    found: list[int] = []
    for number in members(table.candidates(task)):
        node = table.nodes[number]
        if _has_room(table, task, node) and (not bounds.is_near or bounds.follows_rules(node.name, node.labels)):
            found.append(number)
    return found


def _has_room(table: NodeTable, task: TaskClass, node: NodeRoom) -> bool:
    if not node.open or (node.kept is not None and node.kept is not task):
        return False
    for p, amount, _ in task.needs:
        if node.free[p] < amount:
            return False
    return table.allows(task, node)


def rooms_on(table: NodeTable, task: TaskClass, number: int, most: int) -> int:
    """How many tasks of a class, `most` at most, have room on a node by what is free there."""
    node = table.nodes[number]
    if task.bounds is not None and task.bounds.is_apart:
        most = min(most, 1)
    return fitting(task, node.free, node.devices, most)


def is_barred(table: NodeTable, task: TaskClass) -> bool:
    """Whether one task of a class (all tasks of its gang) would find room if no node were barred to it."""
    numbers_open = elsewhere(table, task)
    if task.bounds is not None and task.bounds.is_near:
        return bool(numbers_open) and (not task.gang or _starts_anywhere(table, task, task.bounds))
    left = max(1, task.gang)
    for number in numbers_open:
        node = table.nodes[number]
        left -= fitting(task, node.free, node.devices, left)
        if left <= 0:
            return True
    return False


def _starts_anywhere(table: NodeTable, task: TaskClass, bounds: Bounds) -> bool:
    """Whether a gang would find room if it did not wait for preferred nodes. A node that rules allow for its first
    tasks may be barred to its last ones, so all are placed on trial and removed again.
    """
    bounds.is_near = False
    taken: list[tuple[int, list[tuple[int, int]]]] = []
    while len(taken) < task.gang and (number := table.best(task)) is not None:
        taken.append((number, table.take(task, number)))
    for number, devices in reversed(taken):
        table.put_back(task, number, devices)
    bounds.is_near = True
    return len(taken) == task.gang
