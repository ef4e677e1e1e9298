"""Whole public traces, simulated and judged: `python -m tests.simulation.full_traces [--only NAME] [--presets a,b]`.

The suite runs parts of the same traces. Here every job of a trace goes from the importer through `largesse simulate`,
as a user would do it, and an independent judge reads what came out. Exit code 1 if it finds anything. Takes an hour.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, NamedTuple

import typer

from tests.simulation.runs import CONSERVING

ROOT = Path(__file__).parents[2]
SHARED = Path(os.environ.get("LARGESSE_SHARED", ROOT.parent / "shared"))


class Trace(NamedTuple):
    """`take`: what `largesse import` is given; a path is within the folder of traces. `nodes`: of the cluster file."""

    take: str
    nodes: dict[str, Any]


def _nodes(count: int, **capacity: str | int) -> dict[str, Any]:
    return {"name": "n", "count": count, "capacity": capacity}


FACEBOOK = "facebook/FB-2010_samples_24_times_1hr_0.tsv.gz"
ALIBABA = "alibaba-dag-2018/alibaba2018_{}_a.jsonl.gz"
TRACES = {  # Loads of about 80 %, after the traces' own tables.
    "tpch": Trace(
        "tpch tpch/tpch_10g.jsonl.gz --demands tpch/demands/tpch.demands.jsonl.gz --stretch 10 --jobs 250 "
        "--mean-gap-ms 20000",
        _nodes(8, cpu="20", memory="128Gi", disk_io=8_000, network=10_000),
    ),
    "facebook-10": Trace(f"facebook {FACEBOOK} --divide 10 --to-hour 6", _nodes(32, cpu="16", memory="32Gi")),
    "facebook": Trace(f"facebook {FACEBOOK} --to-hour 6", _nodes(300, cpu="16", memory="32Gi")),
    "alibaba-medium": Trace(
        f"alibaba-dag {ALIBABA.format('medium')} --compress 100", _nodes(40, cpu="96", memory="100Gi")
    ),
    "alibaba-random": Trace(
        f"alibaba-dag {ALIBABA.format('random')} --compress 100",
        _nodes(150, cpu="96", memory="100Gi"),
    ),
}


def main(
    only: Annotated[list[str] | None, typer.Option(help="names of traces; all without it")] = None,
    presets: Annotated[str, typer.Option(help="presets, separated by commas")] = "fifo,drf,hdrf,largesse",
    shared: Annotated[Path, typer.Option(help="the folder with traces/ and checks/")] = SHARED,
) -> None:
    """Prints a line for each run, and below it what the judge has against it."""
    wrong = False
    for name in only or TRACES:
        with TemporaryDirectory() as folder:
            workload, cluster = Path(folder, "workload.jsonl"), Path(folder, "cluster.json")
            cluster.write_text(json.dumps({"nodes": [TRACES[name].nodes]}))
            with workload.open("wb") as out:
                _largesse("import", *[_found(shared, word) for word in TRACES[name].take.split()], out=out)
            for preset in presets.split(","):
                found = _judged(shared, preset, workload, cluster, Path(folder))
                print(f"{name:15} {preset:10} {found[0]}", *found[1:], sep="\n    ", flush=True)
                wrong |= len(found) > 1
    raise SystemExit(wrong)


def _found(shared: Path, word: str) -> str:
    return str(shared / "traces" / word) if "/" in word else word


def _largesse(*words: str, out: Any = None) -> None:
    subprocess.run([sys.executable, "-m", "services.cli.main", *words], check=True, stdout=out, cwd=ROOT)


def _judged(shared: Path, preset: str, workload: Path, cluster: Path, folder: Path) -> list[str]:
    """What came out in a line, and a line for each kind of fault."""
    schedule, result = folder / "schedule.jsonl", folder / "result.json"
    with result.open("wb") as out:
        words = ("--workload", str(workload), "--cluster", str(cluster), "--preset", preset)
        _largesse("simulate", *words, "--schedule", str(schedule), "--json", out=out)
    said = json.loads(result.read_text())
    begun = time.monotonic()
    flags = ["--jain", *(["--conserving"] if preset in CONSERVING else [])]
    files = [str(file) for file in (workload, cluster, schedule, result)]
    judge = [sys.executable, str(shared / "checks" / "schedule_check.py"), *files, *flags]
    verdict = subprocess.run(judge, capture_output=True, text=True, check=False)
    verdict_s = time.monotonic() - begun
    line = (
        f"{said['tasks']:,} tasks, {said['rounds']:,} rounds, {said['wall_s']:.0f} s "
        f"({said['placements_per_s']:,.0f} placements/s), mean completion {said['jct_ms']['mean'] / 1000:,.1f} s, "
        f"Jain {said['jain']['mean']:.3f}, rejected {len(said['rejected'])}; judged in {verdict_s:.0f} s: "
        f"{'nothing found' if verdict.returncode == 0 else 'FAULTS'}"
    )
    return [line] if verdict.returncode == 0 else [line, *verdict.stdout.splitlines(), *verdict.stderr.splitlines()]


if __name__ == "__main__":
    typer.run(main)
