"""Altruism in stories: what each job asks for, when a task that failed is asked again, and what shards change."""

import itertools

import pytest

from largesse.ids import shard_of
from largesse.lifecycle.job_life import LOST_ATTEMPTS_MAX
from schemas import Queue, StageAsk
from services.leftover.core.asks import asks_of
from tests.builders import config, job, known, node, report, single, stage, tree
from tests.cells import SlowCell, indexes

NAMES = [f"j{i}" for i in range(12)]


def cell(*jobs, shards=1, cpu=64_000, **knobs):
    """A cell with one wide node."""
    story = SlowCell(shards)
    story.take(config(altruism_shards=shards, **knobs), node("n1", cpu=cpu, memory=1 << 20), *jobs)
    return story


def running(*jobs, **given):
    story = cell(*jobs, **given)
    story.settle()
    return story


def asked(story, shard=0):
    """The asks of the round that was just opened: job -> its asks."""
    return {ask.job: ask.asks for ask in story.answers["asks"][shard].body.jobs}


def known_to_leftover(story):
    """What leftover takes each job to ask for: job -> its asks."""
    return {name: asks_of(job) for name, job in story.leftover.jobs.items()}


def chain(name):
    """A job of one task after another."""
    return job(name, stage("a"), stage("b", after=["a"]))


def attempts(grants):
    return [(grant.first, grant.count, grant.attempt) for grant in grants]


# ---------------------------------------------------------------- asks
def test_a_job_asks_from_its_admission_on_for_all_that_it_could_start_and_nobody_says_so():
    story = cell()
    story.at(5).take(job("j", stage("b", 2, after=["a"]), stage("a", 3), stage("c", 4)))
    story.open()
    assert asked(story) == {}
    assert known_to_leftover(story) == {"j": [StageAsk("a", 0, 3, 1, 5), StageAsk("c", 0, 4, 1, 5)]}


def test_a_job_that_asks_for_something_else_says_all_of_it():
    story = running(job("j", stage("a", 2), stage("b", 3, after=["a"]), stage("c", 99)), cpu=2_000)
    story.finish(*story.granted)
    story.open()
    assert asked(story) == {"j": [StageAsk("b", 0, 3, 1, 0), StageAsk("c", 0, 99, 1, 0)]}


def test_a_job_that_a_running_limit_holds_back_asks_for_nothing_until_it_may_run():
    story = cell()
    story.take(config(tree(Queue("a", running_jobs_max=1))))
    story.take(job("j", queue="a"), job("k", queue="a"), job("l", queue="a"))
    assert indexes(story.settle()) == [("map", 0)]
    assert known_to_leftover(story) == {"j": [], "k": [], "l": []}
    story.at(7).cancel("k")
    story.at(9).finish(*story.granted)
    story.open()
    assert asked(story) == {}
    assert known_to_leftover(story) == {"l": [StageAsk("map", 0, 1, 1, 9)]}
    story.close()

    story.take(job("m", queue="a"), job("n", queue="a"))
    story.take(config(tree(Queue("a", running_jobs_max=2))))
    assert [grant.job for grant in story.settle()] == ["m"]


def test_a_job_admitted_after_the_opening_keeps_asking_when_its_shard_writes_everything():
    story = running(job("j", stage(tasks=9)), cpu=2_000, shards=2)
    story.take(config(altruism_shards=1))
    story.open()
    story.take(*[job(name) for name in NAMES])
    assert all(record.body.full for record in story.answers["asks"])
    story.close()
    assert {name for name, asks in known_to_leftover(story).items() if asks} == {"j", *NAMES}


def test_a_stage_is_asked_for_when_its_parents_have_ended_and_says_since_when():
    story = running(job("j", stage("a", 2), stage("b", 3, after=["a"])))
    a = story.granted[0]
    story.at(10).finish(single(a, 1))
    assert story.settle() == []

    story.at(25).finish(single(a, 0))
    story.open()
    assert asked(story) == {"j": [StageAsk("b", 0, 3, 1, 25)]}


