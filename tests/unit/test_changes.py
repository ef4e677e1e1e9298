"""Changes of live jobs: what the sequencer answers, and what the cores make of them."""

from dataclasses import replace
from typing import get_args

import pytest

from schemas import InputRefused, InputRepeated, JobAdmitted, JobChanged, JobTurns
from schemas.edge.read import Malformed, read_input
from schemas.presets import Preset
from services.admission.core.keys import digest_of
from tests.builders import config, job, node, queue, stage, tree
from tests.cells import AUTHOR, SlowCell, by_leaf, running_cell, served

PRESETS = get_args(Preset)
TREE = tree(queue("ads", 1, "prod", "test"), queue("ml", max={"cpu": 2_000}), queue("own", submitters=["bob"]))
BIG = job("big", stage(tasks=8), queue="ads/prod")


def held(name, **more):
    return JobChanged(name, hold=True, **more)


def released(name):
    return JobChanged(name, hold=False)


def cell_with(*inputs, preset="largesse"):
    """Four cores on one node, full with `big`, of which four tasks wait."""
    return running_cell(config(TREE, preset=preset), BIG, *inputs)


# ---------------------------------------------------------------- what is said at the edge
@pytest.mark.parametrize(
    ("document", "body"),
    [
        ({"change": "j", "hold": True}, JobChanged("j", hold=True, author="ann")),
        ({"change": "j", "hold": False, "priority": -3}, JobChanged("j", False, -3, author="ann")),
        ({"change": "j", "queue": "ads/prod", "hold": None}, JobChanged("j", queue="ads/prod", author="ann")),
    ],
)
def test_a_message_changes_a_job(document, body):
    assert read_input("jobs", document, "ann") == body


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ({"change": "j"}, 'changes nothing: write "hold" (true or false), "priority" or "queue"'),
        ({"change": "j", "hold": "yes"}, 'hold: has to be true or false, is "yes": write true'),
        ({"change": "j", "priority": 1_001}, "priority: has to be at most 1000, is 1001"),
        ({"change": "j", "queue": "root/a"}, 'queue: leave "root" out: write "a"'),
        ({"change": "j", "stages": []}, "stages: unknown field; known here: change, hold, priority, queue"),
    ],
)
def test_a_malformed_change_names_the_field(document, problem):
    with pytest.raises(Malformed) as fault:
        read_input("jobs", document, "ann")
    assert str(fault.value) == problem


# ---------------------------------------------------------------- what is refused
@pytest.mark.parametrize(
    ("change", "field", "reason"),
    [
        (held("bif"), "change", 'job "bif" is not known here'),
        (held("over"), "change", 'job "over" has ended'),
        (JobChanged("waits", queue="ads/prd"), "queue", 'the nearest name is "ads/prod"'),
        (JobChanged("waits", queue="ads"), "queue", "has queues below it; name one of those: ads/prod, ads/test"),
        (JobChanged("waits", queue="own"), "user", "those who may are bob"),
        (JobChanged("waits", queue="ml"), "queue", 'one task asks for cpu 4; queue "ml" has a max of 2'),
        (JobChanged("big", queue="ads/test"), "queue", "3 attempts of its tasks hold room"),
    ],
)
def test_a_change_is_refused_with_the_field_and_the_fix(change, field, reason):
    cell = cell_with(job("over"), job("waits", stage(cpu=4_000), queue="ads/test"))
    cell.cancel("over")
    before = cell.digest
    body = cell.take(change)

    assert isinstance(body, InputRefused)
    assert (body.topic, body.field) == ("jobs", field)
    assert reason in body.reason
    assert cell.digest != before, "who asked gets an answer"


def test_a_change_that_changes_nothing_is_answered_as_any_other():
    cell = cell_with()

    for _ in range(2):
        assert cell.take(held("big")) == held("big", admitted=cell.admission.jobs["big"].seq, author=AUTHOR)
    assert cell.take(JobChanged("big", queue="ads/prod")).queue is None


@pytest.mark.parametrize("preset", PRESETS)
def test_a_priority_is_taken_under_every_preset_as_it_is_at_submission(preset):
    cell = running_cell(config(preset=preset), job("j", stage(tasks=9)))

    assert isinstance(cell.take(JobChanged("j", priority=5)), JobChanged)
    assert cell.admission.jobs["j"].spec.priority == 5


# ---------------------------------------------------------------- names
def test_a_changed_job_is_still_known_by_what_was_submitted():
    cell = cell_with()
    cell.take(JobChanged("big", hold=True, priority=7))
    changed = cell.admission.jobs["big"].spec

    assert isinstance(cell.take(BIG), InputRepeated)
    assert cell.take(replace(BIG, priority=7)).reason == "name_taken"
    cell.cancel("big")
    cell.settle()
    assert changed.priority == 7
    assert cell.admission.ended["big"].digest == digest_of(BIG)
    assert cell.take(BIG) == InputRepeated("big", AUTHOR, outcome="cancelled")


