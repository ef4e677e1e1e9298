"""Simulated runs in this process, as `largesse simulate` makes them, and what an independent judge says of them."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from schemas.edge.read import read_cluster, read_workload_line
from services.simulator.run import Options, simulate
from services.simulator.schedule import ScheduleWriter

ROOT = Path(__file__).parents[2]

CONSERVING = ("sjf", "srtf", "tetris", "drf", "hdrf", "carbyne", "carbyne-dag", "largesse")
"""Not `fifo`, which idles behind its head by design, nor `tetris-fair`, where most jobs may not pack."""

GUARANTEEING = ("hdrf", "largesse")
"""Presets under which queues of a tree have what they are guaranteed. `drf` knows no groups; the others serve all jobs
as one list."""


@dataclass
class Run:
    """One run: what `--json` says, its schedule's lines, and the files that a judge reads."""

    result: dict[str, Any]
    lines: list[dict[str, Any]]
    files: tuple[Path, Path, Path]

    def of(self, job, stage=None):
        """The attempts of a job, in order of their end."""
        return [line for line in self.lines if line.get("job") == job and stage in (None, line["stage"])]

    def row(self, job):
        return next(row for row in self.result["per_job"] if row["job"] == job)


def simulated(folder, workload, cluster, outages=(), **knobs):
    """A workload's lines on a cluster file's document."""
    workload = list(workload)
    files = folder / "workload.jsonl", folder / "cluster.json", folder / "schedule.jsonl"
    files[0].write_text("".join(json.dumps(line) + "\n" for line in workload))
    files[1].write_text(json.dumps(cluster))
    with ScheduleWriter(str(files[2])) as schedule:
        jobs = [read_workload_line(line) for line in workload]
        result = simulate(jobs, read_cluster(cluster), Options(knobs, schedule, outages=list(outages)))
    lines = [json.loads(line) for line in files[2].read_text().splitlines()]
    return Run(json.loads(json.dumps(result)), lines, files)


def faults(shared, run, **flags):
    """What the judge has against a run: a line a kind of fault."""
    folder = str(shared / "checks")
    if folder not in sys.path:
        sys.path.append(folder)
    judge = pytest.importorskip("schedule_check", reason=f"no schedule_check.py in {folder}")
    return judge.check(*map(str, run.files), run.result, **flags).lines()


def job(name, *stages, submit_ms=0, **given):
    """A workload line."""
    return {"job": name, "submit_ms": submit_ms, "stages": list(stages), **given}


def stage(name="s", tasks=1, duration_ms=1_000, **given):
    """A stage of a workload line: one core a task where nothing is said."""
    lasts = {} if "durations_ms" in given else {"tasks": tasks, "duration_ms": duration_ms}
    return {"stage": name, "demand": {"cpu": "1"}, **lasts, **given}


def cluster(cores=4, count=None, **given):
    """A cluster file of like nodes."""
    counted = {"count": count} if count else {}
    return {"nodes": [{"name": "n", "capacity": {"cpu": str(cores), "memory": "64Gi"}, **counted}], **given}


def drawn_stages(dice, stages_max, tasks_max, cpus):
    """Stages of a workload line one by one, some of them after others, whose tasks last for half a second to two."""
    for at in range(dice.randint(1, stages_max)):
        tasks = dice.randint(1, tasks_max)
        yield {
            "stage": f"s{at}",
            "after": [f"s{before}" for before in range(at) if dice.random() < 0.4],
            "demand": {"cpu": dice.choice(cpus)},
            "durations_ms": [dice.choice([500, 900, 1_300, 1_700]) for _ in range(tasks)],
        }


def digests_elsewhere(module):
    """What a test module's `digests()` returns in a process with another hash seed."""
    program = f"import json; from {module} import digests; print(json.dumps(digests()))"
    env = {**os.environ, "PYTHONHASHSEED": "77", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
