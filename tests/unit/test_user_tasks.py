"""Queues in which only so many tasks of one user run at a time: what is read and refused, what goes on beside them, and
what is said of those that wait. tests/properties/test_user_tasks.py and tests/simulation/test_user_tasks.py have the
law.
"""

import asyncio
from dataclasses import replace
from typing import get_args

import pytest

from schemas import InputRefused, JobAdmitted, JobCancelled, JobChanged, JobRejected, JobRerun
from schemas.edge.base import Malformed
from schemas.edge.queues import QueueInput, tree_of
from schemas.edge.read import ConfigPatch
from schemas.edge.validated import validated
from schemas.presets import Preset
from services.gateway.documents.tally import Tally
from services.gateway.http.dry_runs.config import notes
from services.gateway.http.dry_runs.config import tasks_of as could_use
from services.leftover.placement.buckets import Buckets
from tests.builders import config, job, node, queue, single, stage, tree
from tests.cells import AUTHOR, SlowCell, attempts_of, by_leaf
from tests.gateway_watch import Watched
from tests.gateway_watch import stage as tasks
from tests.promised_cell import HOUR, promise, reserved, step
from tests.promised_cell import cell as promised

PRESETS = get_args(Preset)
LIMITED = tree(queue("a", user_running_max=3), queue("b"))


def asked(name, tasks=5, user="ann", leaf="a", **more):
    return replace(job(name, stage(tasks=tasks, **more), queue=leaf), user=user)


def cell(tree_in_force=LIMITED, cpu=40_000, **knobs):
    story = SlowCell()
    story.take(config(tree_in_force, **knobs), node("n1", cpu=cpu))
    story.settle()
    return story


def running(story):
    """Job -> how many attempts of it run."""
    names = [key.partition("/")[0] for key, _ in attempts_of(story.admission)]
    return {name: names.count(name) for name in names}


def end_one(story, name):
    """One task of a job ends."""
    grant = next(grant for grant in story.granted if grant.job == name)
    story.granted.remove(grant)
    story.finish(replace(grant, count=1))
    if grant.count > 1:
        story.granted.append(replace(grant, first=grant.first + 1, count=grant.count - 1, devices=grant.devices[1:]))
    story.settle()


# ---------------------------------------------------------------- what is read, refused and shown
def test_what_is_wrong_with_it():
    with pytest.raises(Malformed, match="user_running_max: has to be at least 1, is 0"):
        tree_of(validated(QueueInput, {"name": "root", "children": [{"name": "a", "user_running_max": 0}]}), "queues")


@pytest.mark.parametrize(("leaf", "where"), [("in/x", 'queue "in"'), ("c", "the root of the tree")])
def test_a_gang_that_could_never_start_is_refused_and_the_limit_named(leaf, where):
    story = cell(tree(queue("in", 1, "x", user_running_max=3), queue("c"), user_running_max=4))
    assert isinstance(story.take(asked("fits", 3, leaf=leaf, gang=True)), JobAdmitted)
    refused = story.take(asked("wide", 5, leaf=leaf, gang=True))
    assert isinstance(refused, JobRejected)
    assert (refused.reason, refused.field) == ("exceeds_queue_max", "stages[0].tasks")
    most = 3 if leaf == "in/x" else 4
    assert refused.detail == (
        f"the 5 tasks of a gang run together, and {where} lets one user run {most} tasks at a time (user_running_max): "
        "make the gang smaller, or take another queue"
    )


def test_a_gang_moves_to_no_queue_where_it_could_never_start():
    story = cell(cpu=1_000)
    story.take(asked("wide", 5, leaf="b", gang=True, cpu=100), JobChanged("wide", hold=True))
    refused = story.take(JobChanged("wide", queue="a"))
    assert isinstance(refused, InputRefused)
    assert (refused.field, "user_running_max" in refused.reason) == ("queue", True)


# ---------------------------------------------------------------- who waits, and who does not
@pytest.mark.parametrize("preset", PRESETS)
def test_others_go_on_beside_a_user_at_its_limit(preset):
    story = cell(preset=preset, slots_per_node=40)
    story.take(asked("x"), asked("y"), asked("z", 2, "bob"), asked("w", 4, leaf="b"), asked("v", 5, ""))
    story.settle()
    found = running(story)
    assert found.pop("x", 0) + found.pop("y", 0) == 3
    assert found == {"z": 2, "w": 4, "v": 3}


