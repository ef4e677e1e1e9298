"""Headroom: the largest task, or gang, that waits too long gets room kept free, and says so."""

import pytest

from schemas import HeldRoom, Queue
from tests.builders import config, job, node, queue, single, stage, tree
from tests.cells import SlowCell

AFTER_MS = 100


def cell(*jobs, nodes=None, queues=(), **knobs):
    """A cell in which one-core tasks come and go; two nodes of four cores where nothing else is said."""
    story = SlowCell()
    story.take(config(tree(*queues) if queues else None, **{"preset": "hdrf", "headroom_after_ms": AFTER_MS} | knobs))
    story.take(*(nodes or [node("n1"), node("n2")]), *jobs)
    return story


def large(name="large", **given):
    return job(name, stage(cpu=4_000, memory=1_024, **given))


def kept(story):
    """Node -> cores that are kept free there."""
    return {name: held.demand["cpu"] for name, held in story.leftover.kept.items()}


def end_one(story, node_name):
    """The oldest one-core task of a node ends."""
    name, _, index = next(iter(story.leftover.held[node_name])).split("/")
    index = int(index)
    grants = (g for g in story.granted if g.job == name and g.first <= index < g.first + g.count)
    story.finish(single(next(grants), index))


def started(story, name):
    return sum(grant.count for grant in story.granted if grant.job == name)


def busy(**knobs):
    """A cell full of one-core tasks, with more of them waiting, and then a large task."""
    story = cell(job("small", stage(tasks=99)), **knobs)
    story.settle()
    story.at(10).take(large())
    story.settle()
    return story


def churn(story, rounds, step_ms=30):
    """One small task ends at a time, on this node and on that."""
    for i in range(rounds):
        story.at(story.time + step_ms)
        end_one(story, ("n1", "n2")[i % 2])
        story.settle()
        if started(story, "large"):
            return
    story.settle()


def test_without_headroom_small_tasks_keep_a_large_one_out_for_ever():
    story = busy(headroom="off")
    churn(story, 40)
    assert started(story, "large") == 0
    assert story.answer("grants").wake_ms is None


def test_a_large_task_that_waited_long_enough_gets_a_node_to_itself():
    story = busy()
    assert (kept(story), story.next_ms()) == ({}, 10 + AFTER_MS)

    story.at(10 + AFTER_MS).settle()
    assert kept(story) == {"n1": 4_000}
    assert story.answer("grants").held == [
        HeldRoom("n1", "headroom", {"cpu": 4_000, "memory": 1_024}, {"cpu": 4_000, "memory": 1_024}, complete_ms=1_000)
    ]

    churn(story, 12)
    assert [grant.node for grant in story.granted if grant.job == "large"] == ["n1"]
    assert kept(story) == {}
    assert story.answer("grants").held == [HeldRoom("n1", "headroom", {})]


def test_headroom_always_is_kept_from_the_first_round_on():
    assert kept(busy(headroom="always")) == {"n1": 4_000}


def test_the_node_that_misses_least_is_kept_and_stays_so():
    story = busy(headroom="always", nodes=[node("n1"), node("n2", cpu=8_000, memory=32_768)])
    assert kept(story) == {"n2": 4_000}
    for _ in range(3):
        end_one(story, "n1")
        story.settle()
        assert kept(story) == {"n2": 4_000}


def test_a_task_of_the_class_that_starts_elsewhere_ends_the_wait():
    story = busy()
    story.at(10 + AFTER_MS).settle()
    story.take(node("n3"))
    story.settle()
    assert started(story, "large") == 1
    assert set(kept(story).values()) <= {1_000}  # Only small tasks wait now.


def test_when_the_large_task_is_cancelled_its_room_goes_to_others_in_the_same_round():
    story = busy()
    story.at(10 + AFTER_MS).settle()
    end_one(story, "n1")
    assert story.settle() == []
    story.cancel("large")
    assert [(grant.job, grant.node) for grant in story.settle()] == [("small", "n1")]
    assert kept(story) == {}


