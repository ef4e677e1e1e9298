"""Where a task is tried again: on a node on which it has not failed, if any could run it."""

import pytest

from services.leftover.core.failed_on import NODES_MAX
from tests.builders import config, job, node, single, stage
from tests.cells import SlowCell, served


def cell(*jobs, nodes=3, cpu=1_000, **knobs):
    story = SlowCell()
    story.take(config(None, seed=1, retry_backoff_ms=0, **{"preset": "hdrf", **knobs}))
    story.take(*[node(f"n{i}", cpu=cpu) for i in range(nodes)], *jobs)
    return story


def nodes_of(story, attempts):
    """The nodes of an only task's attempts, each of which fails."""
    found = []
    for _ in range(attempts):
        (grant,) = story.settle()
        found.append(grant.node)
        story.fail(grant)
    return found


@pytest.mark.parametrize("preset", ["largesse", "fifo", "capacity", "carbyne", "slots", "tetris"])
def test_every_attempt_goes_to_a_node_on_which_the_task_has_not_failed(preset):
    story = cell(job("j", stage(retries=9)), preset=preset)
    first = nodes_of(story, 3)
    assert sorted(first) == ["n0", "n1", "n2"]
    assert nodes_of(story, 1) == first[:1] or preset == "tetris"  # All have failed: whichever comes first.


def test_it_waits_for_room_elsewhere_and_says_so():
    story = cell(job("j", stage(retries=9)), nodes=2)
    (grant,) = story.settle()
    other = {"n0": "n1", "n1": "n0"}[grant.node]
    story.take(job("hog", stage()))
    (hog,) = story.settle()
    assert hog.node == other

    story.fail(grant)
    assert story.settle() == []
    assert [wait.reason for wait in story.leftover.reasons.values()] == ["spread"]
    story.take(job("small", stage()))
    assert [(each.job, each.node) for each in story.settle()] == [("small", grant.node)]  # Others may use the room.
    story.finish(hog)
    assert [(each.job, each.node) for each in story.settle()] == [("j", other)]


def test_the_only_node_that_could_run_it_is_taken_again():
    story = cell(nodes=2)
    story.take(node("only", labels={"zone": "a"}))
    story.take(job("j", stage(retries=9, labels={"zone": "a"})))
    assert nodes_of(story, 3) == ["only"] * 3


def test_a_node_that_comes_back_smaller_leaves_the_task_where_it_has_failed():
    story = cell(job("j", stage(retries=9, cpu=2_000)), nodes=2, cpu=2_000)
    (grant,) = story.settle()
    story.fail(grant)
    story.take(node({"n0": "n1", "n1": "n0"}[grant.node], cpu=1_000, epoch="e2"))
    assert [each.node for each in story.settle()] == [grant.node]


@pytest.mark.parametrize("reason", ["lost", "killed"])
def test_what_is_not_the_tasks_own_failure_says_nothing_of_the_node(reason):
    story = cell(job("j", stage(retries=9)))
    story.fail(*story.settle(), reason=reason)
    assert story.leftover.failed_on == {}


def test_other_tasks_of_the_stage_go_where_they_like():
    story = cell(job("j", stage(tasks=6, retries=9)), cpu=2_000)
    grants = story.settle()
    assert served(grants) == {"j": 6}
    failed = single(grants[0], grants[0].first)
    story.fail(failed)
    story.finish(*[single(grant, i) for grant in grants for i in range(grant.first, grant.first + grant.count)][1:])
    (again,) = story.settle()
    assert again.first == failed.first
    assert again.node != failed.node


def test_a_gang_prefers_other_nodes_and_takes_any():
    gang = stage(tasks=2, gang=True, retries=9, cpu=2_000)
    story = cell(job("j", gang), nodes=3, cpu=4_000)
    grants = story.settle()
    tasks = [single(grant, i) for grant in grants for i in range(grant.first, grant.first + grant.count)]
    story.fail(tasks[0])
    story.fail(tasks[1], reason="gang")
    second = {grant.node for grant in story.settle()}
    assert tasks[0].node not in second

    story = cell(job("j", stage(tasks=3, gang=True, retries=9)), nodes=3)
    grants = story.settle()
    story.fail(grants[0])
    for grant in grants[1:]:
        story.fail(grant, reason="gang")
    assert sorted(grant.node for grant in story.settle()) == ["n0", "n1", "n2"]


def test_it_is_kept_of_the_last_nodes_and_forgotten_with_success_or_the_job():
    story = cell(job("j", stage(tasks=2, retries=99)), job("k", stage(retries=99)), nodes=NODES_MAX + 4)
    for _ in range(NODES_MAX + 2):
        story.fail(*story.settle())
    assert {len(nodes) for tasks in story.leftover.failed_on.values() for nodes in tasks.values()} == {NODES_MAX}

    grants = {grant.job: grant for grant in story.settle()}
    story.cancel("k")
    story.finish(single(grants["j"], grants["j"].first))
    story.settle()
    assert list(story.leftover.failed_on) == ["j"]
    assert len(story.leftover.failed_on["j"]) == 1


def test_a_restarted_instance_goes_on_where_it_was():
    story = cell(job("j", stage(retries=9)))
    (grant,) = story.settle()
    story.fail(grant)
    story.restore()
    assert [each.node for each in story.settle()] != [grant.node]