@pytest.mark.parametrize("policy", ["fifo", "fair", "drf", "srtf", "tetris", "tetris-fair", "priority"])
def test_nobody_waits_behind_a_user_at_its_limit_whatever_the_order_of_the_queue(policy):
    limited = tree(queue("in", 1, "x", policy=policy, user_running_max=2))
    story = cell(limited, cpu=6_000)
    story.take(*[asked(f"a{n}", 1, leaf="in/x") for n in range(9)])
    story.take(asked("b", 1, "bob", leaf="in/x"), asked("c", 1, "bob", leaf="in/x", cpu=500))
    story.settle()
    assert len(running(story)) == 4


def test_a_gang_starts_once_it_has_all_its_places():
    story = cell()
    story.take(asked("x", 2), asked("gang", 3, gang=True), asked("bob", 3, "bob", gang=True))
    story.settle()
    assert running(story) == {"x": 2, "bob": 3}
    end_one(story, "x")
    assert running(story) == {"x": 1, "bob": 3}
    end_one(story, "x")
    assert running(story) == {"gang": 3, "bob": 3}


def test_limits_above_count_what_is_below_them():
    story = cell(tree(queue("in", 9, queue("x", user_running_max=3), "y", user_running_max=4), "c", user_running_max=6))
    story.take(asked("x", leaf="in/x"), asked("y", leaf="in/y"), asked("c", leaf="c"))
    story.settle()
    found = running(story)
    assert (found["x"] + found["y"], sum(found.values())) == (4, 6)


def test_a_lower_limit_takes_nothing_back_and_a_higher_one_lets_more_start():
    story = cell()
    story.take(asked("x", 9))
    story.settle()
    for most, now in ((1, 3), (5, 5), (None, 9)):
        limits = {} if most is None else {"user_running_max": most}
        story.take(config(tree(queue("a", **limits), queue("b"))))
        story.settle()
        assert running(story) == {"x": now}
        assert story.bodies_in_log("RoundClosed")[-1].revoked == []


def test_below_a_lowered_limit_the_next_one_starts_only_when_there_is_a_place():
    story = cell()
    story.take(asked("x", 9))
    story.settle()
    story.take(config(tree(queue("a", user_running_max=2), queue("b"))))
    for now in (2, 2):  # The first that ends leaves no place.
        end_one(story, "x")
        assert running(story) == {"x": now}


def test_a_job_counts_where_it_is_moved_to():
    story = cell()
    story.take(asked("x", 3), asked("y", 3))
    story.settle()
    assert running(story) == {"x": 3}
    story.take(JobChanged("y", queue="b"))
    story.settle()
    assert running(story) == {"x": 3, "y": 3}


def test_what_a_cancelled_job_still_runs_counts():
    story = cell()
    story.take(asked("x", 3), asked("y", 3))
    story.settle()
    story.take(JobCancelled("x", AUTHOR))
    story.settle()
    assert running(story) == {"x": 3}
    end_one(story, "x")
    assert running(story) == {"x": 2, "y": 1}


def test_a_job_that_runs_again_counts_again():
    story = cell()
    spec = asked("x", 4)
    story.take(spec)
    story.settle()
    for _ in range(4):
        end_one(story, "x")
    assert story.ended() == {"x": "succeeded"}
    story.granted.clear()
    story.take(asked("y", 2))
    story.settle()
    assert isinstance(story.take(JobRerun(spec)), JobAdmitted)
    story.settle()
    assert running(story) == {"y": 2, "x": 1}


# ---------------------------------------------------------------- beside promises and copies
def test_tasks_of_a_reservation_count_and_start_whatever_the_limit_says():
    story = promise(promised(nodes=[node("n1", cpu=9_000)]), step(0, HOUR, 2))
    story.take(config(tree(queue("a", user_running_max=3), "b")), asked("free", 9, ""))
    story.settle()
    assert running(story) == {"free": 3}
    story.take(reserved("kept", stage(tasks=5)))
    story.settle()
    assert running(story) == {"free": 3, "kept": 2}, "room was promised for two, and none is left for a third"
    end_one(story, "free")
    assert running(story) == {"free": 2, "kept": 2}, "four of them run still"


