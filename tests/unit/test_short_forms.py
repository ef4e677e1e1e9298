"""Short forms of a stage: arrays, matrices, `needs`, secrets by name, from what is read to what a task is told."""

import os
import time
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from largesse.lifecycle.dag import graph_of
from largesse.lifecycle.node_work import HeldAttempt, Start
from schemas.arrays import ArrayWrong, index_of, spans_of, text_of
from schemas.edge.base import TASKS_MAX, Malformed
from schemas.edge.job_document import job_document
from schemas.edge.jobs import read_job
from services.admission.core.keys import digest_of
from services.agent.attempts import Attempts
from services.agent.local import mono_ms
from services.agent.settings import NodeSettings, with_limits
from services.agent.starting import environment, task_of
from services.agent.task_secrets import NoSecret, secret_values
from tests.builders import job
from tests.builders import stage as tasks_of


def read(**more):
    return read_job({"stages": [{"stage": "s", "demand": {"cpu": "1"}, "command": ["true"], **more}]}, "").stages[0]


def refused(**more):
    with pytest.raises(Malformed) as caught:
        read(**more)
    return str(caught.value).removeprefix("stages[0].")


def told(stage, index, tmp_path):
    start = Start("k", HeldAttempt("j", stage.stage, index, 1, 5, "e.1"), stage, queue="ads/prod")
    return environment(start, NodeSettings("n", tmp_path), tmp_path / "a" / "b" / "c")


# ---------------------------------------------------------------- arrays
@pytest.mark.parametrize(
    ("text", "kept", "tasks", "most"),
    [
        ("0-999%50", "", 1_000, 50),
        ("0", "", 1, None),
        ("7", "7", 1, None),
        ("0-99:10", "0-90:10", 10, None),
        ("1,5,7", "1,5,7", 3, None),
        ("9,0-3:1", "9,0-3", 5, None),
        ("1-4, 10-20:5 % 2", "1-4,10-20:5", 7, 2),
        (f"0-{TASKS_MAX - 1}", "", TASKS_MAX, None),
    ],
)
def test_an_array_says_how_many_tasks_there_are_and_how_many_run(text, kept, tasks, most):
    stage = read(array=text)
    assert (stage.array, stage.tasks, stage.running_max) == (kept, tasks, most)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"array": "a-b"}, 'array: has to be like "0-99", "0-99:10"'),
        ({"array": "9-0"}, 'array: goes down: write "0-9", not "9-0"'),
        ({"array": "0-9:0"}, "array: has a step of 0"),
        ({"array": "1,0-3"}, "array: names the index 1 twice"),
        ({"array": "0-9%0"}, 'array: has to end in how many tasks run at a time, like "0-99%8", has "%0"'),
        ({"array": "0-9%"}, "array: has to end in how many"),
        ({"array": "0-9%4", "running_max": 3}, 'running_max: is 3, but "array" ends in %4: leave one of them out'),
        ({"array": "0-9", "tasks": 3}, 'tasks: is for 3 tasks, but "array" has 10'),
        ({"array": f"0-{TASKS_MAX}"}, "array: has more than 200000 indexes"),
        ({"array": "9999999999"}, "array: goes up to 9999999999: indexes go up to 1000000000"),
        ({"array": "0-9%4", "gang": True}, "running_max: is 4, but all 10 tasks of a gang run together"),
        ({"array": "0-9", "matrix": {"A": [1]}}, 'matrix: "array" is given too: use only one of them'),
        ({"array": 5}, 'array: has to be a string, is 5: write "5"'),
    ],
)
def test_what_is_wrong_with_an_array(more, reason):
    assert refused(**more).startswith(reason)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20), st.integers(1, 7)), min_size=1, max_size=6))
def test_each_task_has_the_index_that_counting_gives_it(parts):
    text = ",".join(f"{first}-{first + more}:{step}" for first, more, step in parts)
    named = [index for first, more, step in parts for index in range(first, first + more + 1, step)]
    if len({*named}) < len(named):
        with pytest.raises(ArrayWrong, match="twice"):
            spans_of(text, 1_000)
        return
    kept = text_of(spans_of(text, 1_000))
    assert [index_of(kept, task) for task in range(len(named))] == named
    assert (kept == "") == (named == [*range(len(named))] and len(parts) == 1)
    assert not kept or text_of(spans_of(kept, 1_000)) == kept


