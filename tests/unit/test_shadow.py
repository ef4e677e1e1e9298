"""The order in which `largesse` serves jobs: that in which they end in a cluster in which all have their shares."""

from dataclasses import replace

import pytest

from services.leftover import core
from services.leftover.core import serving
from services.leftover.core.serving import STALE
from tests.builders import admitted, cancelled, configured, ended, finished, job, registered, stage
from tests.cells import queue, tree
from tests.harness import given

CORES = 4


def cell(*facts, queues=None, **knobs):
    """One node of four cores."""
    told = configured(queues=queues, preset="largesse", **knobs)
    return given(core, told, registered("n1", cpu=CORES * 1_000), *facts)


def wide(name, tasks, seconds, at=None, queue="default", priority=0):
    """A job of like one-core tasks."""
    return admitted(job(name, stage("s", tasks, lasts=seconds * 1_000), queue=queue, priority=priority), at)


def served(story, at=None):
    """Job -> how many tasks the next round gives it."""
    counts = {}
    for grant in story.round(at=at)[0].grants:
        counts[grant.job] = counts.get(grant.job, 0) + grant.count
    return counts


def keys(story):
    return {name: story.state.shadow.ends[each.admitted] for name, each in story.state.jobs.items()}


def test_jobs_are_served_one_after_the_other_and_the_one_that_would_end_first_goes_first():
    story = cell(wide("long", 8, 10), wide("short", 4, 10))

    assert served(story) == {"short": 4}
    assert keys(story)["short"] == 20_000


def test_no_more_jobs_are_ranked_than_could_fill_the_cell_with_what_waits_of_them():
    story = cell(wide("long", 16, 10, at=0), wide("short", 4, 10, at=0), wide("other", 20, 10, at=0))
    served(story)
    assert [name for name, key in keys(story).items() if not key & STALE] == ["short"]

    served(story.close())  # All that `short` has runs by now.
    assert [name for name, key in keys(story).items() if not key & STALE] == ["long", "short"]


def test_a_job_that_has_come_far_in_the_shadow_goes_before_a_newcomer_with_less_work():
    story = cell(wide("first", 12, 10, at=0))
    served(story)
    story.close().then(wide("second", 8, 10, at=10_000), finished("first/s", 0, 4, at=10_000))

    # Eight tasks are left of either, but `first` has had the cell for itself in the shadow too.
    assert keys(story)["second"] & STALE
    assert served(story) == {"first": 4}
    assert keys(story)["first"] < keys(story)["second"]


def test_a_small_job_goes_before_a_large_one_that_came_before_it():
    story = cell(wide("large", 400, 10, at=0))
    served(story)
    story.close().then(wide("small", 2, 10, at=10_000), finished("large/s", 0, 4, at=10_000))

    assert served(story) == {"small": 2, "large": 2}


def test_a_job_that_has_ended_is_in_the_shadow_until_it_ends_there():
    story = cell(wide("a", 4, 10, at=0), wide("b", 4, 10, at=0))
    assert served(story) == {"a": 4}
    story.close().then(finished("a/s", 0, 4, at=10_000), ended("a"))
    served(story)

    assert [work.name for work in story.state.shadow.works.values()] == ["a", "b"]
    story.close().then(wide("c", 1, 1, at=20_000))
    served(story)
    assert [work.name for work in story.state.shadow.works.values()] == ["b", "c"]


def test_a_job_that_is_cancelled_leaves_the_shadow_at_once():
    story = cell(wide("a", 8, 10, at=0), wide("b", 8, 10, at=0))
    served(story)
    assert keys(story) == {"a": 40_000, "b": 40_000}

    story.close().then(cancelled("a", at=0))
    served(story)
    assert keys(story) == {"b": 20_000}


def test_within_a_job_the_stage_with_the_longest_way_to_the_end_goes_first():
    stages = stage("side", 4, lasts=5_000), stage("main", 4, lasts=1_000)
    then = stage("end", 1, after=("main",), lasts=60_000)
    story = cell(admitted(job("j", *stages, then)))

    assert [grant.stage for grant in story.round()[0].grants] == ["main"]


def test_priorities_go_before_the_order_of_the_shadow():
    assert served(cell(wide("short", 4, 1), wide("long", 8, 10, priority=1))) == {"long": 4}


def test_queues_have_their_weights_in_the_shadow():
    shape = tree(queue("a", 3), queue("b"))
    story = cell(wide("j", 30, 10, queue="a"), wide("k", 30, 10, queue="b"), queues=shape)
    served(story)

    assert keys(story)["j"] == 100_000  # Three of the four cores; then `k` has all of them.
    served(story.close(), at=100_000)
    story.close().then(cancelled("j"))
    served(story)
    assert keys(story)["k"] == 150_000


def test_part_of_each_share_can_go_before_the_order_of_the_shadow():
    jobs = [wide("long", 40, 10), wide("short", 30, 10)]

    assert served(cell(*jobs)) == {"short": 4}
    assert served(cell(*jobs, isolation_permille=500)) == {"long": 1, "short": 3}
    assert served(cell(*jobs, isolation_permille=1_000)) == {"long": 2, "short": 2}


def test_without_altruism_jobs_have_their_shares():
    assert served(cell(wide("long", 8, 10), wide("short", 4, 10), altruism="off")) == {"long": 2, "short": 2}


def test_altruism_that_is_switched_on_later_finds_the_work_that_is_left():
    story = cell(wide("a", 8, 10, at=0), wide("b", 8, 10, at=0), altruism="off")
    assert served(story) == {"a": 2, "b": 2}
    story.close().then(finished("a/s", 0, 2, at=10_000))
    story.then(configured(preset="largesse", at=10_000))

    assert served(story) == {"a": 2}
    assert keys(story)["a"] == 40_000


def test_jobs_for_which_the_shadow_has_no_place_are_served_last_and_join_it_as_others_end(monkeypatch):
    monkeypatch.setattr(serving, "SHADOW_JOBS_MAX", 1)
    story = cell(wide("first", 8, 10, at=0), wide("short", 4, 1, at=0))

    assert served(story) == {"first": 4}
    assert list(story.state.shadow.outside.values()) == ["short"]
    story.close().then(wide("third", 1, 1, at=20_000))
    served(story)
    served(story.close())
    assert list(story.state.shadow.outside.values()) == ["third"]
    assert [work.name for work in story.state.shadow.works.values()] == ["first", "short"]


@pytest.mark.parametrize("steps", [1, 2, 7])
def test_a_shadow_of_few_steps_a_round_goes_on_in_the_next(steps):
    jobs = [wide("a", 9, 3), wide("b", 5, 7)]
    slow, whole = cell(*jobs, shadow_steps=steps), cell(*jobs)
    served(whole)
    for _ in range(200):
        served(slow)
        slow.close()

    assert keys(slow) == keys(whole)


def test_a_kind_of_resource_that_the_cell_has_not_got_holds_nobody_back_in_the_shadow():
    odd = job("odd", replace(stage("s", 4, lasts=1_000), demand={"cpu": 1_000, "gpu": 1_000}))
    story = cell(admitted(odd), wide("plain", 8, 10))
    served(story)

    assert keys(story)["odd"] == 2_000
