"""The embedded bus beyond the port: what its files look like, what a sync shows, what stays in memory."""

import asyncio
import json
import os
import threading
from hashlib import sha256

import pytest

from largesse.bus.file.bus import DirectoryHeld, Disk, FileBus
from largesse.bus.file.group_commit import LINE_BYTES
from largesse.bus.file.reading import read_journal
from largesse.bus.port import BusError, Outgoing
from tests.unit.file_bus_folders import everything, out, segments, values, with_bus, written


class CountingDisk(Disk):
    """Counts the syncs."""

    syncs = 0

    def sync(self, file):
        self.syncs += 1
        super().sync(file)


class GatedDisk(Disk):
    """Every sync says that it has begun, and waits to be let through."""

    def __init__(self):
        self.begun = threading.Event()
        self.gate = threading.Event()

    def sync(self, file):
        self.begun.set()
        assert self.gate.wait(240)
        super().sync(file)


# The files


def test_a_line_is_one_json_document_with_the_values_in_it(tmp_path):
    async def story(bus):
        await bus.writer().send([out('{"job":"j1"}', key="j1", headers={"author": "ä"}), out(b"\xff\n", "tasks", 2)])

    with_bus(tmp_path, story)

    (line,) = segments(tmp_path)[0].read_text().splitlines()
    document = json.loads(line)
    assert list(document) == ["line", "prev", "batch", "sum"]
    assert document["line"] == 1
    assert document["prev"] == "0" * 64
    assert document["batch"] == [
        {"topic": "jobs", "partition": 0, "offset": 0, "size": 12, "key": "j1", "headers": {"author": "ä"}}
        | {"value": {"job": "j1"}},
        {"topic": "tasks", "partition": 2, "offset": 0, "size": 2, "base64": "/wo="},
    ]
    assert document["sum"] == sha256(line.split(',"sum":')[0].encode()).hexdigest()


def test_every_line_names_the_sum_of_the_line_before_it_also_across_segments(tmp_path):
    written(tmp_path, 20, segment_bytes=1_000)

    assert len(segments(tmp_path)) > 3
    documents = [json.loads(line) for path in segments(tmp_path) for line in path.read_text().splitlines()]
    assert [document["line"] for document in documents] == list(range(1, 21))
    assert [later["prev"] for later in documents[1:]] == [earlier["sum"] for earlier in documents[:-1]]
    for path in segments(tmp_path):
        assert path.name == f"journal-{json.loads(path.read_text().splitlines()[0])['line']:012d}.jsonl"
        assert path.stat().st_size <= 1_000


def test_a_line_larger_than_a_segment_gets_a_segment_of_its_own(tmp_path):
    async def story(bus):
        writer = bus.writer()
        for value in ("1", '"' + "x" * 5_000 + '"', "3"):
            await writer.send([out(value)])

    with_bus(tmp_path, story, segment_bytes=1_000)

    assert len(segments(tmp_path)) == 3
    assert [len(value) for value in values(tmp_path)] == [1, 5_002, 1]


def test_a_very_large_batch_becomes_several_lines_in_its_order(tmp_path):
    sent = [b'"%d%b"' % (number, b"x" * 900_000) for number in range(10)]

    async def story(bus):
        assert await bus.writer().send([out(value) for value in sent]) == list(range(10))
        return [message.value for message in await everything(bus)]

    assert with_bus(tmp_path, story) == sent
    assert values(tmp_path) == sent
    sizes = [len(line) for path in segments(tmp_path) for line in path.read_bytes().splitlines()]
    assert len(sizes) == 3
    assert max(sizes) < LINE_BYTES + 1_000


def test_the_journal_keeps_all_topics_in_the_order_of_their_sends(tmp_path):
    sent = [out(str(number), topic=f"topic{number % 3}", partition=number % 2) for number in range(30)]

    async def story(bus):
        writers = [bus.writer(), bus.writer()]
        sends = [writers[number % 2].send([each], durable=number % 4 == 0) for number, each in enumerate(sent)]
        await asyncio.gather(*sends)

    with_bus(tmp_path, story)

    assert [(m.topic, m.partition, m.value) for m in read_journal(tmp_path)] == [
        (each.topic, each.partition, each.value) for each in sent
    ]


