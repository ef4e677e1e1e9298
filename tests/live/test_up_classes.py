"""Classes of jobs in a running cell: pools, and knobs that change while tasks run."""

import json

import pytest

from tests.live.up_jobs import job, shell
from tests.live.up_process import eventually, on_a_terminal, up

CLUSTER = {
    "nodes": [{"name": "n", "count": 2, "capacity": {"cpu": "4", "memory": "1Gi"}}],
    "policy": {"preset": "dress", "theta_permille": 200},
}


def test_pools_thresholds_and_classes_change_while_tasks_run(tmp_path):
    (tmp_path / "cluster.json").write_text(json.dumps(CLUSTER))
    go = tmp_path / "go"
    waits = shell(f"until [ -e {go} ]; do sleep 0.1; done")

    def classes_once(cell, holds):
        """The gateway's document, by class, once it is as asked for."""

        def found():
            document = cell.ask("get", "classes", "--json").json
            rows = {each["class"]: each for each in document["classes"]}
            return (document, rows) if holds(document, rows) else None

        return eventually(found)

    def apply(cell, **knobs):
        assert cell.ask("config", "apply", "-", stdin=json.dumps({"set": knobs})).out == "in force\n"

    with up(tmp_path / "data", "--cluster", tmp_path / "cluster.json") as cell:
        assert cell.ask("submit", "-", stdin=job("wide", *waits, tasks=12, cpu="1")).code == 0
        classes_once(cell, lambda _, rows: rows["large"]["held"].get("cpu") == "8")
        assert cell.ask("submit", "-", stdin=job("little", *waits, cpu="1")).code == 0
        document, rows = classes_once(cell, lambda _, rows: rows["small"]["jobs"]["waiting"])
        assert (document["pools"], list(rows)) == ("on", ["small", "large"])
        assert sum(each["pool"] for each in rows.values()) == pytest.approx(1)
        assert 0.2 <= rows["small"]["pool"] <= 0.5

        apply(cell, classes="off")
        document, rows = classes_once(cell, lambda document, _: document["pools"] == "off")
        classes_once(cell, lambda _, rows: rows["small"]["pool"] is None)
        code, shown = on_a_terminal("get", "classes", "--url", cell.url, columns=60)
        assert (code, "no pools of their own" in " ".join(shown.split())) == (0, True)

        apply(cell, classes="on", class_thresholds_permille=[500])
        assert cell.ask("submit", "-", stdin=job("middle", *waits, tasks=3, cpu="1")).code == 0
        _, rows = classes_once(cell, lambda _, rows: "medium" in rows and rows["medium"]["pool"] is not None)
        assert sum(each["pool"] for each in rows.values()) == pytest.approx(1)
        assert [each["job"] for each in cell.ask("get", "jobs", "--class", "medium", "--json").json] == ["middle"]

        apply(cell, theta_permille=100)  # One core of eight is no small request any more.
        classes_once(cell, lambda _, rows: rows["medium"]["jobs"]["waiting"] == 2)
        code, shown = on_a_terminal("get", "classes", "--url", cell.url, columns=60)
        assert code == 0
        assert max(map(len, shown.splitlines())) <= 60

        go.touch()
        for name in ("wide", "little", "middle"):
            assert cell.ask("watch", name).code == 0
