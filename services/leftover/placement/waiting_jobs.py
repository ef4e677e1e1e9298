"""Jobs on a board and the leaves they wait in: what they wait for, what they hold, and what they are ranked by."""

from schemas.quantities import largest_share
from schemas.sharing import ServingOrder
from services.leftover.placement.buckets import Buckets
from services.leftover.placement.entries import JobEntry
from services.leftover.placement.leaf_queue import LeafEntry
from services.leftover.placement.limits import Limits
from services.leftover.placement.node_table import NodeTable
from services.leftover.placement.queue_limits import count_in
from services.leftover.placement.task_classes import TaskClasses
from services.leftover.placement.task_span import TaskSpan


class WaitingJobs:
    """Jobs by name. What changes a rank is noted, and `refresh` ranks again at the next round."""

    def __init__(self, table: NodeTable, classes: TaskClasses, limits: Limits, buckets: Buckets) -> None:
        self._table, self._classes, self._limits, self._buckets = table, classes, limits, buckets
        self.by_name: dict[str, JobEntry] = {}
        self._stale_jobs: dict[int, bool] = {}  # Their ranks may have changed; True: what they hold may have, too.
        self._stale_leaves: dict[str, bool] = {}

    def add(self, job: JobEntry) -> None:
        """A job that neither holds nor waits for anything yet."""
        self.by_name[job.name] = self._buckets.by_admission[job.admitted] = job

    def wait(self, job: JobEntry, spans: list[TaskSpan]) -> None:
        """All that a job waits for, in its order; replaces what it waited for."""
        buckets, classes = self._buckets, self._classes
        if job.spans:
            buckets.leave(job)
        job.aged = False
        if buckets.discipline == "fifo_stage":
            spans.sort(key=lambda span: (span.since_ms, span.stage_at))  # The oldest of a class speaks for it.
        job.spans = spans
        for position, span in enumerate(spans):
            task = span.task
            span.position = position
            classes.recheck[task.index] = True
            classes.begin_waiting(task)
            buckets.count_of(job, task, span.count)
        buckets.enter(job)

    def remove(self, name: str) -> None:
        """The job is over; what its attempts still hold counts for nobody until it is given back."""
        job = self.by_name.pop(name)
        if job.spans:
            self._buckets.leave(job)
        if job.places:
            self._limits.users.remove_job(job.places)
        del self._buckets.by_admission[job.admitted]
        if job.tasks:
            leaf = job.leaf
            leaf.held = [have - held for have, held in zip(leaf.held, job.held, strict=True)]
            self._buckets.pools.give_back(job.job_class, job.held)
            self._stale_leaves[leaf.name] = True
        self._stale_jobs.pop(job.admitted, None)

    def hold(self, name: str, task_pairs: list[tuple[int, int]], count: int, queue: str = "") -> None:
        """The job holds `count` more tasks (fewer, where negative). `queue` is its own, also when the job is over."""
        buckets, queues = self._buckets, self._limits.queues
        if queues.given:
            for leaf_name, bucket_id in count_in(queues.above(queue)[1], task_pairs, count):
                buckets.uncap(buckets.leaves[leaf_name], bucket_id)
        job = self.by_name.get(name)
        if job is None:
            return
        leaf = job.leaf
        if job.held is buckets.nothing:
            job.held = buckets.nothing.copy()
        mine, ours = job.held, leaf.held
        fewer = -count
        for p, amount in task_pairs:
            if p >= 0 and count >= 0:  # Multiplied by what is not negative, as in `add_amounts`.
                more = amount * count
                mine[p], ours[p] = mine[p] + more, ours[p] + more
            elif p >= 0:
                less = amount * fewer
                mine[p], ours[p] = mine[p] - less, ours[p] - less
        if buckets.pools.count > 1:
            buckets.pools.hold(job.job_class, task_pairs, count)
        job.tasks += count
        self._stale_jobs[job.admitted] = self._stale_leaves[leaf.name] = True

    def order_of(self, name: str) -> ServingOrder | None:
        """The order in which a job is served in its leaf; None: it is not on the board."""
        job = self.by_name.get(name)
        return job.leaf.order if job is not None else None

    def spans_in(self, name: str) -> list[TaskSpan]:
        """What a job on the board waits for. To be read only."""
        return self.by_name[name].spans

    # ------------------------------------------------------------ ranks
    def set_sort_value(self, name: str, value: int) -> None:
        """The order of its leaf sorts a job by another value from the next round on."""
        self._set_sort_value(self.by_name[name], value)

    def show_key(self, admitted: int, key: int) -> None:
        """What a job is served by in the order of the shadow, if it is served so and is on the board."""
        job = self._buckets.by_admission.get(admitted)
        if job is not None and job.leaf.sorts.value == "shadow_key":
            self._set_sort_value(job, key)

    def _set_sort_value(self, job: JobEntry, value: int) -> None:
        if job.sort_value != value:
            job.sort_value = value
            if job.spans:  # Else it is ranked once it waits for something.
                self._stale_jobs.setdefault(job.admitted, False)

    def set_priority(self, name: str, priority: int) -> None:
        """The job has another priority from the next round on."""
        job = self.by_name[name]
        if job.priority != priority:
            job.priority = priority
            if job.spans:
                offers: dict[str, dict[int, bool]] = {job.leaf.name: {}}
                self._buckets.rank_again(job, offers)
                self._buckets.offer_all(job.leaf, offers[job.leaf.name])

    def rerank(self, job: JobEntry) -> None:
        """The job may come earlier or later in its leaf from the next round on."""
        if job.spans:  # Else it is ranked once it waits for something.
            self._stale_jobs.setdefault(job.admitted, False)

    def set_floor(self, leaf: LeafEntry, floor: int) -> None:
        """Jobs of a leaf that have less than this come first in it."""
        if leaf.floor != floor:
            leaf.floor = floor
            for job in self.by_name.values():
                if job.leaf is leaf:
                    self.rerank(job)  # It may come before the floor now, or after it.

    def note_leaf(self, name: str) -> None:
        """What a leaf holds, is entitled to or was served by may have changed."""
        self._stale_leaves[name] = True

    def age(self, since_ms: int) -> None:
        """Jobs that hold nothing and have waited since this time or longer go first in their leaves."""
        buckets = self._buckets
        if buckets.discipline == "fair" and buckets.ageing.first_ms <= since_ms:
            for admitted in buckets.ageing.take(since_ms):
                job = buckets.by_admission[admitted]
                job.aged = True
                buckets.enter(job)

    def refresh(self) -> None:
        """Works out the shares that have moved since the last round, and ranks jobs again."""
        total, buckets = self._table.total, self._buckets
        leaves = [buckets.leaves[name] for name in self._stale_leaves]
        for leaf in leaves:
            leaf.share = largest_share(leaf.held, total)
        stale = [(buckets.by_admission[admitted], has_moved) for admitted, has_moved in self._stale_jobs.items()]
        befores = [job.share for job, _ in stale]
        for job, has_moved in stale:
            if has_moved:
                job.share = largest_share(job.held, total)
        buckets.leaf_queue.move(leaves)
        offers: dict[str, dict[int, bool]] = {}
        for (job, has_moved), before in zip(stale, befores, strict=True):
            ranks = job.share != before or not job.tasks or job.leaf.sorts.by != "share"
            if ranks and job.spans and buckets.discipline == "fair":
                job.aged = job.aged and not job.tasks
                buckets.rank_again(job, offers)
                if has_moved:
                    buckets.note_ageing(job)
        for name, bucket_ids in offers.items():
            buckets.offer_all(buckets.leaves[name], bucket_ids)
        self._stale_leaves, self._stale_jobs = {}, {}
