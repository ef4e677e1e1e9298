"""What the shadow cluster keeps: plain data, which snapshots hold. cluster.py moves it, cell.py is what others ask."""

from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final

from mypy_extensions import mypyc_attr

from schemas import Cache, Queue, Vector
from schemas.quantities import SHARE_UNITS
from services.leftover.core.job import Job

Pairs = list[tuple[int, int]]
"""Of one task: (position of a kind of resource, amount)."""

LINE: Final = -1
"""Where a job of the shadow waits: for its turn. From 0 on: for more of the kind of resource at that position."""

NOWHERE: Final = -2
"""It waits for nothing."""

NO_LEAF: Final = -1
"""In place of the position of a leaf, or of a branch of the tree of queues: none."""
INNER: Final = -2
"""In place of the position of a queue's branch: the queue is no leaf of the tree."""

NOTHING_SHORT: Final[Pairs] = []
"""Of leaves whose first job waits for nothing: shared, as all such lists are, and never changed."""

NO_LIMITS: Final[dict[int, int]] = {}
"""Of jobs none of whose stages has a limit: shared, and never changed."""


@mypyc_attr(allow_interpreted_subclasses=True)
@dataclass(slots=True)
class Work:
    """A job as the shadow takes it; by stage position. `leaf`: the queue it is served in; `lasts_ms`: expected run time
    of a task; `path_ms`: longest sum of those from a stage to the end of the job; `needs`, `shares`: demand of a task,
    and its dominant share, by the capacity in force. `joined_ms`: when it joined the shadow; `size`: its work by then,
    in share units x ms, 0 while the cell has no capacity. `most`: of stages with a `running_max`, how many tasks run at
    a time. `started`: of one task, how far it is once that has started.
    """

    name: str
    leaf: str
    demands: list[Vector]
    tasks: list[int]
    lasts_ms: list[int]
    path_ms: list[int]
    children: list[list[int]]
    needs: list[Pairs]
    shares: list[int]
    joined_ms: int
    size: int
    most: dict[int, int]
    started: Cache["Run | None"] = field(default=None, repr=False, compare=False)

    def __init__(
        self,
        name: str,
        leaf: str,
        demands: list[Vector],
        tasks: list[int],
        lasts_ms: list[int],
        path_ms: list[int],
        children: list[list[int]],
        needs: list[Pairs],
        shares: list[int],
        joined_ms: int = 0,
        size: int = 0,
        most: dict[int, int] | None = None,
    ) -> None:
        self.name = name
        self.leaf = leaf
        self.demands = demands
        self.tasks = tasks
        self.lasts_ms = lasts_ms
        self.path_ms = path_ms
        self.children = children
        self.needs = needs
        self.shares = shares
        self.joined_ms = joined_ms
        self.size = size
        self.most = most if most is not None else NO_LIMITS
        self.started = None


@mypyc_attr(allow_interpreted_subclasses=True)
@dataclass(slots=True)
class Run:
    """How far a job has come in one virtual cluster; by stage position. `left`: tasks that have not ended; `waits`:
    tasks that have not started; `ready`: stages that could start some, the longest way to the end first. `held`: by
    kind; `share`: the dominant one of it; `at`: where the job waits; `until_ms`: when the last of those that have
    started ends.
    """

    left: list[int]
    waits: list[int]
    parents: list[int]
    ready: list[int]
    held: list[int]
    share: int
    at: int
    until_ms: int

    def __init__(
        self,
        left: list[int],
        waits: list[int],
        parents: list[int],
        ready: list[int],
        held: list[int],
        share: int = 0,
        at: int = NOWHERE,
        until_ms: int = 0,
    ) -> None:
        self.left = left
        self.waits = waits
        self.parents = parents
        self.ready = ready
        self.held = held
        self.share = share
        self.at = at
        self.until_ms = until_ms

    def copied(self) -> "Run":
        """One that can go its own way. `ready` is replaced where it changes, and `parents` change where there are
        several stages."""
        parents = self.parents.copy() if len(self.parents) > 1 else self.parents
        left, waits, held = self.left.copy(), self.waits.copy(), self.held.copy()
        return Run(left, waits, parents, self.ready, held, self.share, self.at, self.until_ms)


OVER = Run([], [], [], [], [])
"""Of jobs that have ended in a cluster that looks ahead: shared, since nobody changes it."""


