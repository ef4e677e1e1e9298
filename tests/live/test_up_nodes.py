"""Nodes that are not started again: what ran there is ended before it is tried elsewhere, and what had ended counts."""

import json
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from largesse.task_output import folder_name
from services.agent.clearing import ENDED
from services.agent.proc import start_ticks
from services.agent.runs import runs_of_jobs
from services.cli.leaving import departing_nodes
from tests.live.agent_cell import settings
from tests.live.up_process import GUARD_S, up

ALONE = """
cd "$FOLDER" || exit 8
for other in pid-*; do
    test -e "$other" && kill -0 "$(cat "$other")" 2>/dev/null && touch overlap
done
echo $$ >"pid-$LARGESSE_TASK_INDEX-$LARGESSE_ATTEMPT"
while ! test -e go; do sleep 0.1; done
"""
"""A task that notices if another attempt of the job still runs, and waits for a word."""


def job(folder: Path, tasks: int = 1) -> str:
    stage = {"stage": "s", "tasks": tasks, "command": ["sh", "-c", ALONE], "env": {"FOLDER": str(folder)}}
    return json.dumps({"job": "j", "stages": [{**stage, "demand": {"cpu": "1m"}}]})


def cluster(folder: Path, *names: str) -> Path:
    path = folder / f"{'-'.join(names)}.json"
    path.write_text(json.dumps({"nodes": [{"name": name, "capacity": {"cpu": "1"}} for name in names]}))
    return path


def until(holds: Callable[[], Any]) -> Any:
    deadline = monotonic() + GUARD_S
    while not (said := holds()):
        assert monotonic() < deadline
        sleep(0.05)
    return said


def is_running(folder: Path, attempt: int) -> bool:
    path = folder / f"pid-0-{attempt}"
    return path.exists() and bool(path.read_text()) and start_ticks(int(path.read_text())) is not None


@pytest.mark.rotating(2)
@pytest.mark.parametrize(("first", "then"), [("a b", "a"), ("b", "c")], ids=["fewer nodes", "renamed nodes"])
def test_a_task_of_a_node_that_is_not_started_any_more_is_ended_before_it_is_tried_again(tmp_path, first, then):
    data = tmp_path / "data"
    with up(data, "--cluster", cluster(tmp_path, *first.split())) as one:
        if "a" in first:
            one.ask("node", "drain", "a")
        assert one.ask("submit", "-", stdin=job(tmp_path)).code == 0
        until(lambda: is_running(tmp_path, 1))
        one.ask("node", "resume", "a")
        one.end()
        assert is_running(tmp_path, 1)

        with up(data, "--cluster", cluster(tmp_path, then)) as two:
            said = "not started: b, of an earlier start; what still runs there is ended, and tried again"
            assert any(said in line for line in two.greets())
            until(lambda: is_running(tmp_path, 2))
            assert not is_running(tmp_path, 1)
            assert not (tmp_path / "overlap").exists()
            (tmp_path / "go").touch()
            document = two.until("j", lambda document: document["state"] == "succeeded")
            assert [failed["reason"] for failed in document["failures"]] == ["lost"]
            assert {node["node"]: node["state"] for node in two.ask("get", "nodes", "--json").json}["b"] == "left"
            two.end()
    assert runs_of_jobs(data / "nodes" / "b") == []


def test_a_task_of_a_node_that_is_not_started_any_more_is_ended_by_a_cancellation(tmp_path):
    data = tmp_path / "data"
    with up(data, "--cluster", cluster(tmp_path, "b")) as one:
        one.ask("submit", "-", stdin=job(tmp_path))
        until(lambda: is_running(tmp_path, 1))
        one.end()
        with up(data, "--cluster", cluster(tmp_path, "c")) as two:
            two.ask("cancel", "j")
            until(lambda: not is_running(tmp_path, 1))
            two.until("j", lambda document: document["state"] in ("cancelled", "failed"))
            two.end()


def test_what_ended_on_a_node_that_is_not_started_any_more_counts_and_can_be_read(tmp_path):
    data = tmp_path / "data"
    with up(data, "--cluster", cluster(tmp_path, "b")) as one:
        one.ask("submit", "-", stdin=job(tmp_path))
        until(lambda: is_running(tmp_path, 1))
        one.end()
        (tmp_path / "go").touch()
        until(lambda: list((data / "nodes" / "b").glob("jobs/*/*/*/*/result.json")))
        with up(data, "--cluster", cluster(tmp_path, "c")) as two:
            document = two.until("j", lambda document: document["state"] == "succeeded")
            assert document["failures"] == []
            assert two.ask("logs", "j/s/0").code == 0
            two.end()
    assert list((data / "nodes" / "b" / ENDED).glob("[0-9]*/j/*"))


def test_only_folders_that_hold_runs_of_nodes_that_are_not_started_are_departed_from(tmp_path):
    for name in ("a", "b c", "started", "~odd"):
        (tmp_path / folder_name(name) / "jobs" / "j" / "1-e").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / f"{'x' * 87}~{'0' * 32}" / "jobs" / "j" / "1-e").mkdir(parents=True)

    found = departing_nodes(tmp_path, ["started"], settings(tmp_path))
    assert sorted(node.name for node in found) == ["a", "b c", "~odd"]
    assert all(node.leaves and node.departing and not node.keep_running for node in found)
    assert departing_nodes(tmp_path / "none", [], settings(tmp_path)) == []