def test_a_task_of_an_array_is_told_its_index(tmp_path):
    stage = read(array="1,5,10-30:10")
    assert [told(stage, task, tmp_path)["LARGESSE_ARRAY_INDEX"] for task in range(5)] == ["1", "5", "10", "20", "30"]
    assert told(stage, 4, tmp_path)["LARGESSE_TASK_INDEX"] == "4"
    assert told(read(tasks=3), 2, tmp_path)["LARGESSE_ARRAY_INDEX"] == "2"


# ---------------------------------------------------------------- matrices
def test_a_matrix_is_one_stage_with_a_task_for_each_combination(tmp_path):
    stage = read(matrix={"LR": ["0.1", 1], "SEED": [1, 2, True]})
    assert stage.tasks == 6
    found = [(env["LR"], env["SEED"]) for env in (told(stage, task, tmp_path) for task in range(6))]
    assert found == [*product(["0.1", "1"], ["1", "2", "true"])]


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"matrix": {"A": [1, "1"]}}, 'matrix.A[1]: "1" is named twice'),
        ({"matrix": {"A": [[1]]}}, "matrix.A[0]: has to be a text, a number, or true or false, is a list"),
        ({"matrix": {"A": []}}, "matrix.A: may not be empty"),
        ({"matrix": {"A": [1]}, "env": {"A": "x"}}, "matrix.A: is set by another field of the stage, too"),
        ({"matrix": {"LARGESSE_NODE": [1]}}, "matrix.LARGESSE_NODE: is set by the agent"),
        ({"matrix": {"A": [*range(1_000)], "B": [*range(201)]}}, "matrix: has 201000 combinations"),
        ({"matrix": {"A": [1, 2]}, "tasks": 3}, 'tasks: is for 3 tasks, but "matrix" has 2'),
        ({"matrix": [1]}, "matrix: has to be an object"),
    ],
)
def test_what_is_wrong_with_a_matrix(more, reason):
    assert refused(**more).startswith(reason)


def test_numbers_of_a_matrix_are_written_one_way_however_they_come():
    from schemas.edge.strict_json import loads

    axes = read(matrix=loads(b'{"A": [0.10, 1e-5, 100.0, 3]}')).matrix
    assert axes[0].values == ["0.1", "0.00001", "100", "3"]
    assert "more than 15 digits" in refused(matrix=loads(b'{"A": [0.1234567890123456]}'))


# ---------------------------------------------------------------- graphs
def test_needs_is_after_in_short():
    stages = [
        {"stage": "a", "tasks": 1, "demand": {"cpu": 1}, "command": ["x"]},
        {"stage": "b", "tasks": 1, "demand": {"cpu": 1}, "command": ["x"], "needs": ["a"], "inputs": ["a"]},
    ]
    assert read_job({"stages": stages}, "").stages[1].after == ["a"]
    assert refused(tasks=1, needs=["a"], after=["a"]) == 'needs: is "after" in short: use only one of them'


# ---------------------------------------------------------------- what is kept
def test_specs_without_them_keep_the_name_that_they_had():
    """As this was computed before the fields were there."""
    assert digest_of(job("j", tasks_of(max_failed=1))) == "e46643c3adadf653dd53fa87ae3c4453"
    more = ({}, {"grace_ms": 0}, {"array": "1,5"}, {"array": "1,6"}, {"secrets": {"A": "b"}}, {"secrets": {"A": "c"}})
    assert len({digest_of(job("j", tasks_of(**each))) for each in more}) == len(more)


def test_a_job_reads_back_to_the_same():
    stages = [
        {"stage": "a", "demand": {"cpu": 1}, "command": ["x"], "array": "1-9:2%2", "secrets": {"T": "token"}},
        {"stage": "b", "demand": {"cpu": 1}, "command": ["x"], "matrix": {"B": [1, 2], "A": ["x"]}, "needs": ["a"]},
    ]
    spec = read_job({"job": "j", "stages": stages}, "")
    assert read_job(job_document(spec), "") == spec