# Opening again


@pytest.mark.parametrize("cache_bytes", [0, 1 << 20], ids=["read from disk", "read from memory"])
@pytest.mark.parametrize("segment_bytes", [600, 1 << 20], ids=["many segments", "one segment"])
def test_a_bus_opened_again_has_what_it_had_and_goes_on(tmp_path, segment_bytes, cache_bytes):
    options = {"segment_bytes": segment_bytes, "cache_bytes": cache_bytes}

    async def write_ten(bus):
        first = (await bus.bounds("jobs", 0))[1]
        for number in range(first, first + 10):
            assert await bus.writer().send([out(str(number)), out(str(-number), "tasks", number % 2)]) == [
                number,
                number // 2,
            ]
        return await everything(bus), await everything(bus, "tasks", 1)

    async def read(bus):
        assert bus.repaired is None
        return await everything(bus), await everything(bus, "tasks", 1)

    for turn in range(3):
        result = with_bus(tmp_path, write_ten, **options)
        assert [message.value for message in result[0]] == [b"%d" % number for number in range(10 * (turn + 1))]
        assert with_bus(tmp_path, read, **options) == result


def test_an_empty_directory_opens_and_closes_and_opens(tmp_path):
    async def story(bus):
        return await bus.fetch("jobs", 0, 0)

    assert with_bus(tmp_path / "new" / "folder", story) == []
    assert with_bus(tmp_path / "new" / "folder", story) == []
    assert values(tmp_path / "new" / "folder") == []


def test_what_was_not_durable_is_so_after_closing(tmp_path):
    disk = CountingDisk()

    async def story(bus):
        await bus.writer().send([out("1")], durable=False)
        assert disk.syncs == 0

    with_bus(tmp_path, story, disk=disk)

    assert disk.syncs == 1
    assert values(tmp_path) == [b"1"]


def test_messages_are_read_back_across_many_stretches_of_the_journal(tmp_path):
    """More than 64 KiB between entries of the index, a seldom topic among a busy one."""

    async def write(bus):
        writer = bus.writer()
        for number in range(600):
            batch = [out(f'"{number}{"x" * 900}"')]
            if number % 97 == 0:
                batch.append(out(str(number), "seldom"))
            await writer.send(batch, durable=False)

    async def read(bus):
        assert [int(message.value) for message in await everything(bus, "seldom")] == list(range(0, 600, 97))
        for offset in (0, 71, 72, 73, 599):
            (message,) = await bus.fetch("jobs", 0, offset, most=1)
            assert message.offset == offset
            assert message.value.startswith(b'"%dx' % offset)
        assert len(await bus.fetch("jobs", 0, 0, most=600)) == 600
        for number in (2, 5):
            assert [m.offset for m in await bus.fetch("seldom", 0, number, most=2)] == list(
                range(number, min(number + 2, 7))
            )

    with_bus(tmp_path, write, segment_bytes=200_000)
    with_bus(tmp_path, read, segment_bytes=200_000)


def test_a_fetch_from_disk_ends_after_some_megabytes_and_the_next_goes_on(tmp_path):
    async def write(bus):
        for number in range(30):
            await bus.writer().send([out(b'"%d%b"' % (number, b"x" * 500_000))], durable=False)

    async def read(bus):
        assert 1 <= len(await bus.fetch("jobs", 0, 0)) < 30
        return [message.offset for message in await everything(bus)]

    with_bus(tmp_path, write)
    assert with_bus(tmp_path, read) == list(range(30))


# What readers see, and when


def test_a_durable_message_is_hidden_until_its_sync_is_done(tmp_path):
    disk = GatedDisk()

    async def story(bus):
        sending = asyncio.create_task(bus.writer().send([out("1")]))
        fetching = asyncio.create_task(bus.fetch("jobs", 0, 0, wait_ms=60_000))
        assert await asyncio.to_thread(disk.begun.wait, 60)
        assert await bus.bounds("jobs", 0) == (0, 0)
        assert await bus.fetch("jobs", 0, 0) == []
        assert not sending.done()
        assert not fetching.done()

        disk.gate.set()
        assert await sending == [0]
        assert [message.value for message in await fetching] == [b"1"]

    with_bus(tmp_path, story, disk=disk)


