"""Stragglers in simulated cells: slow nodes, what copies of their tasks gain and cost, and who goes before a copy."""

import json
from itertools import pairwise

import pytest

from schemas.edge.read import read_cluster
from services.simulator.outages import Outage, read_outages
from services.simulator.slow_nodes import slow_nodes
from services.simulator.workloads.files import Damaged
from tests.simulation.runs import cluster, faults, job, simulated, stage

TWICE = 2_000
SLOW = [Outage("n-0", 0, None, 10_000)]
"""One node takes ten times as long."""


def run(folder, *lines, count=3, cores=2, outages=SLOW, **knobs):
    knobs = {"speculation_permille": TWICE, "preset": "drf", **knobs}
    return simulated(folder, lines, cluster(cores, count), outages=outages, **knobs)


def attempts_of(found, name="j"):
    attempts = sorted(found.of(name), key=lambda line: (line["index"], line["attempt"]))
    return [(line["index"], line["attempt"], line["end_ms"], line["outcome"], line["why"]) for line in attempts]


def copies(found, name=None):
    return [line for line in found.lines if line.get("why") == "speculative" and name in (None, line["job"])]


# ---------------------------------------------------------------- slow nodes
def test_a_task_takes_as_long_as_its_node_is_slow_when_it_starts():
    nodes = slow_nodes([Outage("n", 100, 200, 3_000), Outage("n", 150, 160, 5_000), Outage("m", 0, None)])
    assert [nodes.lasts_ms("n", at, 10) for at in (99, 100, 150, 160, 199, 200)] == [10, 30, 50, 30, 30, 10]
    assert nodes.lasts_ms("m", 0, 10) == 10
    assert slow_nodes([Outage("m", 0, None)]) is None


@pytest.mark.parametrize(
    ("line", "where"),
    [
        pytest.param({"node": "n-0", "from_ms": 0, "slow_permille": 1_000}, "slow_permille", id="as fast as others"),
        pytest.param({"node": "n-0", "from_ms": 5, "to_ms": 5, "slow_permille": 2_000}, "to_ms", id="never slow"),
    ],
)
def test_a_line_of_a_slow_node_that_means_nothing_is_refused(tmp_path, line, where):
    path = tmp_path / "outages.jsonl"
    path.write_text(json.dumps(line))
    with pytest.raises(Damaged) as refused:
        read_outages(str(path), read_cluster(cluster(1, 2)), 0)
    assert where in str(refused.value)


# ---------------------------------------------------------------- what copies do
def test_a_straggler_is_copied_once_it_has_run_for_twice_the_median_and_the_first_to_succeed_counts(tmp_path):
    found = run(tmp_path, job("j", stage(tasks=6, duration_ms=1_000)), speculation_finished_min=4)

    slow = {line["index"] for line in found.of("j") if line["node"] == "n-0"}
    assert len(slow) == 2
    for index in slow:
        attempts = [row for row in attempts_of(found) if row[0] == index]
        assert attempts == [(index, 1, 3_001, "superseded", "required"), (index, 2, 3_001, "succeeded", "speculative")]
    assert found.row("j")["end_ms"] == 3_001
    assert found.result["copies"] == {"started": 2, "won": 2, "in_vain": {"cpu": 6_002}}


def test_with_too_few_finished_tasks_the_estimate_counts(tmp_path):
    found = run(tmp_path, job("j", stage(tasks=6, duration_ms=1_000, estimate_ms=2_000)), speculation_finished_min=5)
    assert {line["start_ms"] for line in copies(found)} == {4_001}


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"speculation_permille": 0}, id="by default"),
        pytest.param({"stage": {"speculative": False}}, id="where the stage says so"),
        pytest.param({"stage": {"gang": True}}, id="in a gang"),
    ],
)
def test_nothing_is_copied(tmp_path, given):
    knobs = {name: value for name, value in given.items() if name != "stage"}
    found = run(tmp_path, job("j", stage(tasks=6, duration_ms=1_000, **given.get("stage", {}))), **knobs)
    assert not copies(found)
    assert found.row("j")["end_ms"] == 10_000


def test_a_job_has_no_more_copies_at_a_time_than_it_may(tmp_path):
    found = run(
        tmp_path, job("j", stage(tasks=8, duration_ms=1_000)), count=2, cores=4, speculation_copies_max=1,
        speculation_finished_min=1,
    )  # fmt: skip
    spans = sorted((line["start_ms"], line["end_ms"]) for line in copies(found))
    assert len(spans) == 4
    assert all(before[1] <= after[0] for before, after in pairwise(spans))


def test_a_copy_gives_way_to_a_task_that_waits_and_its_task_runs_on(tmp_path):
    first = job("j", stage(tasks=2, durations_ms=[1_000, 60_000]))
    later = job("k", stage(tasks=1, duration_ms=5_000), submit_ms=20_000)
    found = run(tmp_path, first, later, count=2, cores=1, outages=(), speculation_finished_min=1)

    (copy,) = [line for line in copies(found) if line["outcome"] == "revoked"]
    assert copy["end_ms"] == 20_000
    assert found.row("k")["start_ms"] == 20_000
    assert found.row("k")["end_ms"] == 25_000
    assert found.row("j")["end_ms"] == 60_000


def test_a_node_that_fails_with_one_of_two_attempts_takes_nothing_from_the_other(tmp_path):
    outages = [*SLOW, Outage("n-0", 7_000)]
    lines = job("j", stage(tasks=6, duration_ms=3_000))
    found = run(tmp_path, lines, outages=outages, speculation_finished_min=4, node_lease_ms=1_000)

    slow = {line["index"] for line in found.of("j") if line["node"] == "n-0"}
    for index in slow:
        assert [(row[1], row[3]) for row in attempts_of(found) if row[0] == index] == [(1, "lost"), (2, "succeeded")]
    assert found.row("j")["end_ms"] == 9_001


def test_copies_make_jobs_on_slow_nodes_end_sooner(tmp_path):
    lines = [
        job(f"j{k}", stage("a", 6, 5_000), stage("b", 3, 3_000, after=["a"]), submit_ms=4_000 * k) for k in range(20)
    ]
    outages = [Outage(f"n-{k}", 0, None, 6_000) for k in range(3)]
    (tmp_path / "off").mkdir()
    off = run(tmp_path / "off", *lines, count=12, outages=outages, speculation_permille=0, preset="largesse")
    on = run(tmp_path, *lines, count=12, outages=outages, preset="largesse")

    assert on.result["jct_ms"]["mean"] < off.result["jct_ms"]["mean"]
    assert on.result["jct_ms"]["p95"] < off.result["jct_ms"]["p95"]
    assert all(sum(line["outcome"] == "succeeded" for line in on.of(f"j{k}")) == 9 for k in range(20))
    assert on.result["copies"]["won"] > 0
    assert "copies" not in off.result


@pytest.mark.parametrize("preset", ["drf", "hdrf", "carbyne", "largesse"])
def test_a_judge_of_schedules_finds_nothing_but_that_tasks_run_twice(tmp_path, shared, preset):
    lasts = [2_000, 2_000, 2_000, 2_000, 30_000]
    lines = [
        job(f"j{k}", stage("a", durations_ms=lasts), stage("b", 3, 3_000, after=["a"]), submit_ms=9_000 * k)
        for k in range(12)
    ]
    found = run(tmp_path, *lines, count=4, outages=(), preset=preset, round_gap_ms=100)
    assert copies(found)
    kinds = [fault.partition(" (")[0] for fault in faults(shared, found, conserving=True)]
    assert kinds == ["two attempts at once"]
