"""Admission in stories: classes that are judged late, pools that an opening says, what classes hold and wait for."""

from dataclasses import replace

import pytest

from largesse.lifecycle.job_classes import amount_at
from largesse.lifecycle.running_limit import is_parked
from largesse.lifecycle.state import RunningLimits
from schemas import JobAdmitted, PlanAnswer, Plans, Queue, ReleaseCurve, RoundOpened
from schemas.jobs import UNJUDGED
from services.admission.core.demand import forecast_of, pools_of
from services.admission.core.reservations import fold_answers
from services.admission.core.state import Reserved
from tests.builders import config, job, node, queue, single, stage, tree
from tests.cells import SlowCell, drop_caches
from tests.properties.histories import Play, histories
from tests.strategies import for_all

ON = {"classes": "on", "theta_permille": 250, "reserve_ratio_permille_min": 0}


def cell(*inputs, knobs=ON, **nodes):
    """A cell with pools and one node of eight cores."""
    story = SlowCell(1)
    story.take(config(**knobs), node("n1", cpu=8_000, memory=16_000), *inputs)
    return story


def small(name, tasks=1):
    return job(name, stage(tasks=tasks, cpu=1_000))


def large(name, tasks=8):
    return job(name, stage(tasks=tasks, cpu=1_000))


def opened(story):
    """What the last opening said."""
    return story.bodies(RoundOpened)[-1]


def test_a_job_that_comes_before_any_node_is_judged_by_the_first_opening_with_capacity():
    story = SlowCell(1)
    story.take(config(**ON), small("s"), large("l"))
    assert [body.job_class for body in story.bodies(JobAdmitted)] == [UNJUDGED, UNJUDGED]
    story.settle()
    assert opened(story).judged == []

    story.take(node("n1", cpu=8_000, memory=16_000))
    story.settle()

    assert [(each.job, each.job_class) for each in opened(story).judged] == [("s", 0), ("l", 1)]


def test_other_thresholds_judge_live_jobs_again():
    story = cell(small("s"), large("l"), small("m", tasks=3))
    story.settle()

    story.take(config(theta_permille=500))
    story.settle()

    assert [(each.job, each.job_class) for each in opened(story).judged] == [("m", 0)]


@pytest.mark.parametrize("knobs", [{"classes": "off"}, {**ON, "theta_permille": 0}, {**ON, "theta_permille": 1_000}])
def test_without_pools_openings_say_none(knobs):
    story = cell(small("s"), large("l"), knobs=knobs)
    story.settle()

    assert opened(story).pools_ppm == []


def test_the_small_pool_grows_by_what_the_large_one_cannot_use():
    story = cell(large("l", tasks=4))
    story.settle()
    assert opened(story).pools_ppm == [0, 1_000_000]

    story.take(small("s", tasks=2))
    story.settle()

    assert opened(story).pools_ppm == [250_000, 750_000]


def test_the_pools_stay_in_their_bounds():
    story = cell(large("l"), knobs={**ON, "reserve_ratio_permille_min": 70})
    story.settle()

    assert opened(story).pools_ppm == [70_000, 930_000]


# ---------------------------------------------------------------- who does not wait for a pool
GATED = tree(Queue("q", running_jobs_max=1), queue("free"))


def small_in(name, where, tasks=1):
    return job(name, stage(tasks=tasks, cpu=1_000), queue=where)


def test_jobs_that_a_queue_holds_back_wait_for_no_pool():
    """Of ten small jobs one may run: the pool is as large as that one needs."""
    story = SlowCell(1)
    story.take(config(GATED, **ON), node("n1", cpu=8_000, memory=16_000))
    story.take(*[small_in(f"s{i}", "q") for i in range(10)])
    story.settle()
    assert opened(story).pools_ppm == [125_000, 875_000]

    story.take(small_in("t", "free", tasks=2))
    story.settle()
    assert opened(story).pools_ppm == [375_000, 625_000]


def test_a_job_that_may_run_from_now_on_waits_for_its_pool():
    story = SlowCell(1)
    story.take(config(GATED, **ON), node("n1", cpu=8_000, memory=16_000))
    story.take(small_in("s", "q"), small_in("t", "q", tasks=2))
    story.settle()
    assert story.admission.jobs["t"].parked
    story.finish(*[single(grant, 0) for grant in story.granted])
    story.settle()

    assert not story.admission.jobs["t"].parked
    assert opened(story).pools_ppm == [250_000, 750_000]


