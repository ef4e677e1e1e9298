"""Documents on MQTT come together of their parts whatever becomes of these on their way, and never of parts of two."""

from decimal import Decimal

import orjson
import pytest
from hypothesis import assume
from hypothesis import strategies as st

from largesse.mqtt.parts import DocumentTooLarge, Gathering, payloads_of
from largesse.mqtt.port import PAYLOAD_BYTES_MAX
from schemas.edge.base import Malformed
from schemas.edge.mqtt import PARTS_MAX, NodeAnswered, NodeDown, NodeUp, NodeUpMessage, read_down, read_up
from schemas.quantities import QUANTITY_MAX
from tests.strategies import for_all, texts

ROOM = 700
"""Bytes of a message in these tests: little above what stands around a piece."""

numbers = st.decimals("-1e9", "1e9", allow_nan=False, places=3).filter(lambda number: len(str(number)) < 30)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-QUANTITY_MAX, QUANTITY_MAX), numbers, texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=6,
)
objects = st.dictionaries(texts, values, max_size=3)
long_objects = st.builds(
    lambda some, text: {**some, "long": text * 300}, objects, st.text('aé"\\\u2028\U0001f600', max_size=9)
)
contents = st.one_of(objects, long_objects)


@st.composite
def ups(draw, number_max=QUANTITY_MAX):
    return NodeUp(
        cell="default",
        node=draw(st.sampled_from(["n", "knöten 1"])),
        epoch=draw(st.sampled_from(["e1", "e2"])),
        number=draw(st.integers(1, number_max)),
        seq=draw(st.integers(-1, QUANTITY_MAX)),
        messages=[
            NodeUpMessage(topic=draw(st.sampled_from(["nodes", "tasks"])), document=document)
            for document in draw(st.lists(contents, max_size=3))
        ],
    )


@st.composite
def downs(draw):
    return NodeDown(
        cell="default",
        node="n",
        epoch="e",
        number=draw(st.integers(1, QUANTITY_MAX)),
        seq=draw(st.integers(-1, QUANTITY_MAX)),
        time=draw(st.integers(0, QUANTITY_MAX)),
        answered=draw(st.none() | st.builds(NodeAnswered, epoch=st.just("e"), number=st.integers(1, 9))),
        refused=draw(st.none() | st.just("no")),
        in_round=draw(st.booleans()),
        work=draw(contents),
    )


def cut(document):
    payloads = payloads_of(document, bytes_max=ROOM)
    assert max(map(len, payloads)) <= ROOM
    return payloads


def read(payload):
    return (read_up if b'"seq":' in payload and b'"in_round":' not in payload else read_down)(payload)


def gathered(payloads, gathering=None):
    """Whatever comes together, in order."""
    gathering = gathering or Gathering()
    found = [gathering.take(read(payload)) for payload in payloads]
    return [document for document in found if document is not None]


@for_all(st.one_of(ups(), downs()), st.data())
def test_what_was_cut_comes_together_in_any_order_with_repeats(document, data):
    payloads = cut(document)
    sent = data.draw(st.permutations(payloads + data.draw(st.lists(st.sampled_from(payloads), max_size=4))))

    found = gathered(sent)

    assert found
    assert all(each == document for each in found)


@for_all(st.one_of(ups(), downs()), st.data())
def test_a_document_of_which_a_part_is_lost_does_not_come_together_until_that_comes(document, data):
    payloads = cut(document)
    lost = data.draw(st.sampled_from(payloads))
    gathering = Gathering()

    assert gathered([payload for payload in payloads if payload != lost], gathering) == []
    assert gathered([lost], gathering) == [document]


@for_all(ups(2), ups(2), st.data())
def test_parts_of_two_documents_are_never_joined(one, two, data):
    assume(one != two)
    sent = data.draw(st.permutations(cut(one) + cut(two)))

    found = gathered(sent)

    assert [document for document in found if document not in (one, two)] == []
    assert len(found) == 2


@for_all(st.lists(ups(), min_size=3, max_size=5, unique_by=lambda up: up.number))
def test_what_is_kept_of_unfinished_documents_is_bounded(documents):
    gathering = Gathering()
    cuts = [cut(document) for document in documents]
    long = [payloads for payloads in cuts if len(payloads) > 1]
    for payloads in long:
        assert gathered(payloads[:-1], gathering) == []

    found = gathered([payloads[-1] for payloads in reversed(long)], gathering)
    assert [gathered(payloads)[0] for payloads in reversed(long[-2:])] == found


def test_a_part_that_was_changed_is_refused():
    document = NodeUp(
        cell="c",
        node="n",
        epoch="e",
        number=1,
        seq=-1,
        messages=[NodeUpMessage(topic="nodes", document={"a": "b" * 999})],
    )
    first, *others = cut(document)
    changed = orjson.loads(first)
    changed["text"] = changed["text"].replace("b", "c", 1)

    with pytest.raises(Malformed) as caught:
        gathered([orjson.dumps(changed), *others])

    assert caught.value.field == "digest"


def test_what_was_joined_is_read_as_strictly_as_what_came_whole():
    wrong = NodeUp.model_construct(
        **{
            **dict.fromkeys(("messages", "text", "digest")),
            "cell": "c",
            "node": "n",
            "epoch": "e",
            "number": 1,
            "seq": -1,
        }
    )
    wrong.messages = [{"topic": "jobs", "document": {"a": "b" * 999}}]

    with pytest.raises(Malformed) as caught:
        gathered(cut(wrong))

    assert caught.value.field == "messages[0].topic"


def test_the_largest_document_has_a_named_limit():
    def document(size):
        return NodeDown(cell="c", node="n", epoch="e", number=1, seq=0, time=0, work={"a": "b" * size})

    assert len(payloads_of(document(PAYLOAD_BYTES_MAX - 1_000))) == 1
    assert len(payloads_of(document(PAYLOAD_BYTES_MAX))) == 2
    with pytest.raises(DocumentTooLarge, match=f"{PARTS_MAX} parts"):
        payloads_of(document(PARTS_MAX * PAYLOAD_BYTES_MAX))
    with pytest.raises(DocumentTooLarge, match="around"):
        payloads_of(document(999), bytes_max=200)


def test_numbers_with_a_fraction_stay_as_they_were_written():
    [payload] = payloads_of(
        NodeDown(cell="c", node="n", epoch="e", number=1, seq=0, time=0, work={"cpu": Decimal("1.50")})
    )

    assert b'"cpu":1.50' in payload
    assert read_down(payload).work == {"cpu": Decimal("1.50")}
