"""The gate of a queue with running_jobs_max: who may run, who stands before it, who goes next."""

from dataclasses import replace

import pytest
from hypothesis import strategies as st

from largesse.lifecycle.running_limit import admit, full_queue, is_parked, leave, limit
from largesse.lifecycle.state import RunningLimits
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
def gate():
    gate = RunningLimits()
    assert limit(gate, TREE) == []
    return gate


def come(gate, *jobs, priority=0):
    """Jobs in this order, each as "queue:name": those let through."""
    said = [job.split(":") for job in jobs]
    return [
        name for order, (queue, name) in enumerate(said, len(gate.leaf) + 1)
        if admit(gate, name, queue, priority, order)
    ]  # fmt: skip


def test_a_queue_lets_as_many_jobs_through_as_it_says(gate):
    assert come(gate, "a/x:1", "a/x:2", "a/y:3", "a/y:4", "a/y:5", "b:6", "b:7") == ["1", "3", "4", "6", "7"]
    assert [is_parked(gate, name) for name in "1256"] == [False, True, True, False]


def test_the_next_job_goes_through_when_one_is_over(gate):
    come(gate, "a/x:1", "a/x:2", "a/y:3", "a/y:4", "a/y:5")

    assert leave(gate, "3") == ["5"]  # Job 2 came first, but a/x is full.
    assert leave(gate, "1") == ["2"]
    assert leave(gate, "unknown") == []


def test_a_job_that_is_over_before_its_turn_frees_nothing(gate):
    come(gate, "a/x:1", "a/x:2", "a/x:3")

    assert leave(gate, "2") == []
    assert leave(gate, "1") == ["3"]


def test_higher_priority_goes_first_then_who_came_first(gate):
    come(gate, "a/x:1", "a/x:2", "a/x:3")
    come(gate, "a/x:4", priority=1)

    assert leave(gate, "1") == ["4"]
    assert leave(gate, "4") == ["2"]


def test_a_queue_says_which_one_above_it_is_full(gate):
    come(gate, "a/x:1")
    assert full_queue(gate, "a/x") == "a/x"
    come(gate, "a/y:2", "a/y:3")
    assert [full_queue(gate, queue) for queue in ("a/x", "a/y", "b", "")] == ["a/x", "a", None, None]


def test_the_limit_of_the_root_counts_everybody():
    gate = RunningLimits()
    limit(gate, replace(TREE, running_jobs_max=1))

    assert come(gate, "b:1", "a/y:2") == ["1"]
    assert (full_queue(gate, "b"), leave(gate, "1")) == ("", ["2"])


def test_a_raised_limit_lets_jobs_through_and_a_lowered_one_calls_nobody_back(gate):
    come(gate, "a/y:1", "a/y:2", "a/y:3", "a/y:4")

    assert limit(gate, Queue("root", children=[Queue("a", children=[Queue("y", running_jobs_max=1)])])) == []
    assert [leave(gate, name) for name in "123"] == [[], [], ["4"]]
    come(gate, "a/y:5", "a/y:6")
    assert limit(gate, None) == ["5", "6"]


@st.composite
def stories(draw):
    """What happens at a gate: ("in", queue, priority), ("out", which) or ("limits", a, x)."""
    step = st.one_of(
        st.tuples(st.just("in"), st.sampled_from(["a/x", "a/y", "b"]), st.integers(0, 2)),
        st.tuples(st.just("out"), st.integers(0, 30), st.none()),
        st.tuples(st.just("limits"), *[st.none() | st.integers(1, 3)] * 2),
    )
    return draw(st.lists(step, max_size=40))


@for_all(stories())
def test_whoever_stands_before_the_gate_has_a_full_queue_above_him(story):
    gate, through, order = RunningLimits(), {}, 0
    for kind, one, other in story:
        if kind == "in":
            order += 1
            name = f"job-{order}"
            if admit(gate, name, one, other, order):
                through[name] = True
        elif kind == "out" and gate.leaf:
            name = list(gate.leaf)[one % len(gate.leaf)]
            through.pop(name, None)
            through |= dict.fromkeys(leave(gate, name), True)
        elif kind == "limits":
            children = [Queue("x", running_jobs_max=other), Queue("y")]
            tree = Queue("root", children=[Queue("a", running_jobs_max=one, children=children), Queue("b")])
            through |= dict.fromkeys(limit(gate, tree), True)

        for path, passed in gate.through.items():
            under = [name for name in through if f"{gate.leaf[name]}/".startswith(f"{path}/" if path else "")]
            assert passed == len(under)
        for name in gate.leaf:
            assert (name in through) != is_parked(gate, name)
            assert name in through or full_queue(gate, gate.leaf[name]) is not None
