"""Planners of reservations against the optimum: what GREE, GREE-L and the others accept of small random mixes.

`python -m benchmarks.optimum CHECKS` draws mixes of requests with plan_mixes.py of that folder. The planners get the
requests one after the other, as a cell does; HiGHS gets them all at once, and looks for

    accepted    the most requests that can be served together
    work        the most work that can be served together: dominant share x time, of the atoms that are served
    change      the least preemption (the paper's term: sum over atoms and steps of the absolute change of width, by
                dominant share) with which the requests that a planner has accepted can be served

Where HiGHS does not prove an optimum in its time, its bound counts: the planners look worse than they are, not better.
"""

import argparse
import json
import random
import sys
import time
from dataclasses import asdict
from fractions import Fraction
from statistics import median
from typing import Any

from services.planner.milp import START_COST, Model, load
from services.planner.offline.solve import solve
from services.planner.planning.read_rdl import Grid, read_rdl

STEP = 60
AGENTS = ("gree", "gree-l", "early", "default")
FAMILIES = ("flat", "skew", "rdl")
LOADS = (0.8, 1.2)
WORK_GAP = 0.002
CHANGE_GAP = 0.05

Json = dict[str, Any]


class Weighed(Model):
    """A program that knows which atoms are served, and the work of each."""

    def __init__(self, capacity: list[int], horizon: int) -> None:
        super().__init__(capacity, horizon, 1)
        self.work: list[tuple[int, float]] = []  # Column and work.

    def atom(self, number: int, atom: Json, served: int) -> dict[int, int]:
        """An atom, with its work."""
        units = [need * atom["gang"] for need in atom["unit"]]
        share = max(need / have for need, have in zip(units, self.capacity, strict=True))
        self.work.append((served, share * atom["work"]))
        return super().atom(number, atom, served)


# ---------------------------------------------------------------- the optimum
def optimum(problem: Json, kind: str, names: list[str] | None, limit_s: float) -> Json:
    """The best value of one kind for the requests named (None: all), a bound on it, and whether it is proven."""
    positions = {name: i for i, name in enumerate(sorted(problem["capacity"]))}
    grid = Grid(
        Fraction(STEP),
        problem["horizon_s"] // STEP,
        positions,
        [problem["capacity"][name] for name in positions],
        [1] * len(positions),
    )
    model = Weighed(list(grid.capacity), grid.horizon)
    chosen = [each for each in problem["sequence"] if names is None or each["id"] in names]
    for number, each in enumerate(chosen):
        model.request(number, asdict(read_rdl(each["rdl"], grid).node()), must=kind == "change")
    model.limit([])
    program = model.program
    costs = [0.0] * len(program.cost)
    if kind == "accepted":
        for column in model.served:
            costs[column] = -1.0
    elif kind == "work":
        for column, work in model.work:
            costs[column] -= work
    else:
        costs = [cost / START_COST if cost >= _START_LEAST else 0.0 for cost in program.cost]
    program.cost[:] = costs
    return _solved(program, kind, limit_s)


_START_LEAST = 1e-3
"""What is used costs less than this in a program, and what is started more: an atom's unit is no less of the cell."""


def _solved(program: Any, kind: str, limit_s: float) -> Json:
    import highspy

    solver: Any = highspy.Highs  # Its types are incomplete.
    solver = solver()
    options = {"output_flag": False, "threads": 1, "time_limit": limit_s}
    # Whole numbers of requests: what is nearer to the bound than one is the optimum.
    options["mip_abs_gap"] = 0.99 if kind == "accepted" else 1e-6
    options["mip_rel_gap"] = {"accepted": 0.0, "work": WORK_GAP, "change": CHANGE_GAP}[kind]
    for option, said in options.items():
        solver.setOptionValue(option, said)
    load(solver, program)
    solver.run()
    found = solver.getInfo()
    proven = solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
    value = found.objective_function_value if found.primal_solution_status == 2 else None
    bound: float = found.mip_dual_bound
    if kind == "accepted":
        bound = round(value) if proven and value is not None else -int(-bound + 1e-6)
    sign = 1 if kind == "change" else -1
    return {"value": None if value is None else sign * value, "bound": sign * bound, "proven": proven}


