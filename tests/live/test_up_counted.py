"""A recurring job in a running cell that asks for four cores a task and uses less than one: its fourth run has twice as
many tasks at a time, and `get job` says why.
"""

import json
import sys

import pytest

from services.replay.source import open_source
from services.replay.verify import verify
from tests.live.campaign_checks import read
from tests.live.up_process import up

# A node has what the file says, whatever the machine has: shares are numbers.
CELL = {
    "nodes": [{"name": "n", "capacity": {"cpu": "16", "memory": "2Gi"}}],
    "queues": {"name": "root", "children": [{"name": "default"}]},
    "policy": {"demands": "history", "node_lease_ms": 600_000},
}
WAITS = """
import os, sys, time
room, at_once = sys.argv[1], int(sys.argv[2])
open(os.path.join(room, os.environ["LARGESSE_TASK_INDEX"]), "x").close()
while len(os.listdir(room)) < at_once:
    time.sleep(0.05)
"""
"""Each task ends once so many of its job have begun: it needs next to no CPU, and as many have to run at a time."""


def nightly(number, room, at_once):
    command = [sys.executable, "-S", "-c", WAITS, str(room), str(at_once)]
    stage = {"stage": "s", "tasks": 8, "demand": {"cpu": "4", "memory": "64Mi"}, "command": command}
    return json.dumps({"job": f"nightly-{number}", "user": "ann", "stages": [stage]})


@pytest.mark.parametrize("preset", ["largesse", "carbyne"])
def test_the_fourth_run_of_a_job_that_uses_less_than_it_asks_for_has_twice_as_many_tasks_at_a_time(tmp_path, preset):
    (tmp_path / "cluster.json").write_text(json.dumps(CELL | {"policy": CELL["policy"] | {"preset": preset}}))

    with up(tmp_path / "data", "--cluster", tmp_path / "cluster.json") as cell:

        def run(number, at_once):
            room = tmp_path / f"room-{number}"
            room.mkdir()
            assert cell.ask("submit", "-", stdin=nightly(number, room, at_once)).code == 0
            document = cell.until(f"nightly-{number}", lambda job: job["ended_ms"] is not None)
            assert document["state"] == "succeeded"
            return document["stages"][0]

        stages = [run(number, 4) for number in range(3)]
        assert [stage["counted"] for stage in stages] == [None] * 3
        peak = max((stage["usage"]["peak_cpu"] for stage in stages), key=millicores)
        fourth = run(3, 8)  # Eight tasks of four cores at once, on sixteen.
        shown = cell.ask("get", "job", "nightly-3").out
        cell.end()

    said = {"asked": {"cpu": "4"}, "counted": {"cpu": "2"}, "runs": 3, "peak": {"cpu": peak}}
    assert fourth["counted"] == said
    assert f"3 runs, peak {peak}" in shown
    log = read(tmp_path / "data" / "bus").log
    assert most_at_once(log) == {**{f"nightly-{number}": 4 for number in range(3)}, "nightly-3": 8}
    verdict = verify(open_source(tmp_path / "data" / "bus"))
    assert verdict.is_same, verdict.text()
    assert verdict.rounds_compared > 3


def millicores(text):
    return int(text.removesuffix("m")) * (1 if text.endswith("m") else 1_000)


def most_at_once(log):
    """By job, how many of its tasks held room at a time at most."""
    held, most = {}, {}
    for record in log:
        for grant in record.body["grants"] if record.type == "RoundClosed" else ():
            held[grant["job"]] = held.get(grant["job"], 0) + grant["count"]
            most[grant["job"]] = max(most.get(grant["job"], 0), held[grant["job"]])
        for item in record.body["items"] if record.type == "TaskFinished" else ():
            held[item["job"]] -= item["count"]
    return most
