"""Capacity that is taken back for queues below their guarantee, in small cells."""

import pytest

from largesse.log.codec import decode
from schemas import JobSpec, RoundClosed, Stage
from schemas.edge.base import Malformed
from schemas.edge.read import read_cluster
from schemas.knobs import knob_conflict, with_knobs
from schemas.policy import Policy
from services.simulator.run import Options, simulate
from services.simulator.schedule import ShortSchedule

MINUTE_MS = 60_000
NODES = {"nodes": [{"name": "n", "count": 2, "capacity": {"cpu": "4", "memory": "64Gi"}}]}
TWO = {"name": "root", "children": [{"name": "a"}, {"name": "b"}]}


def job(name, queue, tasks, cores=1, lasts_ms=10 * MINUTE_MS, *, gang=False):
    return JobSpec(
        name, queue, [Stage("s", tasks, {"cpu": cores * 1_000, "memory": 512}, [], lasts_ms, [lasts_ms], gang)]
    )


class Run:
    """A simulated cell, with what its closings took back."""

    def __init__(self, lines, *, queues=TWO, nodes=NODES, **knobs):
        self.taken = []
        self.schedule = ShortSchedule(10_000)
        knobs = {"preset": "hdrf", "preemption": "on", "preempt_rate_permille": 1_000, **knobs}
        simulate(lines, read_cluster(nodes | {"queues": queues}), Options(knobs, self.schedule, self.listen))

    def listen(self, topic, header, content):
        record = decode(content)
        if isinstance(record.body, RoundClosed):
            self.taken += [(record.time, item.job, item.count, item.claim) for item in record.body.revoked]

    def starts(self, name):
        return sorted(span.start_ms for span in self.schedule.spans if span.job == name)


LATE = [(0, job("long", "a", 8)), (MINUTE_MS, job("mine", "b", 4, lasts_ms=1_000))]


def test_a_queue_has_its_guarantee_after_the_delay_and_the_grace():
    run = Run(LATE, preempt_after_ms=30_000, revoke_grace_ms=5_000)

    ((time, name, count, claim),) = run.taken
    assert (time, name, count) == (90_000, "long", 4)
    assert (claim.queue, claim.at, claim.share) == ("b", "", 500_000_000)
    assert [(room.node, room.tasks, room.complete_ms) for room in claim.rooms] == [("n-0", 4, 95_000)]
    assert run.starts("mine") == [95_000] * 4


def test_it_is_off_by_default():
    run = Run(LATE, preemption="off")

    assert run.taken == []
    assert run.starts("mine") == [600_000] * 4


def test_young_tasks_are_left_alone():
    run = Run(LATE, preempt_after_ms=0, preempt_min_run_ms=5 * MINUTE_MS)

    assert [time for time, *_ in run.taken] == [5 * MINUTE_MS]


def test_no_more_than_the_rate_is_taken_back_within_a_window():
    lines = [(0, job("long", "a", 8)), (MINUTE_MS, job("mine", "b", 4))]
    run = Run(lines, preempt_after_ms=0, preempt_rate_permille=250, preempt_window_ms=20_000)

    assert [(time, count) for time, _, count, _ in run.taken] == [(60_001, 2), (80_001, 2)]


def test_a_gang_is_taken_back_whole_or_not_at_all():
    gang = [(0, job("gang", "a", 8, gang=True)), (MINUTE_MS, job("mine", "b", 1, lasts_ms=1_000))]

    assert Run(gang).taken == []  # Its queue would hold nothing.


def test_a_gang_claims_room_for_all_of_it():
    run = Run([(0, job("long", "a", 8)), (MINUTE_MS, job("mine", "b", 4, lasts_ms=1_000, gang=True))])

    assert sum(count for _, _, count, _ in run.taken) == 4
    assert len(set(run.starts("mine"))) == 1


def test_a_queue_at_its_max_claims_nothing_beyond_it():
    queues = {"name": "root", "children": [{"name": "a"}, {"name": "b", "max": {"cpu": "2"}}]}
    run = Run(LATE, queues=queues)

    assert sum(count for _, _, count, _ in run.taken) == 2


def test_the_least_work_is_lost():
    lines = [(0, job("old", "a", 4)), (20_000, job("young", "a", 4)), (MINUTE_MS, job("mine", "b", 4))]
    run = Run(lines)

    assert {name for _, name, *_ in run.taken} == {"young"}


def test_a_record_says_at_which_level_both_meet():
    queues = {"name": "root", "children": [{"name": "p", "children": [{"name": "a"}, {"name": "b"}]}, {"name": "c"}]}
    lines = [(0, job("long", "p/a", 4)), (0, job("other", "c", 4)), (MINUTE_MS, job("mine", "p/b", 2))]
    run = Run(lines, queues=queues)

    assert [(name, count, claim.queue, claim.at) for _, name, count, claim in run.taken] == [("long", 2, "p/b", "p")]


def test_a_task_that_is_taken_back_loses_no_try():
    run = Run(
        [(0, job("long", "a", 8)), *((m * MINUTE_MS, job(f"m{m}", "b", 4, lasts_ms=1_000)) for m in (2, 4, 6, 8))],
        preempt_after_ms=MINUTE_MS,
    )

    ended = [span.outcome for span in run.schedule.spans if span.job == "long"]
    assert (ended.count("succeeded"), ended.count("failed")) == (8, 0)
    assert ended.count("revoked") >= 8


@pytest.mark.parametrize("preset", ["fifo"])
def test_a_preset_without_guarantees_refuses_it(preset):
    policy = with_knobs(Policy(), {"preset": preset, "preemption": "on"})

    knob, text = knob_conflict(policy, ["preemption"])

    assert knob == "preemption"
    assert "under the preset fifo no queue is guaranteed anything" in text


@pytest.mark.parametrize("knob", [{"preemption": "yes"}, {"preempt_rate_permille": 1_001}, {"preempt_window_ms": 0}])
def test_a_knob_out_of_range_is_refused_by_name(knob):
    with pytest.raises(Malformed, match=next(iter(knob))):
        read_cluster(NODES | {"policy": knob})
