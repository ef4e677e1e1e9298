"""What is said over MQTT is read strictly, and a refusal names the field."""

import orjson
import pytest

from schemas.edge.base import Malformed
from schemas.edge.mqtt import PARTS_MAX, read_down, read_up

UP = {"cell": "c", "node": "n", "epoch": "e", "number": 1, "seq": -1, "part": 0, "parts": 1, "messages": []}
DOWN = {"cell": "c", "node": "n", "epoch": "e", "number": 1, "seq": 4, "time": 5, "part": 0, "parts": 1, "work": {}}
PIECE = {"messages": None, "parts": 2, "text": "[", "digest": "0" * 64}


def refused(read, document):
    with pytest.raises(Malformed) as caught:
        read(document if isinstance(document, bytes) else orjson.dumps(document))
    return caught.value


@pytest.mark.parametrize(
    ("change", "field"),
    [
        pytest.param({"node": "a/b"}, "node", id="a name that is no level of a topic"),
        pytest.param({"node": "+"}, "node", id="a wildcard for a name"),
        pytest.param({"cell": ""}, "cell", id="no cell"),
        pytest.param({"number": 0}, "number", id="numbers begin with 1"),
        pytest.param({"number": 1.0}, "number", id="a fraction"),
        pytest.param({"number": True}, "number", id="a boolean"),
        pytest.param({"number": "1"}, "number", id="a text"),
        pytest.param({"seq": -2}, "seq", id="before the log"),
        pytest.param({"part": 1}, "part", id="a part beyond the last"),
        pytest.param({"parts": PARTS_MAX + 1}, "parts", id="too many parts"),
        pytest.param({"messages": None}, "messages", id="nothing said"),
        pytest.param({"text": "x"}, "text", id="a piece of what is whole"),
        pytest.param({**PIECE, "messages": []}, "messages", id="a piece beside the whole"),
        pytest.param({**PIECE, "text": None}, "text", id="no piece"),
        pytest.param({**PIECE, "text": ""}, "text", id="an empty piece"),
        pytest.param({**PIECE, "digest": None}, "digest", id="no digest"),
        pytest.param({**PIECE, "digest": "x" * 64}, "digest", id="no digest, but a text"),
        pytest.param({"messages": [{"topic": "jobs", "document": {}}]}, "messages[0].topic", id="a topic not its own"),
        pytest.param({"messages": [{"topic": "tasks", "document": []}]}, "messages[0].document", id="no document"),
        pytest.param({"messages": [{"topic": "tasks"}]}, "messages[0].document", id="none at all"),
        pytest.param({"seqs": 1}, "seqs", id="an unknown field"),
    ],
)
def test_a_report_is_refused_with_its_field(change, field):
    assert refused(read_up, {**UP, **change}).field == field


@pytest.mark.parametrize(
    ("change", "field"),
    [
        pytest.param({"time": -1}, "time", id="before time began"),
        pytest.param({"work": None}, "work", id="no work"),
        pytest.param({"work": []}, "work", id="work that is a list"),
        pytest.param({"answered": {"epoch": "e"}}, "answered.number", id="an answer to no report"),
        pytest.param({"answered": {"epoch": "e", "number": 0}}, "answered.number", id="an answer before the first"),
        pytest.param({"refused": 1}, "refused", id="no reason"),
        pytest.param({"in_round": 0}, "in_round", id="a number for a yes or no"),
    ],
)
def test_what_a_node_is_told_is_refused_with_its_field(change, field):
    assert refused(read_down, {**DOWN, **change}).field == field


@pytest.mark.parametrize("read", [read_up, read_down])
@pytest.mark.parametrize("field", ["cell", "node", "epoch", "number", "seq"])
def test_what_is_missing_is_named(read, field):
    document = dict(UP if read is read_up else DOWN)
    del document[field]

    assert refused(read, document).field == field


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        pytest.param(b"", "is empty", id="nothing"),
        pytest.param(b"\xff", "UTF-8", id="no text"),
        pytest.param(b"{", "no JSON", id="no JSON"),
        pytest.param(b"[" * 100_000, "nested too deep", id="a bomb of brackets"),
        pytest.param(b'{"cell": "c", "cell": "d"}', "given twice", id="a key twice"),
        pytest.param(b'{"number": ' + b"9" * 100_000 + b"}", "too large", id="a bomb of digits"),
    ],
)
@pytest.mark.parametrize("read", [read_up, read_down])
def test_what_is_no_document_is_refused(read, payload, reason):
    assert reason in refused(read, payload).reason


def test_a_node_ignores_what_a_newer_bridge_has_to_say():
    later = {"later": 1, "answered": {"epoch": "e", "number": 2, "later": 1}}

    assert (
        read_down(orjson.dumps({**DOWN, **later})).answered
        == read_down(orjson.dumps({**DOWN, "answered": {"epoch": "e", "number": 2}})).answered
    )