def test_only_jobs_that_changed_are_asked_for_anew():
    story = running(job("j", stage(tasks=100)), cpu=2_000)
    story.take(chain("k"))
    story.finish(story.granted[0])
    story.settle()
    story.finish(*[grant for grant in story.granted if grant.job == "k"])
    story.open()
    assert list(asked(story)) == ["k"]


def test_grants_come_off_what_is_asked_by_themselves():
    story = running(job("j", stage(tasks=100)), cpu=2_000)
    story.finish(story.granted[0])
    story.open()
    assert asked(story) == {}
    assert attempts(story.close().grants) == [(2, 2, 1)]


def test_a_round_that_was_abandoned_is_asked_again_whole():
    story = running(*[chain(name) for name in "jk"], cpu=2_000)
    story.finish(story.granted[0])
    story.open()
    assert list(asked(story)) == ["j"]
    story.abandon()
    story.finish(story.granted[1])
    story.open()
    assert list(asked(story)) == ["j", "k"]


def test_what_changes_while_a_round_is_open_is_asked_in_the_next():
    story = running(chain("j"), chain("k"))
    story.finish(story.granted[1])
    story.open()
    story.finish(story.granted[0])
    assert list(asked(story)) == ["k"]
    story.close()

    story.open()
    assert asked(story) == {"j": [StageAsk("b", 0, 1, 1, 0)]}


def test_a_job_that_is_over_asks_for_nothing():
    story = running(job("j", stage(tasks=100)), cpu=2_000)
    story.cancel("j")
    story.open()
    assert asked(story) == {}
    assert story.altruism.jobs == {}


# ---------------------------------------------------------------- failures
def test_a_failed_task_is_asked_again_after_a_back_off_that_doubles():
    story = running(job("j", stage(retries=9)), retry_backoff_ms=1_000, retry_backoff_ms_max=5_000)
    waits = []
    for attempt in range(2, 8):
        failed_ms = story.time
        story.fail(story.granted[-1])
        assert story.settle() == []
        story.at(story.next_ms())
        waits.append(story.time - failed_ms)
        assert attempts(story.settle()) == [(0, 1, attempt)]
    assert waits == [1_000, 2_000, 4_000, 5_000, 5_000, 5_000]


def test_the_closing_says_when_to_wake_for_a_back_off():
    story = running(job("j", stage(tasks=2, retries=1)))
    story.fail(single(story.granted[0], 0))
    story.at(300).fail(single(story.granted[0], 1))
    assert story.round().wake_ms == 1_000
    assert story.at(1_000).round().wake_ms == 1_300


def test_without_a_back_off_a_failed_task_is_asked_at_once():
    story = running(job("j", stage(retries=1)), retry_backoff_ms=0)
    story.fail(story.granted[0])
    assert attempts(story.settle()) == [(0, 1, 2)]


@pytest.mark.parametrize("reason", ["lost", "killed", "revoked"])
def test_a_task_that_others_ended_is_asked_again_at_once(reason):
    story = running(job("j"))
    story.fail(story.granted[0], reason=reason)
    assert attempts(story.settle()) == [(0, 1, 2)]


def test_a_loss_after_a_failure_is_asked_at_once_too():
    story = running(job("j", stage(retries=3)))
    story.fail(story.granted[0])
    story.at(1_000).settle()
    story.fail(story.granted[-1], reason="lost")
    assert attempts(story.settle()) == [(0, 1, 3)]


def test_out_of_retries_the_job_fails_and_says_which_task():
    story = running(job("j", stage("map", 3, retries=1), stage("red", after=["map"])), retry_backoff_ms=0)
    story.fail(single(story.granted[0], 1), reason="timeout")
    story.settle()
    story.fail(story.granted[-1], detail="exit code 3")
    story.settle()

    assert story.ended() == {"j": "failed"}
    assert story.bodies_in_log("JobEnded")[0].jobs[0].detail == "map/1 exit_code: exit code 3"


