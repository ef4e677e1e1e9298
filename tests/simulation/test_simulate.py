"""Whole simulated runs: judged by a program that shares no code with them, compared with a reference and by task."""

import json
from itertools import pairwise
from random import Random

import pytest

from services.simulator.drawn import drawn_cluster, drawn_jobs
from services.simulator.run import Options, simulate
from services.simulator.workloads.importers import IMPORTERS
from tests.simulation.runs import CONSERVING, cluster, faults, job, simulated, stage

PRESETS = ("fifo", "tetris-fair", "dress", *CONSERVING)


# ---------------------------------------------------------------- judged runs
def tpch(shared):
    """Every query of the smallest size, a few seconds apart, with CPU, memory, disk and network demands."""
    folder = shared / "traces" / "tpch"
    options = {"demands": str(folder / "demands" / "tpch.demands.jsonl.gz"), "mean_gap_ms": 3_000, "jobs": 22}
    return IMPORTERS["tpch"].convert(str(folder / "tpch_2g.jsonl.gz"), **options)


def facebook(shared):
    """One hour of 2009."""
    file = shared / "traces" / "facebook" / "FB-2009_samples_24_times_1hr_0.tsv.gz"
    return IMPORTERS["facebook"].convert(str(file), from_hour=2, to_hour=3)


def alibaba(shared):
    """The first few dozen production graphs of moderate size, brought close together."""
    file = shared / "traces" / "alibaba-dag-2018" / "alibaba2018_medium_a.jsonl.gz"
    lines = IMPORTERS["alibaba-dag"].convert(str(file), compress=200, tasks_max=300)
    return [line for _, line in zip(range(60), lines, strict=False)]


CLUSTERS = {
    tpch: {
        "nodes": [
            {
                "name": "n",
                "count": 8,
                "capacity": {"cpu": "20", "memory": "128Gi", "disk_io": "8G", "network": "10G"},
            }
        ]
    },
    facebook: {"nodes": [{"name": "n", "count": 6, "capacity": {"cpu": "16", "memory": "32Gi"}}]},
    alibaba: {"nodes": [{"name": "n", "count": 3, "capacity": {"cpu": "96", "memory": "100Gi"}}]},
}


@pytest.mark.rotating(8)
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("trace", list(CLUSTERS), ids=lambda trace: trace.__name__)
def test_a_trace_runs_as_the_judge_would_have_it(shared, tmp_path, trace, preset):
    run = simulated(tmp_path, trace(shared), CLUSTERS[trace], preset=preset)

    assert faults(shared, run, conserving=preset in CONSERVING, jain_too=True) == []
    assert run.result["preset"] == preset
    assert run.result["rejected"] == []


QUEUES = {
    "name": "root",
    "children": [
        {"name": "ads", "weight": 60, "children": [{"name": "prod", "weight": 70}, {"name": "test", "weight": 30}]},
        {"name": "ml", "weight": 39.5},
        {"name": "default", "weight": 0.5},
    ],
}
LEAVES = ("ads/prod", "ads/test", "ml", None)
NODES = [
    {"name": "a", "count": 3, "capacity": {"cpu": "16", "memory": "32Gi"}, "labels": {"zone": "a"}},
    {"name": "b", "count": 2, "capacity": {"cpu": "8", "memory": "64Gi"}, "labels": {"zone": "b"}},
    {"name": "g", "capacity": {"cpu": "16", "memory": "64Gi", "gpu": "4"}},
]


def drawn(seed, *, gangs=True, labels=True, gpus=True):
    """A random workload without failures: the judge wants every task to succeed."""
    chance, lines, at_ms = Random(seed), [], 0
    for i in range(40):
        at_ms += chance.choice([0, 0, chance.randint(0, 6_000)])
        stages = []
        for k in range(chance.choice([1, 1, 2, 3, 4])):
            tasks = chance.choice([1, 2, chance.randint(3, 30)])
            each = stage(f"s{k}", after=[f"s{j}" for j in range(k) if chance.random() < 0.5])
            each["demand"] = {
                "cpu": chance.choice(["500m", "1", "1", "2"]),
                "memory": chance.choice(["512Mi", "2Gi", "6000Mi"]),
            }
            if gangs and chance.random() < 0.15:
                tasks, each["gang"] = min(tasks, 5), True
            if labels and chance.random() < 0.25:
                each["labels"] = {"zone": chance.choice("ab")}
            elif gpus and "gang" not in each and chance.random() < 0.15:
                tasks, each["demand"]["gpu"] = min(tasks, 5), chance.choice(["1", "1", "2"])
            if chance.random() < 0.2:
                each["prefer"] = {"zone": chance.choice("ab")}
            lasts_ms = chance.randint(300, 20_000)
            each |= {"tasks": tasks, "duration_ms": lasts_ms}
            if chance.random() < 0.5:
                del each["tasks"], each["duration_ms"]
                each["durations_ms"] = [lasts_ms + chance.randint(0, lasts_ms) for _ in range(tasks)]
            if chance.random() < 0.3:
                each["estimate_ms"] = chance.randint(1, 60_000)
            stages.append(each)
        line = job(f"j{i}", *stages, submit_ms=at_ms, priority=chance.randint(-2, 2))
        if (leaf := chance.choice(LEAVES)) is not None:
            line["queue"] = leaf
        lines.append(line)
    return lines


