"""When jobs will end in the shadow cluster (cluster.py): with the remaining work, the order of `largesse` (keys.py).

The base of the shadow follows log time. After each arrival or change of capacity a copy of it runs ahead, at most
`shadow_steps` steps a round, to see when all jobs end. Until a job's end is seen, the one seen before counts, or else
an estimate from its work.
"""

from largesse.lifecycle.dag import waves_of
from largesse.lifecycle.queue_policy import uses_shadow_order
from largesse.lifecycle.run_times import expected_ms
from largesse.lifecycle.state import Graph
from schemas import Queue, Vector
from schemas.quantities import SHARE_UNITS, largest_share
from services.leftover.core.job import Job
from services.leftover.core.shadow.cluster import advance, arrive, forget, fork, leave
from services.leftover.core.shadow.keys import STALE, claim, claim_moved, note_size, renew
from services.leftover.core.shadow.state import LINE, NOWHERE, Cluster, Lines, Run, Shadow, Work
from services.leftover.core.state import State
from services.leftover.placement.board import Board
from services.leftover.placement.task_span import TaskSpan

SHADOW_JOBS_MAX = 10_000
"""So many jobs are in the shadow at a time. The others join it in order of admission as jobs end there, and are served
after those that are in it."""

EACH_ANEW = 256
"""With so many jobs in the shadow at most it is looked ahead again whenever one comes or leaves early; of those beyond,
once a part of them has (MOVED_PART). Among thousands of jobs one more moves the ends of the others by little, and to
see them again takes a step for each."""

MOVED_PART = 16


# ---------------------------------------------------------------- what the log tells
def set_up(state: State, time: int) -> None:
    """The queues or the order of jobs are others: the shadow starts over, with what is left to be done of each job."""
    state.shadow = Shadow(tree=state.queues)
    if not uses_shadow_order(state.policy):
        return
    for node in state.nodes.values():
        if not node.lost:
            note_capacity(state, {}, node.capacity)
    for name, job in state.jobs.items():
        if job.began:
            join(state, name, job, time)


def note_capacity(state: State, before: Vector, after: Vector) -> None:
    """A node has another capacity: that of a node which is not there is empty."""
    shadow = state.shadow
    if before == after or not uses_shadow_order(state.policy):
        return
    for vector, sign in ((before, -1), (after, 1)):
        for kind, amount in vector.items():
            shadow.capacity[kind] = shadow.capacity.get(kind, 0) + sign * amount
    shadow.resized = True


def join(state: State, name: str, job: Job, time: int) -> None:
    """A job may run from now on."""
    if not uses_shadow_order(state.policy):
        return
    shadow = state.shadow
    if len(shadow.base.runs) + len(shadow.arrivals) >= SHADOW_JOBS_MAX:
        shadow.outside[job.admitted] = name
        return
    work = _work_of(name, leaf_path(state, job), job, time)
    _measure(shadow, work)
    shadow.works[job.admitted] = work
    note_size(shadow, work)
    shadow.arrivals.append((time, job.admitted))
    shadow.ends[job.admitted] = STALE | time + max(work.path_ms, default=0)
    claim(state, job, time)


def depart(state: State, job: Job, *, succeeded: bool = False, returns: bool = False) -> None:
    """A job is over, or a user holds or moves it (`returns`). One that has succeeded stays in the shadow until it ends
    there: the share it would have used until then determines who is served before whom.
    """
    shadow, seq = state.shadow, job.admitted
    if shadow.outside:
        shadow.outside.pop(seq, None)
    if shadow.ends.pop(seq, None) is None:
        return
    shadow.ranked.pop(seq, None)
    del shadow.claims[seq]
    if succeeded and seq in shadow.base.runs:
        return
    if seq in shadow.base.runs:
        if returns:
            forget(shadow, seq)
        leave(shadow, seq)
        shadow.moved += 1
    else:
        shadow.arrivals = [arrival for arrival in shadow.arrivals if arrival[1] != seq]
    del shadow.works[seq]


def note_duration(state: State, job: Job, at: int) -> None:
    """More is known of how long the tasks of a stage take."""
    work = state.shadow.works.get(job.admitted)
    if work is not None:
        stage = job.graph.stages[at]
        work.lasts_ms[at] = expected_ms(stage, job.seen)


def longest_first(state: State, job: Job, spans: list[TaskSpan]) -> None:
    """What a job waits for, the stage with the longest way to the end of the job first."""
    work = state.shadow.works.get(job.admitted)
    if work is not None:
        path_ms = work.path_ms
        spans.sort(key=lambda span: -path_ms[span.stage_at])


