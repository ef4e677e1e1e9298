"""The preset `slots` in stories: so many tasks a node whatever they ask, and places alone count."""

import pytest

from schemas.policy import SLOTS_MAX
from tests.builders import config, job, node, queue, report, single, stage, tree
from tests.cells import SlowCell, indexes, targets


def cell(*given, slots=4, queues=(), **knobs):
    story = SlowCell()
    story.take(config(tree(*queues) if queues else None, preset="slots", slots_per_node=slots, **knobs), *given)
    return story


def levels(story):
    """The levels in force, in permille of the cell's places."""
    return {name: target // 1_000_000 for name, target in targets(story.fairness).items()}


def served(grants):
    counts = {}
    for grant in grants:
        counts[grant.job, grant.node] = counts.get((grant.job, grant.node), 0) + grant.count
    return counts


# ---------------------------------------------------------------- placement
def test_a_node_takes_so_many_tasks_whatever_they_ask():
    story = cell(node(cpu=4_000), job("wide", stage(tasks=9, cpu=4_000)), slots=3)

    assert served(story.settle()) == {("wide", "n1"): 3}
    assert story.admission.nodes["n1"].free["cpu"] == 4_000 - 3 * 4_000


def test_small_tasks_get_no_more_places_than_large_ones():
    story = cell(node(cpu=4_000), job("thin", stage(tasks=99, cpu=1)))
    assert served(story.settle()) == {("thin", "n1"): 4}


def test_an_end_makes_a_place_free():
    story = cell(node(), job("j", stage(tasks=9, cpu=4_000)))
    first = story.settle()
    story.finish(single(first[0], 0))
    assert indexes(story.settle()) == [("map", 4)]


def test_labels_devices_and_kinds_that_a_node_has_nothing_of_keep_a_task_away():
    story = cell(
        node("plain", labels={"zone": "a"}),
        node("gpus", gpus=[1_000]),
        job("here", stage(tasks=9, labels={"zone": "a"})),
        job("learns", stage(tasks=9, gpu=1_000)),
        job("reads", stage(tasks=9, demand={"disk": 5})),
    )
    story.take(node("disks", cpu=1, disk=5))
    story.take(job("reads", stage(tasks=9, demand={"disk": 5})))

    assert served(story.settle()) == {("here", "plain"): 4, ("learns", "gpus"): 1, ("reads", "disks"): 4}


def test_a_gang_starts_when_there_are_places_for_all_of_it():
    story = cell(node("n1"), node("n2"), job("one", stage()), job("gang", stage(tasks=8, gang=True)))
    assert served(story.settle()) == {("one", "n1"): 1}

    story.take(node("n3"))
    assert sum(served(story.settle()).values()) == 8


# ---------------------------------------------------------------- shares
def test_queues_share_places_by_weight_and_not_what_tasks_ask():
    story = cell(
        *(node(f"n{i}") for i in range(3)),
        job("j", stage(tasks=99, cpu=1), queue="a"),
        job("k", stage(tasks=99, cpu=4_000), queue="b"),
        queues=[queue("a", 2), queue("b", 1)],
    )
    grants = story.settle()

    assert levels(story) == {"a": 666, "b": 333}
    assert {name: sum(grant.count for grant in grants if grant.job == name) for name in "jk"} == {"j": 8, "k": 4}


def test_a_queue_that_asks_for_few_places_leaves_the_others_to_its_sibling():
    story = cell(
        *(node(f"n{i}") for i in range(2)),
        job("j", stage(tasks=2, cpu=4_000), queue="a"),
        job("k", stage(tasks=99, cpu=1), queue="b"),
        queues=[queue("a"), queue("b")],
    )
    story.settle()
    assert levels(story) == {"a": 250, "b": 750}


@pytest.mark.parametrize(("before", "after"), [("hdrf", "slots"), ("slots", "hdrf")])
def test_a_change_of_preset_counts_anew_what_is_held_and_asked(before, after):
    """Judged by a cell that had the later preset from the start, and granted the same."""
    queues = [queue("a"), queue("b")]
    facts = [node("n1"), node("n2"), job("j", stage(tasks=6), queue="a"), job("k", stage(tasks=5), queue="b")]
    changed, plain = SlowCell(), SlowCell()
    for story, preset in ((changed, before), (plain, after)):
        story.take(config(tree(*queues), preset=preset), *facts)
        first = next(grant for grant in story.settle() if grant.job == "j")
        story.finish(single(first, first.first))
        story.cancel("k")
        story.take(config(preset=after), job("l", stage(tasks=7), queue="b"))
    for field in ("capacity", "demands"):
        assert getattr(changed.fairness, field) == getattr(plain.fairness, field), field


def test_another_number_of_places_holds_at_once():
    story = cell(node(), job("j", stage(tasks=9, cpu=4_000)), slots=2)
    assert len(indexes(story.settle())) == 2

    story.take(config(slots_per_node=5))
    assert len(indexes(story.settle())) == 3
    assert story.fairness.capacity.divided == {"slots": 5}


# ---------------------------------------------------------------- what strikes
@pytest.mark.parametrize(
    ("fact", "struck"),
    [
        pytest.param(report(cpu=1), [], id="a node that shrinks has as many places"),
        pytest.param(config(slots_per_node=3), ["no_room"], id="fewer places"),
        pytest.param(config(preset="hdrf"), ["no_room"], id="places count no longer"),
    ],
)
def test_what_overtakes_a_grant_of_places(fact, struck):
    story = cell(node(), job("j", stage(tasks=9, cpu=4_000)))
    assert story.open()
    story.take(fact)
    story.close()
    assert [item.reason for item in story.struck] == struck


def test_a_node_that_comes_back_has_its_places_taken_still():
    story = cell(node(), job("j", stage(tasks=9)))
    story.settle()
    story.take(report(cpu=8_000))
    assert len(story.admission.nodes["n1"].holds) == 4
    assert story.settle() == []


# ---------------------------------------------------------------- the knob
@pytest.mark.parametrize("slots", [1, SLOTS_MAX])
def test_the_least_and_the_most_places(slots):
    story = cell(node(), job("j", stage(tasks=SLOTS_MAX + 1, cpu=1)), slots=slots)
    assert sum(served(story.settle()).values()) == slots
