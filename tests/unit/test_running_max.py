"""Stages of which only so many tasks run at a time: what is read, what is asked for, and what is said of those that
wait. tests/simulation/test_running_max.py has the law, under every preset.
"""

import pytest

from largesse.bodies import read_yaml
from largesse.lifecycle.dag import critical_path_ms, graph_of
from schemas.edge.base import Malformed
from schemas.edge.jobs import read_job
from services.admission.core.keys import digest_of
from services.admission.job_class import class_of
from services.altruism.core.giving import LIMITS_MAX
from services.gateway.http.dry_runs.config import tasks_of as could_use
from services.planner.rdl.of_job import request_text
from tests.builders import config, job, node, single, tree
from tests.builders import stage as tasks_of
from tests.cells import SlowCell, by_leaf, holds_of
from tests.conftest import ROOT
from tests.gateway_watch import Watched, stage
from tests.promised_cell import HOUR, promise, reserved, step
from tests.promised_cell import cell as promised


# ---------------------------------------------------------------- what is read
def read(tasks=10, **more):
    document = {"stage": "s", "tasks": tasks, "demand": {"cpu": "1"}, "command": ["true"], **more}
    return read_job({"stages": [document]}, "ann").stages[0]


@pytest.mark.parametrize(("said", "width"), [(None, 10), (1, 1), (10, 10), (11, 10)])
def test_so_many_tasks_run_at_a_time(said, width):
    of = read(running_max=said)
    assert (of.running_max, of.width) == (said, width)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"running_max": 0}, "has to be at least 1"),
        ({"running_max": "8"}, "has to be a whole number"),
        ({"running_max": 2.5}, "has to be a whole number"),
        ({"running_max": 9, "gang": True}, "is 9, but all 10 tasks of a gang run together: leave it out"),
    ],
)
def test_what_is_wrong_with_it(more, reason):
    with pytest.raises(Malformed) as caught:
        read(**more)
    assert caught.value.field == "stages[0].running_max"
    assert reason in caught.value.reason


def test_a_gang_within_its_limit_is_taken():
    assert read(gang=True, running_max=10).running_max == 10


def test_specs_without_it_keep_the_name_that_they_had():
    """As this was computed before the field was there."""
    assert digest_of(job("j", tasks_of(max_failed=1))) == "e46643c3adadf653dd53fa87ae3c4453"
    names = [digest_of(job("j", tasks_of(running_max=most))) for most in (None, 1, 2)]
    assert len({*names}) == 3


# ---------------------------------------------------------------- what follows
def test_waiting_tasks_say_what_they_wait_for_and_the_next_starts_when_one_ends():
    cell = Watched(cpu=9).submit("j", stage("a", tasks=5, running_max=2))
    assert cell.tasks("j") == {"starting": 2, "waiting": 3}
    assert cell.why("j") == [("running_max", 3)]
    assert cell.job("j")["why"] == "running_max of stage a is 2"

    cell.start("j", "a", count=2).finish("j", "a")
    assert cell.tasks("j") == {"starting": 1, "running": 1, "waiting": 2, "succeeded": 1}


def test_what_could_start_but_finds_no_room_says_so():
    cell = Watched(cpu=1).submit("j", stage("a", tasks=5, running_max=2))
    assert cell.why("j") == [("no_room", 1), ("running_max", 3)]


def test_a_retry_waits_for_its_turn_as_any_other():
    cell = Watched(cpu=9, retry_backoff_ms=1_000).submit("j", stage("a", tasks=4, running_max=2, retries=1))
    cell.start("j", "a", count=2).fail("j", "a", index=0)
    assert cell.tasks("j") == {"starting": 1, "running": 1, "waiting": 2, "failed_attempts": 1}

    cell.settle(1_000).start("j", "a", first=2).finish("j", "a", first=1)
    assert [cell.view.jobs["j"].starting, cell.view.jobs["j"].running] == [[1], [1]]
    assert cell.cell.admission.nodes["n0"].holds["j/a/0"].attempt == 2, "what comes back goes first"


def test_its_queue_is_owed_nothing_for_tasks_that_may_not_run():
    story = SlowCell()
    story.take(config(tree("a", "b"), preset="hdrf"), node("n1", cpu=10_000))
    story.take(job("few", tasks_of(tasks=50, running_max=2), queue="a"), job("many", tasks_of(tasks=50), queue="b"))
    story.settle()
    held = [key.partition("/")[0] for key in holds_of(story.admission)]
    assert {name: held.count(name) for name in held} == {"few": 2, "many": 8}
    assert by_leaf(story.fairness, "asked")["a"] == {"cpu": 2_000}
    assert "a" not in story.fairness.watch.below


