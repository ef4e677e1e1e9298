"""What tasks have left, over HTTP: lists for a job, a stage or a task, and files that come whole or break off."""

import asyncio
import json

import pytest

from largesse.task_output import PIECE_BYTES_MAX
from services.agent.task_results import read_results
from services.gateway.http.problems import Problem
from tests.gateway_cell import run_in_memory
from tests.result_folders import left

STAGES = [
    {"stage": "a", "tasks": 2, "command": ["true"], "demand": {"cpu": "1"}},
    {"stage": "b", "tasks": 1, "command": ["true"], "demand": {"cpu": "1"}},
]
FILE = "/v1/tasks/j/a/0/results"


def asked(data, *requests, read=None, silent=()):
    """Answers of a gateway whose tasks left what is below `data`. `silent`: stages of which no node answers."""
    calls = []

    async def reads(wanted):
        calls.append(wanted)
        if wanted.stage in silent:
            raise Problem(503, "node_unreachable", "gone")
        return read_results(data, wanted)

    async def story(cell):
        await cell.post({"job": "j", "stages": STAGES})
        return [await cell.get(path, **params) for path, params in requests]

    answers = run_in_memory(story, read_results=read or reads)
    return [*answers, calls]


def rows_of(answer):
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/jsonl"
    return [json.loads(line) for line in answer.content.split(b"\n")[:-1]]


def test_a_list_has_every_task_that_left_something_in_order(tmp_path):
    for stage, index, files in (("b", 0, {"x": "1"}), ("a", 1, {"e/ü\n": "22"})):
        work = left(tmp_path, files, stage=stage, index=index)
    (work / "l").symlink_to("/etc/passwd")

    whole, stage, task, _ = asked(
        tmp_path,
        ("/v1/jobs/j/results", {}),
        ("/v1/jobs/j/results", {"stage": "a"}),
        ("/v1/jobs/j/results", {"stage": "a", "index": 0}),
    )

    rows = rows_of(whole)
    for row in rows:
        row.pop("changed_ms", None)
    assert rows == [
        {"stage": "a", "index": 1, "attempt": 1, "left_out": 0},
        {"stage": "a", "index": 1, "path": "e", "kind": "folder"},
        {"stage": "a", "index": 1, "path": "e/ü\n", "kind": "file", "size": 2, "executable": False},
        {"stage": "a", "index": 1, "path": "l", "kind": "link", "target": "/etc/passwd"},
        {"stage": "b", "index": 0, "attempt": 1, "left_out": 0},
        {"stage": "b", "index": 0, "path": "x", "kind": "file", "size": 1, "executable": False},
    ]
    assert {row["stage"] for row in rows_of(stage)} == {"a"}
    assert rows_of(task) == []


def test_pages_of_an_agent_become_one_list(tmp_path, monkeypatch):
    monkeypatch.setattr("services.agent.task_results.LIST_BYTES_MAX", 200)
    left(tmp_path, {f"f{number}": "" for number in range(9)}, stage="b")

    answer, calls = asked(tmp_path, ("/v1/jobs/j/results", {"stage": "b"}))

    assert [row["path"] for row in rows_of(answer)[1:]] == [f"f{number}" for number in range(9)]
    assert len(calls) > 3
    assert {call.attempt for call in calls[1:]} == {1}


def test_what_cannot_be_listed_says_why(tmp_path, monkeypatch):
    monkeypatch.setattr("services.agent.task_results.ENTRIES_MAX", 1)
    left(tmp_path, {"1": "", "2": ""}, stage="b")

    answer, _ = asked(tmp_path, ("/v1/jobs/j/results", {}), silent=("a",))

    problems = [row["problem"] for row in rows_of(answer)]
    assert [problem["type"].rpartition(":")[2] for problem in problems] == ["node_unreachable"] * 2 + ["too_many"]


@pytest.mark.parametrize(
    ("path", "params", "status"),
    [
        ("/v1/jobs/none/results", {}, 404),
        ("/v1/jobs/j/results", {"stage": "c"}, 404),
        ("/v1/jobs/j/results", {"stage": "a", "index": 2}, 404),
        ("/v1/jobs/j/results", {"index": 0}, 422),
        (FILE, {}, 422),
        (FILE, {"file": "../task.json"}, 422),
        (FILE, {"file": "none"}, 404),
        (FILE, {"file": "f", "offset": 9}, 404),
        ("/v1/tasks/j/a/7/results", {"file": "f"}, 404),
        ("/v1/tasks/none/a/0/results", {"file": "f"}, 404),
    ],
)
def test_what_is_not_there_is_refused(tmp_path, path, params, status):
    left(tmp_path, {"f": "1"}, stage="a")

    assert asked(tmp_path, (path, params))[0].status_code == status


def test_a_file_comes_whole_and_from_an_offset_and_is_no_page(tmp_path):
    data = bytes(range(256)) * 1_100
    left(tmp_path, {"d/f": data, "empty": ""}, stage="a", number=3)

    whole, rest, empty, _ = asked(
        tmp_path, (FILE, {"file": "d/f"}), (FILE, {"file": "d/f", "offset": 280_000}), (FILE, {"file": "empty"})
    )

    assert len(data) > PIECE_BYTES_MAX
    assert (whole.content, rest.content, empty.content) == (data, data[280_000:], b"")
    assert whole.headers["largesse-output-attempt"] == "3"
    assert whole.headers["largesse-output-end"] == whole.headers["content-length"] == str(len(data))
    said = {name: whole.headers[name] for name in ("content-type", "content-disposition", "x-content-type-options")}
    assert set(said.values()) == {"application/octet-stream", "attachment", "nosniff"}


def test_a_file_that_shrinks_breaks_off_and_one_that_grows_ends_where_it_did(tmp_path):
    work = left(tmp_path, {"f": b"x" * (PIECE_BYTES_MAX + 10)}, stage="a")
    sizes = [PIECE_BYTES_MAX + 10, PIECE_BYTES_MAX + 20]

    async def read(wanted):
        with (work / "f").open("r+b") as file:
            file.truncate(sizes.pop(0))
        return read_results(tmp_path, wanted)

    grown, _ = asked(tmp_path, (FILE, {"file": "f"}), read=read)
    assert len(grown.content) == PIECE_BYTES_MAX + 10

    sizes[:] = [PIECE_BYTES_MAX + 10, 3]
    with pytest.raises(Problem, match="has changed while it was read"):
        asyncio.run(_contents(read))


async def _contents(read):
    from largesse.task_results import WantedResults
    from services.gateway.http.agents.results import contents

    wanted = WantedResults("j", "a", 0, file="f")
    return [data async for data in contents(read, wanted, await read(wanted))]
