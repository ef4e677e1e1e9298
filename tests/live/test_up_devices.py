"""What tasks of an embedded cell see of its declared devices, and what becomes of them as devices go out."""

import json

import pytest

from tests.live.up_process import up

GPUS = [
    {"index": 0, "model": "V100", "memory_mib": 32_768, "numa": 0, "link": "a", "uuid": "GPU-a0"},
    {"index": 1, "model": "V100", "memory_mib": 32_768, "numa": 1, "link": "b", "uuid": "GPU-b0"},
    {"index": 2, "model": "V100", "memory_mib": 32_768, "numa": 0, "link": "a", "uuid": "GPU-a1"},
    {"index": 3, "model": "V100", "memory_mib": 32_768, "numa": 1, "link": "b", "uuid": "GPU-b1"},
]
SAYS = 'echo "$CUDA_VISIBLE_DEVICES $NVIDIA_VISIBLE_DEVICES"'
SLEEPS = f'{SAYS}; test "$LARGESSE_ATTEMPT" -gt 1 || sleep 600'


@pytest.fixture
def cluster(tmp_path):
    nodes = [{"name": "n", "capacity": {"cpu": "4", "memory": "1Gi"}, "devices": {"gpu": GPUS}}]
    (tmp_path / "cluster.json").write_text(json.dumps({"nodes": nodes}))
    return tmp_path / "cluster.json"


def job(name, tasks, demand, command=SAYS, **more):
    stage = {"stage": "s", "tasks": tasks, "demand": {"cpu": "100m", **demand}, "command": ["sh", "-c", command]}
    return json.dumps({"job": name, "stages": [{**stage, **more}]})


def printed(cell, name, tasks):
    return [cell.ask("logs", f"{name}/s/{task}").out.strip() for task in range(tasks)]


def run(cell, name, tasks, demand, **more):
    assert cell.ask("submit", "-", stdin=job(name, tasks, demand, **more)).code == 0
    ended = cell.until(name, lambda told: told["ended_ms"])
    assert ended["state"] == "succeeded", json.dumps(ended["failures"])
    return printed(cell, name, tasks)


def test_each_task_sees_its_own_devices_and_no_other(cluster, tmp_path):
    with up(tmp_path / "data", "--cluster", cluster) as cell:
        pairs = run(cell, "pairs", 2, {"gpu": 2}, gang=True)
        halves = run(cell, "halves", 1, {"gpu": "500m"})
        without = run(cell, "without", 1, {})

    assert sorted(pairs) == ["GPU-a0,GPU-a1 GPU-a0,GPU-a1", "GPU-b0,GPU-b1 GPU-b0,GPU-b1"]
    assert halves == ["GPU-a0 GPU-a0"]
    assert without == ["-1 void"]
