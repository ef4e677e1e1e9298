"""The order in which `largesse` serves jobs: by the work that is left of them, and the time until they end in a cluster
in which all have their shares."""

from dataclasses import replace

import pytest
from hypothesis import example
from hypothesis import strategies as st

from schemas import Policy
from schemas.quantities import SHARE_UNITS
from services.leftover import core
from services.leftover.core.asks import does_ask
from services.leftover.core.shadow import cell as shadow_cell
from services.leftover.core.shadow import keys as shadow_keys
from services.leftover.core.shadow.keys import STALE
from tests.builders import admitted, cancelled, configured, ended, finished, job, queue, registered, stage, tree
from tests.harness import given
from tests.strategies import for_all

CORES = 4


def cell(*facts, queues=None, **knobs):
    """One node of four cores."""
    settings = configured(queues=queues, preset="largesse", **knobs)
    return given(core, settings, registered("n1", cpu=CORES * 1_000), *facts)


def wide(name, tasks, seconds, at=None, queue="default", priority=0):
    """A job of like one-core tasks."""
    return admitted(job(name, stage("s", tasks, duration_ms=seconds * 1_000), queue=queue, priority=priority), at)


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


def test_all_jobs_are_seen_to_end_however_few_of_them_could_fill_the_cell():
    story = cell(wide("short", 8, 10, at=0), wide("long", 16, 10, at=0))
    served(story)

    assert keys(story) == {"short": 40_000, "long": 60_000}
    assert story.state.shadow.ahead is None


@pytest.mark.skipif(shadow_cell.__file__.endswith(".so"), reason="compiled, the constants are part of the code")
def test_among_many_jobs_the_shadow_looks_ahead_anew_once_a_part_of_them_has_come(monkeypatch):
    monkeypatch.setattr(shadow_cell, "EACH_ANEW", 2)
    monkeypatch.setattr(shadow_cell, "MOVED_PART", 4)
    story = cell(*[wide(f"j{i}", 8, 10, at=0) for i in range(8)])
    served(story, at=0)
    for i in range(2):
        story.then(wide(f"late{i}", 8, 10, at=1_000 + i))
        served(story, at=1_000 + i)
        assert keys(story)["late0"] & STALE
        assert not keys(story)["j0"] & STALE

    story.then(wide("late2", 8, 10, at=1_002))
    served(story, at=1_002)
    assert not any(end & STALE for end in keys(story).values())


def test_what_was_seen_before_an_arrival_counts_until_the_shadow_has_looked_as_far_again():
    story = cell(wide("a", 8, 10, at=0), wide("b", 16, 10, at=0), shadow_steps=1)
    for _ in range(100):
        served(story)
        story.close()
    before = keys(story)
    claims = {seq: claim.key for seq, claim in story.state.shadow.claims.items()}
    assert before == {"a": 40_000, "b": 60_000}

    story.then(wide("c", 4, 10, at=0))
    for _ in range(3):  # `c` arrives, what it changes at once, and a step ahead.
        served(story)
        story.close()
    assert {name: keys(story)[name] for name in before} == {name: STALE | end for name, end in before.items()}
    assert {seq: story.state.shadow.claims[seq].key for seq in claims} == claims


@for_all(
    st.lists(st.tuples(st.integers(1, 8), st.integers(1, 6), st.integers(0, 6), st.booleans()), min_size=2, max_size=6),
    st.integers(1, 3),
)
@example([(1, 2, 0, True), (1, 1, 0, False)], 2)
def test_once_its_end_is_seen_a_job_that_waits_is_served_by_that_end_or_one_at_most_a_quarter_off(jobs, steps):
    story, now_ms = cell(shadow_steps=steps), 0
    for number, (tasks, seconds, gap_s, round_follows) in enumerate(jobs):
        story.then(wide(f"j{number}", tasks, seconds, at=now_ms))
        if round_follows:
            served(story, now_ms)
            story.close()
        now_ms += gap_s * 1_000
    shadow = story.state.shadow
    while len(shadow.ranked) < len(jobs):
        served(story, now_ms)
        story.close()

    part = shadow_keys.RENEWED_PART
    for seq in [each.admitted for each in story.state.jobs.values() if does_ask(each)]:
        before_ms = shadow.claims[seq].end_ms
        moved_ms = abs(before_ms - shadow.ends[seq])
        assert not moved_ms or moved_ms * (part - 1) < before_ms - now_ms + part * shadow_keys.RENEWED_STEP_MS


