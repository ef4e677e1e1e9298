"""Which jobs may run: a queue with `running_jobs_max` lets so many through, the others stand before its gate.

Shared words of every core that follows jobs. A job that was let through stays so until it ends, also when the limit is
lowered. Who goes next: of the jobs that every queue above them has a place for, the one of highest priority, then the
one admitted first.
"""

from bisect import insort

from largesse.lifecycle.state import Gate, Parked
from schemas.queues import Queue


def admit(gate: Gate, job: str, queue: str, priority: int, order: int) -> bool:
    """Whether a job that comes now may run at once; else it is parked."""
    gate.leaf[job] = queue
    if not gate.limits or _pass(gate, queue):
        return True
    insort(gate.parked.setdefault(queue, []), Parked(job, priority, order), key=_rank)
    return False


def leave(gate: Gate, job: str) -> list[str]:
    """A job is over: those that may run from now on, in the order in which they were let through.

    Costs the leaves that have parked jobs, only where there are limits.
    """
    queue = gate.leaf.pop(job, None)
    if queue is None or not gate.limits:
        return []
    waiting = gate.parked.get(queue, [])
    left = [parked for parked in waiting if parked.job != job]
    if len(left) < len(waiting):
        _keep(gate, queue, left)
        return []
    for path in _limited(gate, queue):
        gate.through[path] -= 1
    return _let_through(gate)


def limit(gate: Gate, tree: Queue | None) -> list[str]:
    """A new tree is in force: jobs that may run from now on. Nobody who was let through is called back."""
    gate.limits = {}
    if tree is not None:
        _collect(gate.limits, tree, "")
    before = {parked.job: True for waiting in gate.parked.values() for parked in waiting}
    gate.through = dict.fromkeys(gate.limits, 0)
    if gate.limits:
        for job, queue in gate.leaf.items():
            if job not in before:
                for path in _limited(gate, queue):
                    gate.through[path] += 1
    return _let_through(gate)


def is_parked(gate: Gate, job: str) -> bool:
    """Whether a live job stands before the gate."""
    return any(parked.job == job for parked in gate.parked.get(gate.leaf.get(job, ""), ()))


def full_queue(gate: Gate, queue: str) -> str | None:
    """The queue, this one or the nearest above it, that has no place; None where all have one."""
    return next((path for path in _limited(gate, queue) if gate.through[path] >= gate.limits[path]), None)


def _rank(parked: Parked) -> tuple[int, int]:
    return -parked.priority, parked.order


def _limited(gate: Gate, queue: str) -> list[str]:
    """Paths with a limit, from the queue up to the top."""
    found = []
    path = queue
    while True:
        if path in gate.limits:
            found.append(path)
        if not path:
            return found
        path = path.rpartition("/")[0]


def _pass(gate: Gate, queue: str) -> bool:
    if full_queue(gate, queue) is not None:
        return False
    for path in _limited(gate, queue):
        gate.through[path] += 1
    return True


def _let_through(gate: Gate) -> list[str]:
    ready: list[str] = []
    while True:
        heads = [waiting[0] for queue, waiting in gate.parked.items() if full_queue(gate, queue) is None]
        if not heads:
            return ready
        head = min(heads, key=_rank)
        queue = gate.leaf[head.job]
        _pass(gate, queue)
        _keep(gate, queue, gate.parked[queue][1:])
        ready.append(head.job)


def _keep(gate: Gate, queue: str, waiting: list[Parked]) -> None:
    if waiting:
        gate.parked[queue] = waiting
    else:
        del gate.parked[queue]


def _collect(limits: dict[str, int], queue: Queue, path: str) -> None:
    if queue.running_jobs_max is not None:
        limits[path] = queue.running_jobs_max
    for child in queue.children:
        _collect(limits, child, f"{path}/{child.name}" if path else child.name)