def set_floors(state: State, board: Board) -> None:
    """Of the share of each job, `isolation_permille` go before the order of the shadow: its queue's level, by the jobs
    there are."""
    if not uses_shadow_order(state.policy):
        return
    live: dict[str, int] = {}
    for job in state.jobs.values():
        if job.began:
            leaf = leaf_path(state, job)
            live[leaf] = live.get(leaf, 0) + 1
    for leaf, count in live.items():
        level = min(SHARE_UNITS, board.leaf(leaf).target)
        entry, floor = board.leaf(leaf), level * state.policy.isolation_permille // (1_000 * count)
        if entry.floor != floor:
            entry.floor = floor
            for each in board.jobs.values():
                if each.leaf is entry:
                    board.rerank(each.name)  # It may come before the floor now, or after it.


def leaf_path(state: State, job: Job) -> str:
    """The queue whose jobs are one list with this one."""
    group = state.groups.get(job.queue)
    return group.path if group is not None else ""


# ---------------------------------------------------------------- jobs
def _work_of(name: str, leaf: str, job: Job, time: int) -> Work:
    graph = job.graph
    lasts_ms = [expected_ms(stage, job.seen) for stage in graph.stages]
    tasks = job.progress.left.copy()
    demands = [stage.demand for stage in graph.stages]
    in_waves_ms = [
        lasts * waves_of(stage, left) for stage, lasts, left in zip(graph.stages, lasts_ms, tasks, strict=True)
    ]
    work = Work(name, leaf, demands, tasks, lasts_ms, _paths(graph, in_waves_ms), graph.children, [], [], time)
    most = {at: stage.width for at, stage in enumerate(graph.stages) if stage.running_max is not None}
    if most:
        work.most = most
    return work


def _paths(graph: Graph, lasts_ms: list[int]) -> list[int]:
    """By stage, the longest sum of run times from its start to the end of the job."""
    order, parents = graph.roots.copy(), graph.parents.copy()
    for at in order:
        for child in graph.children[at]:
            parents[child] -= 1
            if not parents[child]:
                order.append(child)
    path_ms = [0] * len(graph.stages)
    for at in reversed(order):
        path_ms[at] = lasts_ms[at] + max([path_ms[child] for child in graph.children[at]], default=0)
    return path_ms


