"""Headroom: room that is gathered for tasks that would otherwise never start (docs/concepts/gathering.md).

While small tasks come and go, what is free lies in fragments, and no node ever has enough for a large task or a gang.
Room is gathered for two causes: a queue that waits has held less than it is due by more than one of its tasks for
longer than `headroom_after_ms`; and the largest class of tasks of which none has started for so long. It is gathered
where, by the estimated ends of what runs there, it is complete soonest.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from services.leftover.placement.board import Board
from services.leftover.placement.keys import CLASS_MASK, job_class_of
from services.leftover.placement.leaf_queue import LeafEntry
from services.leftover.placement.nodes import Room
from services.leftover.placement.pending_reasons import seekers
from services.leftover.placement.task_class import NodeRoom, TaskClass
from services.leftover.placement.timeline import End, Moment, Reserved, could_hold, moment_at, moments_of

LOOKED_AT = 64
"""Beside those that are held already, so many nodes are looked at for each room that is wanted at most: those that miss
least. To estimate when room is complete takes a walk over all that runs on a node."""


@dataclass(slots=True, eq=False)
class Wanted:
    """Room for `tasks` tasks of a class (of gangs: all of their tasks). What comes free where its own tasks end comes
    back to it anyway: those of the class, and, unless it `starves` behind them, those of `leaves`. `of_all`: room of
    tasks of all other leaves counts, not only of those that hold more than they are due.

    Of a gang's rooms, `own` are expected where tasks of `leaves` end: a task of a gang that ends leaves room for a part
    of the next one, which others would take before the rest is there. `of_own`: those ends count, too.
    """

    task: TaskClass
    tasks: int
    own: int = 0
    of_all: bool = False
    of_own: bool = False
    starves: bool = False
    leaves: dict[str, bool] = field(default_factory=dict)


Ends = Callable[[int, Wanted], list[End]]
"""The estimated ends on a node in order of time; those of the class's own tasks only where they count (`of_own`)."""


def shortfall(leaf: LeafEntry) -> int:
    """How much less a leaf that waits holds than it is due, in share units; 0 where that is not more than one of its
    tasks, or where nothing is said of what it is due.
    """
    least = leaf.size_least
    if least is None or leaf.due is None or leaf.due - leaf.share <= least:
        return 0
    return leaf.due - leaf.share


