"""The node that a class goes to against the rule written out plainly, from any state that rooms can be brought to.

Tasks start and end, nodes are kept for one class and let go, and classes look seldom or often: what they remember of
nodes, and arrays over all nodes, have to name the node that a look at every node names.
"""

from random import Random

import pytest
from hypothesis import strategies as st

from schemas.quantities import on_devices
from services.leftover.placement import node_table
from services.leftover.placement.node_table import NodeTable
from services.leftover.placement.task_class import as_aligned
from tests.strategies import for_all

CAPACITIES = (
    {"cpu": 16_000, "memory": 16_384},
    {"cpu": 8_000, "memory": 65_536},
    {"cpu": 32_000, "memory": 16_384, "gpu": 4_000},
    {"cpu": 8_000, "memory": 16_384, "gpu": 2_500},
    {"cpu": 8_000, "memory": 16_384, "gpu": 1_000, "fpga": 2},
    {"cpu": 16_000, "memory": 8_192, "fpga": 4},
)
DEVICES = {4_000: [1_000] * 4, 2_500: [1_000, 500, 1_000], 1_000: [1_000]}
DEMANDS = (
    {"cpu": 1_000, "memory": 1_024},
    {"cpu": 4_000, "memory": 512},
    {"cpu": 500, "gpu": 300, "memory": 256},
    {"cpu": 500, "gpu": 700},
    {"cpu": 1_000, "gpu": 1_000},
    {"gpu": 2_000},
    {"cpu": 250, "gpu": 1_500},
    {"cpu": 1_000, "fpga": 1},
    {"cpu": 1_000, "fpga": 1, "gpu": 500},
    {"memory": 2_048},
)
SCARCE = ("fpga", "gpu")


