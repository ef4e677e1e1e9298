"""What a cell has promised, and the room that is left for an atom at a level of use."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from services.planner.planning.limits import first_above, owner_of, queue_of
from services.planner.planning.node_fit import NodeClass, fit, is_small, moments, surely_fit
from services.planner.planning.profile import Profile, Whole
from services.planner.planning.request import Atom, Lease, Plan
from services.planner.planning.search import Search

LEVELS = 128
"""Levels of use that a flat plan tells apart, as parts of the capacity. Finer ones accept no more."""


@dataclass(slots=True)
class Free:
    """What an atom meets in its window: the edges of runs, and what is used of every resource in each of them."""

    atom: Atom
    edges: Whole
    used: Whole
    capacity: tuple[int, ...]
    own_room: Whole | None = None  # Gangs that the limits of the user's queue and those above it leave.

    def room(self, level: int = LEVELS) -> Whole:
        """Gangs that fit in every run while no resource is used above the level: the least over all resources."""
        atom = self.atom
        found: Whole = np.full(len(self.edges) - 1, atom.gangs_most, np.int64)
        for resource, need in enumerate(atom.unit):
            if need:
                left = self.capacity[resource] * level // LEVELS - self.used[resource]
                np.minimum(found, left // (need * atom.gang), out=found)
        if self.own_room is not None:
            np.minimum(found, self.own_room, out=found)
        return np.maximum(found, 0, out=found)

    def area(self, room: Whole) -> int:
        """Gang-steps of a room."""
        return int(np.dot(self.edges[1:] - self.edges[:-1], room))


UNLIMITED = 1 << 60
"""Of a resource that a maximum does not name."""

_Added = tuple[str, int, int, Sequence[int], int]
"""User, begin, end, amounts, times."""


class Book:
    """Promises of a cell by step and resource, and of each user if there are limits by user."""

    def __init__(
        self, capacity: Sequence[int], instant_most: Sequence[int] | None = None, by_user: bool = False
    ) -> None:
        """`instant_most`: what one user may hold at any moment, by resource. `by_user`: keep what each user holds."""
        self.capacity = tuple(capacity)
        self.keeps_users = by_user or instant_most is not None
        self.instant_most = None if instant_most is None else tuple(instant_most)
        self.used = Profile(len(self.capacity))
        self.by_user: dict[str, Profile] = {}
        self.owner_most: tuple[int, ...] | None = None
        self.by_owner: dict[str, Profile] = {}
        self.maxima: dict[str, tuple[int, ...]] = {}
        self.below: dict[str, Profile] = {}  # By queue with a maximum, what is promised to it and to those below it.
        self.above: dict[str, tuple[str, ...]] = {}  # By user, the queues with a maximum that it is, or is below of.
        self.nodes: tuple[NodeClass, ...] | None = None
        self.shapes: dict[tuple[int, ...], Profile] = {}  # Units alike, where there are nodes to fit them on.
        self.work = 0  # What was looked at so far, counted: about a microsecond each (by what placing.py counts).
        self.journal: list[_Added] | None = None
        self.version = 0  # Raised by every change.

    def set_maxima(self, maxima: Mapping[str, Sequence[int]]) -> None:
        """What queues may have promised at any moment, with those below them, by path: users are paths of queues. To
        be said before anything is promised."""
        self.maxima = {path: tuple(most) for path, most in maxima.items()}
        self.below = {path: Profile(len(self.capacity)) for path in maxima}
        self.above = {}

    def set_owner_most(self, most: Sequence[int] | None) -> None:
        """What one owner may hold at any moment in all queues together, by resource. None: there is no such limit."""
        self.owner_most = None if most is None else tuple(most)

    def without_owner_limit(self) -> "_WithoutOwnerLimit":
        """A context: what is promised is neither broken for the limit of an owner, nor kept from being moved."""
        return _WithoutOwnerLimit(self)

    def queues_above(self, user: str) -> tuple[str, ...]:
        """The queues whose maximum holds for a user, the nearest first."""
        found = self.above.get(user)
        if found is None:
            queue = queue_of(user)
            mine = [path for path in self.maxima if not path or path == queue or queue.startswith(f"{path}/")]
            found = self.above[user] = tuple(sorted(mine, key=len, reverse=True))
        return found

    def limits_of(self, user: str) -> list[tuple[Profile, tuple[int, ...]]]:
        """What is promised that counts for the limits of a user at any moment, and the most that it may be."""
        return [limit for _, limit in self.named_limits_of(user)]

    def named_limits_of(self, user: str) -> list[tuple[tuple[str, str], tuple[Profile, tuple[int, ...]]]]:
        """The same, each with what it is of and whose: alike for users who share a limit."""
        found = []
        if self.instant_most is not None:
            found.append((("instant", queue_of(user)), (self.of_user(user), self.instant_most)))
        owner = owner_of(user)
        if self.owner_most is not None and owner is not None:
            found.append((("owner", owner), (self.of_owner(owner), self.owner_most)))
        return found + [(("max", path), (self.below[path], self.maxima[path])) for path in self.queues_above(user)]

    def is_limited(self, user: str, begin: int, end: int) -> bool:
        """Whether a user has more than it may at some step of `[begin, end)`."""
        return any(first_above(profile, most, begin, end) is not None for profile, most in self.limits_of(user))

    def of_user(self, user: str) -> Profile:
        """What is promised to a user."""
        return self.by_user.setdefault(queue_of(user), Profile(len(self.capacity)))

    def of_owner(self, owner: str) -> Profile:
        """What is promised to an owner, where that is kept."""
        return self.by_owner.setdefault(owner, Profile(len(self.capacity)))

    def add(self, user: str, begin: int, end: int, amounts: Sequence[int], times: int = 1) -> None:
        """Promises `times` the amounts to a user in steps `[begin, end)`; a negative `times` gives them back."""
        if self.journal is not None:
            self.journal.append((user, begin, end, amounts, times))
        self._add(user, begin, end, amounts, times)

    def undo(self, keep: int = 0) -> None:
        """Takes everything back that was added since the journal was begun, but for its first `keep` entries."""
        journal = self.journal or []
        while len(journal) > keep:
            user, begin, end, amounts, times = journal.pop()
            self._add(user, begin, end, amounts, -times)

    def _add(self, user: str, begin: int, end: int, amounts: Sequence[int], times: int) -> None:
        self.version += 1
        self.used.add(begin, end, amounts, times)
        if self.nodes is not None:
            self._count(tuple(amounts), begin, end, times)
        if self.keeps_users:
            self.of_user(user).add(begin, end, amounts, times)
        owner = owner_of(user)
        if owner is not None:
            self.of_owner(owner).add(begin, end, amounts, times)
        for path in self.queues_above(user) if self.maxima else ():
            self.below[path].add(begin, end, amounts, times)

    def _count(self, unit: tuple[int, ...], begin: int, end: int, times: int) -> None:
        profile = self.shapes.setdefault(unit, Profile(1))
        profile.add(begin, end, (1,), times)
        if len(profile) == 1:
            del self.shapes[unit]

    def take(self, user: str, atom: Atom, leases: Sequence[Lease], sign: int = 1) -> None:
        """Promises leases of an atom; with `sign` -1 gives them back."""
        for each in leases:
            self.add(user, each.begin, each.end, atom.unit, sign * each.gangs * atom.gang)

    def set_nodes(self, nodes: Sequence[NodeClass]) -> None:
        """The nodes that units have to fit on. To be said first before anything is promised."""
        self.nodes = tuple(nodes)
        self.version += 1

    def lacks_nodes(self, begin: int, end: int) -> Search[bool]:
        """Whether the units that are promised at some step of `[begin, end)` do not fit on the nodes, step by step."""
        shapes = self.large_units()
        for step in moments(shapes, begin, end, end - begin) if shapes else []:
            if self.lacks_nodes_at(shapes, step):
                return True
            yield
        return False

    def large_units(self) -> dict[tuple[int, ...], Profile]:
        """The units that are promised at some time and do not surely fit on the nodes, and how many of them when."""
        assert self.nodes is not None, "nobody said which nodes there are"
        return {unit: profile for unit, profile in self.shapes.items() if not is_small(unit, self.nodes)}

    def lacks_nodes_at(self, shapes: Mapping[tuple[int, ...], Profile], step: int) -> bool:
        """Whether large units, `shapes`, do not fit on the nodes at a step."""
        assert self.nodes is not None, "nobody said which nodes there are"
        units = [(unit, profile.at(step)[0]) for unit, profile in shapes.items()]
        held = [(unit, count) for unit, count in units if count > 0]
        self.work += 5 + len(shapes)
        if not held or surely_fit([unit for unit, _ in held], self.used.at(step), self.nodes):
            return False
        self.work += 20 * len(held) * (1 + len(self.nodes))
        return not self.nodes or not fit(held, self.nodes)

    def give_back(self, user: str, plan: Plan) -> None:
        """Takes a whole plan out."""
        for atom, leases in plan:
            self.take(user, atom, leases, -1)

    def free(self, user: str, atom: Atom, begin: int, end: int) -> Free:
        """What an atom meets in steps `[begin, end)`, which are not empty."""
        edges, used = self.used.span(begin, end)
        self.work += 20 + len(edges) // 4
        is_limited = self.maxima or self.instant_most is not None or self.owner_most is not None
        limits = self.limits_of(user) if is_limited else []
        if not limits:
            return Free(atom, edges, used, self.capacity)
        spans = [(*profile.span(begin, end), most) for profile, most in limits]
        every = edges
        for own_edges, _, _ in spans:
            every = np.union1d(every, own_edges)
        used = used[:, np.searchsorted(edges, every[:-1], side="right") - 1]
        own_room: Whole = np.full(len(every) - 1, atom.gangs_most, np.int64)
        for own_edges, own, most in spans:
            own = own[:, np.searchsorted(own_edges, every[:-1], side="right") - 1]
            np.minimum(own_room, Free(atom, every, own, most).room(), out=own_room)
        return Free(atom, every, used, self.capacity, own_room)


class _WithoutOwnerLimit:
    def __init__(self, book: Book) -> None:
        self._book = book
        self._most = book.owner_most

    def __enter__(self) -> None:
        self._book.owner_most = None

    def __exit__(self, *_: object) -> None:
        self._book.owner_most = self._most
