"""Headroom: room that is kept free so that large tasks and gangs start at all (policies.md, "CARBYNE"; the H-DRF
paper keeps some always, section 5).

While small tasks wait, a node never becomes empty enough for a large one. So for one class of tasks at a time, the
largest that has waited too long, the nodes that need the least to be given back take no other tasks until it starts.
Costs the classes that find no room, and the nodes once whenever another class is chosen.
"""

from schemas.quantities import on_devices
from services.leftover.placement import Board
from services.leftover.reasons import seeking
from services.leftover.room import Kept, NodeRoom, Room, TaskClass


def large(tasks: list[TaskClass]) -> list[TaskClass]:
    """Of the classes that wait for room, those that others may keep out: larger than the smallest, all if all are as
    large.
    """
    least = min([task.size for task in tasks], default=0)
    return [task for task in tasks if task.size > least] or tasks


def choose(board: Board, due: list[tuple[int, TaskClass]], before: TaskClass | None) -> TaskClass | None:
    """The class to keep room for: `before` as long as it is among those `due`, else the largest, then the one that has
    waited longest. `due` as (since ms, class). None where nobody who is entitled to more waits for room.
    """
    able = [(since_ms, task) for since_ms, task in due if is_entitled(board, task)]
    if any(task is before for _, task in able):
        return before
    ranked = [(-task.size, since_ms, task.key, task) for since_ms, task in able]
    return min(ranked, key=lambda item: item[:3])[3] if ranked else None


def is_entitled(board: Board, task: TaskClass) -> bool:
    """Whether tasks of the class wait for room in a leaf that holds no more than its share. Whole tasks never meet a
    share, so it may be beyond it by less than one such task, and by less than the share itself.
    """
    size = task.size // max(1, task.gang)
    return any(leaf.share < leaf.target + min(size, leaf.target) for leaf in seeking(board, task))


def nodes_for(room: Room, task: TaskClass) -> dict[int, Kept]:
    """Nodes to keep for a class, each with how many of its tasks it is to hold: one for a task, as many as it takes for
    a gang. Those that miss least go first; empty where not even all nodes would do.
    """
    wanted = max(1, task.gang)
    able = [(_missing(task, node), number) for number, node in enumerate(room.nodes) if _could_hold(room, task, node)]
    found: dict[int, Kept] = {}
    for _, number in sorted(able):
        count = min(wanted, _most(task, room.nodes[number]))
        found[number] = Kept(task, count)
        wanted -= count
        if wanted <= 0:
            return found
    return {}


def nodes_again(room: Room, task: TaskClass, names: list[str]) -> dict[int, Kept]:
    """The nodes that were kept for the class, as `nodes_for` has them, if each of them still could hold its tasks."""
    wanted = max(1, task.gang)
    found: dict[int, Kept] = {}
    for name in names:
        number = room.number.get(name)
        if number is None or not _could_hold(room, task, room.nodes[number]):
            return {}
        count = min(wanted, _most(task, room.nodes[number]))
        found[number] = Kept(task, count)
        wanted -= count
    return found if wanted <= 0 else {}


def _could_hold(room: Room, task: TaskClass, node: NodeRoom) -> bool:
    if (
        not node.open
        or not room.has_all(task, node)
        or any(node.labels.get(key) != value for key, value in task.labels.items())
    ):
        return False
    return _most(task, node) > 0


def _most(task: TaskClass, node: NodeRoom) -> int:
    """How many tasks of the class fit on the empty node."""
    if any(p < 0 for p, _ in task.pairs):
        return 0
    most = min((node.capacity[p] // amount for p, amount in task.pairs), default=1)
    if not task.gpu or not most:
        return most
    free, count = list(node.sizes), 0
    while count < most and (taken := on_devices(task.gpu, free)) is not None:
        for position, milli in taken:
            free[position] -= milli
        count += 1
    return count


def _missing(task: TaskClass, node: NodeRoom) -> int:
    """What has to be given back before one task fits: the largest part of the node's capacity, in 2^-20."""
    return max((max(0, amount - node.free[p]) << 20) // node.capacity[p] for p, amount in task.pairs)
