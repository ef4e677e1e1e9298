"""What admission does with nodes that come, go, are lost, forgotten or drained, and with what they bring back."""

from dataclasses import replace

import pytest

from schemas import (
    Device,
    InputRefused,
    JobAdmitted,
    NodeDrained,
    NodeForgotten,
    NodeLost,
    NodeRegistered,
    NodeReported,
    TaskFinished,
)
from schemas.edge.nodes import NodeLeft
from services.admission.core.rounds import due
from tests.builders import EPOCH, config, job, known, node, report, single, stage
from tests.cells import AUTHOR, SlowCell, holds_of, one_node_cell, running_cell
from tests.unit.test_admission import DAY_MS


def test_a_node_says_its_state_and_only_what_changed_is_a_record():
    story = one_node_cell()

    assert story.take(node("n1")) is None
    assert story.take(report("n1")) is None
    assert isinstance(story.take(report("n1", cpu=2_000)), NodeReported)
    assert isinstance(story.take(report("n1", cpu=2_000, labels={"zone": "a"})), NodeReported)
    assert story.take(report("n1", cpu=2_000, labels={"zone": "a"})) is None


def test_devices_that_a_report_lists_no_more_are_a_change():
    story = one_node_cell(node("g", gpus=(500, 500)))

    assert story.take(report("g", devices=(Device(0, 500), Device(1, 500)), gpu=1_000)) is None
    assert isinstance(story.take(report("g", gpu=1_000)), NodeReported)
    assert story.admission.nodes["g"].devices_free == {"0": 1_000}


@pytest.mark.parametrize("message", [report("n9"), report("n1", epoch="e0")], ids=["unknown node", "another epoch"])
def test_a_report_without_a_registration_is_refused(message):
    assert "register it" in one_node_cell().take(message).reason


def test_a_lost_node_reports_in_vain_until_it_registers():
    story = one_node_cell()
    story.lose()

    assert isinstance(story.take(report("n1")), InputRefused)
    assert isinstance(story.take(node("n1")), NodeRegistered)
    assert story.take(report("n1")) is None


def test_what_a_lost_node_held_is_asked_again_and_its_late_word_changes_nothing():
    story = running_cell(job("j", stage(tasks=2)))
    first = story.granted[0]
    lost = story.lose()

    assert [(r.first, r.attempt, r.node) for r in lost.lost] == [(0, 1, "n1"), (1, 1, "n1")]
    assert story.lose() is None
    assert story.settle() == []
    assert story.finish(first) is None

    story.take(node("n2"))
    assert [(grant.node, grant.attempt, grant.count) for grant in story.settle()] == [("n2", 2, 2)]


def test_an_agent_that_goes_gives_back_what_it_held_at_once():
    story = running_cell(job("j", stage(tasks=2)))

    gone = story.take(NodeLeft("n1", EPOCH))

    assert isinstance(gone, NodeLost)
    assert (gone.node, gone.epoch, gone.left) == ("n1", EPOCH, True)
    assert [(r.first, r.attempt) for r in gone.lost] == [(0, 1), (1, 1)]
    assert story.take(NodeLeft("n1", EPOCH)) is None
    story.take(node("n2"))
    assert [(grant.node, grant.attempt, grant.count) for grant in story.settle()] == [("n2", 2, 2)]


@pytest.mark.parametrize("word", [NodeLeft("n1", "e0"), NodeLeft("n9", EPOCH)], ids=["an older epoch", "a stranger"])
def test_only_the_agent_in_charge_can_say_that_its_node_goes(word):
    story = running_cell(job("j"))

    assert story.take(word) is None
    assert not story.admission.nodes["n1"].lost


def forget_until(story, time):
    """What is due by then; returns the names that were forgotten."""
    story.at(time).settle()
    return [body.node for body in story.bodies(NodeForgotten)]


