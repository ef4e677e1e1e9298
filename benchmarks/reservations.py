"""Reservations: a mixed workload with and without them, also where nodes fail, and greedy planners against the solver.

`python -m benchmarks.reservations mixed FB-2009.tsv.gz` simulates production jobs with deadlines beside small jobs of
Facebook sizes. `python -m benchmarks.reservations planners CHECKS` draws small mixes of requests with plan_mixes.py of
that folder and compares `gree` and `gree-l` with what HiGHS finds. `--json` for programs. Times are CPU time.
"""

import argparse
import json
import random
import resource
import sys
import time
from statistics import median
from typing import Any

from schemas.edge.read import read_cluster, read_workload_line
from services.planner.offline.solve import solve
from services.simulator.outages import Outage
from services.simulator.run import Options, simulate
from services.simulator.workloads.draws import below, drawn_names
from services.simulator.workloads.importers import IMPORTERS
from services.simulator.workloads.workload_file import read_reservation_line

SPAN_MS = 3_600_000
PRODUCTION = 50  # One job in twenty.
SMALL = 950
TASK_MS = 60_000
CORES = 16
LOAD_PERMILLE = 950
PRODUCTION_PERMILLE = 900  # Of the work.
SMALL_TASKS_MAX = 40
STEP = 60

VARIANTS: dict[str, dict[str, int | str]] = {
    "rayon": {"preset": "rayon"},
    "fifo with reservations": {"preset": "fifo"},
    "largesse": {"preset": "largesse"},
    "capacity without": {"preset": "capacity", "reservations": "off"},
    "fifo without": {"preset": "fifo", "reservations": "off"},
}
"""Knobs of a run."""


