"""A tree of queues on a cell of one node, one job a leaf: the cell that `simulate` drives, and the same as a problem
for `python -m services.fairness solve`.
"""

from schemas import JobSpec, NodeRegistered, Queue, RoundClosed, Stage, TaskEnd, TaskFinished
from schemas.edge.read import ConfigPatch
from schemas.quantities import MILLIONTHS
from services.fairness.offline.solve import solve
from services.fairness.tree import leaves
from services.simulator.engine import Cell

ENDLESS = 10_000
"""Tasks of a job that stands for an endless demand."""
AUTHOR = "tester"


class OneNode:
    """The cell. `tasks()`: what runs of each leaf, once all that is free is given out. A leaf wants so many tasks at
    once: for every one that ends it asks for another.
    """

    def __init__(self, root, capacity, preset="hdrf"):
        self.root = root
        self.kinds = {f"k{j}": have for j, have in enumerate(capacity) if have}
        self.running = {node.name: [] for node in leaves(root)}
        self.wanted = {}
        self.leaf_of = {}
        self.cell = Cell()
        self.cell.observers = [self._see]
        self.paths = {}
        tree = Queue("root", MILLIONTHS, [self._queue(child, "") for child in root.children])
        self._take(ConfigPatch({"preset": preset}, tree), NodeRegistered("n", "e", self.kinds))
        for node in leaves(root):
            demand = {f"k{j}": amount for j, amount in enumerate(node.demand) if amount}
            if demand and node.tasks != 0 and all(kind in self.kinds for kind in demand):
                self.wanted[node.name] = demand, node.tasks
                self._ask(node.name, ENDLESS if node.tasks is None else node.tasks)
        self.cell.settle()

    def _ask(self, leaf, tasks):
        job = f"{leaf}.{len(self.leaf_of)}"
        self.leaf_of[job] = leaf
        stage = Stage("s", tasks, self.wanted[leaf][0], [], 1_000, [1_000])
        self._take(JobSpec(job, self.paths[leaf], [stage]))

    def _queue(self, node, above):
        path = self.paths[node.name] = f"{above}/{node.name}".strip("/")
        return Queue(node.name, int(node.weight * MILLIONTHS), [self._queue(child, path) for child in node.children])

    def _take(self, *inputs):
        for given in inputs:
            self.cell.take(given, AUTHOR)

    def _see(self, record):
        if isinstance(record.body, RoundClosed):
            for grant in record.body.grants:
                spans = range(grant.first, grant.first + grant.count)
                self.running[self.leaf_of[grant.job]] += [(grant, index) for index in spans]

    def finish(self, leaf, count):
        """Tasks of a leaf end, and what is free is given out."""
        ended, self.running[leaf] = self.running[leaf][:count], self.running[leaf][count:]
        ends = [TaskEnd(g.job, g.stage, at, 1, g.attempt, g.node, g.epoch, [1_000]) for g, at in ended]
        self.cell.advance(self.cell.time + 1_000)
        if ends:
            self._take(TaskFinished(ends))
            if self.wanted[leaf][1] is not None:
                self._ask(leaf, len(ends))
        self.cell.settle()

    def tasks(self):
        return {leaf: len(running) for leaf, running in self.running.items()}


def solved(kind, root, capacity, events=()):
    """What each leaf holds by `solve`: from empty, or after the last of the events."""
    kinds = [f"k{j}" for j in range(len(capacity))]

    def described(node):
        if node.children:
            return {"name": node.name, "weight": node.weight, "children": [described(child) for child in node.children]}
        able = all(have or not need for need, have in zip(node.demand, capacity, strict=True))
        tasks = (ENDLESS if node.tasks is None else node.tasks) if able else 0
        return {
            "name": node.name,
            "weight": node.weight,
            "demand": dict(zip(kinds, node.demand, strict=True)),
            "tasks": tasks,
        }

    asked = {"capacity": dict(zip(kinds, capacity, strict=True)), "tree": described(root)}
    if kind == "hdrf-churn":
        asked["events"] = [{"finish": event} for event in events]
    answer = solve({"kind": kind, "input": asked})
    found = answer["after_events"][-1] if events else answer
    return {leaf: int(held["tasks"]) for leaf, held in found["allocation"].items()}
