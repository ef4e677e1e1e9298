"""What fairness says of queues round by round, and of guarantees that are broken for longer than any task runs."""

from dataclasses import replace

import pytest

from schemas import Breach, NodeReported, QueueShare
from services.fairness.core.decide import SETTLE_MS
from services.fairness.core.guarantees import GuaranteeWatch
from tests.builders import config, job, node, queue, single, stage, tree
from tests.cells import SlowCell, by_leaf

ALL = 1_000_000_000


def cell(*queues, cpu=10_000, **knobs):
    """A cell with one node and a tree of these queues. Memory is never short. Its first rounds are over."""
    story = SlowCell()
    story.take(config(tree(*queues), **knobs), node("n1", cpu=cpu, memory=10**9))
    story.settle()
    return story


def wants(name, tasks, queue_name, cpu=1_000, **more):
    return job(name, stage(tasks=tasks, cpu=cpu, **more), queue=queue_name)


def said(story):
    """What the last round said: queue -> (guaranteed, fair, allocated, lent, borrowed) in permille, and the kind."""
    return {
        one.queue: (*[value // 1_000_000 for value in share_of(one)], one.resource)
        for one in story.answer("shares").queues
    }


def share_of(one):
    return one.guaranteed, one.fair, one.allocated, one.lent, one.borrowed


def later(story):
    """The next round, when one is due by itself."""
    story.at(story.next_ms())
    story.settle()
    return story


# ---------------------------------------------------------------- what queues have
def test_a_queue_is_guaranteed_its_part_among_those_that_ask():
    story = cell(queue("a", 3), queue("b"), queue("idle", 6))
    story.take(wants("j", 50, "a"), wants("k", 50, "b"))
    story.settle()

    assert said(story) == {"a": (750, 750, 0, 0, 0, ""), "b": (250, 250, 0, 0, 0, "")}


def test_what_a_round_granted_is_told_a_second_later_if_nothing_else_happens():
    story = cell(queue("a", 3), queue("b"))
    story.take(wants("j", 50, "a"), wants("k", 50, "b"))
    story.settle()
    assert story.next_ms() == SETTLE_MS

    later(story)
    assert said(story) == {"a": (750, 750, 700, 0, 0, "cpu"), "b": (250, 250, 300, 0, 50, "cpu")} or said(story) == {
        "a": (750, 750, 800, 0, 50, "cpu"),
        "b": (250, 250, 200, 0, 0, "cpu"),
    }
    assert story.fairness.rounds.wake_ms is None
    assert story.fairness.shares["a"].resource == "cpu"


def test_who_asks_for_less_than_its_guarantee_lends_the_rest_and_who_holds_more_borrows():
    story = cell(queue("a"), queue("b"))
    story.take(wants("j", 2, "a"), wants("k", 50, "b"))
    story.settle()
    later(story)

    assert said(story) == {"a": (500, 200, 200, 300, 0, "cpu"), "b": (500, 800, 800, 0, 300, "cpu")}


def test_shares_of_inner_queues_are_published_too_and_that_of_the_root_is_not():
    story = cell(queue("in", 4, queue("x"), queue("y", 3)), queue("b"))
    story.take(wants("j", 50, "in/x"), wants("l", 1, "in/y"), wants("k", 50, "b"))
    story.settle()
    assert said(story) == {
        "in": (800, 800, 0, 0, 0, ""),
        "in/x": (200, 700, 0, 0, 0, ""),
        "in/y": (600, 100, 0, 500, 0, ""),
        "b": (200, 200, 0, 0, 0, ""),
    }

    later(story)
    assert said(story)["in"] == (800, 800, 800, 0, 0, "cpu")


def test_what_tasks_hold_counts_until_their_node_gives_it_back():
    story = cell(queue("a"), queue("b"))
    story.take(wants("j", 4, "a"))
    story.settle()
    story.cancel("j")
    story.settle()
    assert said(story)["a"] == (0, 0, 400, 0, 400, "cpu")

    story.fail(*story.granted, reason="killed")
    story.settle()
    assert said(story)["a"] == (0, 0, 0, 0, 0, "")
    assert story.fairness.shares == {}
    assert (story.fairness.held, by_leaf(story.fairness, "used"), story.fairness.runs.since) == ({}, {}, {})


def test_a_lost_node_gives_back_what_it_held():
    story = cell(queue("a"))
    story.take(node("n2", cpu=10_000, memory=10**9), wants("j", 20, "a"))
    story.settle()
    later(story)
    assert said(story)["a"][2] == 1_000

    story.lose("n2")
    story.settle()
    later(story)
    assert by_leaf(story.fairness, "used") == {"a": {"cpu": 10_000}}


def test_in_a_list_only_the_whole_has_a_share():
    story = cell(replace(queue("in", 1, queue("x"), queue("y")), policy="fifo"), queue("b"))
    story.take(wants("j", 50, "in/x"), wants("k", 50, "b"))
    story.settle()
    later(story)

    assert said(story)["in"] == (500, 500, 500, 0, 0, "cpu")
    assert said(story)["in/x"] == (0, 0, 500, 0, 0, "cpu")


def test_a_value_that_moves_by_less_than_a_permille_is_not_told():
    story = cell(queue("a"), queue("b"), cpu=10_000_000)
    story.take(wants("j", 5_000, "a"), wants("k", 5_000, "b"))
    story.settle()
    later(story)
    for number in range(1, 10):
        story.finish(single(story.granted[0], number))
        story.settle()
        assert said(story) == {}

    story.finish(single(story.granted[0], 10))
    story.settle()
    assert said(story) == {story.granted[0].job.replace("j", "a").replace("k", "b"): (500, 499, 499, 1, 0, "cpu")}


def test_a_guarantee_in_units_is_kept_for_whoever_asks_and_leaves_the_others_less():
    story = cell(replace(queue("a"), guaranteed={"cpu": 8_000}), queue("b", 2), queue("c", 2))
    story.take(wants("k", 50, "b"), wants("l", 50, "c"))
    story.settle()
    assert {name: values[0] for name, values in said(story).items()} == {"b": 500, "c": 500}

    story.take(wants("j", 50, "a"))
    story.settle()
    assert {name: values[0] for name, values in said(story).items()} == {"a": 800, "b": 100, "c": 100}


def test_too_much_guaranteed_is_cut_in_proportion():
    story = cell(replace(queue("a"), guaranteed={"cpu": 8_000}), replace(queue("b"), guaranteed={"cpu": 2_000}))
    story.take(wants("j", 50, "a"), wants("k", 50, "b"))
    story.settle()
    story.take(NodeReported("n1", "e1", {"cpu": 5_000, "memory": 10**9}))
    story.settle()

    assert {one.queue: one.guaranteed // 1_000_000 for one in story.fairness.shares.values()} == {"a": 800, "b": 200}


def test_nobody_is_guaranteed_more_than_its_maximum():
    story = cell(replace(queue("a"), max={"cpu": 3_000}), queue("b"))
    story.take(wants("j", 50, "a"), wants("k", 50, "b"))
    story.settle()

    assert said(story)["a"][0] == 300
    assert said(story)["b"][0] == 500


# ---------------------------------------------------------------- broken guarantees
def crowded():
    """b has the whole cell with small tasks when a comes with one of six cores. a is guaranteed seven and a half."""
    story = cell(queue("a", 3), queue("b"))
    story.take(wants("small", 90, "b", retries=2))
    story.settle()
    story.at(1_000).settle()
    story.at(2_000).take(wants("big", 1, "a", cpu=6_000))
    story.settle()
    return story


def end_one_by_one(story, count, first=0):
    """Small tasks end, and as none makes room for the big one, others start."""
    for index in range(first, first + count):
        story.at(story.time + 10)
        story.finish(next(single(g, index) for g in story.granted if g.first <= index < g.first + g.count))
        story.settle()


def breaches(story):
    return [breach for body in story.bodies_of("Shares") for breach in body.breaches]


def test_a_guarantee_is_broken_once_every_task_has_started_since():
    story = crowded()
    end_one_by_one(story, 10)
    assert breaches(story) == []

    end_one_by_one(story, 1, first=10)
    assert breaches(story) == [Breach("a", 3 * ALL // 4, 0, 2_000, "b", placeable=False)]
    end_one_by_one(story, 5, first=11)
    assert len(breaches(story)) == 1


def test_a_guarantee_that_holds_again_is_over():
    story = crowded()
    end_one_by_one(story, 12)
    running = [single(g, i) for g in story.granted for i in range(g.first, g.first + g.count) if i >= 12]
    story.at(5_000).finish(*running[:6])
    story.settle()
    assert [breach.over for breach in breaches(story)] == [False]

    story.at(5_100).finish(running[6])
    story.settle()
    assert breaches(story)[1] == Breach("a", 3 * ALL // 4, 6 * ALL // 10, 2_000, over=True)
    assert story.fairness.watch == GuaranteeWatch()


def test_a_breach_is_seen_without_another_event():
    story = crowded()
    end_one_by_one(story, 10)
    assert breaches(story) == []

    later(story)
    assert [breach.queue for breach in breaches(story)] == ["a"]
    while story.next_ms() is not None:  # Room is gathered meanwhile.
        later(story)
    assert len(breaches(story)) == 1


def test_a_task_that_fits_nowhere_breaks_the_guarantee_though_nothing_else_runs():
    story = cell(queue("a"))
    story.take(node("n2", cpu=1_000, memory=0, labels={"zone": "far"}))
    story.drain("n2")
    story.take(wants("j", 1, "a", labels={"zone": "far"}))
    story.settle()
    assert breaches(story) == []

    later(story)
    assert breaches(story) == [Breach("a", ALL, 0, 0, "")]
    story.cancel("j")
    story.settle()
    story.take(wants("k", 1, "a"))
    story.settle()
    assert [breach.over for breach in breaches(story)] == [False, True]


def test_a_queue_that_has_not_waited_as_long_as_a_task_runs_is_no_breach():
    story = cell(queue("a"), queue("b"))
    story.take(wants("long", 10, "b"))
    story.settle()
    story.at(100).take(wants("j", 10, "a"))
    story.settle()
    later(story).at(50_000).take(wants("k", 10, "b"))
    story.settle()

    assert breaches(story) == []


def test_a_task_that_waits_out_a_back_off_is_kept_from_nothing():
    story = cell(queue("a"), queue("b"), retry_backoff_ms=60_000)
    story.take(wants("j", 1, "a", cpu=4_000, retries=1))
    story.settle()
    story.at(10).fail(*story.granted)
    story.take(wants("k", 40, "b"))
    story.settle()
    story.at(20).finish(*[grant for grant in story.granted if grant.job == "k"])
    story.settle()
    later(story)

    assert breaches(story) == []
    assert story.fairness.backoffs.by_job


def test_who_rests_stands_for_no_other_task_of_its_queue():
    """A gang whose tasks fail one after another rests once, and not at all when its job is over."""
    story = cell(queue("a"), queue("b"), retry_backoff_ms=60_000)
    story.take(wants("gang", 3, "a", gang=True, retries=2), wants("j", 20, "a"))
    story.settle()
    gang = [single(grant, i) for grant in story.granted if grant.job == "gang" for i in range(grant.count)]
    story.at(10).fail(gang[0])
    assert story.fairness.demands.of("a").could_start() == (13, {"cpu": 13_000})
    story.at(20).fail(*gang[1:])
    assert story.fairness.demands.of("a").could_start() == (13, {"cpu": 13_000})
    assert [rest.at_ms for rest in story.fairness.backoffs.by_job["gang"].values()] == [60_020]

    story.cancel("gang")
    assert (story.fairness.demands.of("a").could_start()[0], story.fairness.backoffs.by_job) == (13, {})


@pytest.mark.parametrize("gone", [True, False])
def test_with_another_tree_the_watch_begins_anew_for_who_is_no_longer_in_it(gone):
    story = crowded()
    end_one_by_one(story, 11)
    story.cancel("big")
    story.open()  # The job has ended; what came of that is taken note of at the closing only.
    story.take(config(tree(queue("b")) if gone else tree(queue("a", 2), queue("b"))))
    story.close()
    story.settle()
    story.at(9_000).settle()

    assert [(breach.queue, breach.placeable, breach.over) for breach in breaches(story)] == [
        ("a", False, False),
        ("a", True, False),  # Nothing of it waits any more.
    ] + ([] if gone else [("a", True, True)])
    assert story.fairness.watch.broken == {}


def test_a_queue_share_says_which_kind_is_held_most():
    story = cell(queue("a"))
    story.take(job("j", stage(tasks=2, cpu=1_000, memory=300_000_000), queue="a"))
    story.settle()
    later(story)

    assert story.answer("shares").queues == [
        QueueShare("a", ALL, 6 * ALL // 10, 6 * ALL // 10, 4 * ALL // 10, 0, "memory")
    ]


# ---------------------------------------------------------------- promises that cross
def crossing(first, second):
    """Two queues, one guaranteed eight tenths of the CPU, one of the memory, whose tasks ask for both; tasks end."""
    shape = (
        replace(queue("a"), guaranteed={"cpu": 8_000}),
        replace(queue("b"), guaranteed={"memory": 8_000}),
    )
    story = SlowCell()
    story.take(config(tree(*shape)), node("n1", cpu=10_000, memory=10_000))
    for name, (cpu, memory) in (("a", first), ("b", second)):
        story.take(job(f"j-{name}", stage(tasks=60, cpu=cpu, memory=memory), queue=name))
    story.settle()
    running = [single(grant, i) for grant in story.granted for i in range(grant.first, grant.first + grant.count)]
    for _ in range(30):
        story.at(story.time + 10).finish(running.pop(0))
        running += [single(grant, i) for grant in story.settle() for i in range(grant.first, grant.first + grant.count)]
    return later(story)


def test_promises_in_different_kinds_are_both_kept_where_each_leaves_the_other_its_own():
    story = crossing((1_000, 200), (200, 1_000))
    assert {name: sum(vector.values()) for name, vector in by_leaf(story.fairness, "used").items()} == {
        "a": 9_600,
        "b": 9_600,
    }
    assert breaches(story) == []
    assert story.fairness.watch.broken == {}


def test_of_promises_that_no_cell_could_keep_each_gets_its_part_and_the_breach_names_the_other():
    story = crossing((1_000, 1_000), (1_000, 1_000))
    assert {name: vector["cpu"] for name, vector in by_leaf(story.fairness, "used").items()} == {"a": 5_000, "b": 5_000}

    published = [record for record in story.decided if record.type == "Shares"]
    found = [(one.queue, one.guaranteed // 10**6, one.winner) for record in published for one in record.body.breaches]
    assert found == [("a", 800, "b"), ("b", 800, "a")]
    assert set(story.fairness.watch.broken) == {"a", "b"}

    story.cancel("j-b")
    ended = [single(g, i) for g in story.granted if g.job == "j-b" for i in range(g.first, g.first + g.count)]
    story.finish(*ended[-5:])
    story.settle()
    assert by_leaf(story.fairness, "used") == {"a": {"cpu": 10_000, "memory": 10_000}}
    assert set(story.fairness.watch.mended()) == {"a", "b"}