@pytest.mark.rotating(4)
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("seed", range(4))
def test_a_drawn_workload_with_gangs_labels_gpus_and_a_tree_runs_as_the_judge_would_have_it(
    shared, tmp_path, seed, preset
):
    run = simulated(tmp_path, drawn(seed), {"nodes": NODES, "queues": QUEUES}, preset=preset)
    assert faults(shared, run, conserving=preset in CONSERVING) == []


@pytest.mark.rotating(4)
@pytest.mark.parametrize("preset", ["hdrf", "largesse"])
@pytest.mark.parametrize("seed", range(20, 26))
def test_every_demanding_queue_has_its_share_within_the_longest_task(shared, tmp_path, seed, preset):
    run = simulated(
        tmp_path, drawn(seed, gangs=False, labels=False, gpus=False), {"nodes": NODES, "queues": QUEUES}, preset=preset
    )
    assert faults(shared, run, conserving=True, guarantee=True) == []


@pytest.mark.parametrize("gap_ms", [1, 250, 3_000])
def test_rounds_at_a_distance_lose_nothing(shared, tmp_path, gap_ms):
    run = simulated(tmp_path, drawn(7), {"nodes": NODES, "queues": QUEUES}, round_gap_ms=gap_ms)
    starts = sorted({line["start_ms"] for line in run.lines if "held" not in line})

    assert faults(shared, run) == []
    assert all(later - earlier >= gap_ms for earlier, later in pairwise(starts))


def test_the_count_of_shards_moves_no_task(tmp_path):
    runs = [
        simulated(tmp_path, drawn(8), {"nodes": NODES, "queues": QUEUES}, altruism_shards=shards)
        for shards in (1, 2, 4)
    ]
    assert runs[0].lines == runs[1].lines == runs[2].lines


# ---------------------------------------------------------------- a reference that others computed
@pytest.mark.whole
@pytest.mark.slow
@pytest.mark.parametrize(
    ("slots", "mean_s", "last_s", "rounded_mean_s"),
    [(267, 186.2160, 22994.4334, 186.166551), (426, 46.7598, 21736.3799, 46.731826)],
)
def test_fifo_completes_jobs_when_three_other_engines_do(shared, tmp_path, slots, mean_s, last_s, rounded_mean_s):
    file = shared / "traces" / "facebook" / "FB-2010_samples_24_times_1hr_0.tsv.gz"
    lines = IMPORTERS["facebook"].convert(str(file), divide=10, to_hour=6, demands="one-core")

    run = simulated(tmp_path, lines, cluster(slots), preset="fifo", fifo_order="stage", round_gap_ms=0)

    ends = [row["end_ms"] for row in run.result["per_job"]]
    exact_mean_s = sum(row["end_ms"] - row["submit_ms"] for row in run.result["per_job"]) / len(ends) / 1_000
    assert len(ends) == 6_877
    assert exact_mean_s == pytest.approx(mean_s, rel=1e-3)
    assert max(ends) / 1_000 == pytest.approx(last_s, rel=1e-3)
    assert exact_mean_s == pytest.approx(rounded_mean_s, abs=1e-6)  # Durations here are whole milliseconds.
    assert run.result["jct_ms"]["mean"] == pytest.approx(1_000 * mean_s, rel=1e-3)


# ---------------------------------------------------------------- task by task
def test_a_job_is_told_from_submission_to_end(tmp_path):
    run = simulated(
        tmp_path,
        [job("j", stage("a", 2, 1_000), stage("b", 1, 500, after=["a"]), submit_ms=300)],
        cluster(1),
    )

    assert [(line["stage"], line["index"], line["start_ms"], line["end_ms"]) for line in run.lines] == [
        ("a", 0, 300, 1_300),
        ("a", 1, 1_300, 2_300),
        ("b", 0, 2_300, 2_800),
    ]
    assert {(line["attempt"], line["node"], line["outcome"], line["why"]) for line in run.lines} == {
        (1, "n", "succeeded", "required")
    }
    row = run.row("j")
    assert (row["submit_ms"], row["start_ms"], row["end_ms"], row["tasks"]) == (300, 300, 2_800, 3)
    result = run.result
    assert (result["makespan_ms"], result["jct_ms"]["mean"], result["waiting_ms"]["mean"]) == (2_500, 2_500, 0)
    assert (result["placements"], result["utilisation"]["cpu"]) == (3, 1.0)


