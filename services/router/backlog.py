"""What the jobs of one cell still have to run, by queue. The cost of keeping it follows what changed."""

from schemas import (
    JobAdmitted,
    JobCancelled,
    JobChanged,
    JobEnded,
    NodeRegistered,
    Queue,
    RoundClosed,
    TaskFailed,
    TaskFinished,
    Vector,
)
from schemas.queue_tree import below, is_below
from services.admission.core import State

THOUSANDTHS = 1_000
Left = tuple[tuple[str, int], ...]


def jobs_in(body: object) -> list[str]:
    """Jobs of a record that changes what is left of them, whether they have begun, or whether they are over."""
    match body:
        case JobAdmitted():
            return [body.spec.job]
        case JobCancelled() | JobChanged():
            return [body.job]
        case JobEnded():
            return [end.job for end in body.jobs]
        case RoundClosed():
            return [grant.job for grant in body.grants]
        case TaskFinished() | TaskFailed():
            return [item.job for item in body.items]
        case NodeRegistered():
            return [known.job for known in body.attempts]
    return []


class Backlog:
    """Of one cell, whose `state` is folded by somebody else: `note` says which jobs may have changed."""

    def __init__(self) -> None:
        self.total: Vector = {}
        self.by_queue: dict[str, Vector] = {}
        self._left: dict[str, tuple[str, Left]] = {}
        self._known: dict[Left, Left] = {}

    def note(self, state: State, name: str) -> None:
        """Counts what is left of a job now in place of what was left of it before."""
        before = self._left.pop(name, None)
        if before is not None:
            self._add(*before, -1)
        job = state.jobs.get(name)
        if job is None or job.over:
            return
        left: Vector = {}
        for at, tasks in enumerate(job.progress.left):
            for kind, amount in job.graph.stages[at].demand.items() if tasks else ():
                left[kind] = left.get(kind, 0) + amount * tasks
        amounts = tuple(left.items())
        now = job.spec.queue, self._known.setdefault(amounts, amounts)
        self._left[name] = now
        self._add(*now, 1)

    def permille_of(self, tree: Queue | None, path: str) -> int:
        """The part of the cell that a queue is entitled to beside those that have something to run. Without a tree
        there are no queues: all of it."""
        if tree is None:
            return THOUSANDTHS
        busy = sorted(self.by_queue)
        above, part, of, queue = "", 1, 1, tree
        while queue.children:
            weights = 0
            following = None
            for child in queue.children:
                here = below(above, child.name)
                mine = is_below(path, here)
                if mine:
                    following = child
                if mine or any(is_below(each, here) for each in busy):
                    weights += child.weight
            if following is None:
                break
            part, of = part * following.weight, of * weights
            above, queue = below(above, following.name), following
        return max(1, part * THOUSANDTHS // of)

    def _add(self, queue: str, left: Left, sign: int) -> None:
        of_queue = self.by_queue.setdefault(queue, {})
        for kind, amount in left:
            for amounts in (self.total, of_queue):
                now = amounts.get(kind, 0) + sign * amount
                if now:
                    amounts[kind] = now
                else:
                    amounts.pop(kind, None)
        if not of_queue:
            del self.by_queue[queue]
