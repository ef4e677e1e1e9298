"""What one job has left to do, and how it lies in time inside a fixed share: tasks of a stage are a class with a count.

Times are whole milliseconds from the moment of planning. Amounts are base units, by position of the kind of resource.
"""

from dataclasses import dataclass

Amounts = list[int]


@dataclass(slots=True)
class Running:
    """`count` tasks of a stage that run, and are expected to for `remaining_ms` more."""

    count: int
    remaining_ms: int


@dataclass(slots=True)
class Work:
    """By stage position: what a task asks for and how long it takes (at least 1 ms), tasks that have not started, those
    that run, the stages that wait for it, and whether all of its tasks have ended."""

    demand: list[Amounts]
    lasts_ms: list[int]
    waiting: list[int]
    running: list[list[Running]]
    children: list[list[int]]

    def parents(self) -> list[list[int]]:
        """By stage, the stages that it waits for and that have not ended: one that has ended holds nothing back."""
        parents: list[list[int]] = [[] for _ in self.children]
        for at, children in enumerate(self.children):
            if self.left(at):
                for child in children:
                    parents[child].append(at)
        return parents

    def left(self, at: int) -> int:
        """Tasks of a stage that have not ended."""
        count = self.waiting[at]
        for group in self.running[at]:
            count += group.count
        return count


@dataclass(slots=True)
class Batch:
    """`count` tasks of a stage that start together; whenever those end, as many more start: `waves` times in all."""

    stage: int
    start_ms: int
    count: int
    waves: int

    def __init__(self, stage: int, start_ms: int, count: int, waves: int = 1) -> None:
        self.stage = stage
        self.start_ms = start_ms
        self.count = count
        self.waves = waves


@dataclass(slots=True)
class Packing:
    """When what waits starts, and when all has ended. `steps`: what it took to find that, in instants of a packing that
    were looked at, those of other packings that were tried as well."""

    batches: list[Batch]
    makespan_ms: int
    steps: int = 0


def widened(share: Amounts, work: Work) -> list[int]:
    """The share, but at least the largest task that waits: in less than that the job could not be planned at all."""
    wide = list(share)
    for at, demand in enumerate(work.demand):
        if work.waiting[at]:
            for kind, amount in enumerate(demand):
                wide[kind] = max(wide[kind], amount)
    return wide


def how_many_fit(demand: Amounts, free: Amounts, most: int) -> int:
    """How many tasks fit, at most `most`; none where something free is negative and asked for."""
    for kind, amount in enumerate(demand):
        if amount:
            room = free[kind]
            if room < amount:
                return 0
            if room < amount * most:
                most = room // amount
    return most
