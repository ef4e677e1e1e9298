"""Levels of queues with limits, and of subtrees with a policy of their own, in stories; and what comes of them."""

from dataclasses import replace

import pytest

from tests.builders import config, job, node, queue, single, stage, tree
from tests.cells import SlowCell, by_leaf, targets

CORE = {"cpu": 1_000}


def cell(*queues, cpu=10_000, **knobs):
    """A cell with one node and a tree of these queues. Memory is short for nobody who does not ask for all."""
    story = SlowCell()
    story.take(config(tree(*queues), **knobs), node("n1", cpu=cpu, memory=10_000))
    story.settle()
    return story


def levels(story):
    """The levels in force after a round, in permille of the cell."""
    story.settle()
    return {name: (target + 1) // 1_000_000 for name, target in targets(story.fairness).items()}


def wants(name, tasks, queue_name, cpu=1_000, memory=0, **more):
    return job(name, stage(tasks=tasks, cpu=cpu, memory=memory, **more), queue=queue_name)


def limited(name, *below, weight=1, guaranteed=None, most=None):
    plain = {kind: {"cpu": amount} for kind, amount in (("guaranteed", guaranteed), ("max", most)) if amount}
    return queue(name, weight, *below, **plain)


# ---------------------------------------------------------------- limits
def test_a_guarantee_comes_before_weights_and_only_while_it_is_asked_for():
    story = cell(limited("a", guaranteed=7_000), queue("b", 2), queue("c"))
    story.take(wants("k", 50, "b"), wants("l", 50, "c"))
    assert levels(story) == {"b": 666, "c": 333}

    story.take(wants("j", 50, "a"))
    assert levels(story) == {"a": 700, "b": 200, "c": 100}
    story.cancel("j")
    assert levels(story) == {"b": 666, "c": 333}


def test_a_guarantee_of_a_queue_is_for_all_below_it():
    story = cell(limited("in", queue("x", 3), queue("y"), guaranteed=8_000), queue("b", 3))
    story.take(wants("i", 50, "in/x"), wants("j", 50, "in/y"), wants("k", 50, "b"))
    assert levels(story) == {"in/x": 600, "in/y": 200, "b": 200}


def test_a_guarantee_below_a_queue_raises_it():
    story = cell(queue("in", 1, limited("x", guaranteed=6_000), queue("y")), queue("b", 3))
    story.take(wants("i", 50, "in/x"), wants("j", 50, "in/y"), wants("k", 50, "b"))
    found = levels(story)
    assert (found["in/x"], found["b"]) == (600, 400)
    assert found["in/y"] == 0


def test_too_much_guaranteed_is_kept_in_proportion():
    story = cell(limited("a", guaranteed=8_000), limited("b", guaranteed=4_000), queue("c"))
    story.take(wants("i", 50, "a"), wants("j", 50, "b"))
    assert levels(story) == {"a": 666, "b": 333}


def test_what_a_maximum_keeps_from_a_queue_goes_to_the_others():
    story = cell(limited("a", most=3_000, weight=9), queue("b"))
    story.take(wants("j", 50, "a"), wants("k", 50, "b"))
    assert levels(story) == {"a": 300, "b": 700}


def test_a_maximum_is_shared_out_below_it_by_weight_whoever_asks_how_much():
    story = cell(limited("in", queue("x"), queue("y"), most=4_000), queue("b"))
    story.take(wants("i", 1, "in/x"), wants("j", 90, "in/y"), wants("k", 50, "b"))
    assert levels(story) == {"in/x": 100, "in/y": 300, "b": 600}

    story.take(wants("more", 9, "in/x"))
    assert levels(story) == {"in/x": 200, "in/y": 200, "b": 600}
    story.cancel("more")
    assert levels(story) == {"in/x": 100, "in/y": 300, "b": 600}


def test_a_maximum_inside_another():
    story = cell(limited("in", limited("x", most=1_000), queue("y"), most=4_000), queue("b"))
    story.take(wants("i", 50, "in/x"), wants("j", 50, "in/y"), wants("k", 50, "b"))
    assert levels(story) == {"in/x": 100, "in/y": 300, "b": 600}


@pytest.mark.parametrize("preset", ["drf", "collapsed"])
def test_a_maximum_holds_where_leaves_stand_side_by_side(preset):
    story = cell(limited("in", queue("x"), queue("y"), most=4_000), queue("b"), preset=preset)
    story.take(wants("i", 2, "in/x"), wants("j", 90, "in/y"), wants("k", 50, "b"))
    assert levels(story) == {"in/x": 200, "in/y": 200, "b": 600}


def test_a_kind_that_a_queue_may_have_nothing_of_leaves_its_other_tasks_alone():
    story = cell(replace(queue("in", 1, "x", "y"), max={"memory": 0}), queue("b"))
    story.take(wants("i", 50, "in/x"), wants("k", 50, "b"))
    assert levels(story) == {"in/x": 500, "b": 500}


def test_what_one_below_a_maximum_cannot_have_for_want_of_another_kind_is_its_siblings():
    """x gets little CPU, whatever it asks for: what that leaves of in's memory is y's, however much more x asks for."""
    story = cell(replace(queue("in", 1, "x", "y"), max={"memory": 4_000}), queue("b", 9))
    y = job("y", stage(tasks=9, demand={"memory": 1_000}), queue="in/y")
    story.take(wants("i", 3, "in/x", memory=500), y, wants("k", 50, "b"))
    found = levels(story)
    assert (found["in/y"], found["in/x"]) == (365, 68)

    story.take(wants("more", 1, "in/x", memory=500))
    found = levels(story)
    assert (found["in/y"], found["in/x"]) == (365, 68)


@pytest.mark.parametrize(
    ("preset", "others"), [("hdrf", 0), ("hdrf", 130), ("drf", 0), ("collapsed", 0), ("collapsed", 130)]
)
def test_what_is_guaranteed_below_a_maximum_comes_first_within_it(preset, others):
    """in may have 4 cores, and x is guaranteed 3 of them: y gets the fourth, whatever z may have of the memory."""
    inside = limited("in", limited("x", guaranteed=3_000), queue("y", 5), queue("z"), weight=9_999, most=4_000)
    story = cell(inside, *[queue(f"q{i}") for i in range(others)], preset=preset)
    z = job("z", stage(tasks=9, demand={"memory": 1_000}), queue="in/z")
    story.take(wants("i", 3, "in/x"), wants("j", 50, "in/y"), z, *[wants(f"q{i}", 9, f"q{i}") for i in range(others)])
    found = levels(story)
    assert (found["in/x"], found["in/y"], found["in/z"]) == (300, 100, 900)


def test_another_direction_of_what_is_asked_for_is_another_filling():
    story = cell(queue("a"), queue("b"))
    story.take(wants("j", 50, "a", memory=900), wants("k", 50, "b", memory=900))
    assert levels(story) == {"a": 500, "b": 500}

    story.take(wants("l", 50, "a", memory=1_500))  # Now memory is what it asks for most, and what is short.
    found = levels(story)
    assert found["a"] == found["b"] > 500


def test_guarantees_and_maxima_hold_while_tasks_come_and_go():
    """Tasks of a core that end one by one, wherever they run: a has its six before the first has run twice."""
    story = cell(limited("a", guaranteed=6_000), limited("b", most=7_000), queue("c"))
    story.take(wants("j", 90, "b"), wants("k", 90, "c"))
    story.settle()
    running, held = [single(g, i) for g in story.granted for i in range(g.first, g.first + g.count)], []
    assert len(running) == 10
    story.at(100).take(wants("i", 90, "a"))
    story.settle()
    for _ in range(60):
        story.at(story.time + 10).finish(running.pop(0))
        running += [single(g, i) for g in story.settle() for i in range(g.first, g.first + g.count)]
        cores = {name: vector["cpu"] for name, vector in by_leaf(story.fairness, "used").items()}
        held.append(cores.get("a", 0))
        assert sum(cores.values()) == 10_000
        assert cores.get("b", 0) <= 7_000
    assert min(held[10:]) >= 6_000


# ---------------------------------------------------------------- policies of subtrees
@pytest.mark.parametrize("policy", ["fifo", "fair", "srtf", "priority"])
def test_a_list_has_one_level_at_its_top(policy):
    story = cell(replace(queue("in", 1, "x", "y"), policy=policy), queue("b"))
    story.take(wants("i", 50, "in/x"), wants("j", 50, "in/y"), wants("k", 50, "b"))
    assert levels(story) == {"in": 500, "b": 500}


@pytest.mark.parametrize("policy", ["drf", "collapsed", "hdrf", "naive-hdrf", "capacity"])
def test_a_policy_of_a_subtree_holds_below_it_and_nowhere_else(policy):
    below = queue("in", 1, queue("p", 1, "x", "y"), queue("z"))
    story = cell(replace(below, policy=policy), queue("q", 1, queue("r", 1, "v", "w"), queue("u")), cpu=24_000)
    story.take(*[wants(f"j{name[-1]}", 90, name) for name in ("in/p/x", "in/p/y", "in/z", "q/r/v", "q/r/w", "q/u")])

    found = {name: (level * 24 + 500) // 1_000 for name, level in levels(story).items()}
    inside = {name: cores for name, cores in found.items() if name.startswith("in/")}
    assert {name: cores for name, cores in found.items() if name not in inside} == {"q/r/v": 3, "q/r/w": 3, "q/u": 6}
    assert inside == (dict.fromkeys(inside, 4) if policy == "drf" else {"in/p/x": 3, "in/p/y": 3, "in/z": 6})


def test_a_tree_that_is_one_list_has_no_levels():
    story = cell(queue("a"), queue("b"))
    story.take(config(replace(tree(queue("a"), queue("b")), policy="fifo")), wants("j", 50, "a"))
    assert levels(story) == {}


@pytest.mark.parametrize("gang", [False, True])
def test_levels_that_go_by_what_is_held_leave_out_who_waits_out_a_back_off(gang):
    story = cell(queue("a"), queue("b"), preset="naive-hdrf", retry_backoff_ms=60_000)
    story.take(wants("j", 4, "a", retries=1, gang=gang))
    story.settle()
    story.at(10).fail(*[single(grant, i) for grant in story.granted for i in range(grant.first, grant.first + 4)])
    story.take(wants("k", 50, "b"))
    assert levels(story) == {"a": 0, "b": 1_000}

    story.finish(*[single(grant, i) for grant in story.granted[-1:] for i in range(grant.first, grant.first + 5)])
    story.at(60_010)
    assert levels(story) == {"a": 400, "b": 600}


# ---------------------------------------------------------------- beside guarantees of all
PROMISED = (limited("a", guaranteed=6_000), limited("d", guaranteed=4_000), queue("b"), queue("c", 3))


def cores(story):
    story.settle()
    return {name: vector["cpu"] // 1_000 for name, vector in sorted(by_leaf(story.fairness, "used").items())}


@pytest.mark.parametrize(
    ("asked", "due", "has"),
    [
        pytest.param(0, {"a": 600, "b": 100, "c": 300}, {"a": 6, "b": 1, "c": 3}, id="a promise that nobody asks for"),
        pytest.param(
            2, {"a": 600, "b": 50, "c": 150, "d": 200}, {"a": 6, "b": 1, "c": 1, "d": 2}, id="one asked for in part"
        ),
        pytest.param(4, {"a": 600, "b": 0, "c": 0, "d": 400}, {"a": 6, "d": 4}, id="all that is promised is asked for"),
    ],
)
def test_what_siblings_do_not_ask_of_their_promises_goes_at_once_to_who_was_promised_nothing(asked, due, has):
    story = cell(*PROMISED)
    story.take(wants("i", 50, "a"), wants("k", 50, "b"), wants("l", 50, "c"))
    if asked:
        story.take(wants("j", asked, "d"))
    assert (cores(story), levels(story)) == (has, due)


def test_below_a_queue_that_gets_more_than_its_promise_the_rest_is_for_those_who_were_promised_nothing():
    story = cell(queue("in", 1, limited("x", guaranteed=6_000), queue("y")), queue("c", 3))
    story.take(wants("i", 50, "in/x"), wants("j", 50, "in/y"), wants("k", 2, "c"))
    assert (cores(story), levels(story)) == ({"c": 2, "in/x": 6, "in/y": 2}, {"c": 200, "in/x": 600, "in/y": 200})


def test_who_was_promised_nothing_has_what_comes_free_in_the_round_in_which_nobody_else_waits():
    story = cell(limited("a", guaranteed=10_000), queue("b"))
    story.take(wants("j", 12, "a"), wants("k", 50, "b"))
    story.settle()
    running = [single(grant, i) for grant in story.granted for i in range(grant.first, grant.first + grant.count)]
    assert cores(story) == {"a": 10}
    for ended, has in enumerate([0, 0, 1, 2, 3]):
        story.at(story.time + 10).finish(running[ended])
        assert cores(story).get("b", 0) == has


def test_who_was_promised_nothing_has_the_pieces_that_are_too_small_and_the_kinds_that_are_not_asked_for():
    story = cell(limited("a", guaranteed=10_000), queue("b"), queue("c"))
    memory = job("l", stage(tasks=50, demand={"memory": 1_000}), queue="c")
    story.take(wants("j", 50, "a", cpu=3_000), wants("k", 50, "b"), memory)
    story.settle()
    assert by_leaf(story.fairness, "used") == {"a": {"cpu": 9_000}, "b": {"cpu": 1_000}, "c": {"memory": 10_000}}
