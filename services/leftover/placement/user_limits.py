"""Queues in which only so many tasks of one user run at a time, and what waits there for the user's others to end.

A *gate* is a bucket (keys.py) whose jobs lie under such queues: all of them are one user's, in one segment. While one
more of its tasks, or its whole gang, would be more than may run, the gate is shut: then the bucket is out of everything
that a round looks at, as if nobody waited there. It opens and shuts when the user's tasks start and end, so that what
waits for the limit costs nothing in between.
"""

from dataclasses import dataclass, field

from mypy_extensions import mypyc_attr

GateKey = tuple[str, int]
"""The leaf and the bucket."""


@mypyc_attr(allow_interpreted_subclasses=True)
@dataclass(slots=True, eq=False)
class Gate:
    """A bucket under limits: how many tasks start as one there (`width`), and how many wait."""

    width: int
    places: tuple["UserPlaces", ...]
    tasks: int = 0
    shut: bool = False

    def __init__(self, width: int, places: tuple["UserPlaces", ...]) -> None:
        self.width = width
        self.places = places
        self.tasks = 0
        self.shut = False


@dataclass(slots=True, eq=False)
class UserPlaces:
    """So many tasks of a user run in a queue and below it (`tasks`), each of their attempts counted, and so many may.
    `gates`: the buckets under it; `gangs`: how many of them start several tasks as one. `jobs`: how many live jobs.
    """

    path: str
    user: str
    most: int
    tasks: int = 0
    jobs: int = 0
    gangs: int = 0
    gates: dict[GateKey, Gate] = field(default_factory=dict)

    @property
    def free(self) -> int:
        """How many tasks more may run; less than 0 where the limit was lowered."""
        return self.most - self.tasks

    @property
    def held_back(self) -> int:
        """How many tasks wait for others of the user to end."""
        return sum([gate.tasks for gate in self.gates.values() if gate.shut])


NO_PLACES: tuple[UserPlaces, ...] = ()


def free_places(places: tuple[UserPlaces, ...], count: int) -> int:
    """How many of `count` tasks may start."""
    for entry in places:
        count = min(count, entry.most - entry.tasks)
    return max(0, count)


def waits_open(places: tuple[UserPlaces, ...], leaf: str, buckets: list[int]) -> bool:
    """Whether anything waits in these buckets of a job under limits but for a user's tasks to end."""
    gates = places[0].gates
    return any(not gates[leaf, bucket_id].shut for bucket_id in buckets)


class UserLimits:
    """`given`: by path of a queue, how many tasks of one user run there at a time. What is known of a user is kept as
    long as there are jobs or tasks of it there.
    """

    def __init__(self, given: dict[str, int]) -> None:
        self.given = given
        self._above: dict[str, list[str]] = {}
        self._entries: dict[tuple[str, str], UserPlaces] = {}
        self._segments: dict[tuple[str, str], int] = {}
        self._numbers = 0

    def above(self, queue: str, user: str) -> tuple[UserPlaces, ...]:
        """The limits that tasks of a user in a queue lie under, the nearest first."""
        if not self.given:
            return NO_PLACES
        paths = self._above.get(queue)
        if paths is None:
            names = queue.split("/") if queue else []
            upwards = ["/".join(names[:depth]) for depth in range(len(names), -1, -1)]  # Its own, then up to "".
            paths = self._above[queue] = [path for path in upwards if path in self.given]
        return tuple([self._entry(path, user) for path in paths]) if paths else NO_PLACES

    def add_job(self, queue: str, user: str) -> tuple[int, tuple[UserPlaces, ...]]:
        """A user has one live job more in a queue: the number of what lies under the same limits (0: under none), and
        these.
        """
        places = self.above(queue, user)
        if not places:
            return 0, places
        for entry in places:
            entry.jobs += 1
        key = places[0].path, user  # The nearest says which there are above it.
        number = self._segments.get(key)
        if number is None:
            self._numbers += 1
            number = self._segments[key] = self._numbers
        return number, places

    def remove_job(self, places: tuple[UserPlaces, ...]) -> None:
        """One of them is over."""
        for entry in places:
            entry.jobs -= 1
        self.tidy(places)

    def tidy(self, places: tuple[UserPlaces, ...]) -> None:
        """Forgets limits that nothing lies under any more."""
        for entry in places:
            if not entry.jobs and not entry.tasks:
                key = entry.path, entry.user
                self._entries.pop(key, None)
                self._segments.pop(key, None)

    def _entry(self, path: str, user: str) -> UserPlaces:
        entry = self._entries.get((path, user))
        if entry is None:
            entry = self._entries[path, user] = UserPlaces(path, user, self.given[path])
        return entry