COPYING = {"speculation_permille": 2_000, "speculation_finished_min": 1, "retry_backoff_ms": 0}


def with_straggler(most):
    """A cell with room in which one of two tasks of `slow` has run for long."""
    story = SlowCell()
    story.take(config(tree(queue("a", user_running_max=most)), **COPYING), node("n1", 4_000), node("n2", 4_000))
    story.take(asked("slow", 2, duration_ms=1_000))
    story.settle()
    end_one(story, "slow")
    story.at(9_000).settle()
    return story


def test_a_copy_takes_one_of_its_users_places():
    assert running(with_straggler(2)) == {"slow": 2}
    assert running(with_straggler(1)) == {"slow": 1}


def test_a_copy_gives_way_to_a_task_of_its_user_that_waits_for_a_place():
    story = with_straggler(2)
    story.take(asked("next", 2))
    story.settle()
    assert running(story) == {"slow": 2}, "agents have not ended it yet"
    (revoked,) = [item for body in story.bodies_in_log("RoundClosed") for item in body.revoked]
    copy = story.granted[-1]
    assert (revoked.job, revoked.attempt, copy.why) == ("slow", copy.attempt, "speculative")

    story.fail(copy, reason="revoked")
    story.settle()
    assert running(story) == {"slow": 1, "next": 1}


# ---------------------------------------------------------------- what is said of those that wait
def test_waiting_tasks_say_what_they_wait_for_with_numbers():
    view = Watched(cpu=9, queues=tree(queue("a", user_running_max=3), user_running_max=4))
    view.submit("x", tasks("s", 10), queue="a", user="ann").submit("y", tasks("s", 4), user="ann")
    assert view.tasks("x") == {"starting": 3, "waiting": 7}
    assert view.why("x") == [("user_running_max", 7)]
    assert view.job("x")["why"] == 'user_running_max of queue a is 3, and 3 tasks of user "ann" run there'
    assert view.why("y") == [("user_running_max", 3)]
    assert view.job("y")["why"] == 'user_running_max of the cell is 4, and 4 tasks of user "ann" run there'

    view.submit("z", tasks("s", 4), queue="a")
    assert view.job("z")["why"] == "user_running_max of queue a is 3, and 3 tasks that name no user run there"

    view.take(JobCancelled("y")).start("x", "s", count=3).finish("x", "s", count=1)
    assert view.tasks("x") == {"starting": 1, "running": 2, "waiting": 6, "succeeded": 1}


def test_what_could_start_but_finds_no_room_says_so():
    view = Watched(cpu=1, queues=LIMITED).submit("x", tasks("s", 5), queue="a", user="ann")
    assert view.why("x") == [("no_room", 2), ("user_running_max", 2)]


def test_a_gang_says_how_many_places_it_needs():
    view = Watched(cpu=9, queues=LIMITED).submit("x", tasks("s", 2), queue="a", user="ann")
    view.submit("y", tasks("s", 2, gang=True), queue="a", user="ann")
    assert view.why("y") == [("user_running_max", 2)]
    assert view.job("y")["why"].endswith('2 tasks of user "ann" run there; all 2 tasks of the gang start at once')


def test_metrics_count_them_by_the_same_reason_also_after_a_change_of_the_limit():
    view, tally = Watched(cpu=9, queues=tree("a", "b")), Tally()
    view.submit("x", tasks("s", 12), queue="a", user="a/nn").submit("y", tasks("s", 3), queue="b")

    def counted():
        counts = asyncio.run(tally.look(view.view))
        return {key: found.tasks for key, found in counts.waiting.items()}

    assert sum(counted().values()) == 12 + 3 - 9
    assert {reason for _, reason in counted()} == {"no_room"}
    view.take(ConfigPatch({}, tree(queue("a", user_running_max=2), "b"))).settle()
    assert counted()["a", "user_running_max"] == view.tasks("x")["waiting"]


