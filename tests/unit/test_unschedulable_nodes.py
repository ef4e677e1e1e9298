"""A node whose agent takes no new tasks: nothing new is placed there, what runs runs on, and why is shown."""

from dataclasses import replace

import pytest

from schemas import Grant, InputRefused, NodeReported
from schemas.edge.nodes import UNSCHEDULABLE_MAX, read_node
from schemas.edge.read import Malformed
from services.cli.getting import node_row
from services.gateway.documents.cell import counts
from services.gateway.documents.nodes import node_document
from tests.builders import job, node, report, stage
from tests.cells import SlowCell, holds_of
from tests.gateway_watch import Watched
from tests.unit.test_gateway_draining import waiting, why

FULL = "its disk is full"


def two_nodes():
    cell = SlowCell()
    cell.take(node("n1", cpu=2_000), node("n2", cpu=2_000))
    return cell


def unschedulable(name, reason=FULL, cpu=2_000):
    return replace(report(name, cpu=cpu), unschedulable=reason)


def places(cell):
    return [(grant.job, grant.node, grant.count) for grant in cell.granted]


def test_nothing_new_is_placed_on_a_node_that_is_unschedulable():
    cell = two_nodes()
    cell.take(unschedulable("n1"), job("j", stage(tasks=4)))
    cell.settle()
    assert places(cell) == [("j", "n2", 2)]


def test_a_node_that_was_unschedulable_is_filled_once_it_is_not():
    cell = two_nodes()
    cell.take(unschedulable("n1"), unschedulable("n2"), job("j", stage(tasks=4)))
    cell.settle()
    assert places(cell) == []

    cell.take(unschedulable("n1", ""))
    cell.settle()
    assert places(cell) == [("j", "n1", 2)]


def test_what_runs_on_a_node_runs_on_while_it_is_unschedulable():
    cell = two_nodes()
    cell.take(job("j", stage(tasks=4)))
    cell.settle()
    cell.take(unschedulable("n1"))
    cell.settle()
    assert len(holds_of(cell.admission)) == 4


def test_a_node_that_registers_as_unschedulable_gets_nothing():
    cell = SlowCell()
    cell.take(replace(node("n1"), unschedulable=FULL), job("j"))
    assert cell.settle() == []


def test_a_grant_that_the_report_overtook_is_struck():
    cell = two_nodes()
    cell.take(job("j", stage(tasks=4)))
    assert cell.open()
    cell.take(unschedulable("n1"))
    cell.settle()
    struck = [(struck.grant.node, struck.reason) for struck in cell.struck]
    assert struck == [("n1", "node_draining")]
    assert places(cell) == [("j", "n2", 2)]


def test_a_report_that_changes_only_this_is_a_change_and_the_same_again_is_none():
    cell = two_nodes()
    assert isinstance(cell.take(unschedulable("n1")), NodeReported)
    assert cell.take(unschedulable("n1")) is None
    assert isinstance(cell.take(unschedulable("n1", "")), NodeReported)
    assert cell.take(report("n1", cpu=2_000)) is None


def test_a_registration_repeated_with_another_reason_counts_as_a_report():
    cell = SlowCell()
    cell.take(node("n1"))
    assert cell.take(replace(node("n1"), unschedulable=FULL)).unschedulable == FULL


def test_a_reason_has_a_limit():
    document = {"report": {"node": "n", "epoch": "e", "capacity": {"cpu": 1}, "unschedulable": "x" * UNSCHEDULABLE_MAX}}
    assert read_node(document, "a").unschedulable == "x" * UNSCHEDULABLE_MAX
    document["report"]["unschedulable"] += "x"
    with pytest.raises(Malformed) as refused:
        read_node(document, "a")
    assert refused.value.field == "report.unschedulable"


# ---------------------------------------------------------------- what is shown
def test_a_node_that_is_unschedulable_is_shown_so_with_its_reason():
    cell = Watched(nodes=2)
    cell.take(replace(report("n0"), unschedulable=FULL))
    shown = node_document(cell.view, "n0")
    assert (shown["state"], shown["unschedulable"]) == ("unschedulable", FULL)
    assert counts(cell.view)[1] == {"unschedulable": 1, "ready": 1}


def test_the_table_of_nodes_says_why_a_node_takes_no_new_tasks():
    cell = Watched(nodes=1)
    cell.take(replace(report("n0"), unschedulable=FULL))
    assert node_row(node_document(cell.view, "n0"))[3].endswith(f"; takes no new tasks: {FULL}")


def test_a_job_that_waits_for_unschedulable_nodes_is_told_why():
    cell = Watched(nodes=1)
    cell.take(replace(report("n0"), unschedulable=FULL))
    assert why(waiting(cell))[1] == f"n0 could run it, but takes no new tasks now: {FULL}"


# ---------------------------------------------------------------- registrations in several messages
def attempts_of(cell, name="n1"):
    return [
        {"job": g.job, "stage": g.stage, "first": g.first, "count": g.count, "attempt": g.attempt, "state": "running"}
        for g in cell.granted
        if g.node == name
    ]


def known(part, attempts, epoch="e2", name="n1"):
    return read_node({"known": {"node": name, "epoch": epoch, "part": part, "attempts": attempts}}, "agent")


