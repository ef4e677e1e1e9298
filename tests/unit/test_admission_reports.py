"""Reports of tasks: each fact is folded once, and what was never granted is refused."""

from dataclasses import replace

import pytest

from schemas import (
    InputRefused,
    TaskEnd,
    TaskFinished,
    TaskRange,
    TaskStarted,
)
from tests.builders import job, single, stage
from tests.cells import holds_of, place, running_cell


def test_an_end_is_folded_once():
    story = running_cell(job("j", stage(tasks=2)))
    grant = story.granted[0]

    assert isinstance(story.finish(single(grant, 0)), TaskFinished)
    assert story.finish(single(grant, 0)) is None
    assert isinstance(story.start(single(grant, 1)), TaskStarted)
    assert story.start(single(grant, 1)) is None


def test_an_attempt_that_a_batch_names_twice_ends_once():
    story = running_cell(job("j", stage(tasks=3)))
    grant = story.granted[0]

    body = story.finish(single(grant, 1), grant, single(grant, 2))

    assert [(item.first, item.count) for item in body.items] == [(1, 1), (0, 1), (2, 1)]
    story.settle()
    assert story.ended() == {"j": "succeeded"}
    assert story.admission.nodes["n1"].free == {"cpu": 4_000, "memory": 16_384}


def test_an_attempt_that_a_batch_fails_twice_counts_once():
    story = running_cell(job("j", stage(retries=1)))
    story.fail(story.granted[0], story.granted[0])

    assert story.ended() == {}
    assert story.admission.jobs["j"].tries.failed == {"0/0": 1}


FOREIGN = [
    pytest.param({"job": "stranger"}, id="a job that never was"),
    pytest.param({"stage": "reduce"}, id="no stage of the job"),
    pytest.param({"first": 3}, id="no task of the stage"),
    pytest.param({"attempt": 2}, id="an attempt that was never granted"),
    pytest.param({"node": "n2"}, id="another node"),
    pytest.param({"epoch": "e0"}, id="another agent epoch"),
]


@pytest.mark.parametrize("change", FOREIGN)
def test_a_report_of_what_was_never_granted_is_refused_and_meets_no_core(change):
    story = running_cell(job("j", stage(tasks=2)))
    before = holds_of(story.admission)

    refused = story.finish(replace(story.granted[0], count=1, **change))

    assert isinstance(refused, InputRefused)
    assert (refused.topic, refused.field) == ("tasks", "items")
    assert "never granted" in refused.reason
    assert holds_of(story.admission) == before


def test_of_a_batch_only_what_was_granted_is_taken():
    story = running_cell(job("j", stage(tasks=2)), job("k"))
    theirs, mine = sorted(story.granted, key=lambda granted: granted.job)

    body = story.finish(replace(theirs, count=3), replace(mine, node="n2"))

    assert body.items == [TaskEnd(*place(theirs), [1_000])]
    assert body.refused == [
        TaskRange(*place(replace(theirs, first=2, count=1))),
        TaskRange(*place(replace(mine, node="n2"))),
    ]


def test_each_task_of_a_split_report_keeps_what_is_said_of_it():
    story = running_cell(job("j", stage(tasks=3)))
    grant = story.granted[0]
    story.finish(single(grant, 1))

    body = story.take(TaskFinished([TaskEnd(*place(grant), [5, 6, 7], peak_mib=[8, 9, 10], cpu_ms=[1, 2, 3])]))

    items = [(item.first, item.run_ms, item.peak_mib, item.cpu_ms) for item in body.items]
    assert items == [(0, [5], [8], [1]), (2, [7], [10], [3])]


def test_an_attempt_that_is_over_is_stale_and_the_one_after_it_is_not():
    story = running_cell(job("j", stage(retries=3)))
    first = story.granted[0]
    story.fail(first, reason="lost")
    second = story.settle()[0]
    assert second.attempt == 2

    assert story.finish(first) is None
    assert story.ended() == {}
    story.finish(second)
    story.settle()
    assert story.ended() == {"j": "succeeded"}
    assert story.finish(second) is None
