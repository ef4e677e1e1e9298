"""Headroom: room that is gathered for tasks that would otherwise never start (docs/concepts/gathering.md).

While small tasks come and go, what is free lies in fragments, and no node ever has enough for a large task or a gang.
Room is gathered for two causes: a queue that waits holds less than it is due by more than one of its tasks, or by a
part of a gang; and none of the tasks has started that a queue would serve next. It is gathered where, by the estimated
ends of what runs there, it is complete soonest.

When. A room that is held stands idle until it is complete, while a queue that waits loses its use. Nobody knows whether
room would come free by itself, so each room is held from the moment at which the wait so far has cost as much as the
room will cost by standing idle (the break-even rule of ski rental): what both cost together is at most twice what the
better of the two would have cost. At the latest it is held after `headroom_after_ms`.
"""

from collections.abc import Callable, Iterable
from typing import Final

from schemas.quantities import SHARE_UNITS, largest_share
from services.leftover.placement.backfill.timeline import (
    End,
    HeldNode,
    Moment,
    Wanted,
    could_hold,
    fits_now,
    fitting,
    moment_at,
    moments_of,
)
from services.leftover.placement.board import Board
from services.leftover.placement.entries import JobEntry
from services.leftover.placement.keys import CLASS_MASK, OPTIONAL_BIT, job_class_of
from services.leftover.placement.leaf_queue import LeafEntry
from services.leftover.placement.node_table import NodeTable
from services.leftover.placement.pending_reasons import Heads, able_heads, is_seeker, short
from services.leftover.placement.task_class import NodeRoom, TaskClass
from services.leftover.placement.task_span import TaskSpan

_PARTS: Final = 4
"""Room for a gang that takes a leaf beyond its due is gathered once the leaf lacks one in so many parts of it. With
less, room would be gathered while the tasks of the last gang still end one by one, and stand idle for as long."""

_OPTIONAL: Final = 1 << OPTIONAL_BIT
_ROUNDED: Final = 16
"""Billionths by which a level, or what is held in many tasks, may be off."""

LOOKED_AT = 64
"""Beside those that are held already, so many nodes are looked at for each room that is wanted at most: those that miss
least. Each look is a walk over what runs on a node."""


Ends = Callable[[int, Wanted], Iterable[End]]
"""The estimated ends on a node in order of time; those of the class's own tasks only where they count (`of_own`)."""


def shortfall(leaf: LeafEntry) -> int:
    """How much less a leaf that waits holds than it is due, in share units; 0 where that is not more than one of its
    tasks, or where nothing is said of what it is due.
    """
    least, lacks = leaf.size_least, lacking(leaf)
    if least is None or leaf.own_level is None or lacks < _lacked_least(leaf, least) or _gives_all(leaf):
        return 0
    return lacks


def lacking(leaf: LeafEntry) -> int:
    """How much less a leaf holds than it is guaranteed, or, where a task more is not within that, than it is due."""
    if leaf.is_owed:
        return leaf.guaranteed - leaf.share
    return 0 if leaf.own_level is None else leaf.own_level - leaf.share


def _lacked_least(leaf: LeafEntry, size: int) -> int:
    """What a leaf lacks at least for a task of that size to be lacked: more than the task, since whole tasks never meet
    a share exactly. A maximum can be met exactly.
    """
    return max(1, size - _ROUNDED) if leaf.has_maximum or leaf.is_owed else size + 1


def _gives_all(leaf: LeafEntry) -> bool:
    """Whether its jobs are planned, and need nothing now of what they wait for."""
    if not leaf.sorts.gives:
        return False
    firsts = [ready.first() for ready in leaf.ready]
    return all(id_ is None or ready.key[id_] >= _OPTIONAL for id_, ready in zip(firsts, leaf.ready, strict=True))


def lacks_part_of_gang(board: Board, leaf: LeafEntry) -> bool:
    """Whether a leaf in which gangs wait holds less than it is due by a task of one of them or more."""
    if not leaf.gangs or leaf.own_level is None:
        return False
    lacks = leaf.own_level - leaf.share
    return any(
        lacks >= _lacks_least(leaf, _task_of(board, bucket_id)) and is_required(board, leaf, bucket_id)
        for bucket_id in leaf.gangs
    )


