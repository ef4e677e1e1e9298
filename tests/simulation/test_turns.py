"""Queues with `running_jobs_max` under every preset: a job that holds nothing keeps no other from running."""

import json
import random
from itertools import pairwise
from typing import get_args

import pytest

from largesse.log.export import ExportWriter
from schemas import JobTurns
from schemas.edge.read import read_cluster, read_workload_line
from schemas.presets import Preset
from services.replay.source import open_source
from services.replay.verify import verify
from services.simulator.outages import Outage
from services.simulator.run import Options, simulate
from services.simulator.schedule import ScheduleWriter, ShortSchedule
from services.simulator.workloads.workload_file import read_reservation_line
from tests.builders import config, job, node, queue, stage, tree
from tests.cells import SlowCell
from tests.simulation import runs

TWO = [
    {"name": "g", "capacity": {"cpu": "4"}, "labels": {"disk": "ssd"}},
    {"name": "c", "capacity": {"cpu": "4"}},
]
ONE_AT_A_TIME = {"name": "root", "children": [{"name": "q", "running_jobs_max": 1}, {"name": "r"}]}
PRESETS = get_args(Preset)


def first_starts(run):
    starts: dict[str, int] = {}
    for line in sorted((line for line in run.lines if "job" in line), key=lambda line: line["start_ms"]):
        starts.setdefault(line["job"], line["start_ms"])
    return starts


@pytest.mark.parametrize("preset", PRESETS)
def test_a_job_whose_node_is_down_gives_way_and_comes_back(tmp_path, preset):
    needs_g = runs.job("needs-g", runs.stage(labels={"disk": "ssd"}), queue="q", submit_ms=60_000)
    jobs = [needs_g, *[runs.job(f"any{i}", runs.stage(), queue="q", submit_ms=61_000) for i in range(3)]]
    found = runs.simulated(
        tmp_path, jobs, {"nodes": TWO, "queues": ONE_AT_A_TIME}, outages=[Outage("g", 0, 600_000)], preset=preset
    )

    assert first_starts(found) == {"any0": 61_000, "any1": 62_000, "any2": 63_000, "needs-g": 600_000}


@pytest.mark.parametrize("preset", ["largesse", "carbyne", "hdrf", "fifo", "dress"])
def test_a_graph_that_lost_its_node_goes_on_where_it_was(tmp_path, preset):
    graph = runs.job(
        "graph",
        runs.stage("a", tasks=2, duration_ms=5_000),
        runs.stage("b", after=["a"], labels={"disk": "ssd"}, duration_ms=30_000),
        runs.stage("c", after=["b"]),
        queue="q",
    )
    jobs = [graph, runs.job("other", runs.stage(duration_ms=2_000), queue="q", submit_ms=6_000)]
    found = runs.simulated(
        tmp_path, jobs, {"nodes": TWO, "queues": ONE_AT_A_TIME}, outages=[Outage("g", 8_000, 100_000)], preset=preset
    )

    assert first_starts(found)["other"] == 18_000, "when the lease of the node had run out"
    attempts = {stage: [line["start_ms"] for line in found.of("graph", stage)] for stage in "abc"}
    assert attempts == {"a": [0, 0], "b": [5_000, 100_000], "c": [130_000]}


@pytest.mark.parametrize("preset", PRESETS)
def test_of_two_that_hold_nothing_the_one_of_higher_priority_goes(tmp_path, preset):
    fill = runs.job("fill", runs.stage(tasks=4, duration_ms=50_000), queue="r")
    low = runs.job("low", runs.stage(duration_ms=9_000), queue="q", submit_ms=1_000)
    high = runs.job("high", runs.stage(duration_ms=9_000), queue="q", submit_ms=2_000, priority=100)
    cell = {"nodes": TWO[1:], "queues": ONE_AT_A_TIME}
    found = runs.simulated(tmp_path, [fill, low, high], cell, preset=preset)

    assert first_starts(found) == {"fill": 0, "high": 50_000, "low": 59_000}


def test_one_that_holds_something_gives_way_to_nobody(tmp_path):
    low = runs.job("low", runs.stage(durations_ms=[*[9_000, 8_000] * 3, 7_000]), queue="q")
    high = runs.job("high", runs.stage(), queue="q", submit_ms=2_000, priority=100)
    found = runs.simulated(tmp_path, [low, high], {"nodes": TWO[1:], "queues": ONE_AT_A_TIME}, preset="hdrf")

    assert first_starts(found)["high"] == 17_000