# ---------------------------------------------------------------- a mixed workload
def mixed(trace: str, seed: int) -> tuple[list[Any], list[str], dict[str, int]]:
    """Arrivals, node names, and the deadline of every production job in ms."""
    lines = (line for line in IMPORTERS["facebook"].convert(trace, demands="one-core"))
    arrivals: list[Any] = []
    work_ms = 0
    for line in lines:
        tasks = sum(stage.get("tasks") or len(stage["durations_ms"]) for stage in line["stages"])
        if tasks > SMALL_TASKS_MAX:
            continue
        number = len(arrivals)
        line |= {"queue": "batch", "submit_ms": below(SPAN_MS, seed, "mixed.at", str(number))}
        arrivals.append(read_workload_line(line))
        work_ms += sum(_work_ms(stage) for stage in line["stages"])
        if len(arrivals) == SMALL:
            break
    production_ms = work_ms * PRODUCTION_PERMILLE // (1000 - PRODUCTION_PERMILLE)
    count = -(-(production_ms + work_ms) * 1000 // (LOAD_PERMILLE * SPAN_MS * CORES))
    nodes = [f"n-{i}" for i in range(count)]
    deadlines: dict[str, int] = {}
    for i in range(PRODUCTION):
        at_s = SPAN_MS // 1000 * i // PRODUCTION
        tasks = production_ms // PRODUCTION // TASK_MS
        end_s = at_s + 1_200 + below(1_200, seed, "mixed.slack", str(i))
        atom = f"atom(b='1 cpu', g=1, h={count * CORES * 9 // 10}, l=1m, w={tasks}m)"
        asked = {"reservation": f"r{i}", "user": "ann", "queue": "prod", "rdl": f"window({at_s}, {end_s}, {atom})"}
        arrivals.append(read_reservation_line({"submit_ms": at_s * 1000, "request": asked}))
        stage = {"stage": "s", "tasks": tasks, "demand": {"cpu": "1"}, "duration_ms": TASK_MS - 5_000}
        job = {"job": f"prod-{i}", "queue": "prod", "user": "ann", "submit_ms": at_s * 1000, "reservation": f"r{i}"}
        arrivals.append(read_workload_line({**job, "stages": [stage]}))
        deadlines[f"prod-{i}"] = end_s * 1000
    return arrivals, nodes, deadlines


def _work_ms(stage: dict[str, Any]) -> int:
    durations = stage.get("durations_ms")
    return sum(durations) if durations else int(stage["duration_ms"]) * int(stage["tasks"])


def run_mixed(trace: str, seeds: list[int]) -> list[dict[str, Any]]:
    """A row a variant and a seed, with and without a tenth of the nodes failing midway."""
    rows = []
    for seed in seeds:
        arrivals, nodes, deadlines = mixed(trace, seed)
        queues = {"name": "root", "children": [{"name": "prod", "weight": 9}, {"name": "batch"}]}
        entries = [{"name": name, "capacity": {"cpu": CORES}} for name in nodes]
        failing = drawn_names(nodes, -(-len(nodes) // 10), seed, "mixed.fail")
        for outages in ([], [Outage(name, SPAN_MS // 2) for name in failing]):
            for variant, knobs in VARIANTS.items():
                cluster = read_cluster({"nodes": entries, "queues": queues})
                begun = time.process_time()
                result = simulate(arrivals, cluster, Options({**knobs, "round_gap_ms": 1_000}, outages=outages))
                cpu_s = time.process_time() - begun
                rows.append(
                    {"seed": seed, "nodes": len(nodes), "failed": len(outages), "variant": variant}
                    | _measured(result, deadlines)
                    | {"cpu_s": round(cpu_s, 1)}
                )
                print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    return rows


def _measured(result: dict[str, Any], deadlines: dict[str, int]) -> dict[str, Any]:
    ends = {row["job"]: row["end_ms"] for row in result["per_job"]}
    answers = {f"prod-{each['reservation'][1:]}": each for each in result["reservations"]}
    accepted = [job for job in deadlines if answers[job]["accepted"]]
    small = sorted(row["end_ms"] - row["submit_ms"] for row in result["per_job"] if row["queue"] == "batch")
    return {
        "deadlines_met": sum(ends[job] <= end_ms for job, end_ms in deadlines.items()),
        "accepted": len(accepted),
        "accepted_met": sum(ends[job] <= deadlines[job] for job in accepted),
        "moved": sum(bool(answers[job]["moved"]) for job in accepted),
        "broken": sum(bool(answers[job]["broken"]) for job in accepted),
        "small_mean_s": round(sum(small) / len(small) / 1000, 1),
        "small_p95_s": round(small[-(-len(small) * 95 // 100) - 1] / 1000, 1),
        "cpu": round(result["utilisation"]["cpu"], 3),
    }


# ---------------------------------------------------------------- planners against the solver
def run_planners(folder: str, count: int, requests: int, minutes: int, limit_s: int) -> list[dict[str, Any]]:
    """A row a mix: what each planner accepts, how often its plan changes, and what an answer takes."""
    sys.path.append(folder)
    import plan_mixes  # type: ignore[import-not-found]

    rows = []
    for number in range(count):
        family, load = ("flat", "skew", "rdl")[number % 3], (0.8, 1.2)[number // 3 % 2]
        dice = random.Random(f"mix/{number}")
        sequence, _ = plan_mixes.Gen(family, requests, minutes * STEP, load, dice).make()
        problem = {"step_s": STEP, "horizon_s": minutes * STEP, "capacity": plan_mixes.CAP, "sequence": sequence}
        found: dict[str, Any] = {"mix": number, "family": family, "load": load}
        for agent in ("gree", "gree-l", "default", "milp"):
            begun, children, wall = time.process_time(), _children_s(), time.monotonic()
            answer = solve(
                {"kind": "reservation", "input": {**problem, "agent": agent, "time_limit_s": limit_s, "existing": []}}
            )
            found[agent] = _judged(answer, sequence, plan_mixes.CAP) | {
                "cpu_ms": round((time.process_time() - begun + _children_s() - children) * 1000),
                "proven": agent != "milp" or time.monotonic() - wall < limit_s,
            }
        found["solver"] = answer.get("solver")
        rows.append(found)
        print(json.dumps(found), file=sys.stderr, flush=True)
    return rows


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _judged(answer: dict[str, Any], sequence: list[Any], capacity: dict[str, int]) -> dict[str, Any]:
    atoms: dict[str, dict[str, Any]] = {each["id"]: dict(_atoms(each["rdl"], "")) for each in sequence}
    finals = answer.get("final_leases") or {}
    changes: dict[int, float] = {}
    accepted, work = 0, 0.0
    for each in answer["results"]:
        if not each["accepted"]:
            continue
        accepted += 1
        for lease in finals.get(each["id"], each["leases"]):
            unit = atoms[each["id"]][lease["atom"]]["b"]
            share = max(amount / capacity[kind] for kind, amount in unit.items()) * lease["n"]
            work += share * (lease["to"] - lease["from"])
            changes[lease["from"]] = changes.get(lease["from"], 0) + share
            changes[lease["to"]] = changes.get(lease["to"], 0) - share
    return {"accepted": accepted, "work_s": round(work, 1), "change": round(sum(map(abs, changes.values())), 3)}


def _atoms(rdl: dict[str, Any], path: str) -> Any:
    if rdl["op"] == "window":
        yield from _atoms(rdl["of"], path)
    elif rdl["op"] == "atom":
        yield path or "0", rdl
    else:
        for i, each in enumerate(rdl["of"]):
            yield from _atoms(each, f"{path}.{i}" if path else str(i))


def summed(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Over all mixes: each planner's sums as ratios of the solver's, and the median time to an answer."""
    proven = [row for row in rows if row["milp"]["proven"]]
    told: dict[str, Any] = {"mixes": len(rows), "solved to the gap": len(proven)}
    for agent in ("gree", "gree-l", "default", "milp"):
        told[agent] = {
            key: round(sum(row[agent][key] for row in proven) / max(1e-9, sum(row["milp"][key] for row in proven)), 3)
            for key in ("accepted", "work_s", "change")
        } | {"cpu_ms_p50": median([row[agent]["cpu_ms"] for row in proven] or [0])}
    return told


def main() -> int:
    """Runs one part and prints its rows."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reservations", description=__doc__)
    parser.add_argument("part", choices=("mixed", "planners"))
    parser.add_argument("source", help="the trace, or the folder with plan_mixes.py")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--mixes", type=int, default=200)
    parser.add_argument("--requests", type=int, default=8)
    parser.add_argument("--minutes", type=int, default=60, help="horizon of a mix")
    parser.add_argument("--limit", type=int, default=20, help="seconds that the solver may take for one mix")
    asked = parser.parse_args()
    if asked.part == "mixed":
        print(json.dumps(run_mixed(asked.source, list(range(1, asked.seeds + 1))), indent=1))
    else:
        rows = run_planners(asked.source, asked.mixes, asked.requests, asked.minutes, asked.limit)
        print(json.dumps(summed(rows), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