def test_a_task_lost_so_often_fails_its_job_and_says_so():
    story = running(job("j", stage(retries=5)))
    for _ in range(LOST_ATTEMPTS_MAX):
        assert story.ended() == {}
        story.fail(story.granted[-1], reason="lost")
        story.settle()

    assert story.ended() == {"j": "failed"}
    assert story.bodies_in_log("JobEnded")[0].jobs[0].detail == "map/0 lost (too many lost attempts)"
    assert len(story.granted) == LOST_ATTEMPTS_MAX


def test_tasks_that_come_back_go_before_those_that_never_ran():
    story = running(job("j", stage(tasks=10)), cpu=4_000)
    story.fail(single(story.granted[0], 2), reason="lost")
    assert attempts(story.settle()) == [(2, 1, 2)]


def test_neighbours_that_are_lost_together_are_asked_as_one():
    story = running(job("j", stage(tasks=1_000)), cpu=1_000_000)
    story.finish(single(story.granted[0], 500))
    story.lose()
    story.take(node("n2", cpu=1_000_000, memory=1 << 20))
    assert sorted(attempts(story.settle())) == [(0, 500, 2), (501, 499, 2)]


def test_neighbours_that_fail_together_back_off_as_one():
    story = running(job("j", stage(tasks=1_000, retries=1)), cpu=1_000_000)
    story.fail(story.granted[0])
    assert len(story.altruism.backing_off["j"]) == 1
    story.settle()
    assert attempts(story.at(1_000).settle()) == [(0, 1_000, 2)]


# ---------------------------------------------------------------- gangs
def gang(tasks=3, **given):
    return job("g", stage("gang", tasks, gang=True, **given))


def test_a_broken_gang_is_asked_again_only_when_nothing_of_it_runs():
    story = running(gang(retries=1), retry_backoff_ms=0)
    grant = story.granted[0]

    story.fail(single(grant, 1))
    assert story.settle() == []
    story.fail(single(grant, 0), reason="gang")
    assert story.settle() == []
    story.finish(single(grant, 2))
    assert attempts(story.settle()) == [(0, 3, 2)]
    assert story.ended() == {}

    story.finish(story.granted[-1])
    story.settle()
    assert story.ended() == {"g": "succeeded"}


def test_what_had_succeeded_in_a_broken_gang_runs_again():
    story = running(gang(retries=1), retry_backoff_ms=0)
    grant = story.granted[0]
    story.finish(single(grant, 0), single(grant, 1))
    story.fail(single(grant, 2))
    assert attempts(story.settle()) == [(0, 3, 2)]


def test_a_gang_backs_off_from_its_last_end():
    story = running(gang(retries=1))
    grant = story.granted[0]
    story.fail(single(grant, 0))
    story.at(400).fail(single(grant, 1), single(grant, 2), reason="gang")
    assert story.settle() == []
    assert story.next_ms() == 1_400


def test_a_gang_that_loses_a_node_is_asked_again_at_once():
    story = SlowCell()
    story.take(node("n1"), node("n2"), node("n3"), gang(2, cpu=3_000))
    first = {grant.node: grant for grant in story.settle()}
    story.lose("n1")
    assert story.settle() == []

    story.fail(first["n2"], reason="gang")
    assert sorted((grant.node, grant.attempt) for grant in story.settle()) == [("n2", 2), ("n3", 2)]


def test_a_loss_after_a_failure_leaves_a_gang_no_back_off_either():
    story = running(gang(retries=3))
    story.fail(single(story.granted[0], 0))
    story.fail(single(story.granted[0], 1), single(story.granted[0], 2), reason="gang")
    story.settle()
    story.at(1_000).settle()
    second = story.granted[-1]
    assert second.attempt == 2

    story.fail(single(second, 0), reason="lost")
    story.fail(single(second, 1), single(second, 2), reason="gang")
    assert attempts(story.settle()) == [(0, 3, 3)]


