"""How many tasks of a user run where their number is limited, and how many wait for that."""

from typing import NamedTuple

from schemas import Stage
from schemas.queue_tree import upwards
from schemas.wording import plural
from services.gateway.view.jobs import LiveJob
from services.gateway.view.state import State
from services.gateway.view.user_tasks import counts_for, runs_of_user


class Limit(NamedTuple):
    """The limit that leaves a user the fewest places of those above a queue: `tasks` run there, and `most` may."""

    queue: str
    user: str
    most: int
    tasks: int

    @property
    def free(self) -> int:
        return max(0, self.most - self.tasks)

    def text(self, width: int) -> str:
        """Why tasks wait, `width` of which start as one."""
        where = f"queue {self.queue}" if self.queue else "the cell"
        who = f'of user "{self.user}"' if self.user else "that name no user"
        run = f"{plural(self.tasks, 'task')} {who} {'runs' if self.tasks == 1 else 'run'} there"
        all_of = f"; all {width} tasks of the gang start at once" if width > 1 else ""
        return f"user_running_max of {where} is {self.most}, and {run}{all_of}"


def width_of(stage: Stage) -> int:
    """How many tasks of a stage start as one."""
    return stage.tasks if stage.gang else 1


def beyond(limit: Limit, asked: int, width: int) -> int:
    """How many of `asked` tasks a limit keeps from starting."""
    return max(0, asked - limit.free // width * width)


class UserLimits:
    """Answers about one state of the view, which must not change while this is in use."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._tasks: dict[tuple[str, str], int] = {}

    def of(self, queue: str, user: str) -> Limit | None:
        """The limit that leaves a user the fewest places in a queue; None: there is none."""
        limits = self._state.user_running_max
        found = [
            Limit(path, user, limits[path], self._running(path, user)) for path in upwards(queue) if path in limits
        ]
        return min(found, key=lambda limit: limit.most - limit.tasks, default=None)

    def held(self, job: LiveJob, at: int, asked: int) -> tuple[int, str]:
        """How many of the tasks that are asked for of a stage wait for others of their user to end, and why. Those that
        a reservation is promised room for do not.
        """
        if not counts_for(self._state, job):
            return 0, ""
        limit = self.of(job.spec.queue, job.spec.user)
        width = width_of(job.spec.stages[at])
        return (beyond(limit, asked, width), limit.text(width)) if limit is not None else (0, "")

    def _running(self, path: str, user: str) -> int:
        key = path, user
        if key not in self._tasks:
            self._tasks[key] = runs_of_user(self._state, path, user)
        return self._tasks[key]
