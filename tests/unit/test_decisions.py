"""Decision topics: the first of a name wins, parts of equal answers may mix, and nothing is kept longer than needed."""

import pytest

from largesse.log import fencing
from largesse.log.codec import heading, record_of
from largesse.log.decisions import DecisionReader, messages_of, partition_of
from largesse.log.wanted import Wanted, answer, wanted_of
from schemas import Asks, Grants, Releases, RoundOpened, Shares
from schemas.shares import Level
from tests.bus_stories import append_raw, story

SHARES = Wanted("shares", 0, 1)


def opening(number=1, prefix="00"):
    body = RoundOpened(1, prefix)
    id_ = f"default/{number}/r{number}/{prefix}"
    return record_of(body, cell="default", seq=number, round_number=number, time=0, id_=id_, cause="")


def said(to, *levels, wanted=SHARES, author="a"):
    bodies = {"grants": Grants([]), "asks": Asks(wanted.shard, wanted.of, []), "releases": Releases(0, 0)}
    record, content = answer(to, wanted, bodies.get(wanted.topic) or Shares([Level(name, 1) for name in levels]))
    return messages_of(record, content, wanted, 0, author)


async def send(bus, *messages):
    await bus.writer().send(list(messages), durable=False)


async def queues(reader, to, wanted=SHARES):
    found = await reader.gather(to.id, [wanted])
    return None if found is None else [level.queue for level in found[0].record.body.levels]


@story
async def test_the_first_of_a_name_wins(bus, scribe):
    await send(bus, *said(opening(), "first"), *said(opening(), "second"))

    assert await queues(DecisionReader(bus), opening()) == ["first"]


@story
async def test_an_answer_to_an_opening_that_the_log_does_not_have_is_ignored(bus, scribe):
    await send(bus, *said(opening(prefix="other"), "lost"))
    reader = DecisionReader(bus)
    assert await queues(reader, opening()) is None
    await send(bus, *said(opening(), "kept"))

    assert await queues(reader, opening()) == ["kept"]


@story
async def test_answers_come_by_name_whatever_order_they_lie_in(bus, scribe):
    await send(bus, *said(opening(2), "two"), *said(opening(1), "one"))
    reader = DecisionReader(bus)

    assert [await queues(reader, opening(number)) for number in (1, 2)] == [["one"], ["two"]]


@story
async def test_whoever_lacks_an_answer_waits_for_it_alone_whatever_else_is_there(bus, scribe):
    here, missing = Wanted("grants", 0, 1), SHARES
    await send(
        bus, *said(opening(), wanted=here), *said(opening(), "again", wanted=here), *said(opening(2), wanted=here)
    )
    reader = DecisionReader(bus)

    for wanted in ([missing, here], [here, missing]):
        assert await reader.gather(opening().id, wanted) is None
        assert list(reader.waiting_for(wanted, opening().id)) == [("shares", 0)]
        assert not await bus.wait_any(reader.waiting_for(wanted, opening().id), 10)

    await send(bus, *said(opening(), "late"))
    assert await bus.wait_any(reader.waiting_for([missing, here], opening().id), 1_000)
    assert await reader.gather(opening().id, [missing, here]) is not None


@story
async def test_an_answer_behind_a_missing_one_is_read_at_once(bus, scribe):
    shards = wanted_of(["asks"], 2)
    await send(bus, *said(opening(), wanted=shards[1]))
    reader = DecisionReader(bus)

    assert await reader.gather(opening().id, shards) is None
    assert not await bus.wait_any(reader.waiting_for(shards, opening().id), 10)


@story
async def test_what_is_no_record_is_passed_over(bus, scribe):
    await append_raw(bus, "shares", b"hello")
    await append_raw(bus, "shares", b'{"header":{"token":"x"},"content":{"type":"Shares"}}')
    await send(bus, *said(opening(), "kept"))

    assert await queues(DecisionReader(bus), opening()) == ["kept"]


def large(author):
    return said(opening(), "x" * fencing.RECORD_BYTES_MAX, "y" * fencing.RECORD_BYTES_MAX, author=author)


@story
async def test_equal_parts_of_two_writers_may_mix(bus, scribe):
    one, other = large("one"), large("other")
    assert len(one) > 3
    await send(bus, other[1], one[0], one[1], other[0], *one[2:-1], other[2], other[-1])
    found = await DecisionReader(bus).gather(opening().id, [SHARES])

    assert found is not None
    assert found[0].content == answer(opening(), SHARES, found[0].record.body)[1]


@story
async def test_an_answer_in_parts_is_there_with_its_last_part(bus, scribe):
    parts = large("one")
    reader = DecisionReader(bus)
    await send(bus, *parts[:-1])
    assert await queues(reader, opening()) is None
    await send(bus, parts[-1])

    assert len(await queues(reader, opening())) == 2


@story
async def test_a_restored_reader_finds_what_was_still_needed(bus, scribe):
    await send(bus, *said(opening(1), "one"), *said(opening(2), "two"))
    reader = DecisionReader(bus)
    assert await queues(reader, opening(1)) == ["one"]
    reader.forget(1)
    again = DecisionReader(bus, positions=reader.positions())

    assert reader.positions() == {"shares/0": 1}
    assert await queues(again, opening(2)) == ["two"]


@story
async def test_the_first_part_of_what_is_needed_is_where_a_restored_reader_starts(bus, scribe):
    await send(bus, *said(opening(1), "one"), *said(opening(2), "x" * fencing.RECORD_BYTES_MAX)[:1])
    reader = DecisionReader(bus)
    assert await queues(reader, opening(2)) is None

    assert reader.positions() == {"shares/0": 0}
    reader.forget(1)
    assert reader.positions() == {"shares/0": 1}


@story
async def test_forgotten_answers_are_not_kept_when_they_come_again(bus, scribe):
    reader = DecisionReader(bus)
    reader.forget(5)
    await send(bus, *said(opening(5), "late"), *said(opening(6), "new"))

    assert await queues(reader, opening(5)) is None
    assert reader.positions() == {"shares/0": 1}


@story
async def test_arrivals_come_once_and_in_order(bus, scribe):
    wanted = Wanted("releases", 0, 1)
    reader = DecisionReader(bus)
    await send(bus, *said(opening(1), "a", wanted=wanted), *said(opening(2), "b", wanted=wanted))
    first = await reader.arrivals("releases")
    await send(bus, *said(opening(2), "again", wanted=wanted), *said(opening(3), "c", wanted=wanted))
    second = await reader.arrivals("releases")

    assert [each.record.seq for each in first] == [1, 2]
    assert [each.record.seq for each in second] == [3]


@pytest.mark.parametrize(
    ("topic", "partition", "shard", "expected"),
    [("shares", 3, 0, 3), ("asks", 0, 0, 0), ("asks", 0, 5, 5), ("asks", 2, 5, 133)],
)
def test_every_shard_of_every_cell_has_a_partition_of_asks(topic, partition, shard, expected):
    assert partition_of(topic, partition, shard) == expected


def test_wanted_answers_are_named_in_shard_order():
    assert wanted_of(["shares", "asks"], 2) == [("shares", 0, 1), ("asks", 0, 2), ("asks", 1, 2)]


def test_a_heading_is_read_without_the_rest():
    _, content = answer(opening(7), SHARES, Shares([]))

    assert heading(content) == (7, "shares/0-1/default/7/r7/00")