def test_no_core_keeps_what_only_agents_read():
    spec = read_job({"stages": [{"stage": "a", "demand": {"cpu": 1}, "command": ["x"], "array": "1-9:2"}]}, "")
    other = read_job({"stages": [{"stage": "a", "demand": {"cpu": 1}, "command": ["x"], "tasks": 5}]}, "")
    assert graph_of(spec) is graph_of(other)


# ---------------------------------------------------------------- secrets
@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "secrets"
    (place / "ads" / "prod").mkdir(parents=True)
    for name, value in (("token", "everybody's\n"), ("ads/token", "of ads"), ("ads/prod/key", "of prod"), ("top", "x")):
        (place / name).write_text(value)
        (place / name).chmod(0o600)
    return place


def value(folder, queue, name):
    return secret_values(str(folder), queue, {"T": name})["T"]


def test_a_task_finds_what_its_queue_and_those_above_it_have(folder):
    assert value(folder, "ml", "token") == "everybody's"
    assert value(folder, "ads/test", "token") == "of ads"
    assert value(folder, "ads/prod", "key") == "of prod"
    for queue in ("ads", "ml", "ads/../ads/prod", "ads/prod2"):
        with pytest.raises(NoSecret, match=f"secret key: this node has none of that name for tasks of queue {queue}"):
            value(folder, queue, "key")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_what_others_may_read_is_no_secret(folder, mode):
    (folder / "token").chmod(mode)
    with pytest.raises(NoSecret, match="others on this node may read its file") as caught:
        value(folder, "ml", "token")
    assert "everybody" not in str(caught.value)


def test_where_others_may_write_is_no_folder_of_secrets(folder):
    (folder / "ads").chmod(0o777)
    with pytest.raises(NoSecret, match="can be written by others"):
        value(folder, "ads/prod", "key")
    assert value(folder, "ml", "token") == "everybody's"


def test_a_file_of_somebody_else_is_refused(folder):
    if os.geteuid():
        pytest.skip("only root can give a file away")
    os.chown(folder / "token", 12_345, 12_345)
    with pytest.raises(NoSecret, match="of another user"):
        value(folder, "ml", "token")


@pytest.mark.parametrize("content", [b"", b"\n", b"a\0b", b"x" * 32_769])
def test_what_cannot_be_a_variable_is_no_secret(folder, content):
    (folder / "token").write_bytes(content)
    with pytest.raises(NoSecret, match="has to hold 1 to 32768 bytes"):
        value(folder, "ml", "token")


def test_a_pipe_or_a_folder_in_its_place_is_nothing(folder):
    os.mkfifo(folder / "pipe", 0o600)
    for name in ("pipe", "ads"):
        with pytest.raises(NoSecret, match="none of that name"):
            value(folder, "ml", name)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"secrets": {"T": "../x"}}, "secrets.T: has to be letters, digits"),
        ({"secrets": {"T": ".hidden"}}, "secrets.T: has to be letters, digits"),
        ({"secrets": {"T": "x"}, "env": {"T": "y"}}, "secrets.T: is set by another field of the stage, too"),
        ({"secrets": {"T": "x"}, "matrix": {"T": [1]}}, "secrets.T: is set by another field"),
        ({"secrets": {"LARGESSE_JOB": "x"}}, "secrets.LARGESSE_JOB: is set by the agent"),
        ({"secrets": {"T": "x"}, "command": None, "duration_ms": 1, "tasks": 1}, 'secrets: needs "command"'),
    ],
)
def test_what_is_wrong_with_secrets(more, reason):
    assert refused(**({"tasks": 1} | more if "matrix" not in more else more)).startswith(reason)


def test_no_document_of_an_attempt_has_the_value(folder, tmp_path):
    stage = read(tasks=1, secrets={"TOKEN": "token"})
    start = Start("k", HeldAttempt("j", "s", 0, 1, 5, "e.1"), stage, queue="ads")
    task = task_of(start, NodeSettings("n", tmp_path, secrets=folder), "key", tmp_path / "a" / "b" / "c")
    assert task["secrets"] == {"folder": str(folder), "queue": "ads", "names": {"TOKEN": "token"}}
    assert "of ads" not in repr(task)
    assert "TOKEN" not in task["env"]