def test_a_spec_that_is_not_held_has_the_name_that_it_had():
    plain = job("j")

    assert digest_of(plain) == digest_of(replace(plain, hold=False)) != digest_of(replace(plain, hold=True))
    assert digest_of(replace(plain, revocable="never")) != digest_of(plain)


# ---------------------------------------------------------------- held and released
@pytest.mark.parametrize("preset", PRESETS)
def test_a_held_job_starts_nothing_and_runs_on(preset):
    cell = cell_with(preset=preset)
    running = cell.granted[:]
    cell.take(held("big"))
    cell.finish(*running)

    assert cell.settle() == []
    cell.take(released("big"))
    assert served(cell.settle()) == {"big": 4}


@pytest.mark.parametrize("preset", PRESETS)
def test_a_job_that_is_submitted_held_waits_until_it_is_released(preset):
    cell = running_cell(config(preset=preset), replace(job("j", stage(tasks=2)), hold=True))

    assert cell.granted == []
    cell.take(released("j"))
    assert served(cell.settle()) == {"j": 2}


def test_what_a_held_job_leaves_goes_to_others_and_its_share_too():
    cell = cell_with(job("other", stage(tasks=8), queue="ads/test"))
    cell.finish(*cell.granted)
    cell.take(held("big"))

    assert served(cell.settle()) == {"other": 4}
    assert "ads/prod" not in by_leaf(cell.fairness, "asked")


def test_grants_of_a_round_that_was_open_are_struck():
    cell = SlowCell()
    cell.take(node(), BIG, job("other"))
    assert cell.open()
    cell.take(held("big"))
    body = cell.close()

    assert [struck.reason for struck in body.struck] == ["job_over"] * len(body.struck)
    assert {struck.grant.job for struck in body.struck} == {"big"}
    assert {grant.job for grant in body.grants} <= {"other"}
    cell.settle()
    cell.take(released("big"))
    assert served(cell.settle())["big"] == 3


def test_a_held_job_gives_its_turn_to_one_that_can_start():
    top = tree(queue("q", running_jobs_max=1))
    cell = running_cell(config(top), replace(job("first", queue="q"), hold=True), job("second", queue="q"))

    assert served(cell.granted) == {"second": 1}
    assert [turn.let_run for turn in cell.bodies(JobTurns)] == [["second"]]
    cell.finish(*cell.granted)
    cell.settle()
    cell.take(released("first"))
    assert served(cell.settle()) == {"first": 1}


# ---------------------------------------------------------------- priority and queue
@pytest.mark.parametrize("preset", [name for name in PRESETS if name != "slots"])
def test_another_priority_counts_from_the_next_round_on(preset):
    top = tree("q")
    cell = running_cell(config(top, preset=preset), job("all", stage(tasks=4), queue="q"))
    cell.take(job("early", queue="q"), job("late", queue="q"))
    cell.settle()
    cell.take(JobChanged("late", priority=3))
    cell.finish(cell.granted[0])

    assert served(cell.settle())["late"] == 1


def test_a_job_moves_to_another_queue_while_nothing_of_it_runs():
    cell = cell_with(job("waits", stage(cpu=4_000), queue="ads/test"))
    body = cell.take(JobChanged("waits", queue="default"))
    cell.cancel("big")
    cell.finish(*cell.granted)

    assert (body.queue, body.priority) == ("default", 0)
    assert served(cell.settle()) == {"waits": 1}
    assert {each.queue for on_node in cell.leftover.held.values() for each in on_node.values()} == {"default"}


def test_a_job_that_moves_leaves_its_turn_and_takes_one():
    top = tree(queue("a", running_jobs_max=1), queue("b", running_jobs_max=1))
    none = stage(cpu=4_000)
    cell = running_cell(config(top), job("all", stage(tasks=4)))
    cell.take(*[job(f"{at}{k}", none, queue=at) for at in "ab" for k in range(2)])
    cell.settle()
    cell.take(JobChanged("a0", queue="b"))

    assert cell.admission.running_limits.through == {"a": 1, "b": 1}
    assert not cell.admission.jobs["a1"].parked
    assert cell.admission.jobs["a0"].parked
    assert [each.job for each in cell.leftover.running_limits.parked["b"]] == ["a0", "b1"]


def test_admission_alone_knows_what_was_submitted():
    cell = cell_with()
    cell.take(JobChanged("big", priority=1))

    assert [body.spec for body in cell.bodies(JobAdmitted)] == [BIG]