def test_a_job_that_has_come_far_in_the_shadow_goes_before_a_newcomer_with_less_work():
    story = cell(wide("first", 12, 10, at=0))
    served(story)
    story.close().then(wide("second", 8, 10, at=10_000), finished("first/s", 0, 4, at=10_000))

    # Eight tasks are left of either, but `first` has had the cell for itself in the shadow too.
    assert keys(story)["second"] & STALE
    assert served(story) == {"first": 4}
    assert keys(story)["first"] < keys(story)["second"]


def test_the_shadow_goes_on_where_the_first_config_of_a_cell_changes_another_setting():
    def played(*facts):
        story = given(core, registered("n1", cpu=CORES * 1_000), wide("first", 12, 10, at=0))
        served(story)
        story.close().then(wide("second", 7, 10, at=10_000), finished("first/s", 0, 4, at=10_000), *facts)
        return story

    assert Policy().preset == "largesse"
    alone, beside = played(), played(configured(altruism_shards=2))
    # In a shadow that begins here, the newcomer would end as soon as `first`, and has less work left.
    assert served(alone) == served(beside) == {"first": 4}
    assert keys(alone) == keys(beside)


def test_the_shadow_begins_anew_where_jobs_are_served_by_it_again():
    story = cell(wide("first", 12, 10, at=0))
    served(story)
    story.close().then(configured(at=10_000, altruism="off"))
    assert not story.state.shadow.works

    story.then(configured(at=10_000, altruism="on"))
    served(story)
    assert keys(story) == {"first": 10_000 + 30_000}


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


def test_a_job_with_little_work_left_goes_before_one_that_ends_a_little_earlier_in_the_shadow():
    story = cell(wide("wide", 12, 10, at=0))
    served(story)
    chain = job("chain", stage("a", 1, duration_ms=15_000), stage("b", 1, after=("a",), duration_ms=15_000))
    story.close().then(admitted(chain, 10_000), finished("wide/s", 0, 4, at=10_000))

    assert served(story) == {"chain": 1, "wide": 3}
    assert (keys(story)["wide"], keys(story)["chain"]) == (40_000, 50_000)


def due(story):
    """Job -> when it is due."""
    return {name: shadow_keys.due_of(story.state.shadow, each.admitted) for name, each in story.state.jobs.items()}


def test_a_job_is_due_before_it_ends_in_the_shadow_by_a_part_of_its_time_there():
    story = cell(wide("a", 8, 10, at=0))
    served(story)
    story.close().then(wide("b", 4, 10, at=8_000))
    served(story)

    assert keys(story) == {"a": 30_000, "b": 30_000}
    assert due(story) == {"a": 30_000 - 3_600, "b": 30_000 - 2_640}


def test_the_largest_of_twenty_jobs_is_due_later_than_others():
    story = cell(wide("large", 10, 10, at=0), *[wide(f"j{number}", 9, 10, at=0) for number in range(19)])
    served(story)
    sooner = {name: 1 - at / keys(story)[name] for name, at in due(story).items()}

    assert [name for name in sooner if sooner[name] < 0.1] == ["large"]
    assert sooner["large"] == pytest.approx(0.05)


def test_the_sizes_of_as_many_jobs_as_came_last_say_which_are_large(monkeypatch):
    monkeypatch.setattr(shadow_keys, "SIZES_MAX", 20)
    story = cell(wide("large", 10, 10, at=0), *[wide(f"j{number}", 9, 10, at=0) for number in range(20)])
    served(story)
    shadow, size = story.state.shadow, 9 * 10_000 * SHARE_UNITS // CORES

    assert shadow.sizes == shadow.sorted_sizes == [size] * 20
    assert shadow_keys.is_large(shadow, size)
    assert not shadow_keys.is_large(shadow, size - 1)


