"""A user holds, releases, moves and ranks jobs of a cell that runs; its log verifies afterwards."""

import json

from tests.live.up_jobs import shell
from tests.live.up_process import eventually, up

CLUSTER = """
nodes: [{name: n, capacity: {cpu: "1", memory: 1Gi}}]
queues: {name: root, children: [{name: a}, {name: b}]}
policy: {node_lease_ms: 600000}
"""


def job(name, text, queue="a", tasks=1, **more):
    demand = {"cpu": "1", "memory": "64Mi"}
    stages = [{"stage": "run", "tasks": tasks, "demand": demand, "command": list(shell(text))}]
    return json.dumps({"job": name, "queue": queue, "stages": stages, **more})


def test_jobs_are_held_released_moved_and_ranked_and_the_log_verifies(tmp_path):
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    began, go = tmp_path / "began", tmp_path / "go"
    gate = f"echo $LARGESSE_TASK_INDEX >> {began}; while [ ! -e {go} ]; do sleep 0.05; done"
    with up(tmp_path / "data", "--cluster", tmp_path / "cluster.yaml") as cell:
        cell.ask("submit", "-", stdin=job("gate", gate, tasks=3))
        eventually(lambda: began.exists())
        assert cell.ask("hold", "gate").out.startswith("gate: running, priority 0, queue a, held by ")
        cell.ask("submit", "-", stdin=job("late", "true", hold=True))
        refused = cell.ask("change", "gate", "--queue", "b")
        assert (refused.code, "1 attempt of its tasks holds room" in refused.err) == (1, True)
        assert "did you mean" in cell.ask("change", "lat", "--priority", "2").err
        assert cell.ask("change", "late", "--queue", "b", "--priority", "2", "--json").json["queue"] == "b"
        assert "held by " in cell.ask("get", "jobs").out

        go.touch()
        cell.until("gate", lambda now: now["tasks"]["running"] == 0 and now["tasks"]["succeeded"] == 1)
        assert began.read_text() == "0\n", "what is held starts nothing"
        assert cell.ask("release", "late", "gate").code == 0
        assert [cell.ask("watch", name, "--json").json["state"] for name in ("late", "gate")] == ["succeeded"] * 2
        assert sorted(began.read_text().split()) == ["0", "1", "2"]
        cell.end()
        assert cell.ask("replay", tmp_path / "data", "--verify").code == 0


def test_a_job_that_failed_runs_again_from_the_stage_that_failed(tmp_path):
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    runs, mended = tmp_path / "runs", tmp_path / "mended"
    texts = {"load": f"echo load $LARGESSE_ATTEMPT | tee -a {runs}", "join": f"echo join >> {runs}; [ -e {mended} ]"}
    stages = [
        {"stage": name, "tasks": 1, "demand": {"cpu": "1", "memory": "64Mi"}, "command": list(shell(text))}
        for name, text in texts.items()
    ]
    stages[1]["after"] = ["load"]
    (tmp_path / "g.json").write_text(json.dumps({"job": "g", "queue": "a", "stages": stages}))
    with up(tmp_path / "data", "--cluster", tmp_path / "cluster.yaml") as cell:
        assert cell.ask("submit", tmp_path / "g.json", "--watch").code == 1
        known = cell.ask("submit", tmp_path / "g.json")
        assert (known.code, known.out) == (1, "")
        assert "it failed; --rerun, or largesse rerun, runs it again" in known.err

        mended.touch()
        assert cell.ask("rerun", "g", "--from-stage", "join", "--watch").code == 0
        assert runs.read_text().split("\n") == ["load 1", "join", "join", ""]
        shown = cell.ask("get", "job", "g", "--json").json
        assert (shown["run"], shown["state"], shown["tasks"]["succeeded"]) == (2, "succeeded", 2)
        assert cell.ask("logs", "g/load/0").out == "load 1\n", "what is kept can be read"

        assert cell.ask("submit", tmp_path / "g.json", "--rerun", "--watch").code == 0
        assert cell.ask("logs", "g/load/0").out == "load 3\n", "attempts go on counting"
        cell.end()
        assert cell.ask("replay", tmp_path / "data", "--verify").code == 0