def test_a_node_that_does_not_come_back_is_forgotten_after_a_day_with_the_jobs_that_only_it_could_run():
    story = one_node_cell(node("big", cpu=64_000))
    story.at(7).lose("big")
    story.settle()
    assert story.next_ms() == 7 + DAY_MS
    assert isinstance(story.take(job("early", stage(cpu=64_000))), JobAdmitted)

    assert forget_until(story, 6 + DAY_MS) == []
    assert forget_until(story, 7 + DAY_MS) == ["big"]
    assert story.take(job("late", stage(cpu=64_000))).reason == "exceeds_capacity"
    assert isinstance(story.take(report("big")), InputRefused)
    story.take(node("big", cpu=64_000, epoch="e2"))
    assert [(grant.job, grant.node) for grant in story.settle()] == [("early", "big")]


def test_nodes_are_forgotten_in_the_order_in_which_they_were_lost_and_not_those_that_came_back():
    story = one_node_cell(config(node_kept_ms=1_000), node("n2"), node("n3"))
    for time, name in ((1, "n2"), (2, "n1"), (3, "n3")):
        story.at(time).lose(name)
    story.take(node("n1", epoch="e2"))

    assert forget_until(story, 1_002) == ["n2"]
    assert forget_until(story, 5_000) == ["n2", "n3"]
    assert list(story.admission.nodes) == ["n1"]


def test_a_drain_is_remembered_until_somebody_takes_it_back():
    story = one_node_cell(config(node_kept_ms=1_000), node("n2"))
    story.drain("n1")
    story.lose("n1")
    story.lose("n2")

    assert forget_until(story, 5_000) == ["n2"]
    assert story.next_ms() is None
    story.resume("n1")
    assert forget_until(story, 5_000) == ["n2", "n1"]


def test_nobody_is_forgotten_while_a_round_is_open():
    story = one_node_cell(config(node_kept_ms=0), job("j"))
    story.open()
    story.lose()

    assert due(story.admission, DAY_MS, b"") is None
    assert [struck.reason for struck in story.close().struck] == ["node_lost"]
    story.settle()
    assert story.bodies(NodeForgotten) == [NodeForgotten("n1")]


def test_a_node_that_comes_back_finds_its_attempts_over():
    story = running_cell(job("j"))
    story.lose()

    story.take(node("n1", epoch="e2", attempts=[known(story.granted[0])]))

    assert story.bodies(NodeRegistered)[-1].attempts == []
    assert [(grant.epoch, grant.attempt) for grant in story.settle()] == [("e2", 2)]


def test_a_restarted_agent_keeps_what_it_knows_and_loses_the_rest():
    story = running_cell(job("j", stage(tasks=4, retries=1)))
    grant = story.granted[0]
    attempts = [
        known(single(grant, 0)),
        known(single(grant, 1), "succeeded"),
        known(single(grant, 2), "failed", reason="exit_code", exit_code=3),
    ]

    body = story.take(node("n1", epoch="e2", attempts=attempts))

    assert [r.first for r in body.lost] == [3]
    assert list(holds_of(story.admission)) == ["j/map/0"]
    assert [(g.first, g.attempt, g.epoch) for g in story.settle()] == [(3, 2, "e2")]  # The failed one backs off.
    assert isinstance(story.finish(single(grant, 0)), InputRefused)
    assert isinstance(story.finish(replace(single(grant, 0), epoch="e2")), TaskFinished)


def test_an_attempt_that_was_adopted_has_started():
    story = running_cell(job("j"))
    story.take(node("n1", epoch="e2", attempts=[known(story.granted[0])]))
    assert story.start(replace(story.granted[0], epoch="e2")) is None


def test_what_a_restarted_agent_tells_twice_counts_once():
    story = running_cell(job("j", stage(tasks=2)))
    grant = story.granted[0]

    body = story.take(node("n1", epoch="e2", attempts=[known(grant), known(single(grant, 0), "succeeded")]))

    assert [(a.first, a.count, a.state) for a in body.attempts] == [(0, 2, "running")]
    assert body.lost == []


