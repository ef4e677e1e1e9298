"""Stories of jobs that are planned: what has to start now, what may wait, and when a job is planned again."""

from dataclasses import replace
from itertools import pairwise

import pytest

from schemas import Queue
from tests.builders import config, job, node, single, stage, tree
from tests.cells import SlowCell


def cell(*jobs, shards=1, cpu=4_000, queues=None, **knobs):
    """A cell with one node, under the preset that plans."""
    story = SlowCell(shards)
    patch = config(queues, altruism_shards=shards, **({"preset": "carbyne"} | knobs))
    story.take(patch, node("n1", cpu=cpu, memory=1 << 20), *jobs)
    return story


def bodies(story, topic, shard=0):
    return story.answers[topic][shard].body


def asked(story, shard=0):
    """The asks of the open round: job -> (stage, tasks, kind) in their order."""
    return {
        ask.job: [(each.stage, each.count, each.kind) for each in ask.asks] for ask in bodies(story, "asks", shard).jobs
    }


def plans(story, shard=0):
    """The plans of the open round, by job."""
    return {ask.job: ask.plan for ask in bodies(story, "asks", shard).jobs if ask.plan is not None}


def started(story):
    """What the closing grants: (job, stage, tasks, why)."""
    return [(grant.job, grant.stage, grant.count, grant.why) for grant in story.granted]


def forked(name, **given):
    """A short and a long stage that a third waits for: the short one may start late."""
    return job(
        name,
        stage("short", 1, duration_ms=1_000),
        stage("long", 1, duration_ms=5_000, retries=1),
        stage("last", 1, after=["short", "long"]),
        **given,
    )


def test_the_first_round_of_a_job_plans_it_and_asks_first_for_what_has_to_start():
    story = cell(forked("j"))
    story.open()

    assert plans(story)["j"].deadline_ms == 6_000
    assert asked(story) == {"j": [("long", 1, "required"), ("short", 1, "optional")]}
    assert bodies(story, "asks").wake_ms == 4_000


def test_what_is_left_over_goes_to_tasks_that_could_wait():
    story = cell(forked("j"))
    story.round()

    assert started(story) == [("j", "long", 1, "required"), ("j", "short", 1, "optional")]


def test_a_task_that_could_wait_gives_its_room_to_a_job_that_has_less_left():
    """Two cores: the long stage takes one. By fair shares the short stage of the first job would take the other."""
    second = job("small", stage("s", 1, duration_ms=500))
    story = cell(forked("j"), second, cpu=2_000)
    story.round()

    assert started(story) == [("small", "s", 1, "required"), ("j", "long", 1, "required")]


def test_at_its_latest_start_a_task_has_to_start():
    story = cell(job("hog", stage("s", 3, duration_ms=60_000)))
    story.settle()
    story.at(10).take(forked("j"))
    story.round()
    assert asked(story)["j"] == [("long", 1, "required"), ("short", 1, "optional")]
    assert started(story)[-1] == ("j", "long", 1, "required")

    story.at(4_010).open()
    assert asked(story) == {"j": [("short", 1, "required")]}
    assert plans(story) == {}


def test_with_no_altruism_all_that_could_start_is_required():
    story = cell(forked("j"), altruism_permille=0)
    story.open()

    assert plans(story)["j"].gives is False
    assert [kind for _, _, kind in asked(story)["j"]] == ["required", "required"]


def test_a_job_that_gives_nothing_asks_for_what_fits_into_its_share_beside_what_it_runs():
    """Each of two jobs is entitled to two cores of four."""
    selfish = [job(name, stage("s", 9), stage("t", 9)) for name in ("a", "b")]
    story = cell(*selfish, altruism_permille=0)
    story.round()
    assert asked(story)["a"] == [("s", 2, "required"), ("s", 7, "optional"), ("t", 9, "optional")]
    assert sorted(started(story)) == [("a", "s", 2, "required"), ("b", "s", 2, "required")]

    story.at(1_000).finish(*[single(grant, grant.first) for grant in story.granted if grant.job == "a"])
    story.open()
    assert asked(story) == {"a": [("s", 1, "required"), ("s", 6, "optional"), ("t", 9, "optional")]}


