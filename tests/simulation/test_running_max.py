"""Stages of which only so many tasks run at a time, under every preset: against a plain list of workers where room is
ample, and by the log where it is not. The same digest under any hash seed, and a log that replays.
"""

import random
from typing import get_args

import pytest

from largesse.lifecycle.task_facts import facts_of
from largesse.log.export import ExportWriter
from schemas import JobAdmitted, RoundClosed, TaskEnd, TaskFailed, TaskFailure, TaskFinished
from schemas.edge.read import read_cluster, read_workload_line
from schemas.presets import Preset
from services.replay.source import open_source
from services.replay.verify import verify
from services.simulator.run import Options, simulate
from tests.simulation.runs import digests_elsewhere, drawn_stages

PRESETS = get_args(Preset)
AMPLE = {"nodes": [{"name": "n", "count": 40, "capacity": {"cpu": "64"}}]}
SCARCE = {"nodes": [{"name": "n", "count": 3, "capacity": {"cpu": "2"}}]}
UNPLANNED = ("drf", "hdrf", "fifo")
"""Presets that start whatever fits, whoever it is of."""


def drawn_lines(seed, count=10, *, fails=False):
    dice = random.Random(seed)
    return [_line(dice, number, fails) for number in range(count)]


def _line(dice, number, fails):
    stages = []
    for stage in drawn_stages(dice, 4, 12, ["500m", "1"]):
        if dice.random() < 0.8:
            stage["running_max"] = dice.choice([1, 2, 3, 20])
        if fails:
            stage |= {"timeout_ms": 1_600, "retries": 1, "on_failure": "continue"}
        stages.append(stage)
    return {"job": f"j{number}", "submit_ms": 400 * number, "stages": stages}


def ends_alone(line):
    """When each job ends where room is ample: tasks of a stage go to so many workers, in order."""
    ends = {}
    for stage in line["stages"]:
        begin = max([ends[parent] for parent in stage["after"]], default=line["submit_ms"])
        workers = [begin] * min(stage.get("running_max", 10**6), len(stage["durations_ms"]))
        for lasts_ms in stage["durations_ms"]:
            first = workers.index(min(workers))
            workers[first] += lasts_ms
        ends[stage["stage"]] = max(workers)
    return max(ends.values())


def run(lines, preset, cluster=SCARCE, log=None):
    jobs = [read_workload_line(line) for line in lines]
    return simulate(jobs, read_cluster(cluster), Options({"preset": preset}, listener=log))


def seen_in(tmp_path, lines, preset):
    """What the log of a run says of what runs, after each record that tells of it."""
    exported = str(tmp_path / f"{preset}.jsonl")
    with ExportWriter(exported) as log:
        run(lines, preset, log=log)
    assert verify(open_source(exported)).difference is None
    seen = Running()
    for step in open_source(exported).steps():
        body = step.accepted.record.body
        if isinstance(body, JobAdmitted | RoundClosed | TaskFinished | TaskFailed):
            seen.note(body)
            yield body, seen


@pytest.mark.parametrize("preset", PRESETS)
def test_where_room_is_ample_a_stage_runs_as_on_so_many_workers(preset):
    for seed in (1, 2):
        lines = drawn_lines(seed)
        result = run(lines, preset, AMPLE)
        assert {row["job"]: row["end_ms"] for row in result["per_job"]} == {
            line["job"]: ends_alone(line) for line in lines
        }


class Running:
    """How many attempts of each stage are at work, by the log alone."""

    def __init__(self):
        self.stages, self.now, self.most, self.left = {}, {}, {}, {}

    def note(self, body):
        if isinstance(body, JobAdmitted):
            for stage in body.spec.stages:
                key = body.spec.job, stage.stage
                self.stages[key], self.now[key], self.most[key], self.left[key] = stage, 0, 0, stage.tasks
        elif isinstance(body, RoundClosed):
            for grant in body.grants:
                key = grant.job, grant.stage
                self.now[key] += grant.count
                self.most[key] = max(self.most[key], self.now[key])
        else:
            for fact in facts_of(body):
                if isinstance(fact, TaskEnd | TaskFailure):
                    self.now[fact.job, fact.stage] -= fact.count
                    self.left[fact.job, fact.stage] -= fact.count if isinstance(fact, TaskEnd) else 0

    def could_start(self, key):
        """Whether more of a stage might run by its limit, and its parents have ended."""
        stage = self.stages[key]
        if any(self.left[key[0], parent] for parent in stage.after):
            return False
        most = min(self.left[key], stage.running_max or stage.tasks)
        return self.now[key] < most

    def used(self):
        return sum(self.now[key] * self.stages[key].demand["cpu"] for key in self.now)


@pytest.mark.parametrize("preset", PRESETS)
def test_no_more_run_than_may_whatever_fails(tmp_path, preset):
    reached = 0
    for seed in (3, 4):
        for _, seen in seen_in(tmp_path, drawn_lines(seed, fails=True), preset):
            for key, running in seen.now.items():
                assert running <= (seen.stages[key].running_max or seen.stages[key].tasks), key
        reached += sum(most == seen.stages[key].running_max for key, most in seen.most.items())
    assert reached > 10, "limits that are never reached show nothing"


@pytest.mark.parametrize("preset", UNPLANNED)
def test_no_room_is_left_beside_a_stage_below_its_limit(tmp_path, preset):
    """Every task takes one core, so that what is free is room for any of them."""
    lines = drawn_lines(5)
    for line in lines:
        for stage in line["stages"]:
            stage["demand"] = {"cpu": "1"}
    closings = 0
    for body, seen in seen_in(tmp_path, lines, preset):
        if isinstance(body, RoundClosed):
            closings += 1
            assert seen.used() == 6_000 or not any(seen.could_start(key) for key in seen.now)
    assert closings > 10


def digests():
    return {preset: run(drawn_lines(6, fails=True), preset)["digest"] for preset in PRESETS}


def test_a_digest_is_the_same_under_any_hash_seed():
    assert digests_elsewhere(__name__) == digests()