def test_a_dry_run_counts_no_more_tasks_than_may_run_at_a_time():
    cell = Watched(cpu=4, queues=tree("a", "b")).submit("j", stage("s", 50, running_max=3), queue="a")
    cell.submit("k", stage("s", 50), queue="b")

    found = could_use(cell.view, cell.view.queues)

    assert {leaf: [each["running"] + each["waiting"] for each in alike] for leaf, alike in found.items()} == {
        "a": [3],
        "b": [50],
    }


def test_what_is_planned_goes_by_as_many_as_may_run():
    spec = job("j", tasks_of(tasks=10, running_max=4, duration_ms=60_000))
    assert critical_path_ms(graph_of(spec)) == 3 * 60_000
    assert class_of(spec, {"cpu": 20_000}, [200, 400]) == 0
    assert "h=4," in request_text(spec, "0", "100h")


def planned(*stages):
    """What altruism plans of a job that is alone in a cell of 100 cores."""
    story = SlowCell()
    story.take(config(tree("default"), preset="carbyne"), node("n1", cpu=100_000), job("j", *stages))
    story.settle()
    return story.altruism.jobs["j"].plan


def test_a_plan_takes_as_many_waves_as_the_limit_makes_necessary():
    assert planned(tasks_of(tasks=6)).deadline_ms == 1_000
    plan = planned(tasks_of(tasks=6, running_max=2))
    assert plan.deadline_ms == 3_000
    waves = sorted((late.at_ms + i * late.every_ms, late.count) for late in plan.late[0] for i in range(late.waves))
    assert waves == [(0, 2), (1_000, 2), (2_000, 2)]


def test_a_plan_counts_only_so_many_limits():
    many = [tasks_of(f"s{at}", tasks=3, running_max=1, cpu=10) for at in range(LIMITS_MAX + 1)]
    assert planned(*many[1:]).deadline_ms == 3_000
    free = planned(*many)
    assert free.deadline_ms == 3_000
    assert free.waiting[LIMITS_MAX] == 3
    assert max(late.waves for late in free.late[LIMITS_MAX]) == 1, "all three are planned side by side"


def test_tasks_inside_a_promise_and_beyond_it_count_alike():
    limited = reserved("r1", tasks_of(tasks=9, running_max=3))
    story = promise(promised(nodes=[node("n1", cpu=8_000)]), step(0, HOUR, 2))
    story.take(limited)
    granted = story.settle()
    assert sum(grant.count for grant in granted) == 3
    assert {grant.why for grant in granted} == {"reserved", "packed"}

    story.finish(*granted[:1])
    assert sum(grant.count for grant in story.settle()) == granted[0].count
    assert story.bodies_in_log("RoundClosed")[-1].struck == []


def test_what_was_taken_back_or_lost_gives_its_place_to_another():
    story = SlowCell()
    story.take(config(), node("n1", cpu=2_000), node("n2", cpu=2_000), job("j", tasks_of(tasks=9, running_max=3)))
    granted = story.settle()
    assert sum(grant.count for grant in granted) == 3

    story.lose(granted[0].node)
    story.settle()
    held = holds_of(story.admission)
    assert len(held) == 2, "the other node is full"
    story.take(node(granted[0].node, cpu=2_000, epoch="e2"))
    story.settle()
    assert len(holds_of(story.admission)) == 3


def test_a_slow_task_of_it_is_not_copied():
    def copies(most):
        story = SlowCell()
        story.take(config(speculation_permille=1_500), node("n1", cpu=9_000), node("n2", cpu=9_000))
        story.take(job("j", tasks_of(tasks=6, running_max=most)))
        granted = story.settle()
        last = granted[-1].first + granted[-1].count - 1
        story.at(1_000)
        for grant in granted:
            for index in range(grant.first, grant.first + grant.count):
                if index != last:
                    story.finish(single(grant, index))
        story.settle()
        for _ in range(5):
            story.at(story.time + 60_000).settle()
        return [grant.why for grant in story.granted].count("speculative")

    assert copies(None) == 1
    assert copies(6) == 0


def test_the_example_is_a_job():
    spec = read_job(read_yaml((ROOT / "examples" / "few-at-a-time.yaml").read_bytes()), "ann")
    assert [stage.running_max for stage in spec.stages] == [2, None]