def test_under_other_presets_nobody_is_planned():
    story = cell(forked("j"), preset="hdrf")
    story.open()

    assert bodies(story, "shares").entitlements == []
    assert asked(story) == {}


def test_jobs_that_run_are_planned_when_the_preset_begins_to_and_ask_for_all_when_it_no_longer_does():
    story = cell(forked("j"), cpu=1_000, preset="hdrf")
    story.settle()
    story.at(10).take(config(preset="carbyne"))
    story.open()
    assert set(plans(story)) == {"j"}
    story.close()
    story.settle()
    story.at(20).take(config(preset="hdrf"))
    story.open()
    assert [each.share for each in bodies(story, "shares").entitlements] == [0]
    assert [kind for _, _, kind in asked(story)["j"]] == ["required"]


def test_a_job_is_planned_again_when_a_stage_has_ended_and_not_for_each_task():
    story = cell(job("j", stage("a", 2), stage("b", 2, after=["a"]), stage("c", 1, duration_ms=9_000)), cpu=9_000)
    story.settle()
    (both,) = [grant for grant in story.granted if grant.stage == "a"]
    story.at(1_000).finish(single(both, 0))
    assert not story.open() or asked(story) == {}
    story.settle()
    story.finish(single(both, 1))
    story.open()
    assert asked(story)["j"] == [("b", 2, "optional")]


def test_a_failure_plans_the_job_again_even_if_it_ends_later():
    story = cell(forked("j"), retry_backoff_ms=100)
    story.settle()
    (long,) = [grant for grant in story.granted if grant.stage == "long"]
    before = story.altruism.jobs["j"].plan.deadline_ms
    story.at(3_000).fail(long)
    story.settle()

    assert story.altruism.jobs["j"].plan.deadline_ms > before + 2_000


@pytest.mark.parametrize(("tolerance", "again"), [(0, True), (900, False)])
def test_a_job_is_planned_again_when_its_entitlement_has_moved_by_more_than_the_tolerance(tolerance, again):
    story = cell(forked("first"), share_tolerance_permille=tolerance)
    story.settle()
    story.at(10).take(forked("second"))
    story.open()

    shares = {each.share for each in bodies(story, "shares").entitlements}
    assert shares == {500_000_000}
    assert ("first" in asked(story)) == again


# ---------------------------------------------------------------- entitlements
def entitled(story):
    return {(each.queue, tuple(each.kinds)): each.share for each in bodies(story, "shares").entitlements}


def test_jobs_that_need_no_exhausted_kind_are_entitled_to_more():
    heavy = [job(f"gpu{i}", stage("s", 1, memory=1_024, gpu=1)) for i in range(2)]
    plain = job("plain", stage("s", memory=1_024))
    story = SlowCell()
    story.take(config(preset="carbyne"), node("n1", cpu=8_000, memory=8_192, gpu=1), *heavy, plain)
    story.open()
    found = entitled(story)

    assert found[("default", ("cpu", "gpu", "memory"))] == 500_000_000
    assert found[("default", ("cpu", "memory"))] > 500_000_000


def test_queues_count_by_their_weights_in_what_jobs_are_entitled_to():
    queues = tree(Queue("a", 3_000_000), Queue("b", 1_000_000))
    jobs = [job("a1", stage("s", 9), queue="a"), job("b1", stage("s", 9), queue="b"), job("b2", stage("s"), queue="b")]
    story = cell(*jobs, queues=queues)
    story.open()

    assert {queue: share for (queue, _), share in entitled(story).items()} == {"a": 750_000_000, "b": 125_000_000}


def test_a_maximum_bounds_what_jobs_are_entitled_to():
    queues = tree(Queue("a", max={"cpu": 1_000}), Queue("b"))
    story = cell(job("a1", stage("s", 9), queue="a"), job("b1", stage("s", 9), queue="b"), queues=queues)
    story.open()

    assert {queue: share for (queue, _), share in entitled(story).items()} == {"a": 250_000_000, "b": 750_000_000}


def test_what_nobody_is_entitled_to_any_more_is_said_once():
    story = cell(job("j", stage("s")))
    story.settle()
    story.cancel("j")
    story.open()
    assert list(entitled(story).values()) == [0]
    story.close()
    story.take(job("k", stage("s", 1, gpu=0)))
    story.open()
    assert list(entitled(story).values()) == [1_000_000_000]


