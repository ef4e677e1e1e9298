"""Anti-affinity and spread: tasks that are to run on different nodes, or evenly over the values of a node label.

Tasks are counted by node, or by value of the label. A required rule takes nodes out of a class's choice; any other adds
to a node's rank, above alignment and below preferred labels. An allowed node may always be taken first: placing like
tasks one by one under these rules reaches as many as any other order would, so gangs need no search.
"""

from dataclasses import dataclass, field
from typing import Final

from schemas.jobs import PlacementRule

AVOIDED: Final = 1 << 140
"""What each task on the node, or each task more than on the value with the fewest, adds to the rank of a node: more
than any room can outweigh, while 2^20 of them weigh less than one preferred label.
"""


@dataclass(slots=True, eq=False)
class Counter:
    """The running tasks of a group, by name of the node or by value of `label`. `changes`: how often that has changed.
    `classes`: by number, the classes that a rule ties to it.
    """

    label: str
    tasks: dict[str, int] = field(default_factory=dict)
    changes: int = 0
    classes: dict[int, bool] = field(default_factory=dict)

    def place_of(self, name: str, labels: dict[str, str]) -> str | None:
        """The node's name, or its value of the label, under which tasks there are counted; None without the label."""
        return labels.get(self.label) if self.label else name

    def add(self, place: str, count: int) -> None:
        """Counts `count` more tasks there (fewer, where negative)."""
        self.changes += 1
        after = self.tasks.get(place, 0) + count
        if after:
            self.tasks[place] = after
        else:
            self.tasks.pop(place, None)


@dataclass(slots=True, eq=False)
class Rule:
    """A placement rule of a class. `places`: for a rule over a label, its values on nodes that could run such a
    task.
    """

    counter: Counter
    max_skew: int
    required: bool
    places: list[str]
    _least: int = 0
    _seen: int = -1

    def least(self) -> int:
        """The least number of tasks on any of the values."""
        if self._seen != self.counter.changes:
            tasks = self.counter.tasks
            self._seen, self._least = self.counter.changes, min([tasks.get(p, 0) for p in self.places], default=0)
        return self._least

    def permits(self, name: str, labels: dict[str, str]) -> bool:
        """Whether a task may start on a node now."""
        place = self.counter.place_of(name, labels)
        if place is None:
            return False
        there = self.counter.tasks.get(place, 0)
        return there < self.least() + self.max_skew if self.counter.label else not there

    def penalty(self, name: str, labels: dict[str, str]) -> int:
        """What starting a task on a node adds to its rank."""
        place = self.counter.place_of(name, labels)
        if place is None:  # Worse than all that have the label.
            return AVOIDED * (max(self.counter.tasks.values(), default=0) + 1)
        return AVOIDED * (self.counter.tasks.get(place, 0) - (self.least() if self.counter.label else 0))


@dataclass(slots=True, eq=False)
class Bounds:
    """What may bar nodes to a class although they have room. `said`: its rules as they were given, and `rules` as they
    are applied. `avoided`: nodes on which its tasks have failed, if others could run them; `last`: nodes that a gang
    takes after all others, since it has failed there. `is_near`: its tasks still wait for nodes with as many
    (`matches`) of the labels that they `prefer` as any node that could run them.
    """

    said: list[PlacementRule]
    prefer: dict[str, str]
    rules: list[Rule] = field(default_factory=list)
    avoided: dict[str, bool] = field(default_factory=dict)
    last: dict[str, bool] = field(default_factory=dict)
    is_near: bool = False
    matches: int = 0

    def permits(self, name: str, labels: dict[str, str]) -> bool:
        """Whether a task may start on a node now."""
        return self.follows_rules(name, labels) and (not self.is_near or self.is_near_to(labels))

    def follows_rules(self, name: str, labels: dict[str, str]) -> bool:
        """Whether every required rule allows a task on a node, and none has failed there."""
        return name not in self.avoided and not [
            rule for rule in self.rules if rule.required and not rule.permits(name, labels)
        ]

    def is_near_to(self, labels: dict[str, str]) -> bool:
        """Whether a node with these labels has as many of the preferred ones as any."""
        return matches(self.prefer, labels) >= self.matches

    def penalty(self, name: str, labels: dict[str, str]) -> int:
        """What starting a task on a node adds to its rank."""
        penalty = AVOIDED if name in self.last else 0
        for rule in self.rules:
            if not rule.required:
                penalty += rule.penalty(name, labels)
        return penalty

    def count(self, name: str, labels: dict[str, str], count: int) -> None:
        """So many tasks of the class more run on a node (fewer, where negative)."""
        for rule in self.rules:
            place = rule.counter.place_of(name, labels)
            if place is not None:
                rule.counter.add(place, count)

    @property
    def is_spread(self) -> bool:
        """Whether rules over labels apply, so that a node may become allowed without having got room."""
        return any(rule.counter.label for rule in self.rules)

    @property
    def is_apart(self) -> bool:
        """Whether a node may run at most one of its tasks."""
        return any(rule.required and not rule.counter.label for rule in self.rules)

    @property
    def labels(self) -> list[str]:
        """Labels that a node has to have, whatever their values."""
        return [rule.counter.label for rule in self.rules if rule.required and rule.counter.label]


def matches(prefer: dict[str, str], labels: dict[str, str]) -> int:
    """How many of the preferred labels a node has."""
    return sum([labels.get(key) == value for key, value in prefer.items()])


def counter_id(rule: PlacementRule) -> str:
    """The name of the counter of a rule. (Neither part has a line break.)"""
    return f"{rule.label}\n{rule.group}"


def counters_of(rules: list[PlacementRule]) -> list[str]:
    """The names of the counters of tasks under these rules."""
    return [counter_id(rule) for rule in rules if not rule.nodes]


@dataclass(slots=True, eq=False)
class Counters:
    """The counters of a cell, by name."""

    by_id: dict[str, Counter] = field(default_factory=dict)

    def of(self, name: str) -> Counter:
        """A counter, which may be new."""
        counter = self.by_id.get(name)
        if counter is None:
            counter = self.by_id[name] = Counter(name.partition("\n")[0])
        return counter

    def count(self, names: list[str], node: str, labels: dict[str, str], count: int) -> list[int]:
        """So many tasks more (fewer, where negative) that count in these run on a node. Returns the classes, by number,
        to which another node may be open now.
        """
        found: list[int] = []
        for name in names:
            counter = self.of(name)
            place = counter.place_of(node, labels)
            if place is not None:
                counter.add(place, count)
                found += list(counter.classes)
        return found
