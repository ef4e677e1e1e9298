"""Why a job waits where nodes drain: those that could take it are named, and no others."""

import pytest

from schemas import Device, NodeDrained, NodeRegistered, Stage
from schemas.edge.nodes import NodeLeft
from services.gateway.queueing import NODES_SHOWN_MAX
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


def test_nodes_that_drain_say_nothing_of_a_job_that_waits_for_room():
    cell = drained(Watched(nodes=2, cpu=1), "n0")
    cell.submit("first", stage()).settle()

    assert why(waiting(cell))[0] == "no_room"


def test_a_gang_that_waits_for_draining_nodes_says_so_until_they_resume():
    cell = waiting(drained(Watched(nodes=3, cpu=2), "n0", "n1"), tasks=5, gang=True)
    explanation = "all tasks of the gang (5) fit only with n0, n1, which drain"
    assert why(cell) == ("gang_no_room", explanation)

    drained(cell, "n0", draining=False)
    assert why(cell) == ("gang_no_room", explanation.replace("n0, n1, which drain", "n1, which drains"))
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
        f"there is no room for all tasks of the gang ({asked['tasks']}) at once",
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
