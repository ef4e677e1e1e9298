"""What is an answer in a decision topic: whatever else lies there is counted and passed over, by every reader alike."""

import orjson
import pytest

from largesse.bus.port import Message
from largesse.log import answers, fencing
from largesse.log.answers import Shelf
from largesse.log.codec import Undecodable
from largesse.log.decisions import DecisionReader, messages_of
from largesse.log.wanted import Wanted, answer
from largesse.telemetry import exposition
from schemas import Asks, Shares
from schemas.shares import Level
from tests.bus_stories import append_raw, story
from tests.unit.test_decisions import SHARES, large, opening, queues, said, send


def changed(**changes):
    """A whole answer with some fields of its content changed."""
    message = orjson.loads(said(opening(), "forged")[0].value)
    message["content"].update(changes)
    return orjson.dumps(message)


def of_body(body):
    return changed(body=body)


def piece(**changes):
    """The first part of an answer, with some fields of it changed."""
    message = orjson.loads(large("one")[0].value)
    message["header"].update(changes.pop("header", {}))
    message["piece"].update(changes)
    return orjson.dumps(message)


ID = orjson.loads(said(opening())[0].value)["content"]["id"]
NO_ANSWERS = [
    pytest.param(b"", id="nothing"),
    pytest.param(b"[" * 50_000, id="a deep document"),
    pytest.param(b'{"header":{"token":7},"content":{"type":"Shares"}}', id="a header of wrong types"),
    pytest.param(b'{"header":null,"content":null}', id="nulls"),
    pytest.param(changed(type="JobCancelled", body={"job": "j", "author": "a"}), id="a body of another topic"),
    pytest.param(changed(type="Unheard"), id="an unknown body"),
    pytest.param(changed(type=["Shares"]), id="a type that is a list"),
    pytest.param(changed(version=99), id="an unknown version"),
    pytest.param(changed(version="1"), id="a version that is a text"),
    pytest.param(changed(seq="1"), id="a seq that is a text"),
    pytest.param(changed(seq=None), id="a seq that is null"),
    pytest.param(changed(seq=[1]), id="a seq that is a list"),
    pytest.param(changed(seq=2**63), id="a huge seq"),
    pytest.param(changed(seq=2), id="another seq than its name says"),
    pytest.param(changed(round=2), id="another round than its name says"),
    pytest.param(changed(time={}), id="a time that is a document"),
    pytest.param(changed(cell=3), id="a cell that is a number"),
    pytest.param(changed(cell="elsewhere"), id="another cell than its name says"),
    pytest.param(changed(cause="default/1/r1/other"), id="another cause than its name says"),
    pytest.param(changed(cause=None), id="no cause"),
    pytest.param(changed(id=5), id="an id that is a number"),
    pytest.param(said(opening())[0].value.replace(ID.encode(), b"\\ud800"), id="an id that is no text"),
    pytest.param(said(opening())[0].value.replace(b'"seq":1', b'"seq":' + b"1" * 5_000), id="a seq without end"),
    pytest.param(of_body(7), id="a body that is a number"),
    pytest.param(of_body(None), id="no body"),
    pytest.param(of_body({"levels": 7}), id="a list that is a number"),
    pytest.param(of_body({"levels": [7]}), id="a document that is a number"),
    pytest.param(of_body({"levels": [{"queue": [], "target": 1}]}), id="a text that is a list"),
    pytest.param(of_body({"levels": [{"queue": "q", "target": 2**63}]}), id="a number above 64 bits"),
    pytest.param(of_body({"levels": [{"queue": "q", "target": "9" * 40}]}), id="a number above 64 bits, as a text"),
    pytest.param(b'{"header":{"token":""},"piece":7}', id="a part that is a number"),
    pytest.param(b'{"header":7,"piece":{}}', id="a part whose header is a number"),
    pytest.param(piece(seq="1"), id="a part whose seq is a text"),
    pytest.param(piece(seq=2), id="a part with another seq than its name says"),
    pytest.param(piece(id=None), id="a part without a name"),
    pytest.param(piece(text=["x"]), id="a part whose text is a list"),
    pytest.param(piece(text="x"), id="a part that is not what its sum says"),
    pytest.param(piece(sums="abc"), id="sums that are a text"),
    pytest.param(piece(sums=7), id="sums that are a number"),
    pytest.param(piece(sums=[1, 2, 3, 4]), id="sums that are numbers"),
    pytest.param(piece(sums=["x"]), id="fewer sums than parts"),
    pytest.param(piece(header={"part": "x"}), id="a part whose number is a text"),
    pytest.param(piece(header={"part": -1}), id="a part below the first"),
    pytest.param(piece(header={"of": 0}), id="a part of none"),
    pytest.param(piece(header={"of": 10**9}), id="a part of too many"),
]


@pytest.mark.parametrize("value", NO_ANSWERS)
def test_what_is_no_answer_raises_nothing_and_the_first_valid_of_its_name_wins(value):
    @story
    async def scenario(bus, scribe):
        reader = DecisionReader(bus)
        before = void_count()
        await append_raw(bus, "shares", value)
        assert await queues(reader, opening()) is None
        await send(bus, *said(opening(), "right"), *said(opening(), "second"))

        assert await queues(reader, opening()) == ["right"]
        assert void_count() == before + 1
        assert reader.positions() == {"shares/0": 1}, "nothing of it is kept"

    scenario()


