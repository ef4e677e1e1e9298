"""Plans many requests at once as a mixed-integer program, solved by HiGHS (extra `planner`), in a process of its own.

One problem as JSON on stdin, the plans as JSON on stdout (`offline/reorganise.py` asks). Solved by a clock, so no core
calls it. After Rayon, section 4; variables by atom a and step t:

    x[a,t]  gangs that run, a whole number up to h / g          u[a,t]  gangs that start, u >= x[t] - x[t-1]
    y[n]    node n is served                                    p[k,t]  whether boundary k of an order is passed

    sum_t x[a,t] >= W y[a]              work; and x[a,t] <= H y[a], zero outside the window
    sum of u over the last L steps <= x leases of at least L steps
    sum_a b x <= capacity               of every resource in every step
    y of a branch = y of an all, order; the branches of an any add up to its y
    x of the link before k <= H (1 - p[k,t]), x of the link after k <= H p[k,t], p never falls

Minimised: requests rejected, then what is started (the paper's preemption term, by dominant share), then what is used;
each by the request's weight.
"""

import json
import sys
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from services.planner.lifeline import end_with_parent

VARIABLES_MAX = 60_000
REJECTED_COST = 1_000.0
START_COST = 1.0
USE_COST = 1e-4

NOT_INSTALLED = 'the solver is not installed: pip install "largesse[planner]"'


@dataclass(slots=True)
class Program:
    """Columns and rows of a mixed-integer program."""

    lower: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    cost: list[float] = field(default_factory=list)
    whole: list[int] = field(default_factory=list)
    rows: list[tuple[float, float, list[int], list[float]]] = field(default_factory=list)

    def column(self, upper: float, cost: float = 0.0, *, whole: bool = True, lower: float = 0.0) -> int:
        """A variable."""
        self.lower.append(lower)
        self.upper.append(upper)
        self.cost.append(cost)
        if whole:
            self.whole.append(len(self.lower) - 1)
        return len(self.lower) - 1

    def row(self, lower: float, upper: float, terms: list[tuple[int, float]]) -> None:
        """lower <= sum of the terms <= upper."""
        self.rows.append((lower, upper, [column for column, _ in terms], [factor for _, factor in terms]))


INFINITY = float("inf")
Running = dict[int, int]
"""Step -> column of x."""