class Cell:
    """A room with classes, and what runs there."""

    def __init__(self, chance, placing):
        self.chance, self.placing = chance, placing
        self.given = [chance.choice(CAPACITIES) for _ in range(chance.randint(2, 12))]
        self.table = NodeTable(self.given, placing=placing)
        for i, capacity in enumerate(self.given):
            devices = list(enumerate(DEVICES.get(capacity.get("gpu", 0), [])))
            self.table.add(f"n{i}", "e", capacity, {"zone": chance.choice("ab")}, devices, chance.random() < 0.9)
        self.classes = []
        for demand in DEMANDS:
            for labels, prefer in (({}, {}), ({"zone": "a"}, {}), ({}, {"zone": "b"})):
                shape = self.table.shape(demand, len(self.classes))
                self.classes.append(self.table.task_class(len(self.classes), shape, labels, prefer, 0))
                self.classes[-1].waiting = chance.choice((1, 5))
        self.runs, self.mix = [], []

    def expect(self):
        """Another mix of classes is to be expected from now on."""
        kinds = [task for task in self.classes if task.gpu not in (0, 1_500) and not task.prefer]
        chosen = self.chance.sample(kinds, self.chance.randint(1, 6))
        self.mix = [(task.demand, task.labels, self.chance.randint(1, 50)) for task in chosen]
        self.mix = [part for part in self.mix if all(kind in self.table.position for kind in part[0])]
        self.table.set_mix(self.mix)

    def growth(self, task, node):
        """What is lost of the node to the mix once the task is there, with the price of scarce nodes, in steps of 8."""
        if not self.mix or not node.devices:
            return 0
        free = dict(zip(self.table.position, node.free, strict=True))
        after = {kind: amount - task.demand.get(kind, 0) for kind, amount in free.items()}
        devices = list(node.devices)
        for at, milli in on_devices(task.gpu, devices) if task.gpu else []:
            devices[at] -= milli
        total, grown = sum(weight for _, _, weight in self.mix), 0
        for demand, labels, weight in self.mix:
            part = max(1, weight * 1_024 // total)
            grown += part * self.lost(demand, labels, node, after, devices)
            grown -= part * self.lost(demand, labels, node, free, node.devices)
        return (grown + self.price(node) * task.gpu) // (1_024 * 8)

    def lost(self, demand, labels, node, free, devices):
        """All of the free GPU where such a task cannot run, else what is free on devices that it cannot use."""
        least, count = (1_000, demand["gpu"] // 1_000) if demand["gpu"] >= 1_000 else (demand["gpu"], 1)
        runs = labels.items() <= node.labels.items() and sum(room >= least for room in devices) >= count
        runs = runs and all(free[kind] >= amount for kind, amount in demand.items() if kind != "gpu")
        return sum(room for room in devices if not runs or room < least)

    def price(self, node):
        """Three quarters of what is asked of nodes like this by classes that cannot run on all, for what there is."""
        total = sum(weight for _, _, weight in self.mix)
        parts = [(demand["gpu"], labels, max(1, weight * 1_024 // total)) for demand, labels, weight in self.mix]
        asked, everywhere, pressure = sum(gpu * part for gpu, _, part in parts), self.gpus({}), 0
        for gpu, labels, part in parts:
            if 0 < self.gpus(labels) < everywhere and labels.items() <= node.labels.items():
                pressure += part * gpu * everywhere * 1_024 // (asked * self.gpus(labels))
        return pressure * 750 // 1_000

    def gpus(self, labels):
        return sum(sum(node.sizes) for node in self.table.nodes if labels.items() <= node.labels.items())

    def free(self, node, kind):
        at = self.table.position.get(kind, -1)
        return node.free[at] if at >= 0 else 0

    def plain(self, task, *, aligned=False):
        able = [i for i, node in enumerate(self.table.nodes) if self.fits(task, node)]
        nodes = self.table.nodes
        return min(able, key=lambda i: (nodes[i].last, self.rank(task, nodes[i], aligned), i), default=None)

    def fits(self, task, node):
        if not node.open or node.kept not in (None, task):
            return False
        if any(self.free(node, kind) < amount for kind, amount in task.demand.items()):
            return False
        gpu = task.demand.get("gpu")
        return (not gpu or on_devices(gpu, node.devices) is not None) and task.labels.items() <= node.labels.items()

    def rank(self, task, node, aligned):
        capacity = self.given[self.table.number[node.name]]
        prefers = -sum(node.labels.get(key) == value for key, value in task.prefer.items())
        alignment = sum(weight * node.free[p] for p, _, weight in task.needs)
        scarce = [k for k in SCARCE if k == "gpu" or any(k not in given for given in self.given)]
        scarce = [kind for kind in scarce if any(kind in given for given in self.given)]
        if self.placing == "spread" and not aligned:
            used = [((capacity[k] - self.free(node, k)) << 20) // capacity[k] for k in task.demand]
            return prefers, max(used)
        if self.placing == "aligned" or aligned or not scarce:
            return prefers, alignment
        asked = [kind for kind in scarce if kind in task.demand]
        foreign = sum(kind in capacity for kind in scarce if kind not in asked)
        part, left = task.demand.get("gpu", 0) % 1_000, 0
        if part:
            left = node.devices[on_devices(task.demand["gpu"], node.devices)[-1][0]] - part
        most = {kind: max(given.get(kind, 0) for given in self.given) for kind in scarce}
        amount = sum((self.free(node, kind) << 20) // most[kind] for kind in asked or scarce)
        return prefers, foreign, self.growth(task, node), left, amount, self.free(node, "cpu") if asked else alignment

    def place_last(self):
        """Attempts fail on other nodes from now on."""
        for node in self.table.nodes:
            self.table.put_last(node.name, self.chance.random() < 0.3)

    def step(self):
        what, task = self.chance.random(), self.chance.choice(self.classes)
        if what < 0.5:
            number = self.table.best(task)
            assert number == self.plain(task)
            if number is not None:
                self.runs.append((task, number, self.table.take(task, number)))
        elif what < 0.8 and self.runs:
            ended, number, devices = self.runs.pop(self.chance.randrange(len(self.runs)))
            self.table.give(number, ended.pairs, devices)
        elif what < 0.85:
            number = self.table.best(task)
            if number is not None:
                self.table.put_back(task, number, self.table.take(task, number))
        elif what < 0.87:
            self.expect()
        elif what < 0.9:
            self.place_last()
        elif what < 0.96:
            kept = self.chance.sample(range(len(self.given)), self.chance.randint(0, 2))
            self.table.hold_nodes({number: self.chance.choice(self.classes) for number in kept})
        else:
            twin = as_aligned(task)
            if not self.table.kept_nodes:
                assert self.table.best(twin) == self.plain(task, aligned=True)


@pytest.mark.parametrize("at_once", [2, 64])
@pytest.mark.parametrize("placing", ["packed", "spread", "aligned"])
@for_all(st.integers(0, 2**64 - 1))
def test_the_chosen_node_is_the_one_that_a_look_at_every_node_would_choose(placing, at_once, seed):
    chance = Random(seed)
    with pytest.MonkeyPatch.context() as patch:
        if not node_table.__file__.endswith(".so"):  # Compiled, the constants are part of the code.
            patch.setattr(node_table, "NODES_AT_ONCE_LEAST", at_once)
            patch.setattr(node_table, "_SCANNED_MOST", chance.choice((1, 8)))
            patch.setattr(node_table, "_SCAN_COSTS", chance.choice((1, 16)))
        cell = Cell(chance, placing)
        for _ in range(120):
            cell.step()