def test_a_node_that_is_lost_is_kept_no_longer_and_another_takes_its_place():
    story = busy()
    story.at(10 + AFTER_MS).settle()
    story.lose("n1")
    story.settle()
    assert list(kept(story)) == ["n2"]


def test_nodes_are_gathered_for_a_gang_until_all_of_it_starts():
    story = cell(job("small", stage(tasks=99)), headroom="always")
    story.settle()
    story.take(job("large", stage("together", 6, gang=True)))
    story.settle()
    assert started(story, "large") == 0
    assert {name: held.why for name, held in story.leftover.kept.items()} == {"n1": "gang", "n2": "gang"}
    assert kept(story) == {"n1": 4_000, "n2": 2_000}

    churn(story, 12)
    assert started(story, "large") == 6
    assert set(kept(story).values()) <= {1_000}


@pytest.mark.parametrize(("cores", "gangs", "held"), [(2, 9, 8), (2, 1, 4), (3, 9, 6)])
def test_room_is_gathered_for_as_many_gangs_as_a_queue_lacks(cores, gangs, held):
    """Of 16 cores 8 are due to it: two gangs of two tasks of two cores, or one of three cores."""
    queues = [queue("a", 1), queue("b", 1)]
    nodes = [node(f"n{i}") for i in range(4)]
    story = cell(job("small", stage(tasks=99), queue="a"), queues=queues, nodes=nodes, headroom="always")
    story.settle()
    wide = stage("together", 2, cpu=cores * 1_000, gang=True)
    story.take(*(job(f"large{i}", wide, queue="b") for i in range(gangs)))
    story.settle()
    assert sum(kept(story).values()) == held * 1_000
    assert {room.why for room in story.leftover.kept.values()} == {"gang"}


def test_room_is_gathered_for_all_that_a_queue_may_have_beside_what_it_holds_of_another_resource():
    """It holds a quarter of the memory and is due half the cell: of 16 cores it lacks 8, and not a quarter alone."""
    queues = [queue("a", 1), queue("b", 1)]
    nodes = [node(f"n{i}") for i in range(4)]
    holds = stage(cpu=0, memory=nodes[0].capacity["memory"])
    story = cell(job("holds", holds, queue="b"), queues=queues, nodes=nodes, headroom="always")
    story.settle()
    story.take(job("small", stage(tasks=99, memory=0), queue="a"))
    story.settle()
    story.take(job("large", stage(cpu=2_000, memory=0, tasks=99), queue="b"))
    story.settle()
    assert sum(kept(story).values()) == 8_000


def test_a_gang_that_not_even_all_nodes_could_hold_gets_none():
    story = cell(job("small", stage(tasks=99)), job("large", stage("together", 8, gang=True)), headroom="always")
    story.settle()
    story.drain("n2")
    story.settle()
    assert kept(story) == {}


@pytest.mark.parametrize("preset", ["drf", "hdrf", "carbyne", "largesse"])
def test_what_no_node_could_hold_any_more_asks_for_no_further_round(preset):
    """Else a simulation in which a node fails for good would never end."""
    nodes = [node("n1"), node("big", cpu=8_000)]
    story = cell(job("first", stage(cpu=8_000)), job("later", stage(cpu=8_000)), nodes=nodes, preset=preset)
    story.settle()
    story.lose("big")
    story.settle()
    for _ in range(3):
        if story.next_ms() is not None:
            story.at(story.next_ms()).settle()

    assert story.next_ms() is None
    assert {wait.reason for wait in story.leftover.reasons.values()} == {"no_node"}


def test_nothing_is_kept_for_a_queue_that_has_more_than_its_share():
    queues = [queue("a", 1), queue("b", 3)]
    jobs = [job("held", stage(tasks=6), queue="a"), job("small", stage(tasks=99), queue="b")]
    story = cell(jobs[0], queues=queues, headroom="always")
    story.settle()
    story.take(jobs[1], job("large", stage(cpu=4_000), queue="a"))
    story.settle()
    assert kept(story) == {}