def test_a_tree_without_limits_lets_all_jobs_wait_and_costs_nothing():
    story = SlowCell(1)
    story.take(config(GATED, **ON), node("n1", cpu=8_000, memory=16_000))
    story.take(*[small_in(f"s{i}", "q") for i in range(4)])
    story.settle()
    story.take(config(tree(queue("q"), queue("free"))))
    story.settle()

    assert opened(story).pools_ppm == [500_000, 500_000]
    assert story.admission.running_limits == RunningLimits()


@for_all(histories(60))
def test_admission_holds_the_same_jobs_back_as_the_cores_that_place_tasks(history):
    play = Play(SlowCell(4), "limited", **ON)
    for step in history:
        play.step(*step)
        limits = play.cell.fairness.running_limits
        live = {name: job for name, job in play.cell.admission.jobs.items() if not job.over}
        assert [name for name in live if live[name].parked] == [name for name in live if is_parked(limits, name)]


def test_a_job_with_an_accepted_reservation_has_its_promise_and_waits_for_no_pool():
    story = cell()
    state = story.admission
    story.take(small("plain"), small("s"))
    state.jobs["s"].spec = replace(state.jobs["s"].spec, reservation="r")
    state.reservations["r"] = Reserved("ann", "default", "", 0, accepted=True)
    assert pools_of(state, 0) == [125_000, 875_000]

    state.policy = replace(state.policy, reservations="off")
    state.demand = None
    assert pools_of(state, 0) == [250_000, 750_000]


def test_the_pools_follow_when_a_reservation_is_accepted_and_when_it_is_over():
    state = cell(small("plain"), small("s")).admission
    state.jobs["s"].spec = replace(state.jobs["s"].spec, reservation="r")
    state.reservations["r"] = Reserved("ann", "default", "", 1)
    assert pools_of(state, 0) == [250_000, 750_000]

    fold_answers(state, Plans(0, [PlanAnswer("r", accepted=True)]))
    assert pools_of(state, 0) == [125_000, 875_000]
    fold_answers(state, Plans(0, gone=["r"]))
    assert pools_of(state, 0) == [250_000, 750_000]


def test_a_class_is_compared_with_what_no_task_holds_where_the_policy_says_so():
    story = cell(large("l", tasks=6), knobs={**ON, "class_reference": "available"})
    story.settle()

    assert (story.take(small("s")).job_class, story.take(small("t", tasks=2)).reference) == (1, "available")


def test_pools_can_be_switched_off_and_on_while_it_runs():
    story = cell(large("l"), small("s"))
    story.settle()
    assert len(opened(story).pools_ppm) == 2

    story.take(config(classes="off"))
    story.settle()
    assert opened(story).pools_ppm == []

    story.take(config(classes="on", class_thresholds_permille=[500]))
    story.settle()
    assert len(opened(story).pools_ppm) == 3


def test_what_is_to_come_first_gives_back_what_was_borrowed():
    assert forecast_of({"cpu": 10}, {"cpu": 4}, {"cpu": 3}) == {"cpu": 9}
    assert forecast_of({"cpu": 10}, {"cpu": 12}, {"cpu": 3}) == {"cpu": 1}
    assert forecast_of({"cpu": 10}, {"cpu": 30}, {"cpu": 3}) == {"cpu": 0}


@pytest.mark.parametrize(("after_ms", "amount"), [(0, 0), (1_999, 0), (2_000, 5), (2_001, 5), (9_000, 8)])
def test_a_curve_stays_until_its_next_point(after_ms, amount):
    assert amount_at(ReleaseCurve(0, "cpu", [[2_000, 5], [3_000, 8]]), after_ms) == amount


@for_all(histories(60))
def test_what_classes_hold_and_wait_for_is_kept_up_to_date(history):
    """As it would be worked out from all jobs and nodes."""
    play = Play(SlowCell(4), **ON, class_thresholds_permille=[500])
    for step in history:
        play.step(*step)
        admission = play.cell.admission
        if play.cell.opening is None and admission.demand is not None and pools_of(admission, play.cell.time):
            kept = plain(admission.demand)
            drop_caches([admission])
            pools_of(admission, play.cell.time)
            assert kept == plain(admission.demand)


def plain(demand):
    """Without what is none."""
    return [
        [left(tally.held), left(tally.pending), tally.jobs, tally.ascending] for tally in demand.classes
    ], demand.shapes


def left(vector):
    return {kind: amount for kind, amount in vector.items() if amount}
