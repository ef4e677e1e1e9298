"""Class pools in stories: which class of jobs stands back, what is lent and comes back, and what comes before pools.

Pools are fixed by equal bounds. A request of up to 20 % of the cell is small.
"""

import pytest

from schemas import PoolBreach
from tests.builders import config, job, node, queue, single, stage, tree
from tests.cells import SlowCell, drop_caches, served

CELL = [node(cpu=10_000)]
ONE = (queue("q"),)


def cell(*jobs, small=300, queues=ONE, nodes=CELL, **knobs):
    """Ten cores; the pool of small jobs is `small` permille of them, in the preset `dress`."""
    bounds = {"reserve_ratio_permille_min": small, "reserve_ratio_permille_max": small}
    story = SlowCell()
    story.take(config(tree(*queues), **({"preset": "dress", "theta_permille": 200} | bounds | knobs)))
    story.take(*nodes, *jobs)
    return story


def ask(name, tasks, queue="q", **given):
    return job(name, stage(tasks=tasks, **given), queue=queue)


def reasons(story):
    """What is in force of the classes that wait: cores asked for -> reason."""
    return {wait.demand["cpu"]: wait.reason for wait in story.leftover.reasons.values()}


def end(story, name, count):
    """So many tasks of a job end, those granted first; the grants of the round that follows."""
    grants = [single(grant, i) for grant in story.granted if grant.job == name for i in range(grant.count)]
    done = story.__dict__.setdefault("ended_tasks", {})
    first = done.get(name, 0)
    done[name] = first + count
    story.finish(*grants[first : first + count])
    return served(story.settle())


# ---------------------------------------------------------------- within and beyond
def test_a_class_whose_pool_is_used_up_stands_back_for_another():
    story = cell(ask("large", 20), ask("small-1", 2), ask("small-2", 2))
    assert served(story.settle()) == {"large": 7, "small-1": 2, "small-2": 1}


def test_what_nobody_can_use_inside_its_pool_is_lent():
    story = cell(ask("large", 20), ask("small", 1))
    assert served(story.settle()) == {"large": 9, "small": 1}


def test_what_was_lent_comes_back_as_tasks_end():
    story = cell(ask("large", 30))
    assert served(story.settle()) == {"large": 10}
    story.take(ask("s1", 2), ask("s2", 2))
    assert end(story, "large", 2) == {"s1": 2}
    assert end(story, "large", 1) == {"s2": 1}
    assert end(story, "large", 1) == {"large": 1}, "the pool of the small ones is used up"


def test_while_jobs_of_one_class_alone_wait_no_pool_holds_them_back():
    story = cell(ask("large-1", 8, cpu=1_000), ask("large-2", 4, cpu=2_000))
    assert served(story.settle()) == {"large-1": 8, "large-2": 1}


def test_each_class_is_a_queue_of_its_own_behind_its_head():
    """The first large job's gang does not fit, and keeps the second one waiting, but no small one."""
    gang = job("large-1", stage(tasks=8, gang=True), queue="q")
    story = cell(ask("first", 3), gang, ask("large-2", 9), ask("small", 2))
    assert served(story.settle()) == {"first": 3, "small": 2}


def test_a_gang_counts_whole_in_its_pool():
    small = [job(f"small-{i}", stage(tasks=2, gang=True), queue="q") for i in (1, 2)]
    story = cell(ask("large", 20), *small)
    assert served(story.settle()) == {"large": 8, "small-1": 2}, "the second would make it four cores of three"


def test_pools_follow_when_they_are_switched_off_and_on_again_while_jobs_run():
    story = cell(ask("large", 40))
    story.settle()
    story.take(ask("s1", 2), ask("s2", 2), config(classes="off"))
    assert end(story, "large", 2) == {"large": 2}
    story.take(config(classes="on"))
    assert end(story, "large", 3) == {"s1": 2, "s2": 1}


def test_any_preset_can_have_pools():
    for preset in ("hdrf", "fifo", "srtf", "drf"):
        story = cell(ask("large", 20), ask("small", 2), ask("small-2", 2), preset=preset, classes="on")
        assert served(story.settle())["large"] == 7, preset


def test_more_than_two_classes_have_a_pool_each():
    story = cell(ask("huge", 20), ask("middle", 4), ask("small", 2), small=600, class_thresholds_permille=[500])
    assert served(story.settle()) == {"huge": 5, "middle": 3, "small": 2}, "one core of the small pool is lent"
    assert story.leftover.pools_ppm == [300_000, 300_000, 400_000]


# ---------------------------------------------------------------- what is said
def test_tasks_wait_for_their_pool_when_it_is_used_up_and_else_for_room():
    story = cell(ask("large", 20))
    story.settle()
    assert reasons(story) == {1_000: "no_room"}, "nobody else waits"
    story.take(ask("small", 1, cpu=2_000))
    story.settle()
    assert reasons(story) == {1_000: "pool", 2_000: "no_room"}
    assert end(story, "large", 2) == {"small": 1}
    assert reasons(story) == {1_000: "no_room"}


# ---------------------------------------------------------------- guarantees come first
TWO = (queue("a"), queue("b"))


