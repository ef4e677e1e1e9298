"""`running_jobs_max` of queues: which jobs may run, which are parked, which is next."""

from dataclasses import replace

import pytest
from hypothesis import strategies as st

from largesse.lifecycle.running_limit import admit, is_parked, leave, limit, queue_at_limit, take_turns
from largesse.lifecycle.state import RunningLimits
from schemas import HeldBack, JobTurns
from schemas.queues import Queue
from tests.strategies import for_all

TREE = Queue(
    "root",
    children=[
        Queue("a", running_jobs_max=3, children=[Queue("x", running_jobs_max=1), Queue("y")]),
        Queue("b"),
    ],
)


@pytest.fixture
def running():
    running = RunningLimits()
    assert limit(running, TREE) == []
    return running


def come(running, *jobs, priority=0):
    """Jobs in this order, each as "queue:name": those let through."""
    said = [job.split(":") for job in jobs]
    return [
        name for order, (queue, name) in enumerate(said, len(running.leaf) + 1)
        if admit(running, name, queue, priority, order)
    ]  # fmt: skip


def test_a_queue_lets_as_many_jobs_through_as_it_says(running):
    assert come(running, "a/x:1", "a/x:2", "a/y:3", "a/y:4", "a/y:5", "b:6", "b:7") == ["1", "3", "4", "6", "7"]
    assert [is_parked(running, name) for name in "1256"] == [False, True, True, False]


def test_the_next_job_goes_through_when_one_is_over(running):
    come(running, "a/x:1", "a/x:2", "a/y:3", "a/y:4", "a/y:5")

    assert leave(running, "3") == ["5"]  # Job 2 came first, but a/x is full.
    assert leave(running, "1") == ["2"]
    assert leave(running, "unknown") == []


def test_a_job_that_is_over_before_its_turn_frees_nothing(running):
    come(running, "a/x:1", "a/x:2", "a/x:3")

    assert leave(running, "2") == []
    assert leave(running, "1") == ["3"]


def test_higher_priority_goes_first_then_who_came_first(running):
    come(running, "a/x:1", "a/x:2", "a/x:3")
    come(running, "a/x:4", priority=1)

    assert leave(running, "1") == ["4"]
    assert leave(running, "4") == ["2"]


def test_a_job_that_gives_way_waits_in_its_own_place(running):
    come(running, "a/x:1", "a/x:2", "a/x:3")

    take_turns(running, JobTurns([HeldBack("1", 0, 1)], ["3"]))

    assert [is_parked(running, name) for name in "123"] == [True, True, False]
    assert leave(running, "3") == ["1"], "it came before the other"


def test_turns_may_go_beyond_a_limit_and_count_there(running):
    come(running, "a/x:1", "a/x:2", "a/x:3")

    take_turns(running, JobTurns([], ["2"]))

    assert leave(running, "1") == []
    assert leave(running, "2") == ["3"]


def test_a_queue_says_which_one_above_it_is_full(running):
    come(running, "a/x:1")
    assert queue_at_limit(running, "a/x") == "a/x"
    come(running, "a/y:2", "a/y:3")
    assert [queue_at_limit(running, queue) for queue in ("a/x", "a/y", "b", "")] == ["a/x", "a", None, None]


def test_the_limit_of_the_root_counts_everybody():
    running = RunningLimits()
    limit(running, replace(TREE, running_jobs_max=1))

    assert come(running, "b:1", "a/y:2") == ["1"]
    assert (queue_at_limit(running, "b"), leave(running, "1")) == ("", ["2"])


def test_a_raised_limit_lets_jobs_through_and_a_lowered_one_calls_nobody_back(running):
    come(running, "a/y:1", "a/y:2", "a/y:3", "a/y:4")

    assert limit(running, Queue("root", children=[Queue("a", children=[Queue("y", running_jobs_max=1)])])) == []
    assert [leave(running, name) for name in "123"] == [[], [], ["4"]]
    come(running, "a/y:5", "a/y:6")
    assert limit(running, None) == ["5", "6"]


@st.composite
def stories(draw):
    """What happens at a running: ("in", queue, priority), ("out", which) or ("limits", a, x)."""
    step = st.one_of(
        st.tuples(st.just("in"), st.sampled_from(["a/x", "a/y", "b"]), st.integers(0, 2)),
        st.tuples(st.just("out"), st.integers(0, 30), st.none()),
        st.tuples(st.just("limits"), *[st.none() | st.integers(1, 3)] * 2),
    )
    return draw(st.lists(step, max_size=40))


@for_all(stories())
def test_whoever_stands_before_the_gate_has_a_queue_at_limit_above_him(story):
    running, through, order = RunningLimits(), {}, 0
    for kind, one, other in story:
        if kind == "in":
            order += 1
            name = f"job-{order}"
            if admit(running, name, one, other, order):
                through[name] = True
        elif kind == "out" and running.leaf:
            name = list(running.leaf)[one % len(running.leaf)]
            through.pop(name, None)
            through |= dict.fromkeys(leave(running, name), True)
        elif kind == "limits":
            children = [Queue("x", running_jobs_max=other), Queue("y")]
            tree = Queue("root", children=[Queue("a", running_jobs_max=one, children=children), Queue("b")])
            through |= dict.fromkeys(limit(running, tree), True)

        for path, passed in running.through.items():
            under = [name for name in through if f"{running.leaf[name]}/".startswith(f"{path}/" if path else "")]
            assert passed == len(under)
        for name in running.leaf:
            assert (name in through) != is_parked(running, name)
            assert name in through or queue_at_limit(running, running.leaf[name]) is not None
