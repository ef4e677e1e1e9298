"""Why a job waits where nodes drain: those that could take it are named, and no others."""

import pytest

from schemas import Breach, Device, NodeDrained, NodeRegistered, Queue, Stage
from schemas.edge.nodes import NodeLeft
from services.gateway.documents.queueing import NODES_SHOWN_MAX
from services.gateway.documents.queues import broken_guarantees
from tests.builders import node
from tests.gateway_watch import Watched, stage


def drained(cell, *names, draining=True):
    for name in names:
        cell.take(NodeDrained(name, draining, "ann"))
    return cell.settle()


def why(cell, name="j"):
    (reason,) = cell.job(name)["stages"][0]["why"]
    return reason["reason"], reason["text"]


def waiting(cell, **asked):
    """A job that asks for so much, once the round that looked at it is over."""
    return cell.submit("j", Stage("s", **({"tasks": 1, "demand": {"cpu": 1_000}} | asked))).settle()


NOBODY = ("no_node", "no available node could run it")


def test_a_job_that_waits_for_draining_nodes_says_so_until_they_resume():
    cell = waiting(drained(Watched(nodes=2), "n0", "n1"), tasks=2)
    assert why(cell) == ("no_node", "n0, n1 could run it, but drain")
    assert cell.job("j")["why"] == "n0, n1 could run it, but drain"

    cell.take(NodeLeft("n0", "e1")).settle()
    assert why(cell) == ("no_node", "n1 could run it, but drains")
    cell.take(NodeLeft("n1", "e1")).settle()
    assert why(cell) == NOBODY


def test_nodes_that_drain_are_named_in_their_order_and_not_in_that_in_which_they_came():
    cell = Watched(nodes=2)
    cell.take(node("a"))

    assert why(waiting(drained(cell, "n0", "n1", "a"), tasks=2)) == ("no_node", "a, n0, n1 could run it, but drain")


def test_nodes_that_drain_say_nothing_of_a_job_that_waits_for_room():
    cell = drained(Watched(nodes=2, cpu=1), "n0")
    cell.submit("first", stage()).settle()

    assert why(waiting(cell))[0] == "no_room"


def test_a_gang_that_waits_for_draining_nodes_says_so_until_they_resume():
    cell = waiting(drained(Watched(nodes=3, cpu=2), "n0", "n1"), tasks=5, gang=True)
    explanation = "all tasks of the gang (5) fit only with n0, n1, which drain"
    assert why(cell) == ("no_node", explanation)

    drained(cell, "n0", draining=False)
    assert why(cell) == ("no_node", explanation.replace("n0, n1, which drain", "n1, which drains"))
    drained(cell, "n1", draining=False)
    assert cell.tasks("j") == {"starting": 5}


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param({"tasks": 4}, id="it fits where nodes do not drain, once they are free"),
        pytest.param({"tasks": 5, "labels": {"zone": "a"}}, id="those that drain could not take it"),
    ],
)
def test_nodes_that_drain_say_nothing_of_a_gang_that_they_do_not_keep_waiting(asked):
    cell = drained(Watched(nodes=2, cpu=4), "n1").take(NodeRegistered("a", "e1", {"cpu": 5_000}, {"zone": "a"}))
    cell.submit("first", stage(tasks=9))

    assert why(waiting(cell, gang=True, **asked)) == (
        "gang_no_room",
        f"there is no room for all tasks of the gang ({asked['tasks']}) at once; room is free for none of them",
    )


def test_under_slots_a_node_that_drains_could_take_as_many_as_it_has_places():
    cell = drained(Watched(nodes=2, cpu=8, preset="slots", slots_per_node=3), "n0")

    assert why(waiting(cell, tasks=5, gang=True))[1] == "all tasks of the gang (5) fit only with n0, which drains"


def test_only_some_of_many_nodes_are_named():
    names = [f"n{i}" for i in range(NODES_SHOWN_MAX + 2)]
    cell = waiting(drained(Watched(nodes=len(names)), *names))

    assert why(cell)[1] == "n0, n1, n2 and 2 more could run it, but drain"


