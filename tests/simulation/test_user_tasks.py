"""Users of whom only so many tasks run at a time in a queue, under every preset: by the log, beside work that is not
limited. The same digest under any hash seed, and a log that replays.
"""

import random
from typing import get_args

import pytest

from largesse.lifecycle.task_facts import facts_of
from largesse.log.export import ExportWriter
from schemas import ConfigChanged, JobAdmitted, JobEnded, RoundClosed, TaskEnd, TaskFailed, TaskFailure, TaskFinished
from schemas.edge.read import read_cluster, read_workload_line
from schemas.presets import Preset
from schemas.queue_tree import upwards, walk
from services.replay.source import open_source
from services.replay.verify import verify
from services.simulator.run import Options, simulate
from tests.simulation.runs import digests_elsewhere, drawn_stages

PRESETS = get_args(Preset)
QUEUES = {
    "name": "root",
    "user_running_max": 9,
    "children": [
        {"name": "a", "user_running_max": 3},
        {"name": "in", "user_running_max": 5, "children": [{"name": "b"}, {"name": "c", "user_running_max": 2}]},
    ],
}
CLUSTER = {"queues": QUEUES, "nodes": [{"name": "n", "count": 4, "capacity": {"cpu": "4"}}]}
UNPLANNED = ("drf", "hdrf", "fifo")
"""Presets that start whatever fits, whoever it is of."""


def drawn_lines(seed, count=10, *, even=False):
    dice = random.Random(seed)
    return [_line(dice, number, even) for number in range(count)]


def _line(dice, number, even):
    stages = []
    for stage in drawn_stages(dice, 3, 9, ["1"] if even else ["500m", "1", "2"]):
        stages.append(stage)
        if even:
            continue
        if len(stage["durations_ms"]) <= 2:
            stage |= {"gang": True}
        elif dice.random() < 0.3:
            stage |= {"timeout_ms": 1_600, "retries": 1, "on_failure": "continue"}
    queue, user = dice.choice(["a", "in/b", "in/c", "default"]), dice.choice(["ann", "bob", ""])
    line = {"job": f"j{number}", "submit_ms": 300 * number, "queue": queue, "stages": stages}
    return line | ({"user": user} if user else {})


def run(lines, preset, log=None):
    jobs = [read_workload_line(line) for line in lines]
    return simulate(jobs, read_cluster(CLUSTER), Options({"preset": preset}, listener=log))


class Running:
    """How many attempts of each user are at work by queue, by the log alone."""

    def __init__(self):
        self.limits, self.specs, self.now, self.left, self.stages, self.ended = {}, {}, {}, {}, {}, set()

    def note(self, body):
        if isinstance(body, ConfigChanged):
            if body.queues is not None:
                self.limits = {
                    path: each.user_running_max for path, each in walk(body.queues) if each.user_running_max is not None
                }
        elif isinstance(body, JobAdmitted):
            self.specs[body.spec.job] = body.spec
            for stage in body.spec.stages:
                self.left[body.spec.job, stage.stage] = stage.tasks
                self.stages[body.spec.job, stage.stage] = 0
        elif isinstance(body, JobEnded):
            self.ended |= {end.job for end in body.jobs}
        elif isinstance(body, RoundClosed):
            for grant in body.grants:
                self._count(grant, grant.count)
        else:
            for fact in facts_of(body):
                if isinstance(fact, TaskEnd | TaskFailure):
                    self._count(fact, -fact.count)
                    self.left[fact.job, fact.stage] -= fact.count if isinstance(fact, TaskEnd) else 0

    def _count(self, what, count):
        spec = self.specs[what.job]
        self.stages[what.job, what.stage] += count
        for path in upwards(spec.queue):
            self.now[path, spec.user] = self.now.get((path, spec.user), 0) + count

    def places(self, spec):
        return min(self.limits[path] - self.now.get((path, spec.user), 0)
                   for path in upwards(spec.queue) if path in self.limits)  # fmt: skip

    def could_start(self, spec, stage):
        """Whether another task of a stage may start: its parents have ended, some wait, and its user has a place."""
        waits = self.left[spec.job, stage.stage] > self.stages[spec.job, stage.stage]
        ready = not any(self.left[spec.job, parent] for parent in stage.after)
        return waits and ready and self.places(spec) > 0


def seen_in(tmp_path, lines, preset):
    """What the log of a run says of what runs, after each record that tells of it."""
    exported = str(tmp_path / f"{preset}.jsonl")
    with ExportWriter(exported) as log:
        run(lines, preset, log=log)
    assert verify(open_source(exported)).difference is None
    seen = Running()
    for step in open_source(exported).steps():
        body = step.accepted.record.body
        if isinstance(body, ConfigChanged | JobAdmitted | JobEnded | RoundClosed | TaskFinished | TaskFailed):
            seen.note(body)
            yield body, seen


@pytest.mark.parametrize("preset", PRESETS)
def test_no_more_of_a_user_run_than_may_and_every_job_ends(tmp_path, preset):
    reached = 0
    for _, seen in seen_in(tmp_path, drawn_lines(3), preset):
        for (path, user), running in seen.now.items():
            most = seen.limits.get(path)
            assert most is None or running <= most, (path, user)
            reached += running == most
    assert reached > 30, "limits that are never reached show nothing"
    assert not any(seen.stages.values())
    assert seen.ended == {*seen.specs}


@pytest.mark.parametrize("preset", UNPLANNED)
def test_no_room_is_left_beside_a_user_below_its_limits(tmp_path, preset):
    """Every task takes one core, so that what is free is room for any of them."""
    closings = 0
    for body, seen in seen_in(tmp_path, drawn_lines(5, even=True), preset):
        if isinstance(body, RoundClosed):
            closings += 1
            assert sum(seen.stages.values()) == 16 or not any(
                seen.could_start(spec, stage) for spec in seen.specs.values() for stage in spec.stages
            )
    assert closings > 10


def digests():
    return {preset: run(drawn_lines(6), preset)["digest"] for preset in PRESETS}


def test_a_digest_is_the_same_under_any_hash_seed():
    assert digests_elsewhere(__name__) == digests()