def test_no_room_is_kept_against_a_guarantee():
    """Under `drf` queue `a` is due four ninths of all cores, and `b` one: but half of them are guaranteed to `b`."""
    queues = [queue("g", 1, queue("a", 4), queue("c", 4)), queue("b", 1)]
    jobs = [job("small", stage(tasks=99), queue="g/c"), job("large", stage(cpu=3_000, tasks=9), queue="g/a")]
    story = cell(jobs[0], queues=queues, preset="drf", headroom="always")
    story.settle()
    story.at(10).take(jobs[1])
    story.settle()
    (held,) = kept(story)
    story.at(20).take(job("owed", stage(tasks=99), queue="b"))
    story.settle()
    for i in range(4):
        assert (started(story, "owed"), started(story, "large")) == (i, 0)
        story.at(30 + i)
        end_one(story, held)
        story.settle()
    assert started(story, "owed") == 4


def test_nothing_is_kept_for_a_class_of_which_the_queue_runs_tasks():
    """Their room comes back to it; to gather more of it would take others below what they are due."""
    story = cell(
        job("large", stage(cpu=4_000, tasks=9), queue="a"),
        job("small", stage(tasks=99), queue="b"),
        queues=[queue("a", 1), queue("b", 1)],
        headroom="always",
    )
    story.settle()
    assert (started(story, "large"), kept(story)) == (1, {})


AGEING_MS = 1_000


def long_beside(aged_ms):
    """One large task runs for long, another job waits for its like, and small tasks come and go on the other node."""
    story = cell(large("first", duration_ms=90_000), ageing_ms=aged_ms)
    story.settle()
    story.take(job("small", stage(tasks=999)))
    story.settle()
    story.at(10).take(large())
    for _ in range(40):
        story.settle()
        story.at(story.time + 30)
        end_one(story, "n2")
        if started(story, "large"):
            break
    return story


def test_room_is_gathered_for_a_kind_that_already_runs_once_a_job_has_aged():
    story = long_beside(AGEING_MS)
    assert [grant.node for grant in story.granted if grant.job == "large"] == ["n2"]
    assert story.time > 10 + AGEING_MS


def test_until_then_the_end_of_what_runs_is_waited_for():
    story = long_beside(10_000)
    assert (started(story, "large"), kept(story)) == (0, {})


def test_a_room_is_held_once_the_wait_is_half_the_time_until_it_is_complete():
    """The small tasks are to end at 1,000, the large one waits since 10: 330 is half of the 660 that are left then."""
    story = busy(headroom_after_ms=5_000)
    assert (kept(story), story.next_ms()) == ({}, 340)

    story.at(339).settle()
    assert kept(story) == {}
    story.at(340).settle()
    assert kept(story) == {"n1": 4_000}


def test_a_node_whose_tasks_run_longer_than_estimated_is_kept_all_the_same():
    story = busy()
    story.at(10 + AFTER_MS).settle()
    for at_ms in (1_100, 1_900):  # Estimated to end at 1,000.
        end_one(story.at(at_ms), "n2")
        story.settle()
        assert set(kept(story)) == {"n1"}


@pytest.mark.parametrize("order", ["srtf", "priority", ""])
def test_who_waits_too_long_goes_before_those_that_rank_higher(order):
    story = SlowCell()
    story.take(config(tree(Queue("a", policy=order)), ageing_ms=1_000, headroom="off"), node("n1", cpu=1_000))
    story.take(job("long", stage(duration_ms=90_000), queue="a", priority=-5))
    served = []
    for i in range(20):
        story.take(
            job(f"short-{i}", stage(duration_ms=10), queue="a", priority=5), job(f"more-{i}", queue="a", priority=5)
        )
        story.settle()
        served.append(story.granted[-1].job)
        story.at(story.time + 100).finish(story.granted[-1])
    story.settle()
    first = next((i for i, name in enumerate([*served, story.granted[-1].job]) if name == "long"), None)
    assert first in range(9, 12)
