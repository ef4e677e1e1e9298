"""Tasks of recurring jobs that count for less than they ask for, in any history: as a plain reading of the log says,
and decided the same by every twin and in every replay.

Histories are as elsewhere, but of a few jobs that come again and again, and most attempts are measured.
"""

from collections import defaultdict
from dataclasses import replace

from largesse.lifecycle.run_times import recurring_name
from largesse.lifecycle.task_facts import facts_of
from largesse.log.codec import encode
from schemas import JobAdmitted, JobEnded, JobSpec, NodeRegistered, TaskEnd, TaskFinished
from tests.cells import SlowCell
from tests.properties.histories import USERS, Play, Seeded, seeded_histories
from tests.properties.test_cores import (
    SHARDS,
    a_restart_at_any_point_changes_no_byte,
    caches_change_cost_and_never_bytes,
    every_job_ends_and_leaves_nothing_behind,
    room_is_never_given_twice_and_work_never_waits_beside_it,
    the_count_of_shards_changes_no_grant,
)
from tests.properties.test_replay import verdict_of
from tests.strategies import for_all

CPU = (*[1_000] * 15, 2_000)
PEAKS = (*(1, 300, 399, 400, 401, 402, 450, 550, 640, 700, 799) * 4, 5_000)


class Recurring(Play):
    """Runs of a few jobs that ask mostly for the same. One attempt of thirty is not measured."""

    def _submit(self, stages, at, priority):
        self.submitted += 1
        cpu = CPU[at // 3 % len(CPU)]
        runs = [replace(each, demand={**each.demand, "cpu": cpu}, tasks=1 + at % 2, gang=False) for each in stages[:1]]
        name, user = f"{'rrrq'[at % 4]}-{self.submitted}", USERS[at % 16 == 5]
        spec = JobSpec(name, ("a", "b", "c")[at % 3], runs, priority, user=user)
        self.specs[name] = spec
        self.call("take", spec)

    def _finish(self, which, count):
        ends = []
        for number, each in enumerate(self._holds(which, count), which):
            cpu = {"cpu": PEAKS[number % len(PEAKS)]} if number % 30 else {}
            ends.append(TaskEnd(*self._range(*each), [10], {"memory": 64, **cpu}))
        if ends:
            self._tell(TaskFinished(ends))


def played(history):
    play = Recurring(SlowCell(SHARDS), "wide", demands="history")
    for number, step in enumerate(history.steps):
        if step[0] not in ("fail", "cancel") or number % 4 == 0:  # Else few runs would succeed.
            play.step(*step)
    play.wind_up()
    return play


def plainly_counted(records):
    """By admission, in order: what tasks of each stage count for, read off the log before it."""
    found, runs, live = [], defaultdict(list), {}
    for record in records:
        match record.body:
            case JobAdmitted(spec):
                found.append({})
                for each in spec.stages:
                    asked, last = each.demand["cpu"], runs[recurring_name(spec.job), each.stage, spec.user]
                    alike = list(last)
                    for at, (before, _) in enumerate(last):
                        if before != asked:
                            alike = last[at + 1 :]
                    largest = max([peak for _, peak in alike[-10:]], default=0)
                    counts = min(asked, max(-(-largest * 5 // 4), -(-asked // 2)))
                    if len(alike) >= 3 and counts < asked:
                        found[-1][each.stage] = counts, min(len(alike), 10), largest
                live[spec.job] = spec, defaultdict(list)
            case TaskFinished() | NodeRegistered():
                for fact in facts_of(record.body):
                    if isinstance(fact, TaskEnd) and fact.job in live:
                        live[fact.job][1][fact.stage] += [fact.peak.get("cpu", 0)] * fact.count
            case JobEnded(jobs):
                for end in jobs:
                    spec, peaks = live.pop(end.job)
                    for each in spec.stages if end.outcome == "succeeded" else ():
                        if len(peaks[each.stage]) == each.tasks and all(peaks[each.stage]):
                            run = each.demand["cpu"], max(peaks[each.stage])
                            runs[recurring_name(spec.job), each.stage, spec.user].append(run)
    return found


def counted_in(records):
    return [
        {each.stage: (each.demand["cpu"], each.runs, each.peak["cpu"]) for each in record.body.counted}
        for record in records
        if isinstance(record.body, JobAdmitted)
    ]


def tasks_count_for_what_the_log_says(records):
    assert counted_in(records) == plainly_counted(records)
    for record in records:
        if isinstance(body := record.body, JobAdmitted):
            asked = {each.stage: each.demand["cpu"] for each in body.spec.stages}
            for each in body.counted:
                assert asked[each.stage] <= 2 * each.demand["cpu"] < 2 * asked[each.stage]
                assert list(each.demand) == ["cpu"]


def a_replay_decides_the_same(cell):
    answers = {record.id: content for record, content in zip(cell.decided, cell.decisions, strict=True)}
    verdict = verdict_of([encode(record) for record in cell.records], answers)
    assert verdict.is_same, verdict.text()


@for_all(seeded_histories(120))
def test_every_law_holds_where_tasks_count_for_less(history):
    play = played(history)
    tasks_count_for_what_the_log_says(play.cell.records)
    every_job_ends_and_leaves_nothing_behind(play.cell)
    assert not play.cell.admission.peaks
    a_replay_decides_the_same(play.cell)
    caches_change_cost_and_never_bytes(play)
    a_restart_at_any_point_changes_no_byte(play, history.seed)
    room_is_never_given_twice_and_work_never_waits_beside_it(play)
    the_count_of_shards_changes_no_grant(play)


def test_histories_have_tasks_that_count_for_less():
    """Else the laws would hold of nothing."""
    found = [each for seed in range(12) for each in counted_in(played(Seeded.of(seed, 120)).cell.records) if each]

    assert len(found) > 10