def test_a_message_that_is_not_durable_is_shown_before_any_sync(tmp_path):
    disk = GatedDisk()

    async def story(bus):
        writer = bus.writer()
        sending = asyncio.create_task(writer.send([out("1", "cluster.log")]))
        assert await asyncio.to_thread(disk.begun.wait, 60)

        assert await writer.send([out("2", "shares")], durable=False) == [0]
        assert [message.value for message in await bus.fetch("shares", 0, 0)] == [b"2"]
        assert not sending.done()
        disk.gate.set()
        await sending

    with_bus(tmp_path, story, disk=disk)


def test_what_follows_a_hidden_message_in_its_partition_waits_with_it(tmp_path):
    disk = GatedDisk()

    async def story(bus):
        writer = bus.writer()
        first = asyncio.create_task(writer.send([out("1")]))
        assert await asyncio.to_thread(disk.begun.wait, 60)
        second = asyncio.create_task(writer.send([out("2")], durable=False))
        await asyncio.sleep(0)
        assert await bus.bounds("jobs", 0) == (0, 0)
        assert not second.done()

        disk.gate.set()
        assert [await first, await second] == [[0], [1]]
        assert await bus.bounds("jobs", 0) == (0, 2)

    with_bus(tmp_path, story, disk=disk)


def test_senders_that_wait_share_one_sync(tmp_path):
    disk = CountingDisk()

    async def story(bus):
        await asyncio.gather(*(bus.writer().send([out(str(number))]) for number in range(100)))

    with_bus(tmp_path, story, disk=disk)

    assert disk.syncs == 1


def test_a_durable_send_makes_durable_what_was_sent_before_it(tmp_path):
    disk = CountingDisk()

    async def story(bus):
        for number in range(10):
            await bus.writer().send([out(str(number), "shares")], durable=False)
        assert disk.syncs == 0
        await bus.writer().send([out("closing", "cluster.log")])
        assert disk.syncs == 1
        assert len(values(tmp_path)) == 11

    with_bus(tmp_path, story, disk=disk)


def test_a_cancelled_send_arrives_whole_and_harms_nobody(tmp_path):
    disk = GatedDisk()

    async def story(bus):
        writer = bus.writer()
        given_up = asyncio.create_task(writer.send([out("1"), out("2")]))
        other = asyncio.create_task(writer.send([out("3")]))
        assert await asyncio.to_thread(disk.begun.wait, 60)
        given_up.cancel()
        await asyncio.wait([given_up])
        disk.gate.set()

        assert await other == [2]
        assert [message.value for message in await everything(bus)] == [b"1", b"2", b"3"]

    with_bus(tmp_path, story, disk=disk)


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(Outgoing("jobs", 0, b"1", headers={"author": "\ud800"}), id="a header that is no Unicode"),
        pytest.param(
            Outgoing("jobs", 0, b"1", headers={"attempt": 1}),  # type: ignore[dict-item]
            id="a header that is a number",
        ),
        pytest.param(
            Outgoing("jobs", 0, b"1", key=b"k"),  # type: ignore[arg-type]
            id="a key that is bytes",
        ),
        pytest.param(Outgoing("\udfff", 0, b"1"), id="a topic that is no Unicode"),
    ],
)
def test_a_batch_that_cannot_be_written_leaves_no_trace(tmp_path, wrong):
    async def story(bus):
        writer = bus.writer()
        with pytest.raises(TypeError):
            await writer.send([out("1"), wrong])
        return await writer.send([out("2")])

    assert with_bus(tmp_path, story) == [0]
    assert values(tmp_path) == [b"2"]


# Memory


def test_memory_keeps_a_bounded_tail_and_the_rest_is_read_from_disk(tmp_path):
    async def story(bus):
        writer = bus.writer()
        for number in range(200):
            await writer.send([out(str(number) + "0" * 500)])
        assert sum(len(partition.recent) for partition in bus._partitions.values()) <= 12
        assert [message.offset for message in await everything(bus)] == list(range(200))
        (fetched,) = await bus.fetch("jobs", 0, 199)
        assert fetched is bus._partitions["jobs", 0].recent[199]

    with_bus(tmp_path, story, cache_bytes=10_000)