@pytest.mark.parametrize("value", NO_ANSWERS)
def test_what_is_no_answer_is_passed_over_between_parts(value):
    @story
    async def scenario(bus, scribe):
        parts = large("one")
        for part in parts:
            await append_raw(bus, "shares", value)
            await send(bus, part)

        assert len(await queues(DecisionReader(bus), opening())) == 2

    scenario()


def void_count():
    lines = exposition()[1].decode().splitlines()
    found = [line for line in lines if line.startswith('largesse_decisions_void_total{topic="shares"}')]
    return float(found[0].rpartition(" ")[2]) if found else 0


@story
async def test_a_forecast_that_is_no_record_does_not_stop_its_reader(bus, scribe):
    releases = Wanted("releases", 0, 1)
    await append_raw(bus, "releases", changed(type="Unheard"))
    await send(bus, *said(opening(), wanted=releases))

    assert [each.record.seq for each in await DecisionReader(bus).arrivals("releases")] == [1]


@pytest.mark.parametrize(
    ("shard", "of", "partition"),
    [
        pytest.param(1, 2, 0, id="in the partition of another shard"),
        pytest.param(0, 65, 0, id="of more shards than there may be"),
        pytest.param(3, 2, 3, id="of a shard beyond the last"),
    ],
)
def test_an_answer_in_the_wrong_place_is_none(shard, of, partition):
    wanted = Wanted("asks", shard, of)
    record, content = answer(opening(), wanted, Asks(shard, of, []))
    (message,) = messages_of(record, content, wanted, 0, "a")

    with pytest.raises(Undecodable, match="shard"):
        Shelf(0).take(Message("asks", partition, 0, message.value), 0)


def test_asks_of_another_shard_than_their_name_says_are_none():
    wanted = Wanted("asks", 1, 2)
    record, content = answer(opening(), wanted, Asks(0, 2, []))
    (message,) = messages_of(record, content, wanted, 0, "a")

    with pytest.raises(Undecodable, match="asks of shard 0"):
        Shelf(0).take(Message("asks", 1, 0, message.value), 0)


@story
async def test_parts_of_a_forged_answer_do_not_keep_the_right_one_from_coming_together(bus, scribe):
    forged = said(opening(), "z" * fencing.RECORD_BYTES_MAX, "w" * fencing.RECORD_BYTES_MAX)
    right = large("one")
    assert len(forged) == len(right)
    await send(bus, forged[0], *right[:1], *forged[1:2], *right[1:])

    assert await queues(DecisionReader(bus), opening()) == [
        "x" * fencing.RECORD_BYTES_MAX,
        "y" * fencing.RECORD_BYTES_MAX,
    ]


@story
async def test_parts_that_come_to_no_answer_do_not_keep_the_right_one_from_coming_together(bus, scribe):
    record, content = answer(opening(), SHARES, Shares([Level("z" * fencing.RECORD_BYTES_MAX, 1)] * 2))
    broken = messages_of(record, content.replace(b'"target":1', b'"target":[]'), SHARES, 0, "a")
    await send(bus, *broken, *large("one"))

    assert len(await queues(DecisionReader(bus), opening())) == 2


@story
async def test_parts_of_earlier_versions_have_no_sums_and_come_together(bus, scribe):
    for message in large("one"):
        document = orjson.loads(message.value)
        del document["piece"]["sums"]
        await append_raw(bus, "shares", orjson.dumps(document))

    assert len(await queues(DecisionReader(bus), opening())) == 2


def test_unfinished_parts_are_kept_up_to_a_limit(monkeypatch):
    monkeypatch.setattr(answers, "PIECES_BYTES_MAX", 3 * fencing.RECORD_BYTES_MAX)
    shelf = Shelf(0)
    for number in range(1, 50):
        first = said(opening(number), "x" * fencing.RECORD_BYTES_MAX, "y" * fencing.RECORD_BYTES_MAX)[0]
        shelf.take(Message("shares", 0, number, first.value), 0)
    right = said(opening(50), "x" * fencing.RECORD_BYTES_MAX)
    took = [shelf.take(Message("shares", 0, 50 + at, each.value), 0) for at, each in enumerate(right)]

    assert len(shelf.beyond(0)) <= 8
    assert took[-1] is not None, "what was added to last is kept"
    shelf.forget(50)
    assert shelf._pieces_bytes == 0


@story
async def test_answers_to_openings_that_the_log_never_had_are_dropped_once_it_was_read_so_far(bus, scribe):
    await scribe.claim()
    reader = DecisionReader(bus)
    await send(bus, *said(opening(10**15), "never"), *said(opening(7), "ahead"))
    assert await queues(reader, opening(1)) is None
    assert reader.positions() == {"shares/0": 0}

    end = (await bus.bounds("cluster.log", 0))[1]
    await reader.sift(3, end)
    assert reader.positions() == {"shares/0": 0}, "the log may have these openings behind what was read"
    await reader.sift(6, end - 1)
    assert reader.positions() == {"shares/0": 0}
    await reader.sift(7, end)

    assert reader.positions() == {"shares/0": 1}
    assert await queues(reader, opening(7)) == ["ahead"]


@story
async def test_an_answer_is_decoded_once(bus, scribe):
    await send(bus, *said(opening(), "once"))
    reader = DecisionReader(bus)
    first, again = [(await reader.gather(opening().id, [SHARES]))[0].record for _ in range(2)]

    assert first is again