@pytest.mark.parametrize(
    ("asked", "explanation"),
    [
        pytest.param({"demand": {"cpu": 3_000}}, "big could run it, but drains", id="large enough"),
        pytest.param({"labels": {"zone": "a"}}, "n0 could run it, but drains", id="its labels"),
        pytest.param({"demand": {"gpu": 1_000}}, "big could run it, but drains", id="a whole device"),
        pytest.param({"demand": {"gpu": 1_700}}, NOBODY[1], id="enough in sum, but on no devices"),
    ],
)
def test_nodes_that_could_not_take_it_are_not_named(asked, explanation):
    cell = Watched(nodes=0)
    cell.take(NodeRegistered("n0", "e1", {"cpu": 2_000}, {"zone": "a"}))
    cell.take(NodeRegistered("n1", "e1", {"cpu": 2_000}, {"zone": "b"}))
    cell.take(
        NodeRegistered(
            "big", "e1", {"cpu": 4_000, "gpu": 2_000}, {}, [Device(0, 1_000), Device(1, 400), Device(2, 600)]
        )
    )
    # One that is away could take anything: a job is refused only where no node ever could.
    cell.take(
        NodeRegistered("away", "e1", {"cpu": 4_000, "gpu": 2_000}, {"zone": "a"}, [Device(0, 1_000), Device(1, 1_000)])
    )
    drained(cell.take(NodeLeft("away", "e1")), "n0", "n1", "big")

    assert why(waiting(cell, **asked))[1] == explanation


# ---------------------------------------------------------------- what can never run
def shrunk(cell, *names, cpu=2_000):
    """Nodes that come back with less."""
    for name in names:
        cell.take(NodeRegistered(name, "e2", {"cpu": cpu}))
    return cell.settle()


def test_what_fits_on_no_node_any_more_says_so_in_the_words_of_a_refusal():
    cell = waiting(drained(Watched(nodes=2, cpu=4), "n0", "n1"), demand={"cpu": 3_000})
    assert why(cell) == ("no_node", "n0, n1 could run it, but drain")

    words = "one task asks for cpu 3; the largest node that could take it, n1, has cpu 2: it can never run"
    assert why(shrunk(cell, "n0", "n1")) == ("no_node", words)
    refused = cell.submit("again", Stage("s", 1, {"cpu": 3_000}))
    assert refused.view.ended["again"].detail == f"stages[0].demand: {words.removesuffix(': it can never run')}"


def test_a_gang_that_all_nodes_together_do_not_hold_any_more_can_never_run():
    cell = drained(Watched(nodes=2, cpu=4), "n0")
    waiting(cell, tasks=8, gang=True)
    words = "a gang of 8 tasks, but all nodes together have room for 6: it can never run"
    assert why(shrunk(cell, "n0")) == ("no_node", words)


def test_a_gang_that_lost_nodes_could_run_says_that_those_left_do_not_suffice():
    cell = waiting(Watched(nodes=2, cpu=4).take(NodeLeft("n0", "e1")).settle(), tasks=5, gang=True)
    assert why(cell) == ("no_node", "the available nodes could not run all tasks of the gang (5) at once")


def test_a_guarantee_is_not_broken_where_no_node_could_run_what_waits():
    queues = Queue("root", children=[Queue("a", guaranteed={"cpu": 2_000}), Queue("b")])
    cell = Watched(nodes=2, cpu=4, queues=queues)
    cell.submit("hog", stage(tasks=8), queue="b")
    cell.submit("w", stage(cpu=3), queue="a").settle(after_ms=60_000)
    said = Breach("a", 250_000_000, 0, 1)
    cell.view.breaches["a"] = said
    assert broken_guarantees(cell.view) == {"a": said}

    shrunk(cell, "n0", "n1")
    assert broken_guarantees(cell.view) == {}


# ---------------------------------------------------------------- retries
def test_a_task_that_waits_for_another_node_than_those_on_which_it_has_failed_says_so():
    cell = Watched(nodes=2, cpu=1, retry_backoff_ms=0)
    cell.submit("hog", stage())
    (node,) = [name for name, row in cell.view.nodes.items() if not any(row.used.values())]
    cell.submit("j", stage(retries=3)).fail("j", "s", node=node)

    assert why(cell) == ("failed_there", "it has failed on the nodes that have room, and waits for another")
    cell.submit("hog2", stage()).settle()
    assert why(cell) == ("no_room", "no node has room for it now; 2 nodes could run it and are full")