def test_nothing_is_said_of_their_class_to_other_services():
    story = cell()
    story.take(asked("x", 9))
    story.settle()
    assert [wait for body in story.bodies_of("Grants") for wait in body.waits] == []
    story.take(config(tree("a", "b")), asked("y", 90))
    story.settle()
    assert [wait.reason for body in story.bodies_of("Grants") for wait in body.waits] == ["no_room"]


# ---------------------------------------------------------------- shares
def test_its_queue_is_owed_nothing_for_tasks_that_may_not_run():
    story = cell(tree(queue("a", user_running_max=2), queue("b")), cpu=10_000, preset="hdrf")
    story.take(asked("few", 50), asked("many", 50, leaf="b"))
    story.settle()
    assert running(story) == {"few": 2, "many": 8}
    assert by_leaf(story.fairness, "asked")["a"] == {"cpu": 2_000}
    assert "a" not in by_leaf(story.fairness, "waits")
    assert "a" not in story.fairness.watch.below
    assert not story.leftover.short


def test_of_each_kind_of_task_as_large_a_part_counts_rounded_up():
    story = cell(tree(queue("in", 1, "x", "y", user_running_max=4), "b"), preset="hdrf")
    story.drain("n1")
    story.take(asked("x", 6, leaf="in/x", cpu=2_000), asked("y", 3, leaf="in/y", cpu=4_000))
    story.settle()
    assert by_leaf(story.fairness, "asked") == {"in/x": {"cpu": 3 * 2_000}, "in/y": {"cpu": 2 * 4_000}}
    story.take(JobCancelled("y", AUTHOR))
    story.settle()
    assert by_leaf(story.fairness, "asked") == {"in/x": {"cpu": 4 * 2_000}}


def test_tasks_that_rest_after_a_failure_leave_their_places_to_others():
    story = cell(tree(queue("a", user_running_max=2), "b"), preset="hdrf", retry_backoff_ms=60_000)
    story.take(asked("x", 2, retries=3))
    granted = story.settle()
    story.take(asked("y", 2))
    story.settle()
    assert running(story) == {"x": 2}
    story.fail(*[single(grant, at) for grant in granted for at in range(grant.first, grant.first + grant.count)])
    story.settle()
    assert running(story) == {"y": 2}
    assert by_leaf(story.fairness, "asked")["a"] == {"cpu": 2_000}


def test_a_dry_run_tells_users_apart_only_where_they_are_limited():
    view = Watched(cpu=4, queues=tree("a", "b"))
    view.submit("j", tasks("s", 5), queue="a", user="ann").submit("k", tasks("s", 5), queue="a", user="bob")
    assert [each.get("user") for each in could_use(view.view, tree("a", "b"))["a"]] == [None]
    assert [each["user"] for each in could_use(view.view, LIMITED)["a"]] == ["ann", "bob"]


def test_a_dry_run_says_which_gangs_a_limit_would_hold_for_good():
    view = Watched(cpu=9, queues=tree("a", "b")).submit("j", tasks("s", 5, gang=True), queue="a")
    view.submit("k", tasks("s", 2, gang=True), queue="a")
    limited = tree(queue("a", user_running_max=3), "b")
    text = "queue a: 1 job has a gang of more tasks than its user_running_max, and would never continue"
    assert text in notes(view.view, view.view.policy, limited)
    assert text not in notes(view.view, view.view.policy, tree(queue("a", user_running_max=5), "b"))


# ---------------------------------------------------------------- what it costs
def test_what_waits_for_the_limit_is_not_looked_at_in_rounds(monkeypatch):
    looked = {"at": 0}
    for owner, names in ((Buckets, ("top", "first_if_current", "_put_in", "rank_again")),):
        for name in names:
            monkeypatch.setattr(owner, name, _counted(looked, getattr(owner, name)))

    def cost(jobs):
        story = cell(preset="hdrf")
        story.take(asked("x", 3), *[asked(f"w{n}", 2, cpu=1_000 + n) for n in range(jobs)])
        story.settle()
        looked["at"] = 0
        for n in range(5):
            story.take(asked(f"b{n}", 1, "bob", leaf="b"))
            story.settle()
        return looked["at"]

    assert cost(100) == cost(10)


def _counted(looked, method):
    def counted(*given):
        looked["at"] += 1
        return method(*given)

    return counted
