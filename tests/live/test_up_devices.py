"""What tasks of an embedded cell see of its declared devices, and what becomes of them as devices go out."""

import json

import pytest

from tests.live.up_process import eventually, up

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


def test_a_broken_device_ends_what_runs_there_and_one_that_drains_does_not(cluster, tmp_path, monkeypatch):
    health = tmp_path / "health"
    monkeypatch.setenv("LARGESSE_NODE_DEVICE_HEALTH", str(health))
    with up(tmp_path / "data", "--cluster", cluster) as cell:
        assert cell.ask("submit", "-", stdin=job("long", 2, {"gpu": 1}, SLEEPS)).code == 0
        cell.until("long", lambda told: told["stages"][0]["tasks"]["running"] == 2)
        seen = eventually(lambda: all(printed(cell, "long", 2)) and printed(cell, "long", 2))
        assert [line.split()[0] for line in seen] == ["GPU-a0", "GPU-a1"]

        write(health, "GPU-a0 broken Xid 79: fallen off the bus\n2 drain a row is to be remapped\n")
        again = cell.until("long", lambda told: told["stages"][0]["tasks"]["succeeded"] == 1)
        node = node_of(cell)
        why = cell.ask("why", "n").out
        rows = cell.ask("get", "nodes").out
        other = run(cell, "other", 1, {"gpu": 1})

        write(health, "0 ok\n")
        well = eventually(lambda: (found := node_of(cell))["capacity"]["gpu"] == "4" and found)
        still = cell.until("long", lambda told: True)["stages"][0]["tasks"]["running"]

    assert again["failures"][0]["reason"] == "lost"
    assert again["failures"][0]["detail"] == "its device 0 is broken: Xid 79: fallen off the bus"
    assert node["capacity"]["gpu"] == "2"
    assert [device["out"] for device in node["devices"]["gpu"]] == [
        "Xid 79: fallen off the bus", "", "a row is to be remapped", ""
    ]  # fmt: skip
    assert "2 of 4 devices of n are out (0: Xid 79: fallen off the bus; 2: a row is to be remapped)" in flat(why)
    assert "GPU 0 is out: Xid 79" in flat(rows)
    assert other[0].split()[0] in ("GPU-b0", "GPU-b1")
    assert not any(device["out"] for device in well["devices"]["gpu"])
    assert still == 1, "it ran on where its device drained"


def write(path, text):
    """Whole or not at all, as a script should."""
    beside = path.with_suffix(".new")
    beside.write_text(text)
    beside.replace(path)


def node_of(cell):
    return cell.ask("get", "nodes", "--json").json[0]


def flat(text):
    return " ".join(text.split())