@mypyc_attr(allow_interpreted_subclasses=True)
@dataclass(slots=True)
class Lines:
    """Who waits in one leaf, as heaps of (share, job): for a turn; by kind, for more of it. Entries that no longer say
    where a job waits, and by which share, are passed over. `held` by kind; `share`: the dominant one of it; `live`:
    jobs that have not ended; `part`: what the leaf is guaranteed, in share units, with the queues that have such jobs,
    as far as anybody asked. `at`: its position among the leaves (leaves.py).
    """

    turn: list[tuple[int, int]]
    parked: list[list[tuple[int, int]]]
    held: list[int]
    share: int
    live: int
    part: int
    at: Cache[int] = field(default=-1, repr=False, compare=False)

    def __init__(
        self,
        turn: list[tuple[int, int]],
        parked: list[list[tuple[int, int]]],
        held: list[int],
        share: int = 0,
        live: int = 0,
        part: int = 0,
    ) -> None:
        self.at = -1
        self.turn = turn
        self.parked = parked
        self.held = held
        self.share = share
        self.live = live
        self.part = part

    def copied(self) -> "Lines":
        """Lines that can go their own way."""
        parked = [heap.copy() for heap in self.parked]
        return Lines(self.turn.copy(), parked, self.held.copy(), self.share, self.live, self.part)


@mypyc_attr(allow_interpreted_subclasses=True)
@dataclass(slots=True, eq=False)
class Branch:
    """A leaf, or a queue above one. `weights`: of the queues below it that have jobs, which are `live`; `part`: what it
    is guaranteed, by the jobs there were at `turn`."""

    parent: int
    weight: int
    weights: int
    live: int
    part: int
    turn: int

    def __init__(self, parent: int, weight: int) -> None:
        self.parent = parent
        self.weight = weight
        self.weights = 0
        self.live = 0
        self.part = SHARE_UNITS
        self.turn = 0

    def copied(self) -> "Branch":
        """One that can go its own way."""
        found = Branch(self.parent, self.weight)
        found.weights, found.live, found.part, found.turn = self.weights, self.live, self.part, self.turn
        return found


@mypyc_attr(allow_interpreted_subclasses=True)
@dataclass(slots=True, eq=False)
class Leaves:
    """What is known of the leaves of a cluster, by position (leaves.py). `numbers`: of queues by path, the
    positions of their branches, INNER for those with queues below them; `in_tree`: the branches of leaves; `changed`:
    leaves that something has changed for; `counts`, `live`: jobs that have not ended, by leaf and in all. `short`: by
    kind, leaves whose first job needs nothing before it, as (how much, leaf), sorted; `short_of`: the same by leaf, as
    (kind, how much); `others`: leaves with jobs that wait otherwise. `turn` counts how often a leaf got its first job
    or lost its last.
    """

    lines: list[Lines]
    branches: list[Branch]
    numbers: dict[str, int]
    in_tree: list[int]
    changed: dict[int, bool]
    counts: list[int]
    live: int
    short: list[list[tuple[int, int]]]
    short_of: list[list[tuple[int, int]]]
    others: dict[int, bool]
    turn: int

    def __init__(self, lines: list[Lines], kinds: int) -> None:
        self.lines = lines
        self.branches = []
        self.numbers = {}
        self.in_tree = [NO_LEAF] * len(lines)
        self.changed = {}
        self.counts = [0] * len(lines)
        self.live = 0
        self.short = [[] for _ in range(kinds)]
        self.short_of = [NOTHING_SHORT] * len(lines)
        self.others = {}
        self.turn = 1

    def copied(self, lines: list[Lines]) -> "Leaves":
        """The same of a copy of the cluster, which has these lines."""
        found = Leaves(lines, 0)
        for at, line in enumerate(lines):
            line.at = at
        found.branches = [branch.copied() for branch in self.branches]
        found.numbers = self.numbers  # Of the tree of queues: never changed.
        found.in_tree, found.counts, found.live = self.in_tree.copy(), self.counts.copy(), self.live
        found.changed, found.others = self.changed.copy(), self.others.copy()
        found.short = [entries.copy() for entries in self.short]
        found.short_of = self.short_of.copy()
        found.turn = self.turn
        return found


@mypyc_attr(allow_interpreted_subclasses=True)
@dataclass(slots=True)
class Cluster:
    """A virtual cluster: one pool with the capacity of the cell, in which every task takes as long as is expected.

    `runs`: by job (seq of its admission); `running`: a heap of (end, job, stage, tasks); `lines` by leaf; `open`: some
    may start now. `weighs`: what the leaves are guaranteed is to be computed again. `waits`: jobs with tasks that have
    not started; when the others end is known. `leaves`: what is known of several.
    """

    now_ms: int
    free: list[int]
    runs: dict[int, Run]
    running: list[tuple[int, int, int, int]]
    lines: dict[str, Lines]
    open: bool
    weighs: bool
    waits: dict[int, bool]
    leaves: Cache[Leaves | None] = field(default=None, repr=False, compare=False)

    def __init__(
        self,
        now_ms: int = 0,
        free: list[int] | None = None,
        runs: dict[int, Run] | None = None,
        running: list[tuple[int, int, int, int]] | None = None,
        lines: dict[str, Lines] | None = None,
        open: bool = False,  # noqa: A002 - the field's name
        weighs: bool = False,
        waits: dict[int, bool] | None = None,
    ) -> None:
        self.now_ms = now_ms
        self.free = free if free is not None else []
        self.runs = runs if runs is not None else {}
        self.running = running if running is not None else []
        self.lines = lines if lines is not None else {}
        self.open = open
        self.weighs = weighs
        self.waits = waits if waits is not None else {}
        self.leaves = None


