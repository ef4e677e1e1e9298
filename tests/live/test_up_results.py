"""What tasks of an embedded cell leave: found by later stages on another node, fetched by users, kept for a while."""

import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.conftest import ROOT
from tests.live.up_process import eventually, up
from tests.result_folders import tree

NUMBERS = sum(range(300))


def stage(name, script, **more):
    return {
        "stage": name, "tasks": 1, "demand": {"cpu": "100m", "memory": "32Mi"}, "command": ["sh", "-c", script]
    } | more  # fmt: skip


def submitted(cell, job, *stages):
    """The job's document once it has ended."""
    said = cell.ask("submit", "-", stdin=json.dumps({"job": job, "stages": stages}))
    assert said.code == 0, said.err
    cell.ask("watch", job)
    return cell.ask("get", "job", job, "--json").json


def apart(**more):
    return more | {"anti_affinity": {"group": "apart"}}


MAKE = (
    'mkdir d; echo "$LARGESSE_NODE" > d/node; printf "#!/bin/sh\\necho ran\\n" > run; chmod +x run; ln -s d/node latest'
)
USE = 'cd "$LARGESSE_INPUTS/make/0" && cat latest && ./run && echo "$LARGESSE_NODE" && find . | sort'


def test_a_later_stage_finds_results_of_every_node_and_nobody_others(cell):
    both = {"anti_affinity": {}, "tasks": 2}
    told = submitted(
        cell, "found", stage("make", MAKE, **both), stage("use", USE, after=["make"], inputs=["make"], **both)
    )

    assert told["state"] == "succeeded", told
    outputs = [cell.ask("logs", f"found/use/{index}").out.splitlines() for index in (0, 1)]
    made, used = {lines[0] for lines in outputs}, {lines[2] for lines in outputs}
    assert (len(made), len(used)) == (1, 2)  # Of two users on two nodes one is not where task 0 ran.
    for lines in outputs:
        assert [lines[1], *lines[3:]] == ["ran", ".", "./d", "./d/node", "./latest", "./run"]


def test_the_example_counts_right_and_its_results_are_fetched(cell, tmp_path):
    assert cell.ask("submit", ROOT / "examples/jobs/nightly.yaml", "--watch").code == 0
    assert cell.ask("logs", "nightly/report/0").out == f"all: {NUMBERS}\n"

    said = cell.ask("results", "nightly", tmp_path / "out")

    assert said.code == 0, said.err
    found = tree(tmp_path / "out")
    assert found["report/0/report.txt"] == f"all: {NUMBERS}\n".encode()
    assert len(found["split/2/lines/part.txt"].splitlines()) == 100
    assert cell.ask("results", "nightly/count/1").out.split()[1] == "count/1/sum.txt"
    assert cell.ask("results", "nightly/none").code == 1


def test_results_folders_are_named_also_where_a_task_starts_elsewhere(cell, tmp_path):
    script = 'pwd > "$LARGESSE_RESULTS/where"; test -z "$LARGESSE_INPUTS"'
    told = submitted(cell, "elsewhere", stage("s", script, cwd=str(tmp_path)))

    assert told["state"] == "succeeded", told
    assert cell.ask("results", "elsewhere", tmp_path / "out").code == 0
    assert (tmp_path / "out/s/0/where").read_text() == f"{tmp_path}\n"


def test_what_did_not_succeed_hands_nothing_on_and_the_last_attempt_does(cell):
    script = 'echo "$LARGESSE_ATTEMPT" > try; test "$LARGESSE_TASK_INDEX" != 0 && test "$LARGESSE_ATTEMPT" = 2'
    told = submitted(
        cell,
        "partly",
        stage("some", script, tasks=3, max_failed=1, retries=1),
        stage("all", 'cd "$LARGESSE_INPUTS/some" && grep . */try', after=["some"], inputs=["some"]),
    )

    assert told["state"] == "succeeded", told
    assert cell.ask("logs", "partly/all/0").out == "1/try:2\n2/try:2\n"


def test_more_results_than_a_node_takes_fail_the_stage_that_needs_them(tmp_path):
    with up(tmp_path / "data", "--nodes", 2, LARGESSE_NODE_INPUTS_MIB="1") as cell:
        make = stage("make", "head -c 2000000 /dev/zero > f", **apart(tasks=2))
        use = stage("use", "true", after=["make"], inputs=["make"], **apart(tasks=2))
        told = submitted(cell, "large", make, use)
        assert cell.end()[0] == 0

    assert told["state"] == "failed"
    failure = told["failures"][0]
    assert failure["reason"] == "cannot_start"
    assert "they take more than the 1 MiB of LARGESSE_NODE_INPUTS_MIB" in failure["detail"]


def test_results_are_kept_as_long_as_output_and_then_gone(tmp_path):
    with up(tmp_path / "data", LARGESSE_NODE_KEPT_RUNS="1") as cell:
        for job in ("one", "two"):
            submitted(cell, job, stage("s", "echo kept > f"))
        # Put away in the order of their ends: once `two` is, `one` is one too many.
        eventually(lambda: cell.ask("results", "one").code == 1)
        assert "they were removed" in cell.ask("results", "one").err
        assert cell.ask("logs", "one/s/0").code == 1
        assert cell.ask("results", "two", tmp_path / "out").code == 0
        assert cell.end()[0] == 0

    assert tree(tmp_path / "out/s/0") == {"f": b"kept\n"}


def test_copies_go_with_the_job(cell):
    submitted(
        cell, "gone", stage("make", "echo 1 > f", **apart()), stage("use", "true", after=["make"], inputs=["make"])
    )

    eventually(lambda: not list(cell.data.glob("nodes/*/jobs/gone/*")))
    assert not list(cell.data.glob("nodes/*/*/**/#inputs"))
    assert len(list(cell.data.glob("nodes/*/ended/*/gone/*/make/0.1/work/f"))) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run tasks as another user")
def test_tasks_of_another_user_find_what_is_theirs():
    use = 'cd "$LARGESSE_INPUTS/make" && cat */f && for each in *; do echo more >> "$each/f"; done && cat */f && id -un'
    # pytest closes its own folders to other users, and whoever starts it next does so again.
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        with up(Path(folder, "data"), "--nodes", 2, LARGESSE_TASK_USER="nobody") as cell:
            both = {"anti_affinity": {}, "tasks": 2}
            make = stage("make", "umask 077; echo $LARGESSE_TASK_INDEX > f", **both)
            told = submitted(cell, "j", make, stage("use", use, after=["make"], inputs=["make"]))
            said = cell.ask("logs", "j/use/0").out.split()
            errors = cell.ask("logs", "j/use/0", "--stderr").out
            assert cell.end()[0] == 0

    assert (told["state"], said) == ("succeeded", ["0", "1", "0", "more", "1", "more", "nobody"]), errors
