"""Promises to reservations in stories: who starts on promised room, who is taken back for it, and who is not."""

import pytest

from schemas import AntiAffinity, PlanStep, ReservationRequested
from tests.builders import job, node, queue, single, stage
from tests.promised_cell import (
    GRACE,
    HOUR,
    advance,
    cell,
    give_back,
    lasting,
    promise,
    reserved,
    step,
    taken_back,
    unestimated,
    why,
)


# ---------------------------------------------------------------- inside the promise
def test_a_reserved_job_has_its_promise_before_all_others():
    story = promise(cell(), step(0, 60_000, 3))
    story.take(job("other", stage(tasks=9), queue="b"), reserved("mine", stage(tasks=3)))

    grants = story.settle()

    assert ("mine", 3, "reserved", False) in why(grants)
    assert sum(grant.count for grant in grants if grant.job == "other") == 1


def test_a_job_of_a_reservation_that_nobody_accepted_is_a_job_like_any_other():
    story = cell()
    story.put(ReservationRequested("r", "", "{}", "tester", "a"))
    story.take(reserved("mine", stage(tasks=3)))

    assert why(story.settle()) == [("mine", 3, "required", False)]


def test_beyond_its_promise_a_reserved_job_has_what_nobody_else_can_use():
    story = promise(cell(), step(0, 60_000, 1))
    story.take(reserved("mine", stage(tasks=9, memory=1_024)), job("other", stage(tasks=2), queue="b"))

    assert why(story.settle()) == [
        ("mine", 1, "reserved", False),
        ("other", 2, "required", False),
        ("mine", 1, "packed", False),
    ]


def test_queues_divide_what_is_not_promised():
    story = promise(cell(nodes=[node(cpu=8_000)]), step(0, 60_000, 4))
    story.take(
        reserved("mine", stage(tasks=4)), job("j", stage(tasks=9), queue="a"), job("k", stage(tasks=9), queue="b")
    )

    story.settle()

    assert {name: sum(g.count for g in story.granted if g.job == name) for name in ("mine", "j", "k")} == {
        "mine": 4,
        "j": 2,
        "k": 2,
    }


def test_a_unit_without_what_the_tasks_ask_for_covers_none_of_them():
    story = promise(cell(), PlanStep(0, 60_000, {"cpu": 4_000}, {"cpu": 1_000}, 4))
    story.take(reserved("mine", stage(tasks=2, memory=1_024)))

    assert why(story.settle()) == [("mine", 2, "packed", True)]


def test_units_that_start_together_start_in_whole_gangs_or_not_at_all():
    nodes = [node("n1", cpu=2_000), node("n2", cpu=2_000)]
    story = promise(cell(job("other", stage(tasks=2), queue="b"), nodes=nodes), step(0, 60_000, 3, gang=3))
    other = story.settle()
    story.take(reserved("mine", stage(tasks=3)))
    story.settle()
    assert not [grant for grant in story.granted if grant.why == "reserved"]

    story.finish(*other)
    story.settle()
    assert sum(grant.count for grant in story.granted if grant.why == "reserved") == 3


# ---------------------------------------------------------------- revocable starts
def test_what_ends_before_the_promise_is_not_revocable_and_what_runs_into_it_is():
    story = promise(cell(nodes=[node("n1", cpu=4_000)]), step(30_000, 60_000, 4))
    story.take(job("short", stage(tasks=2, duration_ms=20_000)), lasting("long", stage(tasks=2, duration_ms=40_000)))

    assert sorted(why(story.settle())) == [("long", 2, "required", True), ("short", 2, "required", False)]


def test_what_may_run_for_any_time_is_revocable_however_late_the_promise_is():
    story = promise(cell(nodes=[node("n1", cpu=4_000)]), step(HOUR, HOUR + 60_000, 4))
    story.take(unestimated("open", tasks=2), unestimated("limited", tasks=2, timeout_ms=50_000))

    assert sorted(why(story.settle())) == [("limited", 2, "required", False), ("open", 2, "required", True)]


