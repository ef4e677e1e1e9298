"""Computations of Dask run on workers of a cell, which come, go and come back."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.live.up_process import GUARD_S, up
from tests.unit.cli_process import ROOT

PYTHON = os.environ.get("LARGESSE_TEST_DASK", "")
HERE = Path(__file__).parents[1]

PROGRAM = """
import json, os, sys, time

import dask, dask.bag
from distributed import Client, wait
from largesse.client import Client as Cell, JobSpec
from dask_largesse import LargesseCluster, bytes_of


def inc(x):
    return x + 1


def add(x, y):
    return x + y


def jobs(cell, prefix):
    return {each["job"]: each["state"] for each in cell.jobs(q=prefix)}


def until(holds):
    end = time.monotonic() + 150
    while not holds():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.2)


def dies(path):
    if not os.path.exists(path):
        open(path, "w").close()
        os._exit(9)
    return "survived"


def main(folder):
    said = {"bytes": [bytes_of("1Gi"), bytes_of("1.5G"), bytes_of(None)]}
    demand = {"cpu": "100m", "memory": "256Mi"}
    made = LargesseCluster(2, demand=demand, job=JobSpec(priority=3))
    with Cell() as cell, made as cluster, Client(cluster) as client:
        client.wait_for_workers(2, timeout=150)
        said["begun"] = jobs(cell, cluster.prefix)
        said["limits"] = sorted(each["memory_limit"] for each in client.scheduler_info()["workers"].values())
        # The workflow of the tutorial of Dask: functions that depend on each other.
        x, y = dask.delayed(inc)(1), dask.delayed(inc)(2)
        said["delayed"] = dask.delayed(add)(x, y).compute()
        said["map"] = sum(client.gather(client.map(inc, range(50))))
        said["bag"] = dask.bag.from_sequence(range(20), npartitions=4).map(inc).filter(lambda x: x % 2).sum().compute()
        said["dies"] = client.submit(dies, os.path.join(folder, "died")).result(150)
        cluster.scale(1)
        until(lambda: sorted(jobs(cell, cluster.prefix).values()) == ["cancelled", "running"])
    said["ended"] = sorted(jobs(Cell(), cluster.prefix).values())
    print(json.dumps(said))


if __name__ == "__main__":
    main(sys.argv[1])
"""


@pytest.mark.slow
def test_workers_come_compute_come_back_and_go(tmp_path):
    if not PYTHON:
        pytest.skip("LARGESSE_TEST_DASK names no Python that has distributed")
    (tmp_path / "program.py").write_text(PROGRAM)
    with up(tmp_path / "cell", "--nodes", 2) as cell:
        env = os.environ | {"PYTHONPATH": f"{ROOT}:{HERE}", "LARGESSE_URL": cell.url, "LARGESSE_USER": "ann"}
        done = subprocess.run(
            [PYTHON, str(tmp_path / "program.py"), str(tmp_path)],
            env=env,
            capture_output=True,
            text=True,
            timeout=GUARD_S,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])

    assert said["bytes"] == [1 << 30, 1_500_000_000, 0]
    assert list(said["begun"].values()) == ["running", "running"]
    assert said["limits"] == [256 << 20] * 2
    assert (said["delayed"], said["map"], said["bag"], said["dies"]) == (5, 1_275, 100, "survived")
    assert said["ended"] == ["cancelled", "cancelled"]