def test_the_size_of_a_job_that_came_before_the_nodes_is_known_with_them():
    story = given(core, configured(preset="largesse"), wide("a", 8, 10, at=0))
    assert story.state.shadow.sizes == []
    story.then(registered("n1", cpu=CORES * 1_000))
    served(story)

    assert story.state.shadow.sizes == [8 * 10_000 * SHARE_UNITS // CORES]


def test_a_job_that_is_about_to_end_in_the_shadow_goes_before_one_with_less_work():
    story = cell(wide("late", 12, 10, at=0))
    served(story)
    story.close().then(wide("small", 2, 10, at=29_000), finished("late/s", 0, 4, at=29_000))

    assert served(story) == {"late": 4}
    assert keys(story)["late"] == 30_000


def test_what_a_job_is_served_by_falls_as_its_end_in_the_shadow_comes_nearer():
    story = cell(wide("a", 40, 10, at=0), wide("b", 40, 10, at=0))
    served(story)
    claims, seen = story.state.shadow.claims, []
    for at in range(0, 200_000, 10_000):
        served(story.close(), at=at)
        seen.append(claims[story.state.jobs["a"].admitted].key)

    assert seen == sorted(seen, reverse=True)
    assert seen[0] >> shadow_keys.DIGITS >= (seen[-1] >> shadow_keys.DIGITS) + 8  # From 150 s left to 1.


def test_a_key_is_computed_again_only_when_a_quarter_of_the_time_that_was_left_is_over():
    story = cell(wide("a", 40, 10, at=0), wide("b", 40, 10, at=0))
    served(story)
    found = set()
    for at in range(0, 120_000, 1_000):  # Of 176 s until it is due 56 are left: (3 / 4) ** 4 is a third.
        served(story.close(), at=at)
        found.add(story.state.shadow.claims[story.state.jobs["a"].admitted].key)

    assert 3 <= len(found) <= 5


def test_a_job_that_is_late_keeps_a_key_by_its_work():
    story = cell(wide("a", 8, 10, at=0))
    served(story)
    story.close()
    served(story, at=3_600_000)
    claim = story.state.shadow.claims[story.state.jobs["a"].admitted]

    assert claim.work == shadow_keys.work_left(story.state.shadow, story.state.jobs["a"])
    assert 0 < claim.key < shadow_keys.LAST


def test_work_that_is_done_counts_from_the_next_round_on():
    story = cell(wide("a", 8, 10, at=0))
    served(story)
    number = story.state.jobs["a"].admitted
    before = story.state.shadow.claims[number].work
    story.close().then(finished("a/s", 0, 4, at=0))
    served(story)

    assert story.state.shadow.claims[number].work * 2 == before


@for_all(st.integers(0, 2**200), st.integers(0, 2**200))
def test_keys_are_in_the_order_of_their_products(one, other):
    low, high = sorted([one, other])

    assert shadow_keys._rounded(low) <= shadow_keys._rounded(high) < shadow_keys.LAST
    if high > low + (low >> 31):
        assert shadow_keys._rounded(low) < shadow_keys._rounded(high)


def test_a_job_that_is_cancelled_leaves_the_shadow_at_once():
    story = cell(wide("a", 8, 10, at=0), wide("b", 8, 10, at=0))
    served(story)
    assert keys(story) == {"a": 40_000, "b": 40_000}

    story.close().then(cancelled("a", at=0))
    served(story)
    assert keys(story) == {"b": 20_000}


def test_within_a_job_the_stage_with_the_longest_way_to_the_end_goes_first():
    stages = stage("side", 4, duration_ms=5_000), stage("main", 4, duration_ms=1_000)
    then = stage("end", 1, after=("main",), duration_ms=60_000)
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
    monkeypatch.setattr(shadow_cell, "SHADOW_JOBS_MAX", 1)
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
    odd = job("odd", replace(stage("s", 4, duration_ms=1_000), demand={"cpu": 1_000, "gpu": 1_000}))
    story = cell(admitted(odd), wide("plain", 8, 10))
    served(story)

    assert keys(story)["odd"] == 2_000