# ---------------------------------------------------------------- leases
@pytest.mark.parametrize("preset", ["largesse", "rayon", "hdrf"])
def test_a_job_that_waits_for_its_lease_holds_up_nobody_and_runs_when_it_begins(tmp_path, preset):
    rdl = "window(7200, 10800, atom(b='4 cpu', g=2, h=2, l=10m, w=20m))"
    asked = {"reservation": "r1", "user": "ann", "queue": "q", "rdl": rdl}
    small = [*TWO, {"name": "d", "capacity": {"cpu": "2"}, "labels": {"size": "small"}}]
    on_d = {"size": "small"}
    lines = [
        runs.job("fill", runs.stage(tasks=2, duration_ms=7_150_000, demand={"cpu": "2.5"}), queue="r"),
        runs.job("leased", runs.stage(tasks=2, duration_ms=500_000, demand={"cpu": "4"}), queue="q", user="ann",
                 reservation="r1", submit_ms=60_000),
        runs.job("short", runs.stage(labels=on_d), queue="q", submit_ms=61_000),
        runs.job("long", runs.stage(labels=on_d, duration_ms=9_000_000), queue="q", submit_ms=62_000),
        runs.job("last", runs.stage(labels=on_d), queue="q", submit_ms=7_300_000),
    ]  # fmt: skip
    arrivals = [read_reservation_line({"submit_ms": 0, "request": asked}), *map(read_workload_line, lines)]
    cell = read_cluster({"nodes": small, "queues": ONE_AT_A_TIME})
    with ScheduleWriter(str(tmp_path / "schedule")) as schedule:
        simulate(arrivals, cell, Options({"preset": preset}, schedule))
    lines = [json.loads(line) for line in (tmp_path / "schedule").read_text().splitlines()]

    starts = {line["job"]: line["start_ms"] for line in lines if "job" in line}
    del starts["fill"]
    assert starts == {"short": 61_000, "long": 62_000, "leased": 7_200_000, "last": 9_062_000}, "both count by then"


# ---------------------------------------------------------------- any history
def drawn(seed):
    draw = random.Random(seed)
    jobs = []
    for i in range(14):
        stages, before = [], []
        for name in "abc"[: draw.randint(1, 3)]:
            labels = {"disk": "ssd"} if draw.random() < 0.4 else {}
            gang = draw.random() < 0.2
            lasts = [draw.randrange(1_000, 9_000)] * draw.randint(1, 4)
            stages.append(runs.stage(name, durations_ms=lasts, labels=labels, after=list(before), gang=gang))
            before = [name] if draw.random() < 0.7 else before
        where = draw.choice(["in/x", "in/y", "z"])
        jobs.append(runs.job(f"j{i}", *stages, queue=where, priority=draw.choice([0, 0, 5]), submit_ms=i * 1_500))
    jobs.sort(key=lambda line: line["submit_ms"])
    downs = sorted(draw.sample(range(1_000, 60_000), 4))
    return jobs, [Outage("g", downs[0], downs[1]), Outage("g", downs[2], downs[3])]


TREE = {
    "name": "root",
    "children": [
        {"name": "in", "running_jobs_max": 2, "children": [{"name": "x", "running_jobs_max": 1}, {"name": "y"}]},
        {"name": "z"},
    ],
}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("preset", ["largesse", "carbyne", "hdrf", "capacity", "fifo"])
def test_limits_hold_and_a_replay_agrees(tmp_path, preset, seed):
    """Whatever comes and goes: every job ends, no queue runs more jobs than it may, and the log is explained."""
    lines, outages = drawn(seed)
    log = str(tmp_path / "log")
    with ExportWriter(log) as writer:
        jobs = [read_workload_line(line) for line in lines]
        cell = read_cluster({"nodes": TWO, "queues": TREE})
        result = simulate(jobs, cell, Options({"preset": preset}, ShortSchedule(1_000), writer, outages=outages))
    found = runs.simulated(tmp_path, lines, {"nodes": TWO, "queues": TREE}, outages=outages, preset=preset)

    assert {row["outcome"] for row in result["per_job"]} == {"succeeded"}
    assert most_at_once(found, lines, "in") <= 2
    assert most_at_once(found, lines, "in/x") <= 1
    source = open_source(log)
    assert verify(source).difference is None
    if seed == 0:
        assert any(isinstance(step.accepted.record.body, JobTurns) for step in open_source(log).steps())


def most_at_once(run, lines, path):
    """How many jobs of a queue, or below it, ran at the same time at most."""
    below = {line["job"] for line in lines if line["queue"] == path or line["queue"].startswith(path + "/")}
    attempts = [line for line in run.lines if line.get("job") in below]
    moments = sorted({line[end] for line in attempts for end in ("start_ms", "end_ms")})
    return max(
        len({line["job"] for line in attempts if line["start_ms"] <= at and line["end_ms"] >= until})
        for at, until in pairwise(moments)
    )


def test_jobs_that_gave_way_are_the_same_after_a_restart():
    """Every core goes on from its snapshot while a job that has begun is held back."""
    cells = [SlowCell(), SlowCell()]
    for cell in cells:
        cell.take(config(tree(queue("q", running_jobs_max=1)), preset="carbyne"), node("n1"), node("n2"))
        cell.take(job("first", stage("a"), stage("b", after=["a"], cpu=4_000), queue="q"), job("next", queue="q"))
        cell.start(*cell.settle())
        cell.take(job("fill", stage(tasks=7, cpu=1_000)))
        cell.start(*cell.settle())
        cell.at(10_000).finish(next(grant for grant in cell.granted if grant.job == "first"))
        cell.take(job("urgent", queue="q", priority=9))
        cell.settle()
    cells[1].restore()
    for cell in cells:
        for name in ("urgent", "fill", "next"):
            done = [grant for grant in cell.granted if grant.job == name]
            cell.at(cell.time + 5_000)
            cell.start(*[grant for grant in done if grant.job != "fill"])
            cell.finish(*done)
            cell.settle()

    assert cells[0].digest == cells[1].digest
    assert [[back.job for back in body.held_back] for body in cells[0].bodies(JobTurns)][:1] == [["first"]]
    assert "first" in {grant.job for grant in cells[0].granted if grant.stage == "b"}