def test_neighbours_of_one_length_end_together_and_others_each_in_its_time(tmp_path):
    run = simulated(tmp_path, [job("j", stage(durations_ms=[5, 5, 9, 5, 1]))], cluster(5))
    assert {line["index"]: line["end_ms"] for line in run.lines} == {0: 5, 1: 5, 2: 9, 3: 5, 4: 1}


def test_a_task_of_no_length_runs_all_the_same(tmp_path):
    run = simulated(tmp_path, [job("j", stage("a", 3, 0), stage("b", 1, 0, after=["a"]))], cluster(2))
    assert [(line["stage"], line["start_ms"], line["end_ms"]) for line in run.lines] == [("a", 0, 0)] * 3 + [
        ("b", 0, 0)
    ]


def test_the_scheduler_is_told_the_estimate_and_the_task_lasts_its_own_time(tmp_path):
    run = simulated(tmp_path, [job("j", stage(duration_ms=700, estimate_ms=5))], cluster())
    assert run.lines[0]["end_ms"] == 700


def test_a_task_told_too_small_holds_what_was_told_and_runs_longer(tmp_path):
    underestimated = stage(tasks=2, demand={"cpu": "3", "memory": "2Gi"}, estimate_demand={"cpu": "2", "memory": "2Gi"})
    run = simulated(tmp_path, [job("j", underestimated)], cluster(4))
    assert [(line["start_ms"], line["end_ms"]) for line in run.lines] == [(0, 1_500), (0, 1_500)]


def test_a_task_told_too_large_wastes_what_was_told(tmp_path):
    overestimated = stage(tasks=2, demand={"cpu": "1"}, estimate_demand={"cpu": "3"})
    run = simulated(tmp_path, [job("j", overestimated)], cluster(4))
    assert [(line["start_ms"], line["end_ms"]) for line in run.lines] == [(0, 1_000), (1_000, 2_000)]


def test_what_cannot_run_is_rejected_and_the_rest_goes_on(shared, tmp_path):
    lines = [
        job("large", stage(demand={"cpu": "9"})),
        job("alien", stage(demand={"fpga": "1"})),
        job("wide", stage(tasks=5, gang=True)),
        job("nowhere", stage(), queue="ml"),
        job("good", stage()),
    ]
    queues = {"name": "root", "children": [{"name": "ads"}]}

    run = simulated(tmp_path, lines, cluster(4, queues=queues))

    assert {each["job"]: each["reason"] for each in run.result["rejected"]} == {
        "large": "exceeds_capacity",
        "alien": "unknown_resource",
        "wide": "gang_too_wide",
        "nowhere": "unknown_queue",
    }
    assert [line["job"] for line in run.lines] == ["good"]
    assert run.result["jobs"] == 5


# ---------------------------------------------------------------- failures
def outcomes(run, name):
    return [
        (line["index"], line["attempt"], line["start_ms"], line["end_ms"], line["outcome"]) for line in run.of(name)
    ]


def test_a_task_that_takes_too_long_is_tried_again_after_its_back_off(tmp_path):
    slow = stage(durations_ms=[900, 2_000], timeout_ms=1_000, retries=2)
    run = simulated(tmp_path, [job("j", slow)], cluster(), retry_backoff_ms=500)

    assert outcomes(run, "j") == [
        (0, 1, 0, 900, "succeeded"),
        (1, 1, 0, 1_000, "failed"),
        (1, 2, 1_500, 2_500, "failed"),
        (1, 3, 3_500, 4_500, "failed"),
    ]
    assert run.row("j")["outcome"] == "failed"
    assert (run.result["placements"], run.result["makespan_ms"]) == (4, 4_500)


def test_a_task_may_last_exactly_as_long_as_it_may(tmp_path):
    run = simulated(tmp_path, [job("j", stage(duration_ms=1_000, timeout_ms=1_000))], cluster())
    assert run.row("j")["outcome"] == "succeeded"