# ---------------------------------------------------------------- the planners
def answered(problem: Json, agent: str) -> Json:
    """What a planner accepts, and what its final plan is worth."""
    answer = solve({"kind": "reservation", "input": {**problem, "agent": agent, "existing": []}})
    capacity, finals = problem["capacity"], answer.get("final_leases") or {}
    known = {each["id"]: dict(_atoms(each["rdl"], "")) for each in problem["sequence"]}
    names, work, change = [], 0.0, 0.0
    for each in answer["results"]:
        if not each["accepted"]:
            continue
        name = each["id"]
        names.append(name)
        leases: dict[str, list[Json]] = {}
        for lease in finals.get(name, each["leases"]):
            leases.setdefault(lease["atom"], []).append(lease)
        for path, mine in leases.items():
            atom = known[name][path]
            share = max(amount / capacity[kind] for kind, amount in atom["b"].items())
            work += share * -(-atom["w"] // (STEP * atom["g"])) * atom["g"]
            change += share * _change(mine)
    times = [each["us"] / 1000 for each in answer["results"]]
    return {
        "names": names, "accepted": len(names), "work": work, "change": change,
        "ms_p50": median(times), "ms_max": max(times),
    }  # fmt: skip


def _change(leases: list[Json]) -> int:
    steps: dict[int, int] = {}
    for lease in leases:
        steps[lease["from"]] = steps.get(lease["from"], 0) + lease["n"]
        steps[lease["to"]] = steps.get(lease["to"], 0) - lease["n"]
    return sum(map(abs, steps.values()))


def _atoms(rdl: Json, path: str) -> Any:
    if rdl["op"] == "window":
        yield from _atoms(rdl["of"], path)
    elif rdl["op"] == "atom":
        yield path or "0", rdl
    else:
        for i, each in enumerate(rdl["of"]):
            yield from _atoms(each, f"{path}.{i}" if path else str(i))


# ---------------------------------------------------------------- all mixes
def run(asked: argparse.Namespace) -> list[Json]:
    """A row a mix."""
    sys.path.append(asked.source)
    import plan_mixes  # type: ignore[import-not-found]

    rows = []
    for number in range(asked.mixes):
        family, load_ = FAMILIES[number % 3], LOADS[number // 3 % 2]
        dice = random.Random(f"optimum/{number}")
        horizon_s = asked.minutes * STEP
        sequence, _ = plan_mixes.Gen(family, asked.requests, horizon_s, load_, dice).make()
        problem = {"step_s": STEP, "horizon_s": horizon_s, "capacity": plan_mixes.CAP, "sequence": sequence}
        row: Json = {"mix": number, "family": family, "load": load_, "requests": len(sequence)}
        for kind in ("accepted", "work"):
            begun = time.process_time()
            row[kind] = optimum(problem, kind, None, asked.limit) | {"cpu_s": round(time.process_time() - begun, 2)}
        least: dict[str, Json] = {}  # Planners often accept the same requests.
        for agent in AGENTS:
            row[agent] = answered(problem, agent)
            names = row[agent].pop("names")
            if str(names) not in least:
                begun = time.process_time()
                found = least[str(names)] = optimum(problem, "change", names, asked.limit)
                found["cpu_s"] = round(time.process_time() - begun, 2)
            row[agent]["least"] = least[str(names)]
            assert row[agent]["accepted"] <= row["accepted"]["bound"], f"mix {number}: {agent} beats the optimum"
        rows.append(row)
        print(json.dumps(row), file=sys.stderr, flush=True)
    return rows


def summed(rows: list[Json]) -> Json:
    """Of each family and of all: the planners' sums as ratios of the optimum's bound, and how much is proven."""
    sums: Json = {}
    for family in (*FAMILIES, "all"):
        mine = [row for row in rows if family in ("all", row["family"])]
        if mine:
            sums[family] = _summed(mine)
    return sums


def _summed(rows: list[Json]) -> Json:
    requests = sum(row["requests"] for row in rows)
    sums: Json = {"mixes": len(rows), "requests": requests}
    for kind in ("accepted", "work"):
        sums[f"{kind} proven"] = sum(row[kind]["proven"] for row in rows)
    sums["optimum accepts"] = round(sum(row["accepted"]["bound"] for row in rows) / requests, 3)
    for agent in AGENTS:
        mine = [row[agent] for row in rows]
        served = [each for each in mine if each["least"]["bound"] > 0]
        sums[agent] = {
            "accepted": _ratio(mine, "accepted", rows),
            "work": _ratio(mine, "work", rows),
            "as many": sum(row[agent]["accepted"] == row["accepted"]["bound"] for row in rows),
            "change": round(sum(e["change"] for e in served) / sum(e["least"]["bound"] for e in served), 3),
            "change proven": sum(each["least"]["proven"] for each in mine),
            "ms_p50": round(median(each["ms_p50"] for each in mine), 2),
            "ms_max": round(max(each["ms_max"] for each in mine), 1),
        }
    return sums


def _ratio(mine: list[Json], kind: str, rows: list[Json]) -> float:
    return float(round(sum(each[kind] for each in mine) / sum(row[kind]["bound"] for row in rows), 3))


def main() -> int:
    """Compares and prints."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.optimum", description=__doc__)
    parser.add_argument("source", help="the folder with plan_mixes.py")
    parser.add_argument("--mixes", type=int, default=200)
    parser.add_argument("--requests", type=int, default=8)
    parser.add_argument("--minutes", type=int, default=24, help="horizon of a mix")
    parser.add_argument("--limit", type=float, default=8, help="seconds that the solver may take for one optimum")
    print(json.dumps(summed(run(parser.parse_args())), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
