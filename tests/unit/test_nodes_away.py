"""Nodes that an operator takes away: drains with reason and deadline, and removal of one that does not come back."""

import pytest

from largesse.log.reader import publish_input
from schemas import InputRefused, NodeDrained, NodeForgotten, NodeRegistered, NodeRemoved, TimeReached
from schemas.edge.nodes import DRAIN_REASON_MAX
from schemas.edge.read import Malformed, read_input
from services.cli.ending import Wrong
from services.cli.getting import node_row
from services.cli.moments import SPAN_MS_MAX, span_ms
from services.gateway.documents.nodes import node_document
from tests.builders import job, node, stage
from tests.cells import running_cell
from tests.gateway_cell import run_in_memory
from tests.gateway_watch import Watched
from tests.unit.test_agent_core import closed, granted, registered, running


# ---------------------------------------------------------------- what an operator may say
def test_a_drain_may_have_a_reason_and_a_deadline():
    document = {"drain": {"node": "n", "draining": True, "reason": "new disks", "within_ms": 60_000}}

    assert read_input("nodes", document, "ops") == NodeDrained("n", True, "ops", "new disks", 60_000)
    assert read_input("nodes", {"remove": {"node": "n"}}, "ops") == NodeRemoved("n", "ops")


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"draining": False, "within_ms": 5}, "drain.within_ms"),
        ({"within_ms": -1}, "drain.within_ms"),
        ({"reason": "x" * (DRAIN_REASON_MAX + 1)}, "drain.reason"),
        ({"reason": "a\nb"}, "drain.reason"),
    ],
)
def test_what_a_drain_may_not_say_is_refused_by_field(more, field):
    with pytest.raises(Malformed) as caught:
        read_input("nodes", {"drain": {"node": "n", "draining": True, **more}}, "ops")

    assert caught.value.field == field


# ---------------------------------------------------------------- what the cell makes of it
def test_the_last_drain_counts_whole_and_one_that_changes_nothing_makes_no_record():
    story = running_cell()
    taken = [
        story.take(NodeDrained("n1", True, "ann", "disks")),
        story.take(NodeDrained("n1", True, "bob", "disks")),
        story.take(NodeDrained("n1", True, "ann", "disks", 9)),
        story.take(NodeDrained("n1", True, "ann", "disks", 9)),
        story.take(NodeDrained("n1", True, "ann", "disks")),
        story.take(NodeDrained("n1", True, "ann", "disks")),
        story.take(NodeDrained("n1", True, "ann")),
        story.take(NodeDrained("n1", False, "ann")),
        story.take(NodeDrained("n1", False, "ann")),
    ]

    assert [made is not None for made in taken] == [True, False, True, True, True, False, True, True, False]


def test_a_drain_with_its_deadline_is_remembered_for_the_next_agent():
    story = running_cell()
    story.take(NodeDrained("n1", True, "ann", "disks", 9))
    story.take(node("n1", epoch="e2"))

    assert story.take(NodeDrained("n1", True, "ann", "disks")) is not None
    assert story.take(NodeDrained("n1", True, "ann", "disks")) is None


def test_a_node_that_is_lost_is_removed_at_once_drained_or_not():
    story = running_cell(node("n2"))
    story.drain("n1")
    story.lose("n1")

    assert story.take(NodeRemoved("n1", "ops")) == NodeRemoved("n1", "ops")
    assert story.take(NodeRemoved("n1", "ops")) is None
    story.settle()
    assert story.bodies(NodeForgotten) == [NodeForgotten("n1")]
    assert list(story.admission.nodes) == ["n2"]
    assert story.take(NodeRemoved("n1", "ops")).reason == 'node "n1" is not known here'
    assert isinstance(story.take(node("n1", epoch="e2")), NodeRegistered)
    assert not story.admission.nodes["n1"].draining


def test_a_node_that_is_alive_is_not_removed():
    refused = running_cell().take(NodeRemoved("n1", "ops"))

    assert isinstance(refused, InputRefused)
    assert refused.field == "remove.node"
    assert refused.reason.startswith('node "n1" is alive: end its agent first')


def test_a_node_is_not_forgotten_while_a_round_may_speak_of_it():
    story = running_cell()
    story.take(job("j", stage(tasks=2)))
    story.open()
    story.lose("n1")
    story.take(NodeRemoved("n1", "ops"))

    assert story.bodies(NodeForgotten) == []
    assert [struck.reason for struck in story.close().struck] == ["node_lost"]
    story.settle()
    assert story.bodies(NodeForgotten) == [NodeForgotten("n1")]