def test_once_a_task_of_the_stage_has_ended_the_others_are_expected_to_take_as_long():
    story = promise(cell(nodes=[node("n1", cpu=4_000)]), step(HOUR, HOUR + 60_000, 4))
    story.take(unestimated("open", tasks=5))
    (first,) = story.settle()
    story.at(20_000).finish(single(first, 0))

    assert why(story.settle()) == [("open", 1, "required", False)]


def test_what_nothing_is_known_of_is_not_waited_for():
    """By the guess of a minute it would end before the lease."""
    story = promise(cell(nodes=[node("n1", cpu=4_000)]), step(90_000, 120_000, 2))
    story.take(unestimated("open", tasks=4))
    story.settle()
    story.take(reserved("mine", stage(tasks=2, duration_ms=10_000)))

    advance(story, 90_000 - GRACE)
    assert sum(count for *_, count, _ in taken_back(story)) == 2


def test_only_so_many_tasks_are_revocable_as_stand_in_the_way():
    story = promise(cell(nodes=[node("n1", cpu=4_000)]), step(30_000, 60_000, 3))
    story.take(lasting("long", stage(tasks=3, duration_ms=40_000)))

    assert sorted(why(story.settle())) == [("long", 1, "required", False), ("long", 2, "required", True)]


def test_a_unit_has_to_fit_a_node_and_not_only_the_sum():
    """Two nodes of four cores and a promise of one unit of four: one task on each leaves room in the sum only."""
    story = promise(cell(nodes=[node("n1"), node("n2")]), step(30_000, 60_000, 1, cpu=4_000))
    story.take(
        lasting("one", stage(cpu=3_000, duration_ms=40_000)), lasting("two", stage(cpu=3_000, duration_ms=40_000))
    )

    assert sorted(grant.revocable for grant in story.settle()) == [False, True]


def test_without_promises_nothing_is_revocable():
    story = cell(job("long", stage(tasks=9, duration_ms=10**9)))

    assert [grant.revocable for grant in story.settle()] == [False]


def test_switched_off_promises_count_for_nothing():
    story = promise(cell(reservations="off"), step(0, 60_000, 4))
    story.take(reserved("mine", stage(tasks=1)), job("other", stage(tasks=3, duration_ms=10**6), queue="b"))

    assert {grant.why for grant in story.settle()} == {"required"}
    assert not any(grant.revocable for grant in story.granted)


# ---------------------------------------------------------------- taking back
def in_the_way(*steps, tasks=4, **knobs):
    """One node, full of revocable tasks, and a reserved job that waits for its lease at 30 s."""
    story = promise(cell(nodes=[node("n1", cpu=4_000)], **knobs), *(steps or [step(30_000, 60_000, 2)]))
    story.take(lasting("long", stage(tasks=tasks, duration_ms=100_000)))
    story.settle()
    story.take(reserved("mine", stage(tasks=2, memory=1_024, duration_ms=10_000)))
    return story


def test_revocable_tasks_are_taken_back_as_long_before_the_lease_as_they_have_to_end():
    story = in_the_way()

    advance(story, 30_000 - GRACE - 1)
    assert taken_back(story) == []

    advance(story, 30_000 - GRACE)
    assert len(taken_back(story)) == 1
    assert sum(count for *_, count, _ in taken_back(story)) == 2


def test_room_that_is_made_waits_for_the_reserved_tasks_and_they_start_with_the_lease():
    story = in_the_way(tasks=9)
    advance(story, 30_000 - GRACE)
    give_back(story)

    advance(story, 29_999)
    assert not [grant for grant in story.granted if grant.job == "mine"]
    assert story.leftover.vacated["n1"].demand == {"cpu": 2_000, "memory": 2_048}

    advance(story, 30_000)
    assert [(g.job, g.count, g.why) for g in story.granted if g.job == "mine"] == [("mine", 2, "reserved")]
    assert story.leftover.vacated == {}