def _measure(shadow: Shadow, work: Work) -> None:
    """What tasks of a job need of the capacity in force. A task is taken to be no larger than the cell, and to need
    nothing of a kind that the cell has not got: it will not start, but nobody waits for it in the shadow."""
    needs = []
    for demand in work.demands:
        pairs = [(p, demand.get(kind, 0)) for p, kind in enumerate(shadow.kinds)]
        needs.append([(p, min(amount, shadow.total[p])) for p, amount in pairs if amount and shadow.total[p]])
    work.needs, work.started = needs, None
    work.shares = [max([a * SHARE_UNITS // shadow.total[p] for p, a in pairs], default=0) for pairs in needs]


def _estimate_ms(shadow: Shadow, work: Work) -> int:
    """How long a job might take beside those that are there."""
    shares = 0
    for at, count in enumerate(work.tasks):
        shares += count * work.shares[at] * work.lasts_ms[at]
    return max(max(work.path_ms, default=0), shares * len(shadow.base.runs) // SHARE_UNITS)


def _run_of(shadow: Shadow, work: Work) -> Run:
    """A job with nothing running. Stages that have nothing left to be done are over."""
    parents = [0] * len(work.tasks)
    for at, children in enumerate(work.children):
        for child in children:
            parents[child] += work.tasks[at] > 0
    ready = [at for at, count in enumerate(work.tasks) if count and not parents[at]]
    ready.sort(key=lambda at: (-work.path_ms[at], at))
    return Run(work.tasks.copy(), work.tasks.copy(), parents, ready, [0] * len(shadow.kinds))


# ---------------------------------------------------------------- a round opens
def move(state: State, time: int) -> None:
    """The shadow follows log time, and looks ahead."""
    shadow, tree = state.shadow, state.shadow.tree
    changed: dict[int, bool] = {}  # Jobs with another end than was known.
    resized = shadow.resized
    if resized:
        _resize(shadow)
    while shadow.outside and len(shadow.base.runs) + len(shadow.arrivals) < SHADOW_JOBS_MAX:
        name = shadow.outside.pop(next(iter(shadow.outside)))
        join(state, name, state.jobs[name], time)
    steps = _follow(shadow, tree, time, state.policy.shadow_steps, changed)
    if steps > 0 and shadow.moved > max(0, len(shadow.base.runs) - EACH_ANEW) // MOVED_PART:
        _look_anew(shadow)
    elif shadow.ahead is not None and shadow.ahead.now_ms <= shadow.base.now_ms:
        shadow.ahead = fork(shadow.base)  # The base has come as far, and may have forgotten jobs that ended.
    _look_ahead(shadow, steps, changed)
    for seq in list(shadow.ends) if resized else changed:
        if resized:
            claim(state, state.jobs[shadow.works[seq].name], time)
        else:
            claim_moved(state, seq, time)
    renew(state, time)


def _follow(shadow: Shadow, tree: Queue | None, time: int, steps: int, changed: dict[int, bool]) -> int:
    """Brings the base up to log time; how many steps are left, 0 where it has not got there."""
    base = shadow.base
    while True:
        until_ms = min(time, shadow.arrivals[0][0]) if shadow.arrivals else time
        seen: list[tuple[int, int]] = []
        steps = advance(shadow, base, tree, until_ms, steps, seen)
        _note_seen(shadow, seen, changed)
        if steps <= 0:
            return 0
        base.now_ms = max(base.now_ms, until_ms)
        if not shadow.arrivals:
            return steps
        come = 0
        while come < len(shadow.arrivals) and shadow.arrivals[come][0] <= until_ms:
            seq = shadow.arrivals[come][1]
            arrive(shadow, seq, _run_of(shadow, shadow.works[seq]))
            come += 1
        for _, seq in shadow.arrivals[:come]:
            shadow.ends[seq] = STALE | base.now_ms + _estimate_ms(shadow, shadow.works[seq])
            changed[seq] = True
        shadow.arrivals, shadow.moved = shadow.arrivals[come:], shadow.moved + come


def _look_anew(shadow: Shadow) -> None:
    """What was seen ahead may no longer be right. The old results are used until new ones are found."""
    shadow.moved = 0
    waits, ranked = shadow.base.waits, shadow.ranked
    shadow.ahead = fork(shadow.base) if waits else None
    for seq in list(waits if len(waits) < len(ranked) else ranked):  # Others end when they have been seen to.
        if seq in waits and ranked.pop(seq, False):
            shadow.ends[seq] |= STALE


def _look_ahead(shadow: Shadow, steps: int, changed: dict[int, bool]) -> None:
    """Sees when more jobs end."""
    ahead = shadow.ahead
    if steps <= 0 or ahead is None:
        return
    seen: list[tuple[int, int]] = []
    if advance(shadow, ahead, shadow.tree, None, steps, seen) > 0:
        shadow.ahead = None  # It has seen all.
    _note_seen(shadow, seen, changed, shadow.base.waits)


def _note_seen(
    shadow: Shadow, seen: list[tuple[int, int]], changed: dict[int, bool], among: dict[int, bool] | None = None
) -> None:
    """It is known when these jobs end, as far as they are `among` some (None: all)."""
    ends, ranked = shadow.ends, shadow.ranked
    for end_ms, seq in seen:
        before = ends.get(seq)
        if before is None or (among is not None and seq not in among):
            continue
        if before != end_ms:
            ends[seq], changed[seq] = end_ms, True
        ranked[seq] = True


def _resize(shadow: Shadow) -> None:
    """The cell has another capacity: all that follows from it is worked out again."""
    shadow.resized, shadow.moved, shadow.ahead = False, SHADOW_JOBS_MAX, None
    kinds = sorted([kind for kind, amount in shadow.capacity.items() if amount > 0])
    shadow.kinds, shadow.total = kinds, [shadow.capacity[kind] for kind in kinds]
    shadow.capacity = {kind: shadow.capacity[kind] for kind in kinds}
    for work in shadow.works.values():
        _measure(shadow, work)
        note_size(shadow, work)
    base = shadow.base
    running: dict[int, dict[int, int]] = {}
    for _, seq, stage, count in base.running:
        stages = running.setdefault(seq, {})
        stages[stage] = stages.get(stage, 0) + count
    _line_up(shadow, base, running)


def _line_up(shadow: Shadow, base: Cluster, running: dict[int, dict[int, int]]) -> None:
    """Puts all jobs in line again; `running`: by job and stage, the tasks of it that run."""
    base.free, base.lines, base.leaves = shadow.total.copy(), {}, None
    for seq, run in base.runs.items():
        work = shadow.works[seq]
        line = base.lines.get(work.leaf)
        if line is None:
            line = base.lines[work.leaf] = Lines([], [[] for _ in shadow.kinds], [0] * len(shadow.kinds))
        run.held = [0] * len(shadow.kinds)
        for stage, count in running.get(seq, {}).items():
            for p, amount in work.needs[stage]:
                run.held[p] += amount * count
        for p, amount in enumerate(run.held):
            base.free[p] -= amount
            line.held[p] += amount
        run.share, line.share = largest_share(run.held, shadow.total), largest_share(line.held, shadow.total)
        line.live += 1
        run.at = LINE if run.ready else NOWHERE
        if run.ready:
            line.turn.append((run.share, seq))
    for line in base.lines.values():
        line.turn.sort()
    base.open = base.weighs = True
