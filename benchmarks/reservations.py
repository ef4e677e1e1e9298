"""Reservations: a mixed workload with and without them, also where nodes fail.

`python -m benchmarks.reservations mixed FB-2009.tsv.gz` simulates production jobs with deadlines beside small jobs of
Facebook sizes. Times are CPU time. The planners against the optimum: benchmarks/optimum.py.
"""

import argparse
import json
import sys
import time
from typing import Any

from schemas.edge.read import read_cluster, read_workload_line
from services.simulator.outages import Outage
from services.simulator.report.table import took_ms
from services.simulator.result import SimulationResult
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


def _measured(result: SimulationResult, deadlines: dict[str, int]) -> dict[str, Any]:
    ends = {row["job"]: row["submit_ms"] + took_ms(row) for row in result["per_job"]}
    answers = {f"prod-{each['reservation'][1:]}": each for each in result["reservations"]}
    accepted = [job for job in deadlines if answers[job]["accepted"]]
    small = sorted(took_ms(row) for row in result["per_job"] if row["queue"] == "batch")
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


def main() -> int:
    """Runs it and prints its rows."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reservations", description=__doc__)
    parser.add_argument("part", choices=("mixed",))
    parser.add_argument("source", help="the trace")
    parser.add_argument("--seeds", type=int, default=1)
    asked = parser.parse_args()
    print(json.dumps(run_mixed(asked.source, list(range(1, asked.seeds + 1))), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