def test_nobody_is_taken_back_while_no_job_of_the_reservation_waits():
    story = promise(cell(nodes=[node("n1", cpu=4_000)]), step(30_000, 60_000, 4))
    story.take(lasting("long", stage(tasks=4, duration_ms=100_000)))

    advance(story, 60_000)

    assert taken_back(story) == []


def test_a_reserved_job_that_comes_late_takes_back_what_runs_on_its_promise():
    story = promise(cell(nodes=[node("n1", cpu=4_000)]), step(0, 60_000, 4))
    story.take(lasting("other", stage(tasks=4, duration_ms=100_000), queue="b"))
    assert all(grant.revocable for grant in story.settle())
    story.at(5_000).take(reserved("mine", stage(tasks=3)))

    story.settle()

    assert sum(count for *_, count, _ in taken_back(story)) == 3


def test_those_that_have_run_least_are_taken_back_first():
    story = promise(cell(nodes=[node("n1", cpu=4_000)]), step(50_000, 90_000, 2))
    story.take(lasting("old", stage(tasks=2, duration_ms=200_000)))
    story.settle()
    story.at(20_000).take(lasting("new", stage(tasks=2, duration_ms=200_000)))
    story.settle()
    story.take(reserved("mine", stage(tasks=1)))

    advance(story, 50_000)

    assert [(name, count) for name, _, _, count, _ in taken_back(story)] == [("new", 1)]


def test_what_is_not_revocable_is_never_taken_back():
    story = promise(cell(nodes=[node("n1", cpu=4_000)]), step(30_000, 60_000, 4))
    story.take(job("wrong", stage(tasks=4, duration_ms=20_000)))
    story.settle()
    story.take(reserved("mine", stage(tasks=4)))

    advance(story, 59_000)

    assert taken_back(story) == []


def test_a_gang_is_taken_back_as_a_whole():
    story = promise(cell(nodes=[node("n1"), node("n2")]), step(30_000, 60_000, 8))
    story.take(lasting("gang", stage(tasks=8, gang=True, duration_ms=100_000)))
    assert all(grant.revocable for grant in story.settle())
    story.take(reserved("mine", stage(tasks=1)))

    advance(story, 30_000)

    assert sorted(item[2:] for item in taken_back(story)) == [(0, 4, "n1"), (4, 4, "n2")]


def test_attempts_that_were_taken_back_are_asked_for_again():
    story = in_the_way()
    advance(story, 30_000 - GRACE)
    give_back(story)
    advance(story, 30_000)
    mine = [grant for grant in story.granted if grant.job == "mine"]
    story.at(40_000).finish(*mine)

    story.settle()

    again = [grant for grant in story.granted if grant.job == "long" and grant.attempt == 2]
    assert sum(grant.count for grant in again) == 2


# ---------------------------------------------------------------- order, and the end of a promise
def test_work_of_a_later_part_waits_for_its_lease_and_for_the_jobs_of_the_earlier_one():
    steps = step(0, 20_000, 2, atom="0"), step(20_000, 40_000, 2, atom="1")
    story = promise(cell(), *steps, order=[("1", ["0"])])
    story.take(reserved("second", stage(tasks=2), part="1"), reserved("first", stage(tasks=2), part="0"))
    story.settle()
    assert {grant.job for grant in story.granted} == {"first"}

    advance(story, 25_000)
    assert {grant.job for grant in story.granted} == {"first"}  # It runs late.

    story.finish(*story.granted)
    story.settle()
    assert why(story.granted)[-1] == ("second", 2, "reserved", False)


def test_once_its_reservation_is_gone_a_job_is_a_job_like_any_other():
    story = promise(cell(), step(0, 60_000, 2))
    story.take(reserved("mine", stage(tasks=3), queue="a"), job("other", stage(tasks=9), queue="b"))
    story.settle()
    promise(story, gone=["r"])
    story.at(1_000).finish(*[grant for grant in story.granted if grant.job == "mine"])

    assert why(story.settle())[0][2] in ("required", "packed")
    assert story.fairness.promises.amount == {}
    assert story.fairness.capacity.divided == {"cpu": 4_000, "memory": 16_384}


