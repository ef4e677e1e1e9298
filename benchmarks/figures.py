"""`make figures TRACES=folder`: what presets give, as factors over `drf` on the workloads of CARBYNE's claims.

The folder holds workloads (`A-4.jsonl.gz` and so on) and cluster files (`A.pool.json` and so on). A factor is `drf`'s
figure divided by the preset's, so above 1 is better; where estimates are wrong, they are so under both. On the first
draw of A, and of B on half of its cluster, there are also the other rivals, parts of the plans in which jobs give away
what they do not need (`altruism_permille`), and wrong demands and durations.

Every run is a process of its own and counted in CPU seconds; once those of a budget are used up no other run is begun,
and the tables say which are missing. What has been run is kept and not run again.
"""

import argparse
import gzip
import hashlib
import json
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.rivals import misled
from schemas import RoundOpened
from schemas.edge.read import read_cluster, read_workload_line
from schemas.policy import KnobValue
from services.leftover.core.fold import FOLDS
from services.simulator.run import Options, simulate

GAP_MS = 100
BEHIND = 0.8  # Jobs with a factor below this are counted.
LOSERS = 3
RIVALS = ("sjf", "tetris", "tetris-fair", "carbyne-dag")
PERMILLES = (0, 500)
ERRORS: dict[str, int | None] = {"all -50 %": 500, "all +50 %": 1_500, "by stage": None}
"""Of demands and durations: what all estimates are of the truth, in permille, or an error of its own for each stage."""


@dataclass(frozen=True, slots=True)
class Run:
    """One workload on one cluster under one preset, with other knobs and errors of estimates (of ERRORS; "": none)."""

    workload: str
    cluster: str
    preset: str
    knobs: tuple[tuple[str, int | str], ...] = ()
    gap_ms: int = GAP_MS
    errors: str = ""

    @property
    def name(self) -> str:
        knobs = "".join(f",{name}={value}" for name, value in self.knobs)
        errors = self.errors and f",errors {self.errors}"
        return f"{self.workload}.{self.cluster}.{self.preset}{knobs}.gap{self.gap_ms}{errors}"

    @property
    def base(self) -> "Run":
        """The run that it is compared with."""
        return Run(self.workload, self.cluster, "drf", gap_ms=self.gap_ms, errors=self.errors)


def _runs(draws: list[int]) -> list[Run]:
    """In the order in which they are made: the first draw of everything first."""
    found = []
    for draw in draws:
        pools = [(f"A-{draw}", "A"), (f"B-{draw}", "B"), (f"B-{draw}", "B2"), (f"C-{draw}", f"C-{draw}")]
        for workload, cluster in pools:
            found += [Run(workload, f"{cluster}.pool", preset) for preset in ("drf", "largesse", "carbyne", "srtf")]
        for workload, cluster in pools[:3]:
            found += [Run(workload, f"{cluster}.nodes", preset) for preset in ("drf", "largesse", "carbyne")]
    for workload, cluster in ((f"A-{draws[0]}", "A.pool"), (f"B-{draws[0]}", "B2.pool")):
        found += [Run(workload, cluster, "largesse", (("isolation_permille", part),)) for part in (250, 500)]
        found += [Run(workload, cluster, preset) for preset in RIVALS]
        found += [Run(workload, cluster, "carbyne", (("altruism_permille", part),)) for part in PERMILLES]
        for errors in ERRORS:
            found += [Run(workload, cluster, preset, errors=errors) for preset in ("drf", "carbyne", "largesse")]
    found += [Run(f"A-{draws[0]}", "A.pool", preset, gap_ms=0) for preset in ("drf", "largesse", "carbyne")]
    return found