def test_when_a_job_fails_what_it_runs_is_killed_and_the_rest_never_starts(tmp_path):
    fails = job(
        "j",
        stage("bad", 1, 5_000, timeout_ms=1_000),
        stage("long", 2, 60_000),
        stage("never", after=["bad"]),
    )
    run = simulated(tmp_path, [fails, job("k", stage(tasks=9, duration_ms=2_000), priority=-1)], cluster(4))

    assert [line["outcome"] for line in run.of("j")] == ["failed", "killed", "killed"]
    assert {line["end_ms"] for line in run.of("j")} == {1_000}
    assert run.of("j", "never") == []
    assert (run.row("j")["outcome"], run.row("j")["end_ms"]) == ("failed", 1_000)
    assert (run.row("k")["outcome"], run.row("k")["end_ms"]) == ("succeeded", 6_000)
    assert [line["start_ms"] for line in run.of("k")].count(1_000) == 3


def test_a_gang_whose_one_task_fails_is_stopped_and_starts_again_together(tmp_path):
    gang = stage(durations_ms=[500, 3_000, 900], timeout_ms=1_000, retries=1, gang=True)
    run = simulated(tmp_path, [job("g", gang)], cluster(), retry_backoff_ms=0)

    assert outcomes(run, "g") == [
        (0, 1, 0, 500, "succeeded"),
        (2, 1, 0, 900, "succeeded"),
        (1, 1, 0, 1_000, "failed"),
        (0, 2, 1_000, 1_500, "succeeded"),
        (2, 2, 1_000, 1_900, "succeeded"),
        (1, 2, 1_000, 2_000, "failed"),
    ]
    assert run.row("g")["outcome"] == "failed"


def test_what_still_runs_of_a_broken_gang_is_killed_at_once(tmp_path):
    gang = stage(durations_ms=[5_000, 9_000], timeout_ms=6_000, retries=1, gang=True)
    run = simulated(tmp_path, [job("g", stage("slow", 1, 9_000, timeout_ms=2_000)), job("h", gang)], cluster())

    assert outcomes(run, "g") == [(0, 1, 0, 2_000, "failed")]
    assert [each[4] for each in outcomes(run, "h")] == ["succeeded", "failed", "succeeded", "failed"]

    both = stage(durations_ms=[7_000, 8_000], timeout_ms=6_000, gang=True)
    run = simulated(tmp_path, [job("h", both)], cluster())
    assert sorted(outcomes(run, "h")) == [(0, 1, 0, 6_000, "failed"), (1, 1, 0, 6_000, "failed")]


@pytest.mark.rotating(4)
@pytest.mark.parametrize("gap_ms", [0, 400, 7_000])
@pytest.mark.parametrize("seed", range(5))
def test_failures_of_every_kind_add_up_at_any_distance_of_rounds(tmp_path, seed, gap_ms):
    """Attempts count without gaps, one at a time; a job ends well exactly if all its tasks do."""
    chance, lines = Random(seed), drawn(seed)
    for line in lines:
        for each in line["stages"]:
            if chance.random() < 0.4:
                each |= {"timeout_ms": chance.randint(2_000, 25_000), "retries": chance.randint(0, 2)}
    run = simulated(tmp_path, lines, {"nodes": NODES, "queues": QUEUES}, round_gap_ms=gap_ms)

    tasks, won = {}, {}
    lines = [line for line in run.lines if "held" not in line]
    for line in lines:
        tasks.setdefault((line["job"], line["stage"], line["index"]), []).append(line)
        if line["outcome"] == "succeeded":
            won.setdefault(line["job"], set()).add((line["stage"], line["index"]))
    for attempts in tasks.values():
        attempts.sort(key=lambda line: line["attempt"])
        assert [line["attempt"] for line in attempts] == list(range(1, len(attempts) + 1))
        assert all(b["start_ms"] >= a["end_ms"] for a, b in pairwise(attempts))
    assert len(lines) == run.result["placements"]
    assert {row["outcome"] for row in run.result["per_job"]} == {"succeeded", "failed"}
    for row in run.result["per_job"]:
        assert (row["outcome"] == "succeeded") == (len(won.get(row["job"], ())) == row["tasks"])


@pytest.mark.rotating(6)
@pytest.mark.parametrize("gap_ms", [0, 700])
@pytest.mark.parametrize("seed", [3, 36, 53, *[pytest.param(seed, marks=pytest.mark.whole) for seed in range(3)]])
def test_simulated_agents_say_nothing_that_is_refused(seed, gap_ms):
    kinds = {}

    def count(topic, header, content):
        kind = json.loads(content)["type"]
        kinds[kind] = kinds.get(kind, 0) + 1

    simulate(drawn_jobs(seed), drawn_cluster(seed), Options({"round_gap_ms": gap_ms, "seed": seed}, listener=count))

    assert kinds["TaskFailed"] > 5
    assert kinds["JobRejected"] > 1
    assert "InputRefused" not in kinds
    assert "InputRepeated" not in kinds