def test_what_was_sent_long_ago_is_read_from_disk(tmp_path):
    async def story(bus):
        for number in range(20):
            await bus.writer().send([out(str(number))])
        assert sum(len(partition.recent) for partition in bus._partitions.values()) <= 1
        assert [message.offset for message in await everything(bus)] == list(range(20))

    with_bus(tmp_path, story, cache_seconds=0)


def test_when_too_much_waits_for_the_disk_every_send_waits(tmp_path, monkeypatch):
    monkeypatch.setattr("largesse.bus.file.bus.QUEUE_BYTES_MAX", 1_000)
    disk = GatedDisk()

    async def story(bus):
        writer = bus.writer()
        durable = asyncio.create_task(writer.send([out("1", "cluster.log")]))
        assert await asyncio.to_thread(disk.begun.wait, 60)
        await writer.send([out(b"x" * 1_000)], durable=False)
        held = asyncio.create_task(writer.send([out("3")], durable=False))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not held.done()
        assert await bus.bounds("jobs", 0) == (0, 2)

        disk.gate.set()
        assert [await durable, await held] == [[0], [1]]

    with_bus(tmp_path, story, disk=disk)


# Closing and holding


def test_closing_waits_for_what_was_sent(tmp_path):
    disk = GatedDisk()

    async def main():
        bus = FileBus(tmp_path, disk=disk)
        sending = asyncio.create_task(bus.writer().send([out("1")]))
        assert await asyncio.to_thread(disk.begun.wait, 60)
        closing = asyncio.create_task(bus.close())
        await asyncio.sleep(0)
        with pytest.raises(BusError, match="closed"):
            await bus.writer().send([out("2")])
        disk.gate.set()
        await closing
        assert await sending == [0]

    asyncio.run(main())
    assert values(tmp_path) == [b"1"]


def test_a_close_that_is_cancelled_leaves_nobody_waiting_and_lets_the_directory_go(tmp_path):
    disk = GatedDisk()

    async def main():
        bus = FileBus(tmp_path, disk=disk)
        first = asyncio.create_task(bus.writer().send([out("1")]))
        assert await asyncio.to_thread(disk.begun.wait, 60)
        second = asyncio.create_task(bus.writer().send([out("2")]))
        await asyncio.sleep(0)
        closing = asyncio.create_task(bus.close())
        await asyncio.sleep(0)
        closing.cancel()
        disk.gate.set()
        await asyncio.wait([closing])
        assert await first == [0]
        with pytest.raises(BusError, match="closed"):
            await second

    asyncio.run(main())
    assert values(tmp_path) == [b"1"]
    assert with_bus(tmp_path, lambda bus: bus.writer().send([out("next")])) == [1]


def test_a_second_bus_in_one_directory_is_refused_and_may_come_after_the_first(tmp_path):
    async def story(bus):
        with pytest.raises(DirectoryHeld) as held:
            FileBus(tmp_path)
        assert held.value.pid == os.getpid()
        assert str(os.getpid()) in str(held.value)
        assert str(tmp_path) in str(held.value)

    with_bus(tmp_path, story)
    with_bus(tmp_path, everything)


def test_a_journal_can_be_read_while_a_bus_holds_it(tmp_path):
    async def story(bus):
        writer = bus.writer()
        for number in range(10):
            await writer.send([out(str(number))])
            assert values(tmp_path) == [str(each).encode() for each in range(number + 1)]

    with_bus(tmp_path, story, segment_bytes=600)


def test_reading_stops_where_the_journal_ended_when_each_file_was_reached(tmp_path):
    async def story(bus):
        await bus.writer().send([out("1"), out("2")])
        reading = read_journal(tmp_path)
        assert next(reading).value == b"1"
        await bus.writer().send([out("3")])
        return [message.value for message in reading]

    assert with_bus(tmp_path, story) == [b"2"]
