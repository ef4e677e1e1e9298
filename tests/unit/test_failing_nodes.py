"""A node on which attempts of several jobs fail in a row comes after all others, for a while."""

import pytest

from largesse.lifecycle.failing_nodes import FAILING_AT, FAILING_MS, JOBS_MAX
from services.leftover.core.state import State
from tests.builders import job, node, single, stage
from tests.cells import SlowCell
from tests.unit.test_failed_on import cell

PRESETS = ["largesse", "fifo", "capacity", "carbyne", "slots", "tetris"]


def failing(story: SlowCell) -> dict[str, int]:
    """Until when which nodes are placed last, as leftover has it."""
    state: State = story.leftover
    return {name: node.until_ms for name, node in state.failures.items() if node.until_ms}


def run_one(story, name, **knobs):
    """Where an only task of a new job is granted."""
    story.take(job(name, stage(**knobs)))
    (grant,) = story.settle()
    return grant


def fail_here(story, node_name, jobs=FAILING_AT):
    """Jobs that may run on one node alone fail there, one after another."""
    for i in range(jobs):
        grant = run_one(story, f"bad-{node_name}-{i}", labels={"name": node_name})
        assert grant.node == node_name
        story.fail(grant)


def named_nodes(nodes=3, cpu=1_000, **knobs):
    story = cell(nodes=0, **knobs)
    story.take(*[node(f"n{i}", cpu=cpu, labels={"name": f"n{i}"}) for i in range(nodes)])
    return story


@pytest.mark.parametrize("preset", PRESETS)
def test_a_node_on_which_several_jobs_fail_comes_after_all_others(preset):
    story = named_nodes(preset=preset)
    first = run_one(story, "before")
    assert first.node == "n0"
    story.finish(first)

    fail_here(story, "n0")

    grants = [run_one(story, f"j{i}").node for i in range(3)]
    assert sorted(grants[:2]) == ["n1", "n2"]
    assert grants[2] == "n0" or preset == "slots"  # It is not closed; a node has several slots.


def test_two_jobs_or_many_failures_of_one_say_nothing_of_a_node():
    story = named_nodes()
    fail_here(story, "n0", FAILING_AT - 1)
    story.take(job("j", stage(tasks=1, retries=9, labels={"name": "n0"})))
    story.cancel("bad-n0-0")
    assert not failing(story)

    story = named_nodes()
    story.take(job("j", stage(retries=9, labels={"name": "n0"})))
    for _ in range(6):
        story.fail(*story.settle())
    assert not failing(story)


def test_failures_of_one_job_count_once_its_tasks_succeed_elsewhere():
    story = named_nodes(nodes=2, cpu=4_000)
    story.take(job("j", stage(tasks=8, retries=3)))
    grants = story.settle()
    tasks = [single(grant, i) for grant in grants for i in range(grant.first, grant.first + grant.count)]
    for task in [task for task in tasks if task.node == "n0"][:3]:
        story.fail(task)
    assert not failing(story)
    story.finish(next(task for task in tasks if task.node == "n1"))
    assert list(failing(story)) == ["n0"]


def test_a_success_there_ends_it():
    story = named_nodes()
    fail_here(story, "n0")
    story.finish(run_one(story, "good", labels={"name": "n0"}))
    assert not story.leftover.failures
    assert run_one(story, "next").node == "n0"


def test_it_ends_so_long_after_the_last_failure():
    story = named_nodes()
    fail_here(story, "n0")
    (until_ms,) = failing(story).values()
    story.time = until_ms - 1
    story.finish(run_one(story, "early"))
    assert list(failing(story)) == ["n0"]
    story.time = until_ms
    assert run_one(story, "later").node == "n0"
    assert not story.leftover.failures


def test_failures_that_lie_apart_say_nothing():
    story = named_nodes()
    for i in range(FAILING_AT + 2):
        grant = run_one(story, f"bad-{i}", labels={"name": "n0"})
        story.fail(grant)
        story.time += FAILING_MS
    assert not failing(story)


def test_a_new_start_of_its_agent_ends_it():
    story = named_nodes()
    fail_here(story, "n0")
    story.take(node("n0", cpu=1_000, labels={"name": "n0"}, epoch="e2"))
    assert not story.leftover.failures


@pytest.mark.parametrize("reason", ["lost", "killed"])
def test_what_is_not_the_tasks_own_failure_is_not_counted(reason):
    story = named_nodes()
    for i in range(FAILING_AT):
        story.fail(run_one(story, f"j{i}", labels={"name": "n0"}), reason=reason)
        story.cancel(f"j{i}")
    assert not story.leftover.failures


def test_preferred_labels_do_not_outweigh_it():
    story = named_nodes()
    fail_here(story, "n0")
    assert run_one(story, "j", prefer={"name": "n0"}).node != "n0"


def test_of_so_many_jobs_it_is_kept():
    story = named_nodes()
    fail_here(story, "n0", JOBS_MAX + 3)
    assert len(story.leftover.failures["n0"].jobs) == JOBS_MAX


def test_a_restarted_instance_goes_on_where_it_was():
    story = named_nodes()
    fail_here(story, "n0")
    story.restore()
    assert run_one(story, "j").node != "n0"