# ---------------------------------------------------------------- one run
def measure(folder: str, run: Run) -> dict[str, Any]:
    """simulate's result, with CPU seconds, and what the shadow took of them by round."""
    with gzip.open(Path(folder, f"{run.workload}.jsonl.gz"), "rt") as lines:
        jobs = [read_workload_line(json.loads(line)) for line in lines]
    if run.errors:
        jobs = misled(jobs, 1, ERRORS[run.errors])
    cluster = read_cluster(json.loads(Path(folder, f"{run.cluster}.json").read_text()))
    moves, fold = [], FOLDS[RoundOpened]

    def timed(state: Any, record: Any) -> None:
        began = time.process_time_ns()
        fold(state, record)
        moves.append(time.process_time_ns() - began)

    FOLDS[RoundOpened] = timed
    began_s = time.process_time()
    knobs: dict[str, KnobValue] = {"preset": run.preset, "round_gap_ms": run.gap_ms, **dict(run.knobs)}
    result: dict[str, Any] = {**simulate(jobs, cluster, Options(knobs))}
    result["cpu_s"] = time.process_time() - began_s
    moves.sort()
    result["opening_ms"] = {
        "p50": moves[len(moves) // 2] / 1e6,
        "p99": moves[len(moves) * 99 // 100] / 1e6,
        "sum": sum(moves) / 1e6,
    }
    return result


@dataclass(slots=True)
class Results:
    """Results by name, each in a file of its own below a folder named by the sources that made it."""

    traces: str
    folder: Path
    budget_s: float
    used_s: float = 0.0
    known: dict[str, dict[str, Any]] = field(default_factory=dict)

    def make(self, run: Run) -> None:
        """Takes a result from its file, or makes the run if there is time for it."""
        path = self.folder / f"{run.name}.json"
        if path.is_file():
            self.known[run.name] = json.loads(path.read_text())
        elif self.used_s < self.budget_s:
            with ProcessPoolExecutor(1, get_context("spawn")) as process:
                self.known[run.name] = process.submit(measure, self.traces, run).result()
            path.write_text(json.dumps(self.known[run.name]))
        else:
            return
        self.used_s += self.known[run.name]["cpu_s"]
        print(f"{run.name}: {self.known[run.name]['cpu_s']:.0f} CPU seconds, {self.used_s:.0f} in all", flush=True)


def _sources() -> str:
    """Names the cores that decide."""
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for folder in ("schemas", "largesse", "services"):
        for path in sorted((root / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


# ---------------------------------------------------------------- tables
def factors(ours: dict[str, Any], drf: dict[str, Any]) -> dict[str, Any]:
    """What a run's figures are as factors, and the jobs that lost most."""
    before = {job["job"]: job["end_ms"] - job["submit_ms"] for job in drf["per_job"]}
    after = {job["job"]: job["end_ms"] - job["submit_ms"] for job in ours["per_job"]}
    jobs = sorted((before[name] / max(1, after[name]), name) for name in before)
    return {
        "mean": drf["jct_ms"]["mean"] / ours["jct_ms"]["mean"],
        "p95": drf["jct_ms"]["p95"] / ours["jct_ms"]["p95"],
        "worst": jobs[0][0],
        "behind": sum(factor < BEHIND for factor, _ in jobs),
        "makespan": drf["makespan_ms"] / ours["makespan_ms"],
        "jain": ours["jain"]["mean"],
        "losers": [f"{name} {factor:.2f}" for factor, name in jobs[:LOSERS] if factor < 1],
    }


def table(results: Results, runs: list[Run]) -> list[str]:
    """Every run against `drf` on the same workload and cluster, in Markdown."""
    head = "| workload | cluster | preset | mean | p95 | worst | jobs below 0.8 | makespan | Jain "
    head += "| placements a CPU second | opening p50, p99 (ms), part | losers |"
    lines = [head, "|---" * 12 + "|"]
    for run in runs:
        ours = results.known.get(run.name)
        drf = results.known.get(run.base.name)
        knobs = "".join(f" {name}={value}" for name, value in run.knobs)
        knobs += (f" gap {run.gap_ms}" if not run.gap_ms else "") + (run.errors and f" errors {run.errors}")
        row = f"| {run.workload} | {run.cluster} | `{run.preset}`{knobs} "
        if ours is None or drf is None:
            lines.append(row + "| not run " + "| " * 8 + "|")
            continue
        f, opening = factors(ours, drf), ours["opening_ms"]
        row += f"| {f['mean']:.3f} | {f['p95']:.2f} | {f['worst']:.2f} | {f['behind']} "
        row += f"| {f['makespan']:.3f} | {f['jain']:.3f} "
        row += f"| {ours['placements'] / ours['cpu_s']:,.0f} | {opening['p50']:.2f}, {opening['p99']:.1f}, "
        lines.append(row + f"{opening['sum'] / 10 / ours['cpu_s']:.0f} % | {', '.join(f['losers'])} |")
    return lines


def medians(results: Results, runs: list[Run]) -> list[str]:
    """The same as medians over the draws that were run."""
    groups: dict[tuple[str, str, str, str], list[dict[str, Any]]] = {}
    for run in runs:
        drf = results.known.get(run.base.name)
        if run.gap_ms and run.name in results.known and drf is not None:
            setting = run.cluster.split(".")
            knobs = str(dict(run.knobs) or "") + (run.errors and f"errors {run.errors}")
            kind = (setting[0].split("-")[0], setting[1], run.preset, knobs)
            groups.setdefault(kind, []).append(factors(results.known[run.name], drf))
    lines = ["| workload | cluster | preset | draws | mean | p95 | worst | makespan | Jain |", "|---" * 9 + "|"]
    for (workload, cluster, preset, knobs), found in groups.items():
        mid = {key: median([each[key] for each in found]) for key in ("mean", "p95", "worst", "makespan", "jain")}
        shown = f"{mid['mean']:.2f} | {mid['p95']:.2f} | {mid['worst']:.2f} | {mid['makespan']:.3f} | {mid['jain']:.2f}"
        lines.append(f"| {workload} | {cluster} | `{preset}` {knobs} | {len(found)} | {shown} |")
    return lines


def main() -> None:
    """Makes the runs and prints the tables."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("traces", help="folder of workloads and cluster files")
    asked.add_argument("--minutes", type=float, default=90.0, help="CPU minutes after which no run is begun")
    asked.add_argument("--draws", default="4,5,6", help="draws of the workloads, separated by commas")
    asked.add_argument("--only", default="", help="only runs whose name begins like one of these, separated by commas")
    asked.add_argument("--keep", default="figures", help="folder for results, one a run")
    given = asked.parse_args()
    folder = Path(given.keep, _sources())
    folder.mkdir(parents=True, exist_ok=True)
    results = Results(given.traces, folder, given.minutes * 60)
    runs = [
        run
        for run in _runs([int(draw) for draw in given.draws.split(",")])
        if not given.only or run.name.startswith(tuple(given.only.split(",")))
    ]
    for run in runs:
        results.make(run)
    print("\n".join(["", *table(results, runs), "", *medians(results, runs)]))


if __name__ == "__main__":
    main()
