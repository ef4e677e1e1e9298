"""Cells whose leaves ask for unlike tasks (sizes, labels, gangs) without end, and what every queue holds of them."""

from collections import Counter
from dataclasses import dataclass, field
from heapq import heappop, heappush

from schemas import JobSpec, NodeRegistered, RoundClosed, Stage, TaskEnd, TaskFinished
from schemas.edge.read import ConfigPatch
from schemas.queue_tree import upwards
from services.simulator.engine import Cell
from tests.builders import tree

AUTHOR = "tester"


@dataclass(frozen=True)
class Load:
    """What a leaf asks for from `from_ms` on: `tasks` of each of these demands, `jobs` jobs with them; a `gang` is one
    stage of one job."""

    demand: dict[str, int]
    tasks: int = 3_000
    jobs: int = 1
    gang: bool = False
    labels: dict[str, str] = field(default_factory=dict)
    durations_ms: tuple[int, ...] = (5_000, 8_000, 11_000)
    from_ms: int = 0


class PlacedCell:
    """A cell that runs what it grants. `held`, by leaf or group and kind, what its tasks hold; `area`: that x ms;
    `running` and `started`: by job, how many of its tasks run, and have been started."""

    def __init__(self, queues, nodes, loads, **knobs):
        """`nodes`: name -> (capacity, labels). `loads`: leaf -> Load or list of them."""
        self.cell = Cell()
        self.cell.observers = [self._see]
        self.held = Counter()
        self.running = Counter()
        self.started = Counter()
        self.area = Counter()
        self.capacity = Counter()
        self.ends, self.later, self.lasts = [], [], {}
        self.cell.take(ConfigPatch({"preset": "hdrf", **knobs}, tree(*queues)), AUTHOR)
        for name, (capacity, labels) in nodes.items():
            self.cell.take(NodeRegistered(name, "e", capacity, labels), AUTHOR)
            self.capacity.update(capacity)
        for leaf, given in loads.items():
            for number, load in enumerate(given if isinstance(given, list) else [given]):
                for each in range(load.jobs):
                    name = f"{leaf.replace('/', '.')}.{number}.{each}"
                    heappush(self.later, (load.from_ms, name, leaf, load))
        self.run_until(0)

    def _see(self, record):
        body = record.body
        if isinstance(body, RoundClosed):
            for grant in body.grants:
                leaf, load = self.lasts[grant.job]
                for index in range(grant.first, grant.first + grant.count):
                    lasts = load.durations_ms[index % len(load.durations_ms)]
                    heappush(self.ends, (record.time + lasts, grant.job, index, grant))
                self._hold(leaf, load.demand, grant.count)
                self.running[grant.job] += grant.count
                self.started[grant.job] += grant.count

    def gang_tasks(self, leaf):
        """How many tasks the gangs of a leaf have that run, with those that have ended in them already."""
        loads = [self.lasts[name] for name, count in self.running.items() if count]
        return sum(load.tasks for path, load in loads if path == leaf and load.gang)

    def forget(self, node):
        """A node is lost, with all that ran there."""
        for _, name, _, _ in [end for end in self.ends if end[3].node == node]:
            leaf, load = self.lasts[name]
            self._hold(leaf, load.demand, -1)
            self.running[name] -= 1
        self.ends = sorted(end for end in self.ends if end[3].node != node)

    def _hold(self, leaf, demand, count):
        for path in upwards(leaf):
            for kind, amount in demand.items():
                self.held[path, kind] += amount * count

    def run_until(self, time, check=None):
        """Tasks start and end at their times; `check` is asked after each round."""
        while True:
            due = [queue[0][0] for queue in (self.ends, self.later) if queue]
            wake = self.cell.next_due_ms()
            if wake is not None:
                due.append(wake)
            now = min(due, default=time + 1)
            if now > time:
                break
            self._advance(max(now, self.cell.time))
            ended = []
            while self.ends and self.ends[0][0] <= self.cell.time:
                end_ms, name, index, grant = heappop(self.ends)
                leaf, load = self.lasts[name]
                self._hold(leaf, load.demand, -1)
                self.running[name] -= 1
                ended.append(TaskEnd(name, "s", index, 1, grant.attempt, grant.node, grant.epoch, [end_ms]))
            if ended:
                self.cell.take(TaskFinished(ended), AUTHOR)
            while self.later and self.later[0][0] <= self.cell.time:
                _, name, leaf, load = heappop(self.later)
                self.lasts[name] = leaf, load
                lasts = [load.durations_ms[i % len(load.durations_ms)] for i in range(load.tasks)]
                stage = Stage("s", load.tasks, load.demand, [], 1_000, lasts)
                stage.labels, stage.gang = dict(load.labels), load.gang
                self.cell.take(JobSpec(name, leaf, [stage]), AUTHOR)
            self.cell.settle()
            if check is not None:
                check()
        self._advance(time)

    def _advance(self, time):
        if time > self.cell.time:
            for key, amount in self.held.items():
                self.area[key] += amount * (time - self.cell.time)
        self.cell.advance(time)

    def over(self, span_ms):
        """Run for so long: queue -> mean dominant share held meanwhile."""
        before = Counter(self.area)
        self.run_until(self.cell.time + span_ms)
        found = Counter()
        for (path, kind), area in self.area.items():
            share = (area - before[path, kind]) / span_ms / self.capacity[kind]
            found[path] = max(found[path], share)
        return found