@pytest.mark.parametrize(
    ("top", "own", "of_job", "gives"),
    [
        pytest.param(None, None, None, True, id="as the policy says"),
        pytest.param(0, None, None, False, id="or a queue above"),
        pytest.param(0, 1_000, None, True, id="or rather its own queue"),
        pytest.param(0, 1_000, 0, False, id="or rather the job"),
        pytest.param(1_000, 0, 1_000, True, id="whatever its queue says"),
    ],
)
def test_whether_a_job_gives_is_up_to_it_then_to_its_queue_then_to_the_policy(top, own, of_job, gives):
    leaf = Queue("prod", altruism_permille=own)
    spec = replace(forked("j", queue="ads/prod"), altruism_permille=of_job)
    story = cell(spec, queues=tree(Queue("ads", children=[leaf], altruism_permille=top)))
    story.restore()
    story.open()

    assert plans(story)["j"].gives is gives


def test_what_a_lost_node_takes_with_it_plans_the_job_again_even_if_it_ends_later():
    story = cell(forked("j"))
    story.take(node("n2", cpu=4_000, memory=1 << 20))
    story.open()
    before = plans(story)["j"]
    long = next(grant for grant in story.close().grants if grant.stage == "long")
    story.start(long)
    story.at(3_000).lose(long.node)
    story.open()

    assert plans(story)["j"].deadline_ms >= 3_000 + 5_000 + 1_000 > before.deadline_ms
    assert ("long", 1, "required") in asked(story)["j"]


# ---------------------------------------------------------------- what a round may plan again
def long_jobs(count, links=200):
    """Jobs that each get room for one task, or for two: a chain of stages of two tasks each, which takes two steps of a
    plan for each of them.
    """
    names = [f"s{at}" for at in range(links)]
    return [
        job(
            f"j{each}",
            stage(names[0], 2, cpu=900, duration_ms=1_000 + each),
            *[stage(name, 2, after=[before], cpu=900, duration_ms=1_000 + each) for before, name in pairwise(names)],
        )
        for each in range(count)
    ]


def replanned_rounds(story, rounds):
    """Which jobs each of so many rounds plans, one millisecond behind the other."""
    found = []
    for _ in range(rounds):
        story.at(story.time + 1)
        if story.open():
            found.append(list(plans(story)))
            story.close()
    return found


def crowd():
    """Twelve jobs, planned, of which six are cancelled: the others are entitled to twice as much."""
    story = cell(*long_jobs(12), cpu=12_000)
    story.open()
    assert len(plans(story)) == 12  # A job's first plan waits for nothing.
    assert bodies(story, "asks").planned == []
    story.close()
    for at in range(6):
        story.cancel(f"j{at}")
    return story


def test_jobs_beyond_what_a_round_may_plan_again_are_planned_in_the_next_rounds_in_turn():
    story = crowd()
    story.at(10).open()
    first = list(plans(story))
    assert 1 <= len(first) < 6
    assert bodies(story, "asks").planned == first
    assert bodies(story, "asks").wake_ms == 11
    story.close()

    later = replanned_rounds(story, 6)
    assert [*first, *[name for each in later for name in each]] == [f"j{at}" for at in range(6, 12)]
    assert bodies(story, "asks").planned == []
    assert story.altruism.stale == {}


def test_jobs_that_wait_for_their_turn_keep_their_plans_and_it_comes_also_after_a_restore():
    story = crowd()
    story.at(10).round()
    waiting = list(story.altruism.stale)
    assert waiting
    shares = {name: story.altruism.jobs[name].plan.share for name in (*waiting, "j6")}
    assert all(shares[name] < shares["j6"] for name in waiting)

    story.restore()
    assert [name for each in replanned_rounds(story, 6) for name in each] == waiting
    assert {story.altruism.jobs[name].plan.share for name in waiting} == {shares["j6"]}


def test_an_abandoned_round_leaves_jobs_to_be_planned_again_for_the_next():
    story = crowd()
    story.at(10).round()
    waiting = list(story.altruism.stale)
    story.at(11).open()
    story.abandon()

    assert [name for each in replanned_rounds(story, 6) for name in each] == waiting
