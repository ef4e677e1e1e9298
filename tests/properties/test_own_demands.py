"""Placement against the plain rules where every stage has demands of its own: many classes of tasks, each with few, so
that what is found is found through indexes, arrays and blocks, while most of it waits for room.
"""

from random import Random

import pytest

from schemas.quantities import SHARE_UNITS
from services.leftover.placement import candidates, node_table, ranks
from services.leftover.placement.board import Board
from services.leftover.placement.node_table import NodeTable
from services.leftover.placement.task_span import TaskSpan

KINDS = ("cpu", "memory", "network")
CAPACITIES = [{"cpu": 400 + 100 * (i % 3), "memory": 900 - 50 * (i % 5), "network": 300} for i in range(70)]


class Cell:
    """A board, and all that the plain rules look at: jobs with what they hold and wait for, nodes with what is free."""

    def __init__(self, chance):
        table = NodeTable(CAPACITIES)
        for i, capacity in enumerate(CAPACITIES):
            table.add(f"n{i}", "e", capacity, {}, [], open_=i % 17 != 5)
        self.chance, self.board = chance, Board(table, "fair")
        self.total = {kind: sum(capacity[kind] for capacity in CAPACITIES) for kind in KINDS}
        self.free = [dict(capacity) for capacity in CAPACITIES]
        self.held, self.waits = {}, {}  # By job, in the order of admission: amounts; [demand, tasks] by stage.
        self.running = []

    def join(self):
        """A job of a few stages. Some ask for little of what is scarce, some for more than most nodes have free."""
        chance, name, admitted = self.chance, f"j{len(self.held)}", len(self.held)
        self.held[name] = dict.fromkeys(KINDS, 0)
        stages = []
        for _ in range(chance.randint(1, 3)):
            most = chance.choice((60, 60, 300))
            demand = {kind: chance.randint(1, most) for kind in KINDS if kind != "network" or chance.random() < 0.6}
            stages.append([demand, chance.choice((1, 2, 30))])
        self.waits[name] = stages
        self.board.add_job(name, admitted, "", 0)
        spans = []
        for at, (demand, tasks) in enumerate(stages):
            spans.append(TaskSpan(str(at), at, self.board.classes.class_for(demand, {}, {}, 0), 0, tasks, 1, 0))
        self.board.wait(name, spans)

    def end(self, tasks):
        """Tasks that run end, wherever they do."""
        for _ in range(min(tasks, len(self.running))):
            name, demand, node = self.running.pop(self.chance.randrange(len(self.running)))
            for kind, amount in demand.items():
                self.free[node][kind] += amount
                self.held[name][kind] -= amount
            pairs = self.board.node_table.pairs(demand)
            self.board.node_table.give(node, pairs, [])
            self.board.hold(name, pairs, -1, "")

    def place_plainly(self):
        """What starts, as (job, stage, node): the job that holds least, its first stage that fits, the best node."""
        started = []
        order = {name: at for at, name in enumerate(self.held)}
        while True:
            for name in sorted(self.waits, key=lambda name: (self._share(name), order[name])):
                found = self._first_that_fits(name)
                if found is not None:
                    break
            else:
                return sorted(started)
            at, node = found
            demand = self.waits[name][at][0]
            self.waits[name][at][1] -= 1
            for kind, amount in demand.items():
                self.free[node][kind] -= amount
                self.held[name][kind] += amount
            self.running.append((name, demand, node))
            started.append((name, str(at), node))

    def _share(self, name):
        return max(self.held[name][kind] * SHARE_UNITS // self.total[kind] for kind in KINDS)

    def _first_that_fits(self, name):
        for at, (demand, tasks) in enumerate(self.waits[name]):
            able = [i for i, free in enumerate(self.free) if all(free[kind] >= demand[kind] for kind in demand)]
            able = [i for i in able if self.board.node_table.nodes[i].open]
            if tasks and able:
                task = self.board.classes.class_for(demand, {}, {}, 0)
                rank = {p: weight for p, _, weight in task.needs}
                ranked = [
                    (sum(rank[self.board.node_table.position[k]] * self.free[i][k] for k in demand), i) for i in able
                ]
                return at, min(ranked)[1]
        return None


@pytest.mark.rotating(2)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    ("fails_cost", "block"),
    [
        pytest.param(16, 48, id="as it is"),
        pytest.param(1_000, 3, id="compared after each failure, short blocks"),
        pytest.param(0, 4, id="never compared again"),
    ],
)
def test_each_task_starts_where_the_plain_rules_start_it(monkeypatch, seed, fails_cost, block):
    """Two cells of fixed seeds: what is indexed takes more nodes and classes than Hypothesis draws."""
    if not node_table.__file__.endswith(".so"):  # Compiled, the constants are part of the code.
        monkeypatch.setattr(candidates, "_FAILURE_COSTS", fails_cost)
        monkeypatch.setattr(ranks, "_BLOCK", block)
        monkeypatch.setattr(node_table, "NODES_AT_ONCE_LEAST", 64 if seed else 2)
        monkeypatch.setattr(candidates, "NODES_AT_ONCE_LEAST", 64 if seed else 2)
    chance = Random(seed)
    cell = Cell(chance)
    for turn in range(5):
        for _ in range(60 if not turn else 8):
            cell.join()
        cell.end(chance.choice((1, 20, 150)))

        placed = []
        for placement in cell.board.place():
            placed += [(placement.job, placement.stage, placement.node)] * placement.count

        assert sorted(placed) == cell.place_plainly()
    assert len(cell.board.classes.candidates.blocked) > 40
