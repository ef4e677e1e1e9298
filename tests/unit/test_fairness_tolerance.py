"""Levels follow what queues ask for at once where it moved by much, and within a stated time where by little."""

import pytest

from services.fairness import core
from tests.builders import admitted, cancelled, configured, ended, job, queue, registered, stage, tree
from tests.harness import given

CPU = 1_000_000
"""Of the cell: a permille is 1,000."""


def cell(*queues, **knobs):
    """Every queue asks for the whole cell, and the levels are in force."""
    names = [each.name for each in queues]
    story = given(core, configured(queues=tree(*queues), preset="hdrf", **knobs), registered("n1", cpu=CPU))
    for name in names:
        story.then(asks(f"all-{name}", name, CPU))
    levels(story, at=0)
    return story


def asks(name, leaf, cpu):
    return admitted(job(name, stage("s", cpu=cpu), queue=leaf))


def levels(story, at):
    """The levels that a round tells."""
    (shares,) = story.round(at=at)
    story.close()
    return {level.queue: level.target for level in shares.levels}


def small(name, leaf):
    """Two thirds of a permille of the cell."""
    return asks(name, leaf, 667)


def test_a_small_change_is_followed_by_the_next_round_once_the_time_is_over():
    story = cell(queue("a"), queue("b"))
    story.then(cancelled("all-a"), ended("all-a"), small("j", "a"))
    assert levels(story, at=100) == {"a": 667_000, "b": 999_333_000}  # Half of the cell is no small change.

    story.then(small("k", "a"))
    assert levels(story, at=200) == {}
    assert levels(story, at=1_199) == {}
    assert levels(story, at=1_200) == {"a": 1_334_000, "b": 998_666_000}


def test_small_changes_of_many_queues_add_up():
    story = cell(queue("a"), queue("b"), queue("c"))
    for leaf in ("a", "b"):
        story.then(cancelled(f"all-{leaf}"), ended(f"all-{leaf}"), small(f"j-{leaf}", leaf))
    levels(story, at=100)

    story.then(small("k", "a"))
    assert levels(story, at=200) == {}
    story.then(small("l", "b"))
    assert levels(story, at=300) == {"a": 1_334_000, "b": 1_334_000, "c": 997_332_000}


def test_a_change_that_is_taken_back_is_none():
    story = cell(queue("a"), queue("b"))
    story.then(cancelled("all-a"), ended("all-a"), small("j", "a"))
    levels(story, at=100)

    for number in range(9):
        story.then(cancelled("j" if not number else f"j{number - 1}"), small(f"j{number}", "a"))
        assert levels(story, at=200 + number) == {}
    assert levels(story, at=5_000) == {}


def test_what_begins_to_ask_for_little_has_all_of_it_as_its_level_until_the_next_refill():
    story = cell(*[queue(f"q{at}") for at in range(9)], queue("heavy", 10_000))
    story.then(cancelled("all-q0"), ended("all-q0"))
    assert "q0" not in levels(story, at=100)

    story.then(small("j", "q0"))
    assert levels(story, at=200) == {"q0": 667_000}
    refilled = levels(story, at=1_200)
    assert refilled["q0"] == refilled["q1"] < 100_000


def test_what_begins_to_ask_for_much_is_followed_at_once():
    story = cell(queue("a"), queue("b"))
    story.then(cancelled("all-a"), ended("all-a"))
    assert levels(story, at=100) == {"b": 1_000_000_000}

    story.then(asks("j", "a", 5_000))
    assert levels(story, at=200) == {"a": 5_000_000, "b": 995_000_000}


def test_what_begins_to_ask_for_other_kinds_has_a_level_for_them_at_once():
    story = cell(queue("a"), queue("b"))
    story.then(registered("n2", memory=CPU))
    levels(story, at=100)
    story.then(admitted(job("j", stage("s", cpu=0, memory=500), queue="a")))

    (shares,) = story.round(at=200)

    assert [[part.kinds for part in level.kinds] for level in shares.levels if level.queue == "a"] == [
        [["cpu"], ["memory"]]
    ]


@pytest.mark.parametrize("knob", ["demand_tolerance_permille", "demand_tolerance_ms"])
def test_where_nothing_is_tolerated_every_round_follows(knob):
    story = cell(queue("a"), queue("b"), **{knob: 0})
    story.then(cancelled("all-a"), ended("all-a"), small("j", "a"))
    levels(story, at=100)

    story.then(small("k", "a"))
    assert levels(story, at=100) == {"a": 1_334_000, "b": 998_666_000}


def test_another_capacity_is_followed_at_once():
    story = cell(queue("a"), queue("b"))
    story.then(cancelled("all-a"), ended("all-a"), small("j", "a"))
    levels(story, at=100)

    story.then(registered("n2", cpu=1))
    assert "a" in levels(story, at=200)


def test_where_all_demands_fit_every_change_is_followed():
    story = given(core, configured(queues=tree(queue("a"), queue("b")), preset="hdrf"), registered("n1", cpu=CPU))
    story.then(small("j", "a"))
    assert levels(story, at=0) == {"a": 667_000}
    story.then(small("k", "a"))
    assert levels(story, at=1) == {"a": 1_334_000}


def test_what_an_abandoned_round_would_have_followed_the_next_one_does():
    story = cell(queue("a"), queue("b"))
    story.then(cancelled("all-a"), ended("all-a"), small("j", "a"))
    story.round(at=100)
    story.abandon()

    assert levels(story, at=101) == {"a": 667_000, "b": 999_333_000}


def test_a_restart_refills_when_it_would_have_been_done():
    story = cell(queue("a"), queue("b"))
    story.then(cancelled("all-a"), ended("all-a"), small("j", "a"))
    levels(story, at=100)
    story.then(small("k", "a"))
    levels(story, at=200)

    story.restarted()
    assert levels(story, at=300) == {}
    assert levels(story, at=1_200) == {"a": 1_334_000, "b": 998_666_000}