def run_once(tmp_path, folder, **stage):
    """One attempt of a stage under a real shim: its table, and how it ended."""
    (tmp_path / "data").mkdir()
    table = Attempts(NodeSettings("n", tmp_path / "data", cgroup="off", secrets=folder))
    start = Start("j/s/0/1", HeldAttempt("j", "s", 0, 1, 5, "e.1"), read(tasks=1, **stage), queue="ads")
    prepared = table.prepare([start])
    ended = [local for local in table.launched(table.launch(prepared)) if local.phase == "ended"]
    over_s = time.monotonic() + 240
    while not ended and time.monotonic() < over_s:
        time.sleep(0.01)
        ended = [local for local in table.look(mono_ms()) if local.phase == "ended"]
    table.close()
    return prepared[0][0].folder, ended[0].result


def test_a_task_has_the_secret_and_nothing_else_does(folder, tmp_path):
    written = 'test "${TOKEN#of }" = ads && test "${#TOKEN}" = 6 && test "$MODE" = fast'
    place, result = run_once(
        tmp_path, folder, command=["sh", "-c", written], secrets={"TOKEN": "token"}, env={"MODE": "fast"}
    )
    assert (result.reason, result.exit_code) == (None, 0)
    found = [path for path in (tmp_path / "data").rglob("*") if path.is_file() and b"of ads" in path.read_bytes()]
    assert found == []
    assert (place / "task.json").stat().st_mode & 0o077 == 0


def test_the_folder_of_secrets_is_a_setting_of_agents_and_of_up(tmp_path):
    node = NodeSettings("n", tmp_path)
    assert with_limits(node, {"LARGESSE_NODE_SECRETS": "/etc/keys"}).secrets == Path("/etc/keys")
    assert with_limits(node, {}).secrets is None


def test_a_task_without_its_secret_does_not_start_and_says_which(folder, tmp_path):
    _, result = run_once(tmp_path, folder, command=["true"], secrets={"TOKEN": "key"})
    assert result.reason == "cannot_start"
    assert result.detail == "secret key: this node has none of that name for tasks of queue ads"


# ---------------------------------------------------------------- the grace at a time limit
def test_the_grace_of_a_stage_replaces_that_of_the_node(tmp_path):
    def grace(**more):
        start = Start("k", HeldAttempt("j", "s", 0, 1, 5, "e.1"), read(tasks=1, **more))
        node = NodeSettings("n", tmp_path, stop_grace_ms=700)
        return task_of(start, node, "key", tmp_path / "a" / "b" / "c")["grace_ms"]

    assert [grace(), grace(timeout_ms=5, grace_ms=0), grace(timeout_ms=5, grace_ms=90_000)] == [700, 0, 90_000]
    assert refused(tasks=1, grace_ms=5) == 'grace_ms: needs "timeout_ms": the time after which a task is asked to end'
    assert refused(tasks=1, timeout_ms=5, grace_ms=86_400_001).startswith("grace_ms: has to be at most 86400000")


@pytest.mark.parametrize(("grace_ms", "exit_code"), [(120_000, 7), (0, 137)])
def test_a_task_beyond_its_time_has_its_grace(tmp_path, grace_ms, exit_code):
    wait = 'trap "sleep 0.2; exit 7" TERM; while :; do sleep 0.05; done'
    _, result = run_once(tmp_path, None, command=["sh", "-c", wait], timeout_ms=1_500, grace_ms=grace_ms)
    assert (result.reason, result.exit_code) == ("timeout", exit_code)
    assert result.detail == "ran longer than 1500 ms"


def test_a_node_without_secrets_says_what_to_set(tmp_path):
    _, result = run_once(tmp_path, None, command=["true"], secrets={"TOKEN": "key"})
    assert result.reason == "cannot_start"
    assert "set LARGESSE_NODE_SECRETS" in result.detail