def test_a_restarted_agent_that_knows_half_a_gang_has_broken_it():
    story = running(gang(2))
    grant = story.granted[0]
    story.take(node("n1", cpu=64_000, memory=1 << 20, epoch="e2", attempts=[known(single(grant, 0))]))
    assert story.settle() == []

    kept = single(grant, 0)
    kept.epoch = "e2"
    story.fail(kept, reason="gang")
    assert attempts(story.settle()) == [(0, 2, 2)]


def test_a_gang_out_of_retries_fails_its_job():
    story = running(gang())
    story.fail(single(story.granted[0], 2))
    story.settle()
    assert story.ended() == {"g": "failed"}


# ---------------------------------------------------------------- shards and keyframes
@pytest.mark.parametrize("shards", [1, 2, 4])
def test_each_shard_asks_for_its_own_jobs(shards):
    story = running(*[chain(name) for name in NAMES], shards=shards)
    story.finish(*story.granted)
    story.open()
    for shard in range(shards):
        assert list(asked(story, shard)) == [name for name in NAMES if shard_of(name, shards) == shard]


def test_another_count_of_shards_writes_everything_anew_and_grants_the_same():
    def story_of(*counts):
        story = cell(*[job(name, stage(tasks=9)) for name in NAMES], shards=4, cpu=7_000)
        granted = []
        for count in counts:
            story.take(config(altruism_shards=count, seed=len(granted) + 1))
            granted.append(story.settle())
            story.finish(*granted[-1])
        return story, granted

    story, granted = story_of(4, 1, 2, 4)
    full = [
        [record.body.full for record in story.decided if (record.type, record.round) == ("Asks", r)] for r in range(9)
    ]
    assert all(all(flags) or not any(flags) for flags in full)
    assert sum(bool(flags) and all(flags) for flags in full) >= 3
    assert granted == story_of(2, 2, 2, 2)[1]


def test_readers_drop_what_a_shard_that_is_gone_had_asked():
    story = cell(*[job(name, stage(tasks=9)) for name in NAMES], shards=4, cpu=1_000)
    story.settle()
    story.take(config(altruism_shards=1))
    story.open()
    assert {name: len(asks) for name, asks in asked(story).items()} == dict.fromkeys(NAMES, 1)


def test_every_so_often_everything_is_written_again():
    story = cell(job("old", stage(tasks=99)), cpu=1_000, keyframe_rounds=3)
    story.settle()
    for i in range(6):
        story.take(job(f"n{i}"))
        story.settle()
        story.cancel(f"n{i}")

    full = [body for body in story.bodies_of("Asks") if body.full]
    assert len(full) >= 1
    assert all("old" in [ask.job for ask in body.jobs] for body in full)


def test_keyframes_wait_until_as_much_has_changed_as_there_is():
    story = cell(*[job(name, stage(tasks=99)) for name in NAMES], cpu=1_000, keyframe_rounds=2)
    story.settle()
    for i in range(3 * len(NAMES)):
        story.take(job(f"n{i}"))
        story.settle()
        story.cancel(f"n{i}")
    full = [round_ for round_, body in enumerate(story.bodies_of("Asks")) if body.full]
    between = [later - earlier for earlier, later in itertools.pairwise(full)]
    assert between == [len(NAMES) + 1] * 2  # The jobs that stay, and the one that came last.


def test_a_full_answer_that_was_abandoned_is_full_again():
    story = running(job("j"), shards=2)
    story.take(config(altruism_shards=1))
    story.open()
    assert story.answer("asks").full
    story.abandon()
    story.open()
    assert story.answer("asks").full
    story.close()
    story.take(job("k"))
    story.open()
    assert not story.answer("asks").full


# ---------------------------------------------------------------- strikes
def test_tasks_of_a_grant_that_was_struck_are_still_asked_for():
    story = cell(job("j", stage(tasks=3)))
    story.open()
    story.take(report("n1", cpu=1))
    assert [struck.reason for struck in story.close().struck] == ["no_room"]

    assert story.settle() == []
    story.take(report("n1", cpu=2_000, memory=4_096))
    assert indexes(story.settle()) == [("map", 0), ("map", 1)]
    assert {grant.attempt for grant in story.granted} == {1}