def lacks_part_of_gang(board: Board, leaf: LeafEntry) -> bool:
    """Whether a leaf in which gangs wait holds less than it is due by a task of one of them or more."""
    if not leaf.gangs or leaf.due is None:
        return False
    return any(task.size // task.gang <= leaf.due - leaf.share for task in [_task_of(board, b) for b in leaf.gangs])


def lacking(board: Board, names: list[str], short: dict[str, int]) -> list[LeafEntry]:
    """Of these leaves those for which room is to be gathered: they hold less than they are due by more than one task;
    where they are `short`, which is to say have not held what they are due since they were, also by a part of a gang.
    """
    leaves = [board.leaves[name] for name in names if name in board.leaves]  # In others nothing waits.
    return [leaf for leaf in leaves if shortfall(leaf) > 0 or (leaf.name in short and lacks_part_of_gang(board, leaf))]


def still_short(board: Board, names: list[str], short: dict[str, int]) -> dict[str, bool]:
    """Which of these leaves are short now. One that is among the `short` stays so until it holds what it is due or
    waits no more, and where gangs wait, as long as they do: if it falls short again meanwhile, it has waited long
    enough. (A queue of gangs whose tasks end one by one falls short again and again.)
    """
    found: dict[str, bool] = {}
    for leaf in [board.leaves[name] for name in names]:
        is_below = leaf.size_least is not None and leaf.due is not None and leaf.share < leaf.due
        found[leaf.name] = shortfall(leaf) > 0 or (leaf.name in short and (is_below or len(leaf.gangs) > 0))
    return found


def least_needs(waiting: list[TaskClass]) -> dict[int, int]:
    """By resource position, the least that one of these classes asks for. Positions that are missing: nothing."""
    least: dict[int, int] = dict(waiting[0].pairs) if waiting else {}
    for task in waiting:
        if not least:
            break
        common: dict[int, int] = {}
        for p, amount in task.pairs:
            before = least.get(p)
            if before is not None:
                common[p] = amount if amount < before else before
        least = common
    return least


def is_exposed(task: TaskClass, least: dict[int, int] | None) -> bool:
    """Whether tasks of another class could start where none of this class can, and so keep it out (`least`: what those
    need at least; None: anything). If none could, whatever comes free goes to the class as soon as its leaf is first in
    line. Nothing is gathered for tasks that wait for preferred nodes, nor where tasks are spread over a label: which
    nodes may take them changes meanwhile.
    """
    if task.bounds is not None and (task.bounds.is_near or task.bounds.is_spread):
        return False
    return least is None or task.gang > 1 or any(least.get(p, 0) < amount for p, amount in task.pairs)


def _task_of(board: Board, bucket_id: int) -> TaskClass:
    return board.classes[bucket_id & CLASS_MASK]


def blocked_heads(board: Board) -> list[TaskClass]:
    """Classes that wait for nothing but room, are kept out of a leaf and would be served first there, in no order that
    means anything. Cost: the leaves whose order or claim has changed since the last call, and the classes; every leaf
    where orders are strict or queues have a maximum, since there what one leaf gets can change another's head.
    """
    if board.is_mixed:
        able = [(leaf, task) for leaf in board.leaves.values() for task in _able_heads(board, leaf)]
        return list({task.index: task for leaf, task in able if is_kept_out(board, leaf, task)}.values())
    heads: list[tuple[LeafEntry, list[int]]] = []
    for leaf, bucket_ids in board.heads(list(board.leaf_queue.reordered)):
        tasks = [_task_of(board, bucket_id) for bucket_id in bucket_ids]
        indexes = [task.index for task in tasks if is_kept_out(board, leaf, task)]
        if indexes != leaf.headed:
            heads.append((leaf, indexes))
    if heads:
        board.leaf_queue.set_heads(heads)
    board.leaf_queue.reordered.clear()
    return [task for index in board.leaf_queue.headed if (task := board.classes[index]).blocked]


def _able_heads(board: Board, leaf: LeafEntry) -> list[TaskClass]:
    """The classes that a leaf would serve first, by class of job, of those that wait for nothing but room."""
    found: dict[int, TaskClass] = {}
    for bucket_id in _in_order(board, leaf):
        job_class, task = job_class_of(bucket_id), _task_of(board, bucket_id)
        if job_class not in found and (leaf, bucket_id) in seekers(board, task):
            found[job_class] = task
            if len(found) == board.pools.count:
                break
    return list(found.values())


def _in_order(board: Board, leaf: LeafEntry) -> list[int]:
    """All buckets of a leaf in the order in which it would serve them."""
    keys = {bucket_id: board.key_in(leaf, bucket_id) for bucket_id in list(leaf.sizes.key)}
    return sorted(keys, key=lambda bucket_id: (keys[bucket_id], bucket_id))


def is_kept_out(board: Board, leaf: LeafEntry, task: TaskClass) -> bool:
    """Whether a leaf holds no more than its share and runs nothing of a class: otherwise its own ending tasks will give
    the class its room (except for a gang, which needs all of it at once). Whole tasks never meet a share exactly, so
    the leaf may be beyond it by less than one task and less than the share itself.
    """
    size, share = task.size // max(1, task.gang), leaf.target if leaf.due is None else leaf.due
    return leaf.share < share + min(size, share) and (task.gang > 0 or not board.leaf_queue.runs(leaf.name, task.shape))


def choose(due: list[tuple[int, TaskClass]], before: dict[int, dict[int, int]]) -> TaskClass | None:
    """The class that has waited too long to gather room for: one that room was gathered for `before` (by index) as long
    as it is among those `due`, else the largest, then the one that has waited longest. `due` as (since ms, class).
    """
    ranked = [(task.index not in before, -task.size, since_ms, task.key, task) for since_ms, task in due]
    return min(ranked, key=lambda item: item[:4])[4] if ranked else None


def wanted_by(
    board: Board, leaf: LeafEntry, least: dict[int, int] | None, before: dict[int, dict[int, int]]
) -> list[Wanted]:
    """What a leaf lacks, in the order in which it would serve its jobs: tasks that wait for nothing but room, up to
    what it is due. Of gangs that run there it lacks single tasks; the rest of the next gang's room is its own.
    """
    lacks = 0 if leaf.due is None else leaf.due - leaf.share
    found: list[Wanted] = []
    for bucket_id in _in_order(board, leaf):
        task = _task_of(board, bucket_id)
        width = max(1, task.gang)
        parts = task.gang > 0 and board.leaf_queue.runs(leaf.name, task.shape)
        if task.size <= 0 or lacks < (task.size // width if parts else task.size + 1):
            continue
        exposed = task.index in before or is_exposed(task, least)
        if exposed and (leaf, bucket_id) in seekers(board, task):
            rooms = lacks * width // task.size if parts else lacks // task.size * width
            tasks = min(-(-rooms // width), task.waiting // width) * width
            found.append(Wanted(task, tasks, max(0, tasks - rooms)))
            lacks -= min(rooms, tasks) * task.size // width
    return found


def gather(
    room: Room, wanted: Wanted, now_ms: int, ends: Ends, before: dict[int, int], taken: dict[int, bool], most: int
) -> dict[int, Reserved]:
    """Nodes to hold, by number. `before`: those that were held for the class, with how many tasks; they stay where they
    suffice, and every task that ends there counts, as others get none of it. A negative number: the room is late, and
    stays if by now it is expected at any moment. None of those `taken`, and at most `most` nodes. Of gangs those that
    find all of their room.
    """
    task, nodes = wanted.task, room.nodes
    tasks = wanted.tasks - wanted.own
    known = [n for n in before if n not in taken and could_hold(room, task, nodes[n])]
    wanted.of_all = True
    at = _looked_at(room, wanted, now_ms, ends, known)
    stay = {n: _staying(before[n], at[n], now_ms) for n in known}
    found = _soonest(room, wanted, {n: at[n][:count] for n, count in stay.items()}, tasks, most)
    if _rooms(found) < wanted.tasks:
        able = [n for n, node in enumerate(nodes) if n not in taken and n not in stay and could_hold(room, task, node)]
        able.sort(key=lambda n: (_missing(task, nodes[n]), n))
        able = able[: wanted.tasks + LOOKED_AT]
        wanted.of_all = False
        found = _soonest(room, wanted, at | _looked_at(room, wanted, now_ms, ends, able), tasks, most, stay)
        if _rooms(found) < tasks:
            wanted.of_all = True
            found = _soonest(room, wanted, at | _looked_at(room, wanted, now_ms, ends, able), tasks, most, stay)
        if wanted.own:
            wanted.of_own = True
            stay |= {n: max(stay.get(n, 0), len(moments)) for n, moments in found.items()}
            at = _looked_at(room, wanted, now_ms, ends, [*at, *able])
            found = _soonest(room, wanted, at, wanted.tasks, most, stay)
    if task.gang:
        found = _in_gangs(room, wanted, _first(room, wanted, found, _rooms(found) // task.gang * task.gang, stay), ends)
    return {number: Reserved(task, moments, moments[-1].at_ms) for number, moments in found.items()}


def _staying(tasks: int, moments: list[Moment], now_ms: int) -> int:
    """For how many tasks a node goes on to be held that was held for so many (late where negative)."""
    return tasks if tasks > 0 else len([moment for moment in moments[:-tasks] if moment.at_ms <= now_ms])


def _in_gangs(room: Room, wanted: Wanted, found: dict[int, list[Moment]], ends: Ends) -> dict[int, list[Moment]]:
    """When each node is to hold the tasks of the first gang, the first two .., as many as are found: all tasks of a
    gang start together, when the last of its rooms is complete.
    """
    gang = wanted.task.gang
    times = sorted((moment.at_ms, number) for number, moments in found.items() for moment in moments)
    counts = dict.fromkeys(found, 0)
    whole: dict[int, list[Moment]] = {number: [] for number in found}
    for first in range(0, len(times), gang):
        rooms = times[first : first + gang]
        at_ms = rooms[-1][0]
        for _, number in rooms:
            counts[number] += 1
        for number in dict.fromkeys(number for _, number in rooms):
            whole[number].append(moment_at(room.nodes[number], at_ms, ends(number, wanted), counts[number]))
    return whole


def _most_on_a_node(wanted: Wanted) -> int:
    return 1 if wanted.task.bounds is not None and wanted.task.bounds.is_apart else wanted.tasks


def _rooms(found: dict[int, list[Moment]]) -> int:
    return sum([len(moments) for moments in found.values()])


def _looked_at(room: Room, wanted: Wanted, now_ms: int, ends: Ends, numbers: list[int]) -> dict[int, list[Moment]]:
    """By node, when it holds the first, the second .. of the tasks that are wanted."""
    most = _most_on_a_node(wanted)
    return {n: moments_of(wanted.task, room.nodes[n], now_ms, ends(n, wanted), most) for n in numbers}


def _soonest(
    room: Room, wanted: Wanted, at: dict[int, list[Moment]], count: int, most: int, stay: dict[int, int] | None = None
) -> dict[int, list[Moment]]:
    """So many rooms at most, those that are complete first, on at most `most` nodes."""
    return _first(room, wanted, at, count, stay or {}, most)


def _first(
    room: Room,
    wanted: Wanted,
    at: dict[int, list[Moment]],
    count: int,
    stay: dict[int, int],
    most: int | None = None,
) -> dict[int, list[Moment]]:
    """So many rooms: what was held before stays, then those that are complete first; among equals the node that misses
    least comes first.
    """
    ranked = sorted(
        (i >= stay.get(number, 0), moment.at_ms, _missing(wanted.task, room.nodes[number]), number, i)
        for number, moments in at.items()
        for i, moment in enumerate(moments)
    )
    counts: dict[int, int] = {}
    left = count
    for *_, number, i in ranked:
        if left and (most is None or number in counts or len(counts) < most):
            counts[number] = i + 1
            left -= 1
    return {number: at[number][:count] for number, count in counts.items()}


def _missing(task: TaskClass, node: NodeRoom) -> int:
    """What has to be given back before one task fits: the largest part of the node's capacity, in 2^-20."""
    return max([(max(0, amount - node.free[p]) << 20) // node.capacity[p] for p, amount, _ in task.needs], default=0)