class Model:
    """The program of one problem. Times are in coarse steps of `factor` steps, rounded so that plans stay feasible."""

    def __init__(self, capacity: list[int], horizon: int, factor: int) -> None:
        self.capacity = capacity
        self.factor = factor
        self.horizon = horizon // factor
        self.program = Program()
        self.running: dict[tuple[int, str], Running] = {}  # Request and atom.
        self.taken: dict[tuple[int, int], list[tuple[int, float]]] = {}  # Resource and step -> columns of x.
        self.served: list[int] = []
        self.part = 1.0

    def request(self, number: int, node: dict[str, Any], *, must: bool, weight: int = 1, heaviest: int = 1) -> None:
        """A request; one that `must` be accepted was promised already. What it starts and uses counts in parts of the
        `heaviest`, so that it never outweighs the rejection of another."""
        # What must be accepted adds no constant to the objective: the solver's gap is relative to its value.
        served = self.program.column(1, 0.0 if must else -REJECTED_COST * weight, lower=1.0 if must else 0.0)
        self.served.append(served)
        self.part = weight / heaviest
        self.node(number, node, served)

    def node(self, number: int, node: dict[str, Any], served: int) -> list[Running]:
        """A request or a part of it. Returns what runs in it."""
        if "of" not in node:
            return [self.atom(number, node, served)]
        if node["kind"] == "any":
            each = [self.program.column(1) for _ in node["of"]]
            self.program.row(0, 0, [(column, 1.0) for column in each] + [(served, -1.0)])
        else:
            each = [served] * len(node["of"])
        found = [self.node(number, branch, column) for branch, column in zip(node["of"], each, strict=True)]
        if node["kind"].startswith("order"):
            for before, after in pairwise(found):
                self.boundary(before, after, no_gap=node["kind"] == "order_no_gap")
        return [running for branch in found for running in branch]

    def atom(self, number: int, atom: dict[str, Any], served: int) -> Running:
        """An atom: its width, leases and work."""
        program, most = self.program, atom["gangs_most"]
        begin, end = -(-atom["begin"] // self.factor), atom["end"] // self.factor
        lease, work = -(-atom["lease"] // self.factor), -(-atom["work"] // self.factor)
        units = [need * atom["gang"] for need in atom["unit"]]
        share = max((need / have for need, have in zip(units, self.capacity, strict=True) if have), default=0.0)
        running: Running = {}
        starts: Running = {}
        for t in range(begin, end):
            x = running[t] = program.column(most, USE_COST * share * self.part)
            costs = 2 * START_COST * share * self.part
            u = starts[t] = program.column(most if t + lease <= end else 0, costs, whole=False)
            before = [(running[t - 1], 1.0)] if t > begin else []
            program.row(0, INFINITY, [(u, 1.0), (x, -1.0), *before])
            recent = [(starts[s], -1.0) for s in range(max(begin, t - lease + 1), t + 1)]
            program.row(0, INFINITY, [(x, 1.0), *recent])
            program.row(-INFINITY, 0, [(x, 1.0), (served, -float(most))])
            for resource, need in enumerate(units):
                if need:
                    self.taken.setdefault((resource, t), []).append((x, float(need)))
        program.row(0, INFINITY, [(x, 1.0) for x in running.values()] + [(served, -float(work))])
        self.running[number, atom["path"]] = running
        return running

    def boundary(self, before: list[Running], after: list[Running], *, no_gap: bool) -> None:
        """What is `before` ends before what is `after` begins."""
        program = self.program
        steps = sorted({t for running in (*before, *after) for t in running})
        passed: Running = {}
        for t in steps:
            p = passed[t] = program.column(1)
            if t - 1 in passed:
                program.row(0, INFINITY, [(p, 1.0), (passed[t - 1], -1.0)])
            for running in before:
                if t in running:
                    most = program.upper[running[t]]
                    program.row(-INFINITY, most, [(running[t], 1.0), (p, most)])
            for running in after:
                if t in running:
                    program.row(-INFINITY, 0, [(running[t], 1.0), (p, -program.upper[running[t]])])
            if no_gap:
                switch = [(p, -1.0)] + ([(passed[t - 1], 1.0)] if t - 1 in passed else [])
                program.row(0, INFINITY, [(running[t - 1], 1.0) for running in before if t - 1 in running] + switch)
                program.row(0, INFINITY, [(running[t], 1.0) for running in after if t in running] + switch)

    def limit(self, used: list[Any]) -> None:
        """The capacity that is left beside what is fixed: runs of first step, step after the last, amounts."""
        fixed: dict[tuple[int, int], int] = {}
        for begin, end, amounts in used:
            for t in range(begin // self.factor, min(self.horizon, -(-end // self.factor))):
                for resource, amount in enumerate(amounts):
                    fixed[resource, t] = max(fixed.get((resource, t), 0), amount)
        for (resource, t), terms in self.taken.items():
            have = self.capacity[resource] - fixed.get((resource, t), 0)
            # In parts of the capacity: the solver's tolerances are absolute.
            scale = max(1, self.capacity[resource])
            self.program.row(-INFINITY, max(0, have) / scale, [(x, need / scale) for x, need in terms])

    def leases(self, values: list[float]) -> list[dict[str, Any]]:
        """By request, the leases of its atoms that are served: path -> [begin, end, gangs]."""
        found: list[dict[str, Any]] = [{} for _ in self.served]
        for (number, path), running in self.running.items():
            if values[self.served[number]] > 0.5:
                widths = [(t, round(values[x])) for t, x in running.items()]
                if leases := _leases(widths, self.factor):
                    found[number][path] = leases
        return found


def _leases(widths: list[tuple[int, int]], factor: int) -> list[list[int]]:
    """Leases of a width by step: what started first ends first."""
    found: list[list[int]] = []
    active: list[list[int]] = []  # Begin and gangs.
    held = last = 0
    for t, width in [*widths, (widths[-1][0] + 1 if widths else 0, 0)]:
        if width > held:
            active.append([t, width - held])
        while width < held:
            less = min(held - width, active[0][1])
            found.append([active[0][0] * factor, t * factor, less])
            active[0][1] -= less
            held -= less
            if not active[0][1]:
                del active[0]
        held, last = width, t
    assert not active, f"a lease without an end at {last}"
    return sorted(found)


def variables(nodes: list[dict[str, Any]], factor: int) -> int:
    """About how many variables a program has."""
    total = 0
    for node in nodes:
        if "of" in node:
            total += variables(node["of"], factor)
        else:
            total += 2 * max(0, node["end"] - node["begin"]) // factor + 1
    return total


def solve(problem: dict[str, Any]) -> dict[str, Any]:
    """The best plans found in the time there is: by request a map path -> leases, empty where it is rejected; or None.

    `status`: optimal, feasible or none. Raises ImportError without the solver.
    """
    import highspy

    nodes = [each["node"] for each in problem["requests"]]
    factor = 1
    while variables(nodes, factor) > VARIABLES_MAX:
        factor += 1
    model = Model(problem["capacity"], problem["horizon"], factor)
    weights = [each.get("weight", 1) for each in problem["requests"]]
    for number, (each, weight) in enumerate(zip(problem["requests"], weights, strict=True)):
        model.request(number, each["node"], must=each["must"], weight=weight, heaviest=max(weights))
    model.limit(problem["used"])
    solver: Any = highspy.Highs  # Its types are incomplete.
    solver = solver()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("time_limit", float(problem["time_limit_s"]))
    solver.setOptionValue("mip_rel_gap", float(problem.get("gap", 1e-4)))
    load(solver, model.program)
    solver.run()
    found = solver.getInfo().primal_solution_status == 2  # A feasible point.
    optimal = solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
    values = list(solver.getSolution().col_value) if found else []
    plans = model.leases(values) if found else None
    return {"status": "optimal" if optimal else "feasible" if found else "none", "plans": plans, "step_factor": factor}


def load(solver: Any, program: Program) -> None:
    """Hands a program to a solver."""
    import highspy
    import numpy as np

    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(program.lower), len(program.rows)
    lp.col_lower_, lp.col_upper_ = np.array(program.lower), np.array(program.upper)
    lp.col_cost_ = np.array(program.cost)
    lp.row_lower_ = np.array([row[0] for row in program.rows])
    lp.row_upper_ = np.array([row[1] for row in program.rows])
    lengths = np.cumsum([0] + [len(row[2]) for row in program.rows])
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = lengths.astype(np.int32)
    lp.a_matrix_.index_ = np.array([column for row in program.rows for column in row[2]], np.int32)
    lp.a_matrix_.value_ = np.array([factor for row in program.rows for factor in row[3]])
    whole = set(program.whole)
    lp.integrality_ = [
        highspy.HighsVarType.kInteger if column in whole else highspy.HighsVarType.kContinuous
        for column in range(len(program.lower))
    ]
    solver.passModel(lp)


def main() -> int:
    """Read stdin, write stdout. Returns the exit code: 3 without the solver."""
    end_with_parent()
    try:
        answer = solve(json.load(sys.stdin))
    except ImportError:
        print(NOT_INSTALLED, file=sys.stderr)
        return 3
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
