"""How stages and jobs end when tasks fail, against a reference that counts every task by itself and looks at all of
them after each fact.
"""

from random import Random

from largesse.lifecycle.task_facts import facts_of
from schemas import (
    JobAdmitted,
    JobEnded,
    NodeLost,
    NodeRegistered,
    RoundClosed,
    TaskEnd,
    TaskFailed,
    TaskFailure,
    TaskFinished,
)
from services.gateway import view
from services.gateway.documents.jobs import job_document
from tests.cells import SlowCell
from tests.properties.histories import TREES, Play, seeded_histories
from tests.strategies import for_all

COUNTED = ("exit_code", "timeout", "cannot_start", "memory")
LOST_MAX = 10


class SlowJob:
    """One job by the words of docs/jobs.md alone."""

    def __init__(self, spec):
        self.stages = {stage.stage: stage for stage in spec.stages}
        self.ends = {stage.stage: [""] * stage.tasks for stage in spec.stages}
        self.counted = {stage.stage: [0] * stage.tasks for stage in spec.stages}
        self.lost = {stage.stage: [0] * stage.tasks for stage in spec.stages}
        self.broken = dict.fromkeys(self.stages, 0)

    def note(self, fact, index):
        stage, ends = self.stages[fact.stage], self.ends[fact.stage]
        if stage.gang:
            self._note_gang(fact, stage, ends, index)
        elif isinstance(fact, TaskEnd):
            ends[index] = "succeeded"
        elif self._has_used_up(fact, stage, index):
            ends[index] = "failed"

    def _note_gang(self, fact, stage, ends, index):
        if fact.attempt <= self.broken[stage.stage]:
            return
        if isinstance(fact, TaskEnd):
            ends[index] = "succeeded"
            return
        self.broken[stage.stage] = fact.attempt
        end = "failed" if self._has_used_up(fact, stage, 0) else ""
        ends[:] = [end] * stage.tasks

    def _has_used_up(self, fact, stage, index):
        counted, lost = self.counted[stage.stage], self.lost[stage.stage]
        if fact.reason in COUNTED:
            counted[index], lost[index] = counted[index] + 1, 0
        elif fact.reason == "lost":
            lost[index] += 1
        return counted[index] > stage.retries or lost[index] >= LOST_MAX

    def state_of(self, name):
        stage, ends = self.stages[name], self.ends[name]
        if any(self.skips(parent) for parent in stage.after):
            return "skipped"
        beyond = ends.count("failed") > stage.max_failed
        if all(ends):
            return "failed" if beyond else "succeeded"
        return "failing" if beyond else "open"

    def skips(self, name):
        state = self.state_of(name)
        return state == "skipped" or (state in ("failed", "failing") and self.stages[name].on_failure == "continue")

    def outcome(self):
        states = {name: self.state_of(name) for name in self.stages}
        for name, state in states.items():
            if state in ("failed", "failing") and self.stages[name].on_failure == "fail":
                return "failed"
        if {*states.values()} & {"open", "failing"}:
            return None
        return "failed" if "failed" in states.values() else "succeeded"


def slow_ends(records):
    """Job -> how it ends, and the job; of all that are not cancelled before. What comes before its end is announced
    counts in its stages, and changes its outcome no more."""
    jobs, over = {}, {}
    for record in records:
        body = record.body
        if isinstance(body, JobAdmitted):
            jobs[body.spec.job] = SlowJob(body.spec)
        elif isinstance(body, TaskFinished | TaskFailed | NodeLost | NodeRegistered):
            for fact in facts_of(body):
                if not isinstance(fact, TaskEnd | TaskFailure):
                    continue
                for index in range(fact.first, fact.first + fact.count):
                    if fact.job in jobs:
                        jobs[fact.job].note(fact, index)
                        outcome = jobs[fact.job].outcome()
                        if outcome and fact.job not in over:
                            over[fact.job] = outcome, jobs[fact.job]
        elif isinstance(body, JobEnded):
            for end in body.jobs:
                del jobs[end.job]
    return over


@for_all(seeded_histories())
def test_jobs_and_their_stages_end_as_every_task_counted_by_itself_says(history):
    play = Play(SlowCell(2), sorted(TREES)[history.seed % len(TREES)])
    chance = Random(history.seed)
    for step in history.steps:
        play.step(*step)
        if chance.random() < 0.5:  # More failures than a history has by itself.
            play.step("settle")
            play.step("fail", chance.randint(0, 1_000), chance.randint(1, 3), "exit_code")
    play.wind_up()
    records = play.cell.records
    slow = slow_ends(records)
    seen = view.start()
    for record in records:
        if type(record.body) in view.FOLDS:
            view.fold(seen, record)

    ended = {end.job: end for record in records if isinstance(record.body, JobEnded) for end in record.body.jobs}
    assert {name: end.outcome for name, end in ended.items() if end.outcome != "cancelled"} == {
        name: outcome for name, (outcome, _) in slow.items() if ended[name].outcome != "cancelled"
    }
    begun = {(g.job, g.stage) for r in records if isinstance(r.body, RoundClosed) for g in r.body.grants}
    for name, (outcome, job) in slow.items():
        if ended[name].outcome == "cancelled":
            continue
        document = job_document(seen, name)
        assert document["state"] == outcome
        for stage in document["stages"]:
            state, ends, tasks = job.state_of(stage["stage"]), job.ends[stage["stage"]], stage["tasks"]
            known = {"failing": "failed", "open": "unfinished"}.get(state, state)
            assert stage["state"] == known, (name, stage)
            assert tasks["failed"] == ends.count("failed")
            assert tasks["skipped"] == (tasks["total"] if state == "skipped" else 0)
            assert tasks["succeeded"] == ends.count("succeeded")
            assert state != "skipped" or (name, stage["stage"]) not in begun