@pytest.mark.parametrize("preset", ["fifo", "drf", "capacity", "carbyne", "srtf", "slots", "largesse"])
def test_promises_are_kept_under_every_preset(preset):
    story = promise(cell(preset=preset, slots_per_node=4), step(10_000, 60_000, 2))
    story.take(lasting("other", stage(tasks=4, duration_ms=100_000), queue="b"))
    story.settle()
    story.take(reserved("mine", stage(tasks=2)))
    advance(story, 10_000 - GRACE)
    give_back(story)

    advance(story, 10_000)

    assert ("mine", 2, "reserved", False) in why(story.granted)


def test_a_cell_goes_on_alike_from_its_snapshot():
    whole, restored = in_the_way(), in_the_way()
    restored.restore()
    for story in (whole, restored):
        advance(story, 30_000 - GRACE)
    restored.restore()
    for story in (whole, restored):
        give_back(story)
        advance(story, 60_000)

    assert whole.digest == restored.digest


def test_caches_change_cost_and_no_answer():
    stories = [in_the_way(), in_the_way()]
    stories[1].forgetful = True
    for story in stories:
        advance(story, 30_000 - GRACE)
        give_back(story)
        advance(story, 60_000)

    assert stories[0].digest == stories[1].digest


def test_what_fairness_divides_is_the_cell_without_what_is_promised_now():
    story = promise(cell(queues=[queue("a"), queue("b", 3)], nodes=[node(cpu=8_000)]), step(0, 60_000, 4))
    story.take(job("j", stage(tasks=9), queue="a"), job("k", stage(tasks=9), queue="b"))

    story.settle()

    assert story.fairness.capacity.divided["cpu"] == 4_000


@pytest.mark.parametrize("forgetful", [False, True])
def test_a_node_that_is_lost_takes_nothing_of_the_promise_with_it(forgetful):
    """Its grants are struck, and the tasks start elsewhere."""
    story = promise(cell(nodes=[node("n1", cpu=2_000), node("n2", cpu=2_000)]), step(0, 60_000, 2))
    story.forgetful = forgetful
    story.take(reserved("mine", stage(tasks=2)))
    story.open()
    first = {grant.node for grant in story.answer("grants").grants if grant.why == "reserved"}
    story.lose(min(first))
    struck = story.close().struck
    assert {item.grant.node for item in struck} == {min(first)}

    story.settle()

    held = [key for on_node in story.leftover.held.values() for key in on_node if key.startswith("mine")]
    assert len(held) == 2


def test_a_job_that_ends_leaves_no_trace_of_what_was_promised_to_it():
    story = promise(cell(), step(0, 60_000, 4))
    story.take(lasting("other", stage(tasks=4, duration_ms=100_000), queue="b"))
    story.settle()
    story.take(reserved("mine", stage(tasks=2)))
    story.settle()
    give_back(story)
    story.settle()
    story.finish(*[grant for grant in story.granted if grant.job == "mine"])
    story.cancel("other")
    story.fail(*[g for g in story.granted if g.job == "other" and g.attempt == 1], reason="killed")
    promise(story, gone=["r"])
    story.settle()

    state = story.leftover
    assert (state.lent, state.vacated, state.reserving, state.promises.profiles) == ({}, {}, {}, {})
    assert story.fairness.reserving == {}


def test_a_promise_keeps_tasks_apart_and_waits_for_no_preferred_node():
    apart = stage(tasks=3, anti_affinity=AntiAffinity(), prefer={"disk": "ssd"}, locality_wait_ms=60_000)
    nodes = [node("n1", labels={"disk": "ssd"}), node("n2")]
    story = promise(cell(nodes=nodes), step(0, 60_000, 3))
    story.take(reserved("mine", apart))

    grants = story.settle()

    assert sorted((grant.node, grant.count) for grant in grants) == [("n1", 1), ("n2", 1)]
    story.finish(grants[0])
    assert [grant.node for grant in story.settle()] == [grants[0].node]