def test_a_queue_below_its_guarantee_is_held_back_by_no_pool_and_grants_say_so():
    story = cell(ask("large-a", 20, "a"), ask("small-1", 2, "b"), *[ask(f"s{i}", 2, "b") for i in range(9)], queues=TWO)
    assert served(story.settle())["large-a"] == 5, "half of the cell is a's"
    assert story.answer("grants").pool_breaches == []

    story = cell(
        ask("large-a", 20, "a"),
        *[ask(f"s{i}", 2, "b") for i in range(9)],
        small=800,
        queues=TWO,
        preset="hdrf",
        classes="on",
    )
    assert served(story.settle())["large-a"] == 5
    assert story.leftover.pool_breaches == {"1/a": PoolBreach("a", 1)}


def test_a_breach_is_over_once_the_class_holds_no_more_than_its_pool():
    jobs = [ask("large-a", 5, "a"), *[ask(f"s{i}", 2, "b") for i in range(9)]]
    story = cell(*jobs, small=800, queues=TWO, preset="hdrf", classes="on")
    story.settle()
    end(story, "large-a", 2)
    assert story.answer("grants").pool_breaches == [], "three cores are still more than two"
    end(story, "large-a", 1)
    assert story.answer("grants").pool_breaches == [PoolBreach("a", 1, over=True)]
    assert story.leftover.pool_breaches == {}


def test_levels_carry_the_exact_guarantee():
    jobs = [ask("x", 20, "a"), ask("y", 20, "b")]
    story = cell(*jobs, queues=(queue("a", 3), queue("b", 1)), preset="hdrf")
    story.settle()
    story.finish(single(story.granted[0], 0))
    story.settle()
    guarantees = {queue: level.guaranteed for queue, level in story.leftover.levels.items()}
    assert guarantees == {"a": 750_000_000, "b": 250_000_000}


# ---------------------------------------------------------------- leftover crosses pools
def test_with_altruism_required_tasks_go_by_pools_and_what_is_left_crosses_them():
    story = cell(ask("large", 20), ask("s1", 2), ask("s2", 2), preset="carbyne", classes="on")
    counts = served(story.settle())
    assert sum(counts.values()) == 10, "no core stays idle for a pool's sake"


@pytest.mark.parametrize("preset", ["dress", "hdrf", "carbyne", "fifo"])
def test_answers_follow_from_what_was_folded_alone(preset):
    """Two cells live through the same, one of them without any cache."""
    grants = []
    for forgets in (False, True):
        jobs = [ask("large-a", 20, "a"), *[ask(f"s{i}", 2, "b") for i in range(5)], ask("wide", 4, "b", cpu=2_000)]
        story = cell(*jobs, small=600, queues=TWO, preset=preset, classes="on")
        for name in ("", "large-a", "s0", "large-a", "s1", "large-a"):
            if forgets:
                drop_caches([story.leftover, story.fairness])
            if name and any(grant.job == name for grant in story.granted):
                end(story, name, 1)
            story.settle()
        grants.append([(grant.job, grant.first, grant.count, grant.node) for grant in story.granted])
    assert grants[0] == grants[1]


# ---------------------------------------------------------------- pools that do not lend
def test_a_pool_that_does_not_lend_stays_idle_for_jobs_that_are_yet_to_come():
    story = cell(ask("large", 30), pool_lending="off")
    assert served(story.settle()) == {"large": 7}
    assert reasons(story) == {1_000: "pool"}
    story.take(ask("s1", 2))
    assert served(story.settle()) == {"s1": 2}
    story.take(ask("s2", 2))
    assert served(story.settle()) == {"s2": 1}
    assert end(story, "large", 2) == {"large": 2}, "their pool has room again, that of the small ones has none"


@pytest.mark.parametrize("preset", ["dress", "largesse", "hdrf", "carbyne", "fifo", "srtf", "tetris"])
def test_no_preset_lends_a_pool_that_is_not_lent_and_all_serve_all_that_is_in_one(preset):
    story = cell(ask("large", 30), pool_lending="off", preset=preset, classes="on")
    story.settle()
    story.take(ask("small-1", 2), ask("small-2", 2))
    story.settle()
    granted = {name: sum(grant.count for grant in story.granted if grant.job == name) for name in ("large", "small-1")}
    assert granted == {"large": 7, "small-1": 2}
    assert sum(grant.count for grant in story.granted) == 10


def test_what_is_larger_than_its_pool_is_not_bound_by_it():
    gang = job("large", stage(tasks=9, gang=True), queue="q")
    story = cell(gang, pool_lending="off")
    assert served(story.settle()) == {"large": 9}
    story.take(ask("small", 2))
    assert served(story.settle()) == {"small": 1}


def test_no_guarantee_goes_beyond_a_pool_that_does_not_lend():
    queues = (queue("q", guaranteed={"cpu": 9_000}), queue("r"))
    story = cell(ask("other", 30, "r"), ask("large", 30), queues=queues, pool_lending="off")
    assert served(story.settle()) == {"large": 6, "other": 1}, "the pool is of 7, and each is guaranteed a part of it"


def test_pools_lend_and_do_not_as_the_knob_says_while_jobs_run():
    story = cell(ask("large", 30), pool_lending="off")
    story.settle()
    story.take(config(pool_lending="on"))
    assert served(story.settle()) == {"large": 3}
    story.take(config(pool_lending="off"))
    assert end(story, "large", 3) == {}
    assert end(story, "large", 1) == {"large": 1}