def registration(parts, attempts=(), epoch="e2", name="n1"):
    said = {"node": name, "epoch": epoch, "capacity": {"cpu": "4"}, "attempts": list(attempts), "parts": parts}
    return read_node({"register": said}, "agent")


def four_jobs():
    cell = SlowCell()
    cell.take(node("n1"), job("a"), job("b"), job("c"), job("d"))
    cell.settle()
    return cell, attempts_of(cell)


def test_a_registration_takes_in_what_earlier_messages_named():
    cell, (a, b, c, d) = four_jobs()
    cell.take(known(0, [a]), known(1, [b, c]))
    registered = cell.take(registration(2, [d]))
    assert [attempt.job for attempt in registered.attempts] == ["a", "b", "c", "d"]
    assert registered.lost == []
    assert {hold.epoch for hold in holds_of(cell.admission).values()} == {"e2"}
    assert cell.admission.known == {}


def test_what_no_message_named_is_lost():
    cell, (a, b, c, _) = four_jobs()
    cell.take(known(0, [a]), known(1, [b]))
    registered = cell.take(registration(2, [c]))
    assert [lost.job for lost in registered.lost] == ["d"]


def test_nothing_is_lost_by_a_registration_that_misses_a_message():
    cell, (a, b, c, d) = four_jobs()
    cell.take(known(0, [a]))
    refused = cell.take(registration(2, [c, d]))
    assert isinstance(refused, InputRefused)
    assert (refused.field, refused.reason.split(";")[0]) == (
        "register.parts",
        "1 of the 2 messages that name attempts before it have come",
    )
    assert {hold.epoch for hold in holds_of(cell.admission).values()} == {"e1"}

    cell.take(known(0, [a]), known(1, [b]))
    assert cell.take(registration(2, [c, d])).lost == []


def test_a_message_out_of_turn_is_refused_and_part_0_begins_anew():
    cell, (a, b, c, d) = four_jobs()
    assert isinstance(cell.take(known(1, [b])), InputRefused)
    cell.take(known(0, [a]), known(1, [b]))
    assert isinstance(cell.take(known(1, [b])), InputRefused)
    cell.take(known(0, [a, b]), known(1, [c]))
    assert cell.take(registration(2, [d])).lost == []


def test_what_another_epoch_named_does_not_count():
    cell, (a, b, c, d) = four_jobs()
    cell.take(known(0, [a, b, c, d], epoch="e2"))
    assert isinstance(cell.take(registration(1, epoch="e3")), InputRefused)
    cell.take(known(0, [a], epoch="e3"))
    assert isinstance(cell.take(registration(1, [b, c, d], epoch="e2")), InputRefused)


def test_of_what_an_agent_names_only_what_its_node_holds_is_kept():
    cell, (a, *_) = four_jobs()
    foreign = {**a, "job": "never"}
    assert [attempt.job for attempt in cell.take(known(0, [foreign, a, {**a, "attempt": 7}])).attempts] == ["a"]


def test_attempts_named_again_and_again_are_refused_not_kept():
    cell, attempts = four_jobs()
    cell.take(known(0, attempts))
    refused = cell.take(known(1, attempts))
    assert refused.reason.startswith("names 8 attempts, but 4 are held there")
    assert len(cell.admission.known["n1"].attempts) == 4


def test_a_node_that_is_lost_or_was_never_there_has_nothing_to_be_known():
    cell, (a, *_) = four_jobs()
    assert cell.take(known(0, [a], name="never")) is None
    cell.take(known(0, [a]))
    cell.lose("n1")
    assert cell.admission.known == {}
    assert cell.take(known(1, [a])) is None
    assert cell.take(registration(2, [a])).attempts == []


def test_a_late_message_of_the_epoch_in_force_changes_nothing():
    cell, (a, *_) = four_jobs()
    assert cell.take(known(0, [a], epoch="e1")) is None


def test_a_snapshot_between_the_messages_loses_none_of_them():
    cell, (a, b, c, d) = four_jobs()
    cell.take(known(0, [a, b]))
    cell.restore()
    assert cell.take(registration(1, [c, d])).lost == []
    assert len(cell.granted) == 4
    assert all(isinstance(grant, Grant) for grant in cell.granted)


@pytest.mark.slow
@pytest.mark.parametrize("tasks", [4_000, 20_000])
def test_thousands_of_attempts_on_one_node_outlive_a_restart_of_its_agent(tasks):
    cell = SlowCell()
    cell.take(node("n1", cpu=1_000 * tasks, memory=1_024 * tasks), job("j", stage(tasks=tasks)))
    cell.settle()
    each = {"job": "j", "stage": "map", "count": 1, "attempt": 1, "state": "running"}
    singles = [{**each, "first": index} for index in range(tasks)]
    step = 1_900
    parts = [singles[at : at + step] for at in range(0, tasks, step)]
    for number, part in enumerate(parts):
        cell.take(known(number, part))
    registered = cell.take(registration(len(parts)))
    assert registered.lost == []
    assert sum(attempt.count for attempt in registered.attempts) == tasks
    assert {hold.epoch for hold in holds_of(cell.admission).values()} == {"e2"}
