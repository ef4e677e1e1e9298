"""Which classes placement keeps room for on GPUs: those lately admitted, and those that wait."""

import pytest

from schemas.placement_rules import class_key
from services.leftover import core as leftover
from services.leftover.core import mix
from tests.builders import admitted, config, configured, job, node, registered, stage
from tests.cells import SlowCell
from tests.harness import given

INTERPRETED = not mix.__file__.endswith(".so")


def cell(*facts):
    return given(leftover, configured(preset="hdrf"), registered("n1", cpu=8_000, gpu=4_000), *facts)


def asks(name, tasks=1, **demand):
    return admitted(job(name, stage("s", tasks, **demand)))


def weights(story):
    return {demand["gpu"]: weight for demand, _, weight in mix.mix_of(story.state)}


def test_classes_count_by_their_tasks_once_enough_have_come():
    story = cell(asks("a", 12, gpu=500))
    assert weights(story) == {}

    story.then(asks("b", 4, gpu=1_000))
    assert weights(story) == {500: 12, 1_000: 4}


def test_tasks_without_gpus_are_not_counted():
    story = cell(asks("a", 40, cpu=1_000), asks("b", 16, gpu=1_000))

    assert weights(story) == {1_000: 16}


def test_one_large_job_counts_for_a_bounded_number_of_tasks():
    story = cell(asks("a", 100_000, gpu=500), asks("b", mix.TASKS_MOST, gpu=1_000))

    assert weights(story) == {500: mix.TASKS_MOST, 1_000: mix.TASKS_MOST}


def test_weights_stay_until_an_eighth_of_all_is_new():
    story = cell(asks("a", 64, gpu=500), *[asks(f"b{i}", 64, gpu=1_000) for i in range(3)])
    before = weights(story)
    story.then(asks("c", 16, gpu=700))
    assert weights(story) == before

    story.then(asks("d", 24, gpu=700))
    assert weights(story)[700] == 40


@pytest.mark.skipif(not INTERPRETED, reason="compiled, the constants are part of the code")
def test_old_admissions_fade_and_are_forgotten(monkeypatch):
    monkeypatch.setattr(mix, "LATELY_MOST", 128)
    story = cell(asks("old", 16, gpu=500), *[asks(f"new{i}", 64, gpu=1_000) for i in range(8)])

    assert list(story.state.mix.classes) == [class_key({"cpu": 1_000, "gpu": 1_000}, {}, {}, 0)]
    assert story.state.mix.tasks <= 128 + 64


@pytest.mark.skipif(not INTERPRETED, reason="compiled, the constants are part of the code")
def test_a_class_that_waits_for_room_counts_however_long_ago_it_came(monkeypatch):
    monkeypatch.setattr(mix, "LATELY_MOST", 128)
    story = SlowCell()
    story.take(config(preset="hdrf"), node("n1", gpus=(1_000, 1_000)))
    story.take(job("full", stage(gpu=1_000)), job("wide", stage(gpu=2_000)))
    story.settle()
    story.take(*[job(f"new{i}", stage("s", 64, gpu=500)) for i in range(8)])

    assert [demand["gpu"] for demand, _, _ in mix.mix_of(story.leftover)] == [2_000, 500]
