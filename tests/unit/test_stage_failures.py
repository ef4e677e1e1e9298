"""Stages of which tasks may fail: what is read, what goes on, what is skipped, and what the gateway says of it."""

import pytest

from schemas import TaskEnd, TaskFailed, TaskFailure, TaskFinished
from schemas.edge.base import Malformed
from schemas.edge.jobs import read_job
from services.cli.watching import stages_text
from tests.builders import config, job, node
from tests.builders import stage as tasks_of
from tests.cells import SlowCell, attempts_of
from tests.gateway_watch import Watched, stage


# ---------------------------------------------------------------- what is read
def read(tasks=2_000, **more):
    document = {"stage": "s", "tasks": tasks, "demand": {"cpu": "1"}, "command": ["true"], **more}
    return read_job({"stages": [document]}, "ann").stages[0]


@pytest.mark.parametrize(
    ("said", "tasks", "most"),
    [
        (None, 10, 0),
        (0, 10, 0),
        (10, 10, 10),
        ("5%", 19, 0),
        ("5%", 20, 1),
        ("5%", 2_000, 100),
        ("0.05 %", 2_000, 1),
        ("33.333%", 100_000, 33_333),
        ("100%", 7, 7),
        ("0%", 7, 0),
    ],
)
def test_a_count_or_a_part_rounded_down(said, tasks, most):
    assert read(tasks, max_failed=said).max_failed == most


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"max_failed": -1}, "has to be 0 or more, is -1"),
        ({"max_failed": 11}, "is 11, but the stage has 10 tasks"),
        ({"max_failed": "100.001%"}, "has to be at most 100%"),
        ({"max_failed": "5"}, 'has to be a count like 10, or a part like "5%", is "5"'),
        ({"max_failed": True}, 'has to be a count like 10, or a part like "5%", is true'),
        ({"max_failed": 1, "gang": True}, "a gang fails as a whole: leave it out"),
    ],
)
def test_what_is_wrong_with_it(more, reason):
    with pytest.raises(Malformed) as caught:
        read(10, **more)
    assert caught.value.field == "stages[0].max_failed"
    assert reason in caught.value.reason


def test_on_failure_is_one_of_two_words():
    with pytest.raises(Malformed) as caught:
        read(on_failure="ignore")
    assert caught.value.field == "stages[0].on_failure"


# ---------------------------------------------------------------- what goes on
def test_a_stage_within_its_bound_succeeds_and_its_dependants_run():
    cell = Watched().submit("j", stage("a", tasks=3, max_failed=1), stage("b", after=["a"]))
    cell.start("j", "a", count=3).fail("j", "a", index=1).finish("j", "a").finish("j", "a", first=2)

    assert cell.job("j")["stages"][0]["state"] == "succeeded"
    assert cell.tasks("j") == {"succeeded": 2, "failed": 1, "failed_attempts": 1}
    assert cell.tasks("j", 1) == {"starting": 1}

    cell.start("j", "b").finish("j", "b")
    ended = cell.job("j")
    assert (ended["state"], ended["detail"]) == ("succeeded", "1 of 3 tasks of a failed, within max_failed")
    assert [each["state"] for each in ended["stages"]] == ["succeeded", "succeeded"]
    assert ended["tasks"]["failed"] == 1


def test_beyond_its_bound_it_fails_the_job_at_once():
    cell = Watched().submit("j", stage("a", tasks=4, max_failed=1), stage("b", after=["a"]))
    cell.start("j", "a", count=4).fail("j", "a", index=1)
    assert cell.job("j")["state"] == "running"

    cell.fail("j", "a", index=2)
    ended = cell.job("j")
    assert (ended["state"], ended["detail"]) == (
        "failed",
        "a/2 exit_code (failed task 2, at most 1 may fail)",
    )
    assert [each["state"] for each in ended["stages"]] == ["failed", "unfinished"]
    assert ended["stages"][0]["tasks"]["failed"] == 2


def test_where_the_job_continues_dependants_are_skipped_and_the_rest_goes_on():
    cell = Watched().submit(
        "j",
        stage("a", tasks=2, on_failure="continue"),
        stage("b", after=["a"], tasks=3),
        stage("c", after=["b", "other"]),
        stage("other"),
    )
    cell.start("j", "a", count=2).start("j", "other").fail("j", "a", index=1)
    live = cell.job("j")
    assert live["state"] == "running"
    assert [each["state"] for each in live["stages"]] == ["running", "skipped", "skipped", "running"]
    assert live["tasks"]["skipped"] == 4
    assert "skipped: a stage before it failed" in stages_text(live)

    cell.finish("j", "a").finish("j", "other")
    ended = cell.job("j")
    assert (ended["state"], ended["detail"]) == ("failed", "1 of 2 tasks of a failed; 2 stages skipped")
    assert [each["state"] for each in ended["stages"]] == ["failed", "skipped", "skipped", "succeeded"]
    counts = {kind: ended["tasks"][kind] for kind in ("total", "succeeded", "failed", "skipped")}
    assert counts == {"total": 7, "succeeded": 2, "failed": 1, "skipped": 4}


def test_a_gang_that_is_given_up_is_asked_for_no_more_and_gives_its_room_back():
    cell = Watched().submit("j", stage("g", tasks=3, gang=True, on_failure="continue"), stage("other", tasks=2))
    cell.start("j", "g", count=3).fail("j", "g", index=1)
    assert cell.job("j")["stages"][0]["tasks"]["waiting"] == 0

    cell.fail("j", "g", index=0, reason="gang").fail("j", "g", index=2, reason="gang")
    assert cell.tasks("j") == {"failed": 3, "failed_attempts": 1}
    assert cell.tasks("j", 1) == {"starting": 2}

    cell.start("j", "other", count=2).finish("j", "other", count=2)
    assert cell.job("j")["detail"] == "3 of 3 tasks of g failed"


@pytest.mark.parametrize("preset", ["fifo", "drf", "hdrf", "slots", "rayon", "carbyne", "largesse"])
def test_retries_come_before_a_task_has_failed_and_others_do_not_wait_for_them(preset):
    story = SlowCell()
    story.take(config(preset=preset, retry_backoff_ms=0), node("n1"))
    story.take(job("j", tasks_of("s", 4, retries=1, max_failed=1)))
    story.settle()
    for attempt in (1, 2):
        story.take(TaskFailed([TaskFailure("j", "s", 0, 1, attempt, "n1", "e1", "exit_code")]))
        story.settle()
    assert not story.ended()
    held = sorted(key for key, _ in attempts_of(story.admission))
    assert held == ["j/s/1", "j/s/2", "j/s/3"]

    story.take(TaskFinished([TaskEnd("j", "s", 1, 3, 1, "n1", "e1", [1_000])]))
    story.settle()
    assert story.ended() == {"j": "succeeded"}
