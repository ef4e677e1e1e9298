"""Tasks of a gang on two nodes of an embedded cell find each other, and talk."""

import json

import pytest

from tests.live.up_process import up
from tests.unit.cli_process import ROOT

EXAMPLE = ROOT / "examples" / "two-nodes.yaml"


@pytest.fixture
def cell(tmp_path):
    cluster = tmp_path / "cluster.json"
    cluster.write_text(json.dumps({"nodes": [{"name": "n", "count": 2, "capacity": {"cpu": "2", "memory": "1Gi"}}]}))
    with up(tmp_path / "data", "--cluster", cluster) as found:
        yield found


def test_the_example_sends_numbers_round_a_ring(cell):
    assert cell.ask("submit", EXAMPLE).code == 0
    ended = cell.until("two-nodes", lambda job: job["ended_ms"])
    printed = sorted(cell.ask("logs", f"two-nodes/ring/{rank}").out.strip() for rank in range(2))

    assert ended["state"] == "succeeded", json.dumps(ended["failures"])
    assert sorted(line.partition(" on ")[0] for line in printed) == ["rank 0 of 2", "rank 1 of 2"]
    assert {line.partition(" on ")[2] for line in printed} == {"n-0: the sum is 11", "n-1: the sum is 11"}


def test_the_gang_with_gpus_runs_on_the_cell_of_a_laptop(tmp_path):
    with up(tmp_path / "data", "--cluster", ROOT / "examples" / "clusters" / "laptop.yaml") as laptop:
        assert laptop.ask("submit", ROOT / "examples" / "gpu-gang.yaml").code == 0
        ended = laptop.until("gpu-gang", lambda job: job["ended_ms"])
        assert ended["state"] == "succeeded", json.dumps(ended["failures"])
        assert laptop.ask("results", "gpu-gang/workers/0", tmp_path / "out").code == 0

    lines = (tmp_path / "out" / "workers" / "0" / "met.txt").read_text().splitlines()
    assert [line.partition(" on ")[0] for line in lines] == [f"rank {rank} of 4" for rank in range(4)]
    assert sorted(line.partition(" on ")[2] for line in lines) == [
        f"gpu-{n}, GPU {at}" for n in (0, 1) for at in (0, 1)
    ]


GREEDY = """
import os, socket, sys
rank, attempt = int(os.environ["LARGESSE_TASK_INDEX"]), os.environ["LARGESSE_ATTEMPT"]
port = int(os.environ["LARGESSE_PEERS"].split(",")[rank].rsplit(":", 1)[1])
open(f"{os.environ['PORTS']}/{os.environ['LARGESSE_JOB']}-{rank}-{attempt}", "w").write(str(port))
socket.create_server(("", port))
if rank == 0 and attempt == "1":
    sys.exit(3)
import time
time.sleep(0.5)
"""


def test_gangs_side_by_side_and_attempts_one_after_another_meet_no_port_that_is_in_use(cell, tmp_path):
    (tmp_path / "ports").mkdir()
    stage = {"stage": "s", "tasks": 3, "gang": True, "retries": 1, "demand": {"cpu": "100m"}}
    stage |= {"command": ["python3", "-c", GREEDY], "env": {"PORTS": str(tmp_path / "ports")}}
    jobs = [f"j{number}" for number in range(4)]
    for name in jobs:
        assert cell.ask("submit", "-", stdin=json.dumps({"job": name, "stages": [stage]})).code == 0
    for name in jobs:
        ended = cell.until(name, lambda job: job["ended_ms"])
        assert ended["state"] == "succeeded", json.dumps(ended["failures"])

    said = {path.name for path in (tmp_path / "ports").iterdir()}
    assert {name for name in said if name.endswith("-2")} == {f"{name}-{rank}-2" for name in jobs for rank in range(3)}
