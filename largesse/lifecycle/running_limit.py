"""Which jobs may run: a queue with `running_jobs_max` lets so many run, the others are *parked*, that is held back.

Used by every core that follows jobs; those that decide keep nothing of jobs where no queue has a limit (`may_run`,
`relimit`), since a million may wait. A job that may run may do so until it ends, also when the limit is lowered, but
for one that holds nothing: the log may say that it gives way to another (`take_turns`). Who is next: of the parked jobs
for which every queue above them is below its limit, the one of highest priority, then the one admitted first.
"""

from bisect import insort
from collections.abc import Iterable

from largesse.lifecycle.state import Parked, RunningLimits
from schemas.jobs import JobTurns
from schemas.queues import Queue


def admit(running: RunningLimits, job: str, queue: str, priority: int, admitted: int) -> bool:
    """Whether a job that comes now may run at once; else it is parked."""
    running.leaf[job] = queue
    if not running.limits or _count(running, queue):
        return True
    insort(running.parked.setdefault(queue, []), Parked(job, priority, admitted), key=rank)
    return False


def may_run(running: RunningLimits, job: str, queue: str, priority: int, admitted: int) -> bool:
    """The same, where jobs are kept only as long as any queue has a limit."""
    return not running.limits or admit(running, job, queue, priority, admitted)


def relimit(running: RunningLimits, tree: Queue | None, queues: Iterable[tuple[str, str]]) -> list[str]:
    """`limit`, where jobs are kept only as long as any queue has a limit. `queues`: of each live job."""
    if not running.limits:
        running.leaf = dict(queues)
    ready = limit(running, tree)
    if not running.limits:
        running.leaf = {}
    return ready


def leave(running: RunningLimits, job: str) -> list[str]:
    """A job is over. Returns the jobs that may run from now on, in the order in which they were admitted to run.

    Takes time proportional to the leaves with parked jobs, and only where there are limits.
    """
    queue = running.leaf.pop(job, None)
    if queue is None or not running.limits:
        return []
    waiting = running.parked.get(queue, [])
    left = [parked for parked in waiting if parked.job != job]
    if len(left) < len(waiting):
        _keep(running, queue, left)
        return []
    for path in limited(running, queue):
        running.through[path] -= 1
    return _release(running)


def rerank(running: RunningLimits, job: str, priority: int) -> None:
    """A live job has another priority. One that is held back keeps waiting, at another place."""
    waiting = running.parked.get(running.leaf.get(job, ""), [])
    for parked in waiting:
        if parked.job == job:
            parked.priority = priority
            waiting.sort(key=rank)
            return


def take_turns(running: RunningLimits, turns: JobTurns) -> None:
    """Some jobs may run no more, and others from now on, whatever the limits say."""
    for back in turns.held_back:
        queue = running.leaf[back.job]
        for path in limited(running, queue):
            running.through[path] -= 1
        insort(running.parked.setdefault(queue, []), Parked(back.job, back.priority, back.admitted), key=rank)
    for job in turns.let_run:
        queue = running.leaf[job]
        for path in limited(running, queue):
            running.through[path] += 1
        _keep(running, queue, [parked for parked in running.parked[queue] if parked.job != job])


def limit(running: RunningLimits, tree: Queue | None) -> list[str]:
    """A new tree is in force. Returns the jobs that may run from now on; those that might before still may."""
    running.limits = {}
    if tree is not None:
        _collect(running.limits, tree, "")
    before = {parked.job: True for waiting in running.parked.values() for parked in waiting}
    running.through = dict.fromkeys(running.limits, 0)
    if running.limits:
        for job, queue in running.leaf.items():
            if job not in before:
                for path in limited(running, queue):
                    running.through[path] += 1
    return _release(running)


def is_parked(running: RunningLimits, job: str) -> bool:
    """Whether a live job is held back."""
    return any(parked.job == job for parked in running.parked.get(running.leaf.get(job, ""), ()))


def queue_at_limit(running: RunningLimits, queue: str) -> str | None:
    """The queue, this one or the nearest above it, that is at its limit; None where none is."""
    return next((path for path in limited(running, queue) if running.through[path] >= running.limits[path]), None)


def limited(running: RunningLimits, queue: str) -> list[str]:
    """Paths with a limit, from the queue up to the top."""
    found = []
    path = queue
    while True:
        if path in running.limits:
            found.append(path)
        if not path:
            return found
        path = path.rpartition("/")[0]


def rank(parked: Parked) -> tuple[int, int]:
    """Which of the jobs held back comes next: the least."""
    return -parked.priority, parked.admitted


def _count(running: RunningLimits, queue: str) -> bool:
    if queue_at_limit(running, queue) is not None:
        return False
    for path in limited(running, queue):
        running.through[path] += 1
    return True


def _release(running: RunningLimits) -> list[str]:
    ready: list[str] = []
    while True:
        heads = [waiting[0] for queue, waiting in running.parked.items() if queue_at_limit(running, queue) is None]
        if not heads:
            return ready
        head = min(heads, key=rank)
        queue = running.leaf[head.job]
        _count(running, queue)
        _keep(running, queue, running.parked[queue][1:])
        ready.append(head.job)


def _keep(running: RunningLimits, queue: str, waiting: list[Parked]) -> None:
    if waiting:
        running.parked[queue] = waiting
    else:
        del running.parked[queue]


def _collect(limits: dict[str, int], queue: Queue, path: str) -> None:
    if queue.running_jobs_max is not None:
        limits[path] = queue.running_jobs_max
    for child in queue.children:
        _collect(limits, child, f"{path}/{child.name}" if path else child.name)
