"""What waits and is asked for in a cell: looked through once for an answer, however often it is counted."""

from schemas.queue_tree import is_below
from services.gateway.view.jobs import LiveJob, waiting_of
from services.gateway.view.state import State

Row = tuple[LiveJob, int, int]
"""A job, the position of a stage, and how many of its tasks are asked for and wait."""


class Pending:
    """Stages with tasks that are asked for, by leaf queue, in order of admission."""

    def __init__(self, state: State) -> None:
        self.leaves: dict[str, list[Row]] = {}
        for job in state.jobs.values():
            for at, asked in enumerate(job.asked):
                if asked and (tasks := min(asked, waiting_of(job, at))):
                    self.leaves.setdefault(job.spec.queue, []).append((job, at, tasks))

    def below(self, queue: str) -> list[Row]:
        """Those of a queue and the queues below it."""
        return [row for leaf, rows in self.leaves.items() if is_below(leaf, queue) for row in rows]

    def tasks(self, queue: str) -> int:
        """How many tasks wait below a queue."""
        return sum(tasks for leaf, rows in self.leaves.items() if is_below(leaf, queue) for _, _, tasks in rows)
