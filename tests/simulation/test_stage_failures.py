"""Drawn graphs whose tasks run into time-outs, under every preset: the same end whatever is served first, the same
digest under any hash seed, and a log that replays.
"""

import random
from typing import get_args

import pytest

from largesse.log.export import ExportWriter
from schemas.edge.read import read_cluster, read_workload_line
from schemas.presets import Preset
from services.replay.source import open_source
from services.replay.verify import verify
from services.simulator.run import Options, simulate
from tests.simulation.runs import digests_elsewhere

PRESETS = get_args(Preset)
CLUSTER = {"nodes": [{"name": "n", "count": 3, "capacity": {"cpu": "4"}}]}


def drawn_lines(seed, count=12):
    """Jobs of stages after stages; about a fifth of the tasks would run for longer than they may."""
    dice = random.Random(seed)
    return [_line(dice, number) for number in range(count)]


def _line(dice, number):
    stages = []
    for at in range(dice.randint(1, 5)):
        tasks = dice.randint(1, 8)
        stage = {
            "stage": f"s{at}",
            "after": [f"s{before}" for before in range(at) if dice.random() < 0.4],
            "demand": {"cpu": dice.choice(["500m", "1"])},
            "durations_ms": [dice.choice([500, 900, 1_300, 1_700, 5_000]) for _ in range(tasks)],
            "timeout_ms": 2_000,
            "on_failure": dice.choice(["fail", "continue", "continue"]),
        }
        if dice.random() < 0.2:
            stage["gang"] = True
        else:
            stage["max_failed"] = dice.choice([0, 1, "25%", "50%"]) if tasks > 1 else 0
        stages.append(stage)
    return {"job": f"j{number}", "submit_ms": 400 * number, "stages": stages}


def outcome_of(line):
    """How a job ends: no retries, so each task's fate is known beforehand."""
    states = {}
    for stage in line["stages"]:
        failed, tasks = sum(lasts > 2_000 for lasts in stage["durations_ms"]), len(stage["durations_ms"])
        bound = stage.get("max_failed", 0)
        most = tasks * int(bound[:-1]) // 100 if isinstance(bound, str) else bound
        if any(states[parent] != "succeeded" for parent in stage["after"]):
            states[stage["stage"]] = "skipped"
        elif failed <= most:
            states[stage["stage"]] = "succeeded"
        elif stage["on_failure"] == "fail":
            return "failed"
        else:
            states[stage["stage"]] = "failed"
    return "failed" if "failed" in states.values() else "succeeded"


def run(lines, preset, log=None):
    jobs = [read_workload_line(line) for line in lines]
    return simulate(jobs, read_cluster(CLUSTER), Options({"preset": preset}, listener=log))


@pytest.mark.parametrize("preset", PRESETS)
def test_jobs_end_as_their_tasks_do_and_the_log_replays(tmp_path, preset):
    for seed in (1, 2):
        lines = drawn_lines(seed)
        exported = str(tmp_path / f"{seed}.jsonl")
        with ExportWriter(exported) as log:
            result = run(lines, preset, log)
        expected = {line["job"]: outcome_of(line) for line in lines}
        assert {row["job"]: row["outcome"] for row in result["per_job"]} == expected
        assert {*expected.values()} == {"succeeded", "failed"}, (
            "a history in which nothing, or all, fails shows nothing"
        )
        assert verify(open_source(exported)).difference is None


def digests():
    return {preset: run(drawn_lines(3), preset)["digest"] for preset in PRESETS}


def test_a_digest_is_the_same_under_any_hash_seed():
    assert digests_elsewhere(__name__) == digests()
