"""Runs with reservations are the same under any hash seed, and the judge of schedules has nothing against them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.runs import cluster, job, stage

ROOT = Path(__file__).parents[2]
QUEUES = {"name": "root", "children": [{"name": "a"}, {"name": "b"}]}


def lines():
    """Three requests with their jobs among other work that fills the cell."""
    found = []
    for i in range(3):
        atom = f"atom(b='1 cpu, 1Gi', g={1 + i}, h=6, l=10s, w={6 * (i + 1)}0s)"
        request = {
            "reservation": f"r{i}",
            "user": "ann",
            "queue": "a",
            "rdl": f"window({60 + 20 * i}s, {140 + 20 * i}s, {atom})",
        }
        found.append({"submit_ms": 1_000 * i, "request": request})
        tasks = stage(tasks=6 * (i + 1), duration_ms=10_000, demand={"cpu": "1", "memory": "1Gi"})
        found.append(job(f"of-r{i}", tasks, submit_ms=30_000 + i, queue="a", user="ann", reservation=f"r{i}"))
    for i in range(40):
        work = stage(tasks=1 + i % 4, duration_ms=5_000 + 7_000 * (i % 6), demand={"cpu": "1", "memory": "1Gi"})
        found.append(job(f"j{i}", work, submit_ms=3_000 * i, queue="ab"[i % 2], revocable="always"))
    return found


def run_apart(folder, preset, hash_seed):
    """The result of `largesse simulate` in a process of its own."""
    files = folder / "workload.jsonl", folder / "cluster.json", folder / f"schedule-{hash_seed}.jsonl"
    files[0].write_text("".join(json.dumps(line) + "\n" for line in lines()))
    files[1].write_text(json.dumps(cluster(6, 2, queues=QUEUES)))
    command = [sys.executable, "-m", "services.cli.main", "simulate", "--workload", files[0], "--cluster", files[1]]
    command += ["--preset", preset, "--set", "reservation_step_ms=10000", "--set", "revoke_grace_ms=2000"]
    env = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [*map(str, command), "--schedule", str(files[2]), "--json"],
        cwd=ROOT, env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), files


@pytest.mark.parametrize("preset", ["hdrf", "largesse"])
def test_a_run_with_reservations_is_the_same_under_any_hash_seed(tmp_path, preset):
    one, _ = run_apart(tmp_path, preset, "1")
    other, _ = run_apart(tmp_path, preset, "2")

    assert one["digest"] == other["digest"]
    assert all(each["accepted"] and each["met"] for each in one["reservations"])


def test_the_judge_of_schedules_finds_no_fault(tmp_path, shared):
    folder = str(shared / "checks")
    if folder not in sys.path:
        sys.path.append(folder)
    judge = pytest.importorskip("schedule_check", reason=f"no schedule_check.py in {folder}")
    result, files = run_apart(tmp_path, "hdrf", "1")
    schedule = [json.loads(line) for line in files[2].read_text().splitlines()]

    assert [line for line in schedule if line.get("why") == "reserved"]
    assert [line for line in schedule if line.get("outcome") == "revoked"]
    assert [line for line in schedule if "held" in line and line["why"] == "promise"]
    jobs = [line for line in lines() if "job" in line]  # The judge reads nothing else.
    files[0].write_text("".join(json.dumps(line) + "\n" for line in jobs))
    assert judge.check(*map(str, files), result, conserving=True).lines() == []
