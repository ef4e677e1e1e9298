"""Small cells that lose capacity, drawn by a number, and a solver that judges what the planner breaks then.

A cell has one resource on several nodes, or two on one: then units fit where their sum does, and the solver, which
knows no nodes, judges fairly.
"""

import random
from dataclasses import asdict, dataclass, field

from services.planner import milp
from services.planner.core.decide import plan_of
from services.planner.planning.repair import _loss  # What breaking a promise loses.
from services.planner.planning.request import Node, Plan
from services.planner.planning.residual import FOR_EVER
from services.planner.planning.verify import fault
from tests.builders import node_lost, registered, reservation
from tests.planner_cell import MINUTE, Cell

CORES = 4
MOST = 24
"""Steps after which every window has ended."""


@dataclass
class Loss:
    """What was promised when capacity was lost, in steps before `first` and from then on, and what became of it."""

    first: int
    capacity: list[int]
    nodes: dict[str, Node]
    plans: dict[str, Plan]
    losses: dict[str, int]
    broken: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    work: int = 0

    @property
    def lost(self):
        return sum(self.losses[name] for name in self.broken)


class Drawn:
    """A cell that is drawn. `off_grid`: times are no multiples of a step. `late`: seconds at which it loses nodes."""

    most = 6  # Requests.

    def __init__(self, case):
        dice = self.dice = random.Random(case)
        self.two = dice.random() < 0.3
        self.off_grid = dice.random() < 0.3
        self.late_s = dice.choice([0, 0, dice.randint(60, 400)])

    def seconds(self, steps):
        return 60 * steps + (self.dice.randint(-29, 30) if self.off_grid else 0)

    def atom(self):
        dice = self.dice
        gang = dice.randint(1, 2)
        most, lease, work = gang * dice.randint(1, 3), dice.randint(1, 4), gang * dice.randint(1, 8)
        unit = {"cpu": str(dice.randint(1, 2))}
        if self.two:
            unit["memory"] = f"{dice.randint(1, 3)}Gi"
        return {"op": "atom", "b": unit, "g": gang, "h": most, "l": self.seconds(lease), "w": self.seconds(work)}

    def body(self, depth=0):
        dice = self.dice
        if dice.random() < 0.5:
            return self.atom()
        kind = dice.choice(["all", "any", "order", "order_no_gap"])
        inner = self.body if depth == 0 and dice.random() < 0.2 else self.atom
        return {"op": kind, "of": [inner(1) if inner == self.body else inner() for _ in range(dice.randint(1, 3))]}

    def request(self):
        begin = self.dice.randint(1, 6)
        end = begin + self.dice.randint(3, 10)
        return {"op": "window", "s": self.seconds(begin), "e": self.seconds(end), "of": self.body()}

    def nodes(self):
        if self.two:
            return [("n0", 6_000, 6_144), ("n1", 6_000, 6_144)]
        return [(f"n{i}", CORES * 1_000, 4_096) for i in range(3)]


def played(case):
    """A cell that lost a node, and what the planner made of it; None if it then had promised nothing."""
    drawn = Drawn(case)
    cell = Cell(*(registered(name, cpu=cpu, memory=memory) for name, cpu, memory in drawn.nodes()))
    cell.then(*(reservation(f"r{i}", drawn.request()) for i in range(drawn.dice.randint(2, drawn.most))))
    cell.settle(at=0)
    now = drawn.late_s * 1_000
    if now:
        cell.round(at=now)
    if not cell.story.state.promises:
        return None
    cell.then(node_lost("n0"))
    plan = plan_of(cell.story.state)  # Searches in one go what it searches over many rounds in a cell.
    plan.move_to(now // MINUTE + 1)
    before = plan.promised
    found = Loss(
        now // MINUTE + 1,
        list(plan.grid.capacity),
        {name: each.node for name, each in before.known.items()},
        {name: before.plan(name) for name in before.known},
        {name: _loss(plan.agent, before.known, name) for name in before.known},
    )
    repairs = plan.search([], FOR_EVER, 1)
    if repairs:
        found.work, found.broken = repairs[0].work, repairs[0].broken
        after = repairs[0].after
        assert list(after.known) == [name for name in before.known if name not in found.broken]
        wrong = {name: fault(found.nodes[name], after.plan(name)) for name in after.known}
        found.faults = [f"{name}: {each}" for name, each in wrong.items() if each]
        found.faults += [] if not plan.is_over() else ["more is promised than there is"]
    return found


def least_loss(found):
    """The least that any plans lose, as HiGHS finds it; None if it does not come to an end."""
    import highspy

    model = milp.Model(found.capacity, MOST, 1)
    for number, (name, node) in enumerate(found.nodes.items()):
        model.request(number, asdict(node), must=False)
        past = {atom.path: leases for atom, leases in found.plans[name]}
        for (mine, path), running in model.running.items():
            if mine == number:
                for step, column in running.items():
                    if step < found.first:
                        width = sum(each.gangs for each in past.get(path, []) if each.begin <= step < each.end)
                        model.program.row(0, 0, [(column, 1.0), (model.served[number], -float(width))])
    model.taken = {at: terms for at, terms in model.taken.items() if at[1] >= found.first}
    model.limit([])
    program = model.program
    program.cost = [0.0] * len(program.cost)
    total = sum(found.losses.values())
    for column, loss in zip(model.served, found.losses.values(), strict=True):
        program.cost[column] = -loss / total
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("time_limit", 120.0)
    solver.setOptionValue("mip_rel_gap", 1e-7)
    milp.load(solver, program)
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    values = solver.getSolution().col_value
    return sum(loss for column, loss in zip(model.served, found.losses.values(), strict=True) if values[column] < 0.5)
