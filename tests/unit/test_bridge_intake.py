"""What a bridge takes from nodes, what it refuses and by which name, and who of several serves a node."""

import json

import pytest

from largesse.mqtt.parts import payloads_of
from largesse.mqtt.port import PAYLOAD_BYTES_MAX
from largesse.mqtt.topics import up_topic
from schemas.edge.mqtt import NodeUp, NodeUpMessage
from services.bridge import intake as intakes
from services.bridge.dealing import ALIVE_MS, Bridges, serving
from services.bridge.intake import Intake, Refusal

REPORT = {"report": {"node": "n", "epoch": "e", "capacity": {"cpu": "1"}}}
STARTED = {"job": "j", "stage": "s", "first": 0, "count": 1, "attempt": 1, "node": "n", "epoch": "e"}
UP = up_topic("default", "n")


@pytest.fixture
def intake():
    return Intake("default")


def up(*messages, number=1, epoch="e", node="n", **more):
    said = [{"topic": topic, "document": document} for topic, document in messages]
    fields = {"cell": "default", "node": node, "epoch": epoch, "number": number, "seq": 5, "messages": said, **more}
    return json.dumps(fields).encode()


def why(intake, payload, topic=UP):
    with pytest.raises(Refusal) as refusal:
        intake.take(topic, payload)
    return refusal.value.reason


def test_a_report_comes_out_as_messages_for_the_bus(intake):
    said = intake.take(UP, up(("nodes", REPORT), ("tasks", {"started": {"items": [STARTED]}}), number=3))

    assert (said.node, said.epoch, said.number) == ("n", "e", 3)
    assert [(topic, json.loads(value)) for topic, value in said.values] == [
        ("nodes", REPORT),
        ("tasks", {"started": {"items": [STARTED]}}),
    ]


def test_a_report_in_parts_comes_out_once_all_of_them_have_come_in_any_order(intake):
    items = [{**STARTED, "job": f"job-{number:05}" + "x" * 100} for number in range(3_000)]
    message = NodeUpMessage(topic="tasks", document={"started": {"items": items}})
    parts = payloads_of(NodeUp(cell="default", node="n", epoch="e", number=1, seq=-1, messages=[message]))
    assert len(parts) > 1

    taken = [intake.take(UP, part) for part in (*parts[1:], *parts[1:], parts[0])]

    assert [said for said in taken[:-1] if said is not None] == []
    assert json.loads(taken[-1].values[0][1]) == {"started": {"items": items}}


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        pytest.param(b"", "malformed", id="nothing"),
        pytest.param(b"\xff\xfe", "malformed", id="no text"),
        pytest.param(b"[" * 100_000, "malformed", id="a bomb of brackets"),
        pytest.param(up(number=0), "malformed", id="no such number"),
        pytest.param(up(epoch="e" * 1_000), "malformed", id="an endless epoch"),
        pytest.param(up(("jobs", {"job": "j"})), "malformed", id="another topic"),
        pytest.param(up()[:-1] + b', "number": 2}', "malformed", id="a field that stands twice"),
        pytest.param(b" " * (PAYLOAD_BYTES_MAX + 1), "size", id="too large"),
        pytest.param(up(node="m"), "name", id="another node around it"),
        pytest.param(up(cell="other"), "name", id="another cell"),
        pytest.param(up(("nodes", {"report": {**REPORT["report"], "node": "m"}})), "name", id="another node inside"),
        pytest.param(up(("nodes", {"report": {"epoch": "e"}})), "name", id="no node"),
        pytest.param(
            up(("tasks", {"started": {"items": [STARTED, {**STARTED, "node": "m"}]}})), "name", id="one of another node"
        ),
        pytest.param(up(("nodes", {"drain": {"node": "n"}})), "form", id="what operators say"),
        pytest.param(up(("nodes", {"remove": {"node": "n"}})), "form", id="what takes a node out"),
        pytest.param(up(("tasks", {"started": {"items": "all"}})), "form", id="items that are none"),
        pytest.param(up(("nodes", {"report": [1]})), "form", id="a list in place of an object"),
        pytest.param(up(("tasks", REPORT)), "form", id="on the wrong topic"),
    ],
)
def test_what_no_agent_of_the_node_says_is_refused_by_name(intake, payload, reason):
    assert why(intake, payload) == reason
    assert intake.take(UP, up(("nodes", REPORT))) is not None, "and the next is taken as if nothing had been"


@pytest.mark.parametrize(
    "topic", [up_topic("other", "n"), "largesse/default/node/n/down", "largesse/default/bridge/n/up"]
)
def test_a_message_on_another_topic_is_no_report(intake, topic):
    assert why(intake, up(), topic) == "topic"


def test_numbers_of_an_epoch_do_not_go_back_and_a_repeat_is_known(intake):
    fifth, fourth = up(("nodes", REPORT), number=5), up(("nodes", REPORT), number=4)
    said = intake.take(UP, fifth)
    assert not intake.has_taken(said)
    intake.taken(said)

    assert intake.has_taken(intake.take(UP, fifth))
    assert why(intake, fourth) == "number"
    assert not intake.has_taken(intake.take(UP, up(number=1, epoch="e2"))), "another epoch counts for itself"


def test_what_is_remembered_of_nodes_is_bounded(intake, monkeypatch):
    monkeypatch.setattr(intakes, "NODES_MAX", 3)
    for number in range(9):
        node = f"n{number}"
        topic = up_topic("default", node)
        intake.taken(intake.take(topic, up(node=node)))
        half = {"part": 0, "parts": 2, "text": "[", "digest": "0" * 64}
        intake.take(topic, up(node=node, **half).replace(b', "messages": []', b""))

    assert [len(kept) for kept in (intake._taken, intake._gathering)] == [3, 3]


def test_each_node_is_served_by_one_of_the_bridges_and_few_move_when_one_goes():
    nodes, names = [f"n{number}" for number in range(1_000)], ["a", "b", "c"]
    dealt = {node: serving(names, node) for node in nodes}

    assert {name: 250 < list(dealt.values()).count(name) < 420 for name in names} == dict.fromkeys(names, True)
    assert all(serving(["c", "a"], node) == dealt[node] for node in nodes if dealt[node] != "b")
    assert [serving(names[::-1], node) for node in nodes] == list(dealt.values())


def test_a_bridge_serves_what_is_dealt_to_it_among_those_that_it_hears():
    bridges = Bridges("a")
    nodes = [f"n{number}" for number in range(100)]
    assert all(map(bridges.serves, nodes))

    assert bridges.hear("b", is_there=True, now_ms=0)
    assert [bridges.serves(node) for node in nodes] == [serving(["a", "b"], node) == "a" for node in nodes]
    assert not bridges.hear("b", is_there=True, now_ms=10)
    assert not bridges.hear("a", is_there=False, now_ms=10), "what somebody says of this one does not count"
    assert bridges.hear("c", is_there=True, now_ms=20)
    assert bridges.hear("c", is_there=False, now_ms=30)
    assert bridges.forget_silent(10 + ALIVE_MS) == []
    assert bridges.forget_silent(11 + ALIVE_MS) == ["b"]
    assert all(map(bridges.serves, nodes))
