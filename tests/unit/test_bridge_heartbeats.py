"""What a bridge hands on of reports that say what the log has: a sign of life, and all else as it came."""

import json

import pytest

from largesse.lifecycle import node_work
from schemas import NodeLost, NodeRegistered, Record, SequencerClaimed
from schemas.topics import BEATS
from services.bridge.heartbeats import lessened

OFFER = {"node": "n", "epoch": "e", "capacity": {"cpu": "4"}}


def log(*bodies):
    state = node_work.start_for_all()
    for seq, body in enumerate(bodies):
        node_work.fold(state, Record(type(body).__name__, 1, "default", seq, 0, 0, "", "", body))
    return state


REGISTERED = (SequencerClaimed("t", beats=True), NodeRegistered("n", "e", {"cpu": 4_000}))


def dumped(document):
    return json.dumps(document, separators=(",", ":")).encode()


def test_a_report_that_says_nothing_new_becomes_a_sign_of_life():
    topic, value = lessened("nodes", dumped({"report": OFFER}), log(*REGISTERED))

    assert (topic, json.loads(value)) == (BEATS, {"node": {"node": "n", "epoch": "e"}})


@pytest.mark.parametrize(
    ("topic", "document", "bodies"),
    [
        pytest.param("nodes", {"report": {**OFFER, "capacity": {"cpu": "5"}}}, REGISTERED, id="another capacity"),
        pytest.param("nodes", {"report": {**OFFER, "epoch": "e2"}}, REGISTERED, id="another epoch"),
        pytest.param("nodes", {"report": {**OFFER, "capacity": {"cpu": True}}}, REGISTERED, id="malformed"),
        pytest.param("nodes", {"register": OFFER}, REGISTERED, id="a registration"),
        pytest.param("nodes", {"report": OFFER}, REGISTERED[1:], id="a sequencer that hears none"),
        pytest.param("nodes", {"report": OFFER}, REGISTERED[:1], id="a node that the log does not have"),
        pytest.param("nodes", {"report": OFFER}, (*REGISTERED, NodeLost("n", "e", [])), id="a node that is lost"),
        pytest.param("tasks", {"report": OFFER}, REGISTERED, id="another topic"),
    ],
)
def test_everything_else_is_handed_on_as_it_came(topic, document, bodies):
    assert lessened(topic, dumped(document), log(*bodies)) == (topic, dumped(document))