def _lacks_least(leaf: LeafEntry, task: TaskClass) -> int:
    """What a leaf lacks at least if room is to be gathered for a gang that takes it beyond its due: a part of the gang,
    or of its due where that is less.
    """
    return max(task.size // task.gang, min(task.size, leaf.own_level or 0) // _PARTS)


def is_lacking(board: Board, leaf: LeafEntry) -> bool:
    """Whether room is to be gathered for a leaf: it holds less than it is due by more than one task, or by a part of a
    gang.
    """
    return shortfall(leaf) > 0 or lacks_part_of_gang(board, leaf)


def still_short(board: Board, names: list[str], short: dict[str, int]) -> dict[str, bool]:
    """Which of these leaves are short now. One that is among the `short` stays so until it holds what it is due or
    waits no more, and where gangs wait, as long as they do: if it falls short again meanwhile, it has waited long
    enough. (A queue of gangs whose tasks end one by one falls short again and again.)
    """
    found: dict[str, bool] = {}
    for leaf in [board.buckets.leaves[name] for name in names]:
        is_below = leaf.size_least is not None and leaf.own_level is not None and leaf.share < leaf.own_level
        stays = leaf.name in short and (is_below or len(leaf.gangs) > 0) and not _gives_all(leaf)
        found[leaf.name] = stays or is_lacking(board, leaf)
    return found


def least_needs(board: Board, placed: list[TaskClass], heads: Heads) -> dict[int, int]:
    """By resource position, the least that is asked for by a class that waits for nothing but room, or by one of those
    `placed`. Positions that are missing: nothing. `heads`: see `seekers`.
    """
    among = 0 if board.buckets.is_mixed else board.classes.candidates.kept_out()
    least = board.classes.candidates.least_needs(among) if among else None
    if least is None:
        return _least_of(short(board, heads) + placed)
    for task in placed:
        least = _common(least, task)
    return least


def _least_of(waiting: list[TaskClass]) -> dict[int, int]:
    least: dict[int, int] = dict(waiting[0].pairs) if waiting else {}
    for task in waiting:
        if not least:
            break
        least = _common(least, task)
    return least


def _common(least: dict[int, int], task: TaskClass) -> dict[int, int]:
    """The same with a class more."""
    common: dict[int, int] = {}
    for p, amount in task.pairs:
        before = least.get(p)
        if before is not None:
            common[p] = amount if amount < before else before
    return common


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
    return board.classes.by_number[bucket_id & CLASS_MASK]


def blocked_heads(board: Board, heads: Heads) -> list[TaskClass]:
    """Classes that wait for nothing but room, are kept out of a leaf and would be served first there, in no order that
    means anything. Cost: the leaves whose order or claim has changed since the last call, and the classes; every leaf
    where orders are strict or queues have a maximum, since there what one leaf gets can change another's head. `heads`:
    see `seekers`.
    """
    if board.buckets.is_mixed:
        leaves = board.buckets.leaves.values()
        able = [(leaf, bucket_id) for leaf in leaves for bucket_id in _able_heads(board, leaf, heads)]
        kept_out = [_task_of(board, bucket_id) for leaf, bucket_id in able if is_kept_out(board, leaf, bucket_id)]
        return list({task.index: task for task in kept_out}.values())
    leaf_queue, changed = board.buckets.leaf_queue, list[tuple[LeafEntry, list[int]]]()
    for leaf, bucket_ids in board.buckets.heads(list(leaf_queue.reordered)) if leaf_queue.reordered else ():
        indexes = [bucket_id & CLASS_MASK for bucket_id in bucket_ids if is_kept_out(board, leaf, bucket_id)]
        if indexes != leaf.headed:
            changed.append((leaf, indexes))
    if changed:
        leaf_queue.set_heads(changed)
    leaf_queue.reordered.clear()
    return [task for index in leaf_queue.headed if (task := board.classes.by_number[index]).blocked]


def begun_for(board: Board, before: dict[int, dict[int, int]]) -> list[TaskClass]:
    """Classes of planned jobs that room is held for (`before`, by index) and that still lack it. Jobs with less work
    left may come first by now: if those ended what was begun, a stream of them would keep a large job out for ever.
    """
    found: list[TaskClass] = []
    for task in [board.classes.by_number[index] for index in before]:
        for name, bucket_id in task.buckets:
            leaf = board.buckets.leaves[name]
            is_ours = leaf.sorts.gives and task.blocked
            is_ours = is_ours and not board.pools.bars(job_class_of(bucket_id), task)
            if is_ours and is_required(board, leaf, bucket_id) and is_kept_out(board, leaf, bucket_id):
                found.append(task)
                break
    return found


def is_required(board: Board, leaf: LeafEntry, bucket_id: int) -> bool:
    """Whether the first job of a bucket needs its tasks now: room is not gathered for what jobs give away."""
    return not leaf.sorts.gives or board.buckets.key_in(leaf, bucket_id) < _OPTIONAL


def _able_heads(board: Board, leaf: LeafEntry, heads: Heads) -> list[int]:
    """The buckets that a leaf would serve first, by class of job, of those that wait for nothing but room."""
    if leaf.strict:
        return able_heads(board, leaf, heads)
    found: dict[int, int] = {}
    for bucket_id in _in_order(board, leaf):
        job_class = job_class_of(bucket_id)
        if job_class not in found and is_seeker(board, leaf, bucket_id, heads):
            found[job_class] = bucket_id
            if len(found) == board.pools.count:
                break
    return list(found.values())


def _in_order(board: Board, leaf: LeafEntry) -> list[int]:
    """All buckets of a leaf in the order in which it would serve them."""
    keys = {bucket_id: board.buckets.key_in(leaf, bucket_id) for bucket_id in list(leaf.sizes.key)}
    return sorted(keys, key=lambda bucket_id: (keys[bucket_id], bucket_id))


def is_kept_out(board: Board, leaf: LeafEntry, bucket_id: int) -> bool:
    """Whether a leaf holds no more than its share and runs nothing of a class: otherwise its own ending tasks will give
    the class its room (except for a gang, which needs all of it at once). Whole tasks never meet a share exactly, so
    the leaf may be beyond it by less than one task and less than the share itself. Where the first job has aged, those
    tasks have not ended in all that time: then it does not matter that they run.
    """
    task = _task_of(board, bucket_id)
    size, share = task.size // max(1, task.gang), leaf.level if leaf.own_level is None else leaf.own_level
    if leaf.share >= share + min(size, share):
        return False
    buckets = board.buckets
    return task.gang > 0 or not buckets.leaf_queue.runs(leaf.name, task.shape) or buckets.top(leaf, bucket_id).aged


def aged_since(board: Board, task: TaskClass) -> int | None:
    """Since when the job has waited that has waited longest of those that have aged and are first in a bucket."""
    tops = [board.buckets.top(board.buckets.leaves[name], bucket_id) for name, bucket_id in task.buckets]
    return min([min([span.since_ms for span in job.spans]) for job in tops if job.aged], default=None)


def first_in_path(board: Board, task: TaskClass) -> tuple[JobEntry, TaskSpan]:
    """Who is served first with a class, in that of its leaves whose path comes first."""
    buckets = board.buckets
    name, bucket_id = min(task.buckets, key=lambda at: (at[0], buckets.key_in(buckets.leaves[at[0]], at[1])))
    return buckets.first_in(buckets.leaves[name], bucket_id)


def choose(starved: list[tuple[int, TaskClass]], before: dict[int, dict[int, int]]) -> tuple[int, TaskClass] | None:
    """The class to gather room for of those that starve, as (since ms, class): one that room was gathered for `before`
    (by index) as long as it starves, else the one that has waited longest, the largest of equals.
    """
    ranked = [(task.index not in before, since_ms, -task.size, task.key, task) for since_ms, task in starved]
    found = min(ranked, key=lambda item: item[:4], default=None)
    return (found[1], found[4]) if found is not None else None


def wanted_by(
    board: Board,
    leaf: LeafEntry,
    least: dict[int, int] | None,
    before: dict[int, dict[int, int]],
    heads: Heads,
    *,
    its_turn: bool,
) -> list[Wanted]:
    """What a leaf lacks, in the order in which it would serve its jobs: tasks that wait for nothing but room, up to
    what it is due. `its_turn`: a gang that takes it beyond that is lacked as soon as a part of it is; what that leaves
    of the gang's room comes free where the leaf's own tasks end, as far as such run. `heads`: see `seekers`.
    """
    lacks = lacking(leaf)
    held, within = list(leaf.held), leaf.share + lacks
    found: list[Wanted] = []
    for bucket_id in _in_order(board, leaf):
        task = _task_of(board, bucket_id)
        width = max(1, task.gang)
        parts = task.gang > 0 and its_turn
        if task.size <= 0 or lacks < (_lacks_least(leaf, task) if parts else _lacked_least(leaf, task.size)):
            continue
        exposed = task.index in before or is_exposed(task, least)
        if exposed and is_required(board, leaf, bucket_id) and is_seeker(board, leaf, bucket_id, heads):
            rooms = lacks * width // task.size if parts else _more_within(board, held, task, within) // width * width
            tasks = min(-(-rooms // width), task.waiting // width) * width
            wanted = Wanted(task, tasks)
            if parts:
                wanted.own = min(max(0, tasks - rooms), board.buckets.leaf_queue.count(leaf.name, task.shape))
            found.append(wanted)
            for p, amount in task.pairs:
                if p >= 0:
                    held[p] += min(rooms, tasks) * amount
            lacks = within - largest_share(held, board.node_table.total)
    return found


def _more_within(board: Board, held: list[int], task: TaskClass, within: int) -> int:
    """How many more tasks of a class a leaf with such holdings can have and hold no more than `within` (share units) of
    anything. It may hold most of one resource and ask for another, so that a task adds less than its own share.
    """
    total, more = board.node_table.total, task.waiting
    for p, amount in task.pairs:
        if p >= 0:  # Else no node has it any more, and there is no room to gather.
            more = min(more, max(0, (within + _ROUNDED) * total[p] // SHARE_UNITS - held[p]) // amount)
    return more


def gather(
    table: NodeTable, wanted: Wanted, now_ms: int, ends: Ends, before: dict[int, int], taken: dict[int, bool], most: int
) -> dict[int, HeldNode]:
    """Nodes to hold, by number. `before`: those that were held for the class, with how many tasks; they stay where they
    suffice, and every task that ends there counts, as others get none of it. A negative number: the room is late, and
    stays if by now it is expected at any moment. None of those `taken`, and at most `most` nodes. Of gangs those that
    find all of their room.
    """
    task, nodes = wanted.task, table.nodes
    tasks = wanted.tasks - wanted.own
    known = [n for n in before if n not in taken and could_hold(table, task, nodes[n])]
    wanted.of_all = True
    at = _looked_at(table, wanted, now_ms, ends, known)
    stay = {n: _staying(before[n], at[n], now_ms) for n in known}
    found = _first(table, wanted, {n: at[n][:count] for n, count in stay.items()}, tasks, {}, most)
    held = dict(stay)
    if _rooms(found) < wanted.tasks:
        able = [n for n, node in enumerate(nodes) if n not in taken and n not in stay and could_hold(table, task, node)]
        if len(able) > wanted.tasks + LOOKED_AT:  # Else all are looked at, and `_first` ranks what they have.
            able.sort(key=lambda n: (_missing(task, nodes[n]), n))
            del able[wanted.tasks + LOOKED_AT :]
        wanted.of_all, wanted.spared = False, {}
        looked = _looked_at(table, wanted, now_ms, ends, able)
        found = _first(table, wanted, at | looked, tasks, stay, most)
        if sum([moment.at_ms <= wanted.soon_ms for moments in found.values() for moment in moments]) < tasks:
            wanted.of_all = True
            looked |= _looked_at(table, wanted, now_ms, ends, list(wanted.spared))
            found = _first(table, wanted, at | looked, tasks, stay, most) if wanted.spared else found
        if wanted.own:
            wanted.of_own = True
            stay |= {n: max(stay.get(n, 0), len(moments)) for n, moments in found.items()}
            found = _first(
                table, wanted, _looked_at(table, wanted, now_ms, ends, [*at, *able]), wanted.tasks, stay, most
            )
        if task.gang and _rooms(found) < wanted.tasks:
            wanted.of_all = wanted.of_own = True
            found = _first(
                table, wanted, _looked_at(table, wanted, now_ms, ends, [*at, *able]), wanted.tasks, stay, most
            )
    elif task.gang:  # What is there elsewhere by now need not be waited for.
        free = [n for n, node in enumerate(nodes) if n not in taken and n not in stay and fits_now(table, task, node)]
        there = {n: moments_of(task, nodes[n], now_ms, [], _most_on_a_node(wanted)) for n in free}
        found = _first(table, wanted, at | there, tasks, stay, most)
    if task.gang:
        whole = _first(table, wanted, found, _rooms(found) // task.gang * task.gang, stay, most)
        found = _in_gangs(table, wanted, whole, ends, sum(held.values()))
    else:
        found = _in_time(wanted, found, held)
    return {number: HeldNode(task, moments, moments[-1].at_ms) for number, moments in found.items()}


def _in_time(wanted: Wanted, found: dict[int, list[Moment]], held: dict[int, int]) -> dict[int, list[Moment]]:
    """The rooms that may be held by now, beside those that are `held` already, so many by node."""
    kept: dict[int, list[Moment]] = {}
    for number, moments in found.items():
        stays = held.get(number, 0)
        kept[number] = [moment for i, moment in enumerate(moments) if i < stays or moment.at_ms <= wanted.until_ms]
        if len(kept[number]) < len(moments):
            _note_next(wanted, moments[len(kept[number])].at_ms)
    return {number: moments for number, moments in kept.items() if moments}


def _note_next(wanted: Wanted, at_ms: int) -> None:
    if wanted.next_ms is None or at_ms < wanted.next_ms:
        wanted.next_ms = at_ms


def _staying(tasks: int, moments: list[Moment], now_ms: int) -> int:
    """For how many tasks a node goes on to be held that was held for so many (late where negative)."""
    return tasks if tasks > 0 else len([moment for moment in moments[:-tasks] if moment.at_ms <= now_ms])


def _in_gangs(
    table: NodeTable, wanted: Wanted, found: dict[int, list[Moment]], ends: Ends, held: int
) -> dict[int, list[Moment]]:
    """When each node is to hold the tasks of the first gang, the first two .., as many as are found: all tasks of a
    gang start together, when the last of its rooms is complete. Of gangs for which no room is `held` already those that
    are complete in time.
    """
    gang = wanted.task.gang
    times = sorted((moment.at_ms, number) for number, moments in found.items() for moment in moments)
    counts = dict.fromkeys(found, 0)
    whole: dict[int, list[Moment]] = {number: [] for number in found}
    for first in range(0, len(times), gang):
        rooms = times[first : first + gang]
        at_ms = rooms[-1][0]
        if first >= held and at_ms > wanted.until_ms:
            _note_next(wanted, at_ms)
            break
        for _, number in rooms:
            counts[number] += 1
        for number in dict.fromkeys(number for _, number in rooms):
            whole[number].append(moment_at(table.nodes[number], at_ms, ends(number, wanted), counts[number]))
    return {number: moments for number, moments in whole.items() if moments}


def _most_on_a_node(wanted: Wanted) -> int:
    return 1 if wanted.task.bounds is not None and wanted.task.bounds.is_apart else wanted.tasks


def _rooms(found: dict[int, list[Moment]]) -> int:
    return sum([len(moments) for moments in found.values()])


def _looked_at(
    table: NodeTable, wanted: Wanted, now_ms: int, ends: Ends, numbers: list[int]
) -> dict[int, list[Moment]]:
    """By node, when it holds the first, the second .. of the tasks that are wanted."""
    most = _most_on_a_node(wanted)
    return {n: moments_of(wanted.task, table.nodes[n], now_ms, ends(n, wanted), most) for n in numbers}


def _first(
    table: NodeTable, wanted: Wanted, at: dict[int, list[Moment]], count: int, stay: dict[int, int], most: int
) -> dict[int, list[Moment]]:
    """So many rooms at most, on at most `most` nodes: of gangs first those that are there already, wherever that is,
    since all of a gang waits for the last one; then what was held before stays, then those come that are complete
    first. Among equals the node that misses least comes first.
    """
    task, nodes = wanted.task, table.nodes
    there = dict.fromkeys(at, 0)  # For how many tasks of a gang a node has room now.
    if task.gang:
        there = {n: fitting(task, nodes[n].free, nodes[n].devices, len(moments)) for n, moments in at.items()}
    ranked = sorted(
        (
            task.gang > 0 and i >= there[number],
            i >= stay.get(number, 0),
            moment.at_ms,
            _missing(task, nodes[number]),
            number,
            i,
        )
        for number, moments in at.items()
        for i, moment in enumerate(moments)
    )
    counts: dict[int, int] = {}
    left = count
    for *_, number, i in ranked:
        if left and (number in counts or len(counts) < most):
            counts[number] = i + 1
            left -= 1
    return {number: at[number][:count] for number, count in counts.items()}


def _missing(task: TaskClass, node: NodeRoom) -> int:
    """What has to be given back before one task fits: the largest part of the node's capacity, in 2^-20."""
    return max([(max(0, amount - node.free[p]) << 20) // node.capacity[p] for p, amount, _ in task.needs], default=0)