@mypyc_attr(allow_interpreted_subclasses=True)
@dataclass(slots=True)
class Claim:
    """What a live job is served by (`key`, least first): the work that was left of it and the time that was left until
    it ends in the shadow when this was computed (keys.py). `work`: that work, in share units x ms; `end_ms`: that end;
    `renew_ms`: when the time that is left has become so much shorter that the key is computed again; RESTS where only
    what happens to the job makes it another. `stirred`: something has happened since, so that the job may soon ask.
    `job`: the job itself, once this has been computed.
    """

    key: int
    work: int
    end_ms: int
    renew_ms: int
    stirred: bool
    job: Cache[Job | None] = field(default=None, repr=False, compare=False)

    def __init__(self, key: int, work: int, end_ms: int, renew_ms: int, stirred: bool = False) -> None:
        self.key = key
        self.work = work
        self.end_ms = end_ms
        self.renew_ms = renew_ms
        self.stirred = stirred
        self.job = None


@mypyc_attr(allow_interpreted_subclasses=True)
@dataclass(slots=True)
class Renewals:
    """When keys are computed again. `jobs`: by moment (ms of log time), in the order in which they were listed;
    `moments`: a heap of those. Entries at another moment than the claim's are passed over; `listed`: how many
    there are.
    """

    jobs: dict[int, list[int]]
    moments: list[int]
    listed: int

    def __init__(
        self, jobs: dict[int, list[int]] | None = None, moments: list[int] | None = None, listed: int = 0
    ) -> None:
        self.jobs = jobs if jobs is not None else {}
        self.moments = moments if moments is not None else []
        self.listed = listed

    def add(self, at_ms: int, job: int) -> None:
        """The key of a job is computed again at that moment."""
        jobs = self.jobs.get(at_ms)
        if jobs is None:
            self.jobs[at_ms] = [job]
            heappush(self.moments, at_ms)
        else:
            jobs.append(job)
        self.listed += 1

    def drop_first(self, count: int) -> None:
        """So many jobs of the earliest moment have had their turn."""
        at_ms = self.moments[0]
        jobs = self.jobs[at_ms]
        self.listed -= count
        if count < len(jobs):
            self.jobs[at_ms] = jobs[count:]
        else:
            del self.jobs[at_ms]
            heappop(self.moments)


@dataclass(slots=True)
class Shadow:
    """Empty where the policy serves jobs otherwise. `tree`: the queues that it is shared out among.

    `kinds`, `total`: kinds of resource and how much the cell has; `capacity`: what it has by now, `resized` once that
    is another. `base` follows log time; `ahead` runs on from there to see when jobs will end, None where it has seen
    all; what it has not changed it reads from `base`. `arrivals`: (when, job) not yet in `base`; `outside`: by seq,
    names of the jobs that it has no place for. `moved`: how many jobs came or left early since it was looked ahead,
    so that what was seen holds no longer; another capacity counts as all. `ends`: by live job, when it ends in the
    shadow, with STALE where that was seen before the last move. `ranked`: live jobs whose end is not stale.
    `claims`: by live job, what it is served by; `renewals`: when that is computed again. `sizes`: of the
    jobs that joined last, live or not, in order of joining; `sorted_sizes`: the same, least first.
    """

    tree: Queue | None = None
    kinds: list[str] = field(default_factory=list)
    total: list[int] = field(default_factory=list)
    capacity: Vector = field(default_factory=dict)
    resized: bool = False
    works: dict[int, Work] = field(default_factory=dict)
    base: Cluster = field(default_factory=Cluster)
    ahead: Cluster | None = None
    arrivals: list[tuple[int, int]] = field(default_factory=list)
    outside: dict[int, str] = field(default_factory=dict)
    moved: int = 0
    ends: dict[int, int] = field(default_factory=dict)
    ranked: dict[int, bool] = field(default_factory=dict)
    claims: dict[int, Claim] = field(default_factory=dict)
    renewals: Renewals = field(default_factory=Renewals)
    sizes: list[int] = field(default_factory=list)
    sorted_sizes: list[int] = field(default_factory=list)
