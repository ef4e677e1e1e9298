"""Guarantees over the log: after queues get other weights, and after nodes are lost or come back, nobody who waits
stays below its share for longer than the longest task runs. Whole runs of trees are judged from outside.

Demand stays as it is in the drawn cells, since nothing can be promised while it moves: what comes free may go to one
whose share falls the moment after. Tasks ask for one unit of one kind, so that nodes leave no fragments.
"""

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from heapq import heappop, heappush
from itertools import cycle
from random import Random

import pytest
from hypothesis import strategies as st

from schemas import ConfigChanged, JobSpec, NodeLost, NodeRegistered, Queue, RoundClosed, Stage, TaskEnd, TaskFinished
from schemas.edge.read import ConfigPatch
from schemas.quantities import MILLIONTHS
from schemas.queue_tree import walk
from services.admission.core.judge import lose
from services.simulator.engine import Cell
from tests.simulation.runs import CONSERVING, GUARANTEEING, faults, job, simulated, stage
from tests.strategies import for_all

LONGEST_MS = 5_000
TASKS = 5_000
"""More than any drawn cell gets done: nobody runs out of work."""
AUTHOR = "tester"


class Agents:
    """Agents of a cell that run what they are granted, and books of the log: who holds what of which capacity."""

    def __init__(self, tree, kinds, capacities, durations_ms, preset):
        self.cell, self.tree = Cell(), tree
        self.cell.observers = [self._see]
        self.kinds = kinds  # Leaf -> the kind that its tasks ask for one of.
        self.capacities = capacities
        self.up, self.ends, self.held = {}, [], Counter()
        self._take(ConfigPatch({"preset": preset}, tree))
        for name in capacities:
            self.come_back(name)
        for leaf, kind in kinds.items():
            lasts = [durations_ms[i % len(durations_ms)] for i in range(TASKS)]
            self._take(JobSpec(leaf.replace("/", "."), leaf, [Stage("s", TASKS, {kind: 1}, [], 1_000, lasts)]))
        self.cell.settle()

    def _take(self, *inputs):
        for given in inputs:
            self.cell.take(given, AUTHOR)

    def _see(self, record):
        body = record.body
        if isinstance(body, ConfigChanged) and body.queues is not None:
            ours = [child for child in body.queues.children if child.name != "default"]  # Nobody asks there.
            self.tree = replace(body.queues, children=ours)
        elif isinstance(body, NodeRegistered):
            self.up[body.node] = body.capacity
        elif isinstance(body, NodeLost):
            del self.up[body.node]
            self.ends = sorted(end for end in self.ends if end[3].node != body.node)
        elif isinstance(body, RoundClosed):
            for grant in body.grants:
                lasts = self.cell.admission.jobs[grant.job].spec.stages[0].durations_ms
                for index in range(grant.first, grant.first + grant.count):
                    heappush(self.ends, (record.time + lasts[index], grant.job, index, grant))

    # ------------------------------------------------------------ what happens
    def run_until(self, time, check=None):
        """Tasks end at their times; what comes free is given out at once. `check` is asked after each round."""
        while self.ends and self.ends[0][0] <= time:
            self.cell.advance(self.ends[0][0])
            ended = []
            while self.ends and self.ends[0][0] <= self.cell.time:
                end_ms, name, index, grant = heappop(self.ends)
                ended.append(TaskEnd(name, "s", index, 1, grant.attempt, grant.node, grant.epoch, [end_ms]))
            self._take(TaskFinished(ended))
            self.cell.settle()
            if check is not None:
                check()
        self.cell.advance(time)

    def reweigh(self, weights):
        """Queues get other weights, in the order of the tree."""
        given = cycle(weights)  # A tree may have more queues than weights were drawn.

        def other(queue):
            weight = next(given) * MILLIONTHS
            return replace(queue, weight=weight, children=[other(child) for child in queue.children])

        self._take(ConfigPatch({}, replace(self.tree, children=[other(child) for child in self.tree.children])))
        self.cell.settle()

    def lose(self, name):
        """The node's lease runs out."""
        self.cell.put(lose(self.cell.admission, name))
        self.cell.settle()

    def come_back(self, name):
        """An agent on an empty node."""
        self._take(NodeRegistered(name, f"at {self.cell.time}", self.capacities[name]))
        self.cell.settle()

    # ------------------------------------------------------------ the law
    def below(self):
        """Leaves with less than their guarantee by a task or more: (held, guaranteed)."""
        running = Counter(grant.job.replace(".", "/") for *_, grant in self.ends)
        total = Counter()
        for capacity in self.up.values():
            total.update(capacity)
        found = {}
        for leaf, part in guaranteed(self.tree).items():
            have = total[self.kinds[leaf]]
            if running[leaf] + 1 <= part * have:
                found[leaf] = running[leaf], part * have
        return found


def guaranteed(tree):
    """Of the cell, by leaf: along its path, its weight among its siblings'. All of them demand something."""
    found = {"": Fraction(1)}
    for path, queue in walk(tree):
        total = sum(child.weight for child in queue.children)
        for child in queue.children:
            found[f"{path}/{child.name}".strip("/")] = found[path] * Fraction(child.weight, total)
    leaves = [path for path, queue in walk(tree) if not queue.children]
    return {leaf: found[leaf] for leaf in leaves}