def test_an_agent_cannot_keep_what_it_was_never_given():
    story = running_cell(job("j"), job("k"))
    mine, theirs = story.granted
    story.take(node("n2"))
    made_up = [known(replace(mine, attempt=2)), known(replace(mine, job="x")), known(replace(mine, node="n2"))]

    assert story.take(node("n2", epoch="e2", attempts=made_up)).attempts == []
    reported = [known(mine, run_ms=[1, 2, 3]), known(replace(theirs, attempt=2))]
    body = story.take(node("n1", epoch="e2", attempts=reported))
    assert [a.job for a in body.attempts] == ["j"]
    assert [r.job for r in body.lost] == [theirs.job]


def test_a_report_leaves_to_attempts_the_devices_that_they_hold():
    story = SlowCell()
    story.take(node("g", gpus=(1_000, 1_000)), job("j", stage(gpu=1_400)))
    assert [grant.job for grant in story.settle()] == ["j"]

    story.take(report("g", devices=(Device(0, 1_000), Device(1, 1_000)), gpu=2_000, labels={"zone": "a"}))

    assert story.admission.nodes["g"].devices_free == {"0": 0, "1": 600}


def test_the_room_of_adopted_attempts_stays_taken_and_their_devices_too():
    story = SlowCell()
    story.take(node("g", gpus=(1_000, 1_000)), job("j", stage(gpu=1_400)), job("k", stage(gpu=700)))
    first = story.settle()
    assert [grant.job for grant in first] == ["j"]

    story.take(node("g", gpus=(1_000, 1_000, 1_000), epoch="e2", attempts=[known(first[0])]))

    assert story.admission.nodes["g"].devices_free == {"0": 0, "1": 600, "2": 1_000}
    assert [[(s.index, s.milli) for s in grant.devices[0]] for grant in story.settle()] == [[(2, 700)]]
    story.finish(replace(first[0], epoch="e2"))
    assert story.admission.nodes["g"].devices_free == {"0": 1_000, "1": 1_000, "2": 300}


def test_a_device_that_vanishes_under_a_task_comes_back_empty():
    story = SlowCell()
    story.take(node("g", gpus=(1_000, 1_000)), job("j", stage(gpu=2_000)))
    grant = story.settle()[0]

    story.take(report("g", gpu=1_000, devices=[Device(1, 1_000)]))
    story.take(job("k", stage(gpu=500)))
    assert story.settle() == []

    story.finish(grant)
    assert [[s.index for s in g.devices[0]] for g in story.settle()] == [[1]]


def test_a_draining_node_gets_nothing_new_and_runs_on():
    story = running_cell(job("j"))
    story.drain()
    story.take(job("k"))

    assert story.drain() is None
    assert story.settle() == []
    assert isinstance(story.finish(story.granted[0]), TaskFinished)
    story.resume()
    assert [grant.job for grant in story.settle()] == ["k"]
    assert isinstance(story.drain("n9"), InputRefused)


def test_a_drain_outlives_the_agent():
    story = one_node_cell(job("j"))
    story.drain()
    story.take(node("n1", epoch="e2"))
    assert story.settle() == []

    story.lose()
    story.take(node("n1", epoch="e3"))
    assert story.settle() == []
    assert story.take(NodeDrained("n1", False, AUTHOR)) is not None
    assert len(story.settle()) == 1


def test_capacity_may_shrink_below_what_runs():
    story = running_cell(job("j", stage(tasks=4)))
    story.take(report("n1", cpu=1_500))
    story.take(job("k"))

    assert story.settle() == []
    story.finish(single(story.granted[0], 0), single(story.granted[0], 1), single(story.granted[0], 2))
    assert story.settle() == []
    story.finish(single(story.granted[0], 3))
    assert [grant.job for grant in story.settle()] == ["k"]