def test_a_node_that_comes_back_before_it_is_forgotten_stays():
    story = running_cell()
    story.take(job("j", stage(tasks=2)))
    story.open()
    story.lose("n1")
    story.take(NodeRemoved("n1", "ops"), node("n1", epoch="e2"))
    story.close()
    story.settle()

    assert story.bodies(NodeForgotten) == []
    assert story.admission.nodes["n1"].epoch == "e2"


# ---------------------------------------------------------------- what the agent does
def waiting(story):
    """The story goes on by a record that says nothing but the time."""
    return story.then(TimeReached(0)).takes()


def test_at_its_deadline_a_drain_revokes_all_that_the_node_holds_and_not_before():
    story = running(granted(0, 2))
    story.then(NodeDrained("n", True, "ann", "", 2))  # At log time 4: a record is a millisecond here.

    assert waiting(story) == []
    assert waiting(story) == ["stop j/map/0/1 revoked", "stop j/map/1/1 revoked"]
    assert waiting(story) == []


def test_a_deadline_of_nothing_is_now():
    assert running(granted(0)).then(NodeDrained("n", True, "ann", "", 0)).takes() == ["stop j/map/0/1 revoked"]


@pytest.mark.parametrize(
    "taken_back",
    [NodeDrained("n", False, "ann"), NodeDrained("n", True, "ann"), NodeForgotten("n")],
    ids=["resumed", "drained without one", "forgotten"],
)
def test_a_deadline_can_be_taken_back(taken_back):
    story = running(granted(0)).then(NodeDrained("n", True, "ann", "", 2), taken_back)

    assert [waiting(story) for _ in range(4)] == [[]] * 4


def test_a_drain_of_another_node_revokes_nothing_here():
    assert running(granted(0)).then(NodeDrained("m", True, "ann", "", 0)).takes() == []


def test_the_deadline_holds_for_the_next_agent_too():
    story = running(granted(0)).then(NodeDrained("n", True, "ann", "", 3))
    story.then(registered("e2"), closed())

    assert "stop j/map/0/1 revoked" in waiting(story)


# ---------------------------------------------------------------- what is shown
def test_a_drain_is_shown_with_who_asked_why_and_until_when():
    watched = Watched(nodes=1)
    watched.settle(1_000)
    watched.take(NodeDrained("n0", True, "ann", "new disks", 60_000))
    document = node_document(watched.view, "n0")

    assert (document["state"], document["drain"]) == (
        "draining",
        {"author": "ann", "reason": "new disks", "until_ms": 61_000},
    )
    row = node_row(document)
    assert row[1] == "draining"
    assert "; drained by ann: new disks; what ran there was ended at 1970-01-01" in row[3]  # Long ago.
    watched.take(NodeDrained("n0", False, "ann"))
    assert node_document(watched.view, "n0")["drain"] is None
    assert "drained" not in node_row(node_document(watched.view, "n0"))[3]


def test_over_http_a_node_is_drained_with_a_deadline_and_removed_once_it_has_left():
    async def story(http_cell):
        drained = await http_cell.http.post("/v1/nodes/n1/drain?reason=disks&within_ms=60000")
        alive = await http_cell.http.delete("/v1/nodes/n1")
        await publish_input(http_cell.bus.writer(), "nodes", {"leave": {"node": "n1", "epoch": "e1"}}, "n1")
        await http_cell.follower.until(lambda view: view.nodes["n1"].lost, 60)
        removed = await http_cell.http.delete("/v1/nodes/n1")
        return drained, alive, removed, await http_cell.http.delete("/v1/nodes/n1")

    drained, alive, removed, again = run_in_memory(story)
    assert drained.json()["drain"]["reason"] == "disks"
    assert (alive.status_code, alive.json()["type"]) == (409, "urn:largesse:refused:input")
    assert (removed.status_code, removed.json()["state"]) == (200, "removed")
    assert again.status_code == 404


@pytest.mark.parametrize(("text", "ms"), [("90s", 90_000), ("0s", 0), ("0", 0), ("250ms", 250), ("10m", 600_000)])
def test_a_deadline_is_written_with_its_unit(text, ms):
    assert span_ms("--deadline", text) == ms


@pytest.mark.parametrize("text", ["", "soon", "-1s", "1.5h", "1w", f"{SPAN_MS_MAX // 86_400_000 + 1}d"])
def test_what_is_no_deadline_is_refused(text):
    with pytest.raises(Wrong, match=r"--deadline: .* is not a duration: write it like 90s, 10m"):
        span_ms("--deadline", text)


def test_a_deadline_without_its_unit_is_refused_with_what_to_write():
    with pytest.raises(Wrong, match=r"--deadline: '10' has no unit: write 10s for seconds, 10m for minutes"):
        span_ms("--deadline", "10")