# ---------------------------------------------------------------- drawn cells
weights = st.lists(st.integers(1, 9), min_size=20, max_size=20)


@st.composite
def trees(draw, depth=3):
    names = iter(range(100))

    def node(levels):
        name = f"q{next(names)}"
        if not levels or draw(st.booleans()):
            return Queue(name, draw(st.integers(1, 5)) * MILLIONTHS)
        return Queue(
            name, draw(st.integers(1, 5)) * MILLIONTHS, [node(levels - 1) for _ in range(draw(st.integers(1, 3)))]
        )

    return Queue("root", MILLIONTHS, [node(depth - 1) for _ in range(draw(st.integers(2, 3)))])


@st.composite
def cells(draw, preset):
    tree = draw(trees())
    kinds = {path: draw(st.sampled_from(["cpu", "cpu", "gpu"])) for path, queue in walk(tree) if not queue.children}
    sizes = st.fixed_dictionaries({"cpu": st.integers(2, 9), "gpu": st.integers(1, 4)})
    capacities = {f"n{i}": draw(sizes) for i in range(draw(st.integers(2, 4)))}
    durations_ms = draw(st.lists(st.integers(200, LONGEST_MS), min_size=1, max_size=7))
    return Agents(tree, kinds, capacities, durations_ms, preset)


changes = st.lists(st.tuples(st.sampled_from(["reweigh", "lose", "come back"]), weights, st.integers(0, 3)), max_size=4)


def holds_again(agents):
    """So long after a change every task that ran then has ended, and from then on nobody is below its share."""
    agents.run_until(agents.cell.time + LONGEST_MS)
    assert agents.below() == {}

    def check():
        assert agents.below() == {}

    agents.run_until(agents.cell.time + 2 * LONGEST_MS, check)


@pytest.mark.rotating(2)
@pytest.mark.parametrize("preset", ["hdrf", "largesse"])
@for_all(st.data())
def test_after_a_change_nobody_stays_below_its_share_for_longer_than_the_longest_task(preset, data):
    agents = data.draw(cells(preset))
    assert agents.below() == {}
    for what, drawn, which in data.draw(changes):
        agents.run_until(agents.cell.time + which * 777)
        down = sorted(name for name in agents.capacities if name not in agents.up)
        if what == "reweigh":
            agents.reweigh(drawn)
        elif what == "lose" and len(agents.up) > 1:
            agents.lose(sorted(agents.up)[which % len(agents.up)])
        elif what == "come back" and down:
            agents.come_back(down[which % len(down)])
        holds_again(agents)


def test_the_law_sees_a_queue_that_lost_its_share():
    """It is no law that nothing could break: right after the change it is broken."""
    tree = Queue("root", MILLIONTHS, [Queue("a", MILLIONTHS), Queue("b", MILLIONTHS)])
    agents = Agents(tree, {"a": "cpu", "b": "cpu"}, {"n0": {"cpu": 10}}, [LONGEST_MS], "hdrf")
    agents.reweigh([1, 9])
    assert agents.below() == {"b": (5, 9)}

    holds_again(agents)


# ---------------------------------------------------------------- whole runs, judged from outside
def drawn_tree(chance, depth=3):
    """A tree and its leaves."""
    leaves = []

    def node(path, levels):
        queue = {"name": path.rpartition("/")[2], "weight": chance.randint(1, 5)}
        if levels and chance.random() < 0.6:
            queue["children"] = [node(f"{path}/c{i}", levels - 1) for i in range(chance.randint(2, 3))]
        else:
            leaves.append(path)
        return queue

    return {"name": "root", "children": [node(f"q{i}", depth - 1) for i in range(3)]}, leaves


@pytest.mark.rotating(6)
@pytest.mark.parametrize("preset", [preset for preset in CONSERVING if preset != "drf"])
@pytest.mark.parametrize("seed", range(6))
def test_trees_with_arrivals_and_ends_run_as_the_judge_would_have_it(shared, tmp_path, seed, preset):
    chance = Random(seed)
    tree, leaves = drawn_tree(chance)
    lines, at_ms = [], 0
    for i in range(60):
        at_ms += chance.choice([0, 0, chance.randint(0, 3_000)])
        kind = chance.choice([{"cpu": "1"}, {"cpu": "1", "memory": "1Gi"}, {"gpu": "1"}])
        each = stage(tasks=chance.randint(1, 40), duration_ms=chance.randint(300, 6_000), demand=kind)
        lines.append(job(f"j{i}", each, submit_ms=at_ms, queue=chance.choice(leaves)))
    nodes = [{"name": "n", "count": 3, "capacity": {"cpu": "8", "memory": "64Gi", "gpu": "4"}}]
    run = simulated(tmp_path, lines, {"nodes": nodes, "queues": tree}, preset=preset)

    assert faults(shared, run, conserving=True, guarantee=preset in GUARANTEEING) == []
