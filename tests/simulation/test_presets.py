"""The schedulers that H-DRF is compared to, as presets of a cell: what they are known for, whole schedules judged."""

import pytest

from tests.simulation.runs import faults, job, simulated, stage
from tests.simulation.test_simulate import NODES, QUEUES, drawn

FIGURE_4 = {
    "nodes": [{"name": "n", "capacity": {"cpu": "10", "memory": "1Gi", "gpu": "10"}}],
    "queues": {
        "name": "root",
        "children": [
            {"name": "n1", "children": [{"name": "a"}]},
            {"name": "n2", "children": [{"name": "b"}, {"name": "c"}]},
        ],
    },
}
"""Figure 4 of the paper: a and b ask for CPU, c for GPU only. Tasks end one by one, at moments of their own."""

TASKS = 200


def churning():
    """Three jobs with always more to do; no two tasks end together."""
    lengths = {name: [10_000 + 97 * (i * step % 101) for i in range(TASKS)] for name, step in (("a", 7), ("b", 13))}
    for name, queue in (("a", "n1/a"), ("b", "n2/b")):
        yield job(name, stage("s", durations_ms=lengths[name], demand={"cpu": "1"}), queue=queue)
    gpu = [30_011 + 13 * (i * 17 % 101) for i in range(TASKS)]
    yield job("c", stage("s", durations_ms=gpu, demand={"gpu": "1"}), queue="n2/c")


def running(run, name, at_ms):
    return sum(line["start_ms"] <= at_ms < line["end_ms"] for line in run.of(name))


@pytest.mark.parametrize(
    ("preset", "b"),
    [("hdrf", range(4, 7)), ("collapsed", range(2, 5)), ("naive-hdrf", range(2)), ("capacity", range(4, 7))],
)
def test_what_becomes_of_the_leaf_that_naive_hierarchical_drf_starves(tmp_path, preset, b):
    """Section 3.3: as tasks of b end, a naive scheduler gives their place to a, for c holds n2's share up. Collapsed, b
    has a quarter of the weight against a's half (section 3.2).
    """
    run = simulated(tmp_path, churning(), FIGURE_4, preset=preset)

    counts = [(running(run, "a", at_ms), running(run, "b", at_ms)) for at_ms in range(60_000, 150_000, 5_000)]
    assert all(sum(pair) == 10 for pair in counts)
    assert all(count in b for _, count in counts), counts
    assert running(run, "c", 100_000) == 10


@pytest.mark.parametrize("preset", ["naive-hdrf", "capacity"])
def test_in_the_first_round_the_naive_order_gives_what_hdrf_gives(tmp_path, preset):
    run = simulated(tmp_path, churning(), FIGURE_4, preset=preset)
    assert [running(run, name, 0) for name in "abc"] == [5, 5, 10]


def test_capacity_weighs_queues_by_what_they_are_guaranteed_and_keeps_them_below_their_maximum(tmp_path):
    tree = {
        "name": "root",
        "children": [
            {"name": "a", "guaranteed": {"cpu": "6"}, "max": {"cpu": "7"}},
            {"name": "b", "weight": 9},
        ],
    }
    cell = {**FIGURE_4, "queues": tree}
    lengths = [10_000 + 97 * (i * 7 % 101) for i in range(TASKS)]
    jobs = [
        job(f"{name}{i}", stage("s", durations_ms=lengths, demand={"cpu": "1"}), queue=name)
        for name in "ab"
        for i in "12"
    ]
    run = simulated(tmp_path, jobs, cell, preset="capacity")

    both = [running(run, "a1", at_ms) + running(run, "a2", at_ms) for at_ms in range(0, 300_000, 5_000)]
    assert set(both) <= {5, 6, 7}, both
    last = max(line["start_ms"] for line in run.of("a1"))
    assert min(line["start_ms"] for line in run.of("a2")) >= last, "strictly one job after the other"


@pytest.mark.parametrize("preset", ["naive-hdrf", "collapsed", "capacity"])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_drawn_workload_runs_as_the_judge_would_have_it(shared, tmp_path, preset, seed):
    run = simulated(tmp_path, drawn(seed), {"nodes": NODES, "queues": QUEUES}, preset=preset)
    assert faults(shared, run, conserving=preset != "capacity") == []  # Behind a head that does not fit it idles.


@pytest.mark.parametrize("preset", ["capacity", "dress", "hdrf"])
def test_of_the_jobs_of_a_queue_the_one_with_the_higher_priority_goes_first(tmp_path, preset):
    runs_alone = [stage("s", duration_ms=10_000)]
    workload = [
        job("first", *runs_alone, queue="q"),
        job("low", *runs_alone, queue="q", submit_ms=1_000),
        job("high", *runs_alone, queue="q", submit_ms=2_000, priority=5),
    ]
    nodes = [{"name": "n", "count": 1, "capacity": {"cpu": "1"}}]
    tree = {"name": "root", "children": [{"name": "q"}]}
    run = simulated(tmp_path, workload, {"nodes": nodes, "queues": tree}, preset=preset)
    starts = {name: run.of(name)[0]["start_ms"] for name in ("first", "high", "low")}
    assert starts == {"first": 0, "high": 10_000, "low": 20_000}


def test_a_priority_takes_nothing_from_other_queues_of_a_list_by_submission(tmp_path):
    alone = [stage("s", duration_ms=10_000)]
    workload = [
        job("first", *alone, queue="g/x"),
        job("low", *alone, queue="g/x", submit_ms=1_000),
        job("high", *alone, queue="g/y", submit_ms=2_000, priority=5),
    ]
    nodes = [{"name": "n", "count": 1, "capacity": {"cpu": "1"}}]
    group = {"name": "g", "policy": "fifo", "children": [{"name": "x"}, {"name": "y"}]}
    tree = {"name": "root", "children": [group]}
    run = simulated(tmp_path, workload, {"nodes": nodes, "queues": tree}, preset="hdrf")
    starts = {name: run.of(name)[0]["start_ms"] for name in ("first", "high", "low")}
    assert starts == {"first": 0, "low": 10_000, "high": 20_000}
