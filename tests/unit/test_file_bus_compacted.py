"""Compacted topics of the embedded bus: what is superseded goes, what is damaged does not count, nothing runs ahead."""

import asyncio
import shutil

import pytest
from structlog.testing import capture_logs

from largesse.bus.file.bus import Disk, FileBus
from largesse.bus.file.compacted import NAME_MAX, file_name
from largesse.bus.file.lines import encode_item, encode_line, item_opening
from largesse.bus.file.reading import read_journal
from largesse.bus.port import BusFull, Outgoing
from schemas.topics import SNAPSHOTS
from tests.unit.file_bus_folders import crashed, everything, out, segments, values, with_bus


def kept(key, value, partition=0):
    return Outgoing(SNAPSHOTS, partition, value.encode() if isinstance(value, str) else value, key)


def files(folder):
    return sorted((folder / "compacted").rglob("*.json"))


async def left(bus, partition=0):
    """What a reader finds, from the first offset that is left on."""
    first, end = await bus.bounds(SNAPSHOTS, partition)
    found = []
    while first < end and (more := await bus.fetch(SNAPSHOTS, partition, first, most=2)):
        found += more
        first = more[-1].offset + 1
    return [(message.offset, message.value) for message in found]


@pytest.mark.parametrize("durable", [True, False])
def test_the_newest_message_of_each_key_is_left_and_offsets_go_on(tmp_path, durable):
    async def story(bus):
        writer = bus.writer()
        for number, key in enumerate("aabcab"):
            assert await writer.send([kept(key, str(number))], durable=durable) == [number]
        return await left(bus), await bus.bounds(SNAPSHOTS, 0)

    expected = [(3, b"3"), (4, b"4"), (5, b"5")]
    assert with_bus(tmp_path, story) == (expected, (3, 6))
    assert with_bus(tmp_path, left) == expected
    assert [path.name for path in files(tmp_path)] == ["a.json", "b.json", "c.json"]
    assert segments(tmp_path) == []
    assert with_bus(tmp_path, lambda bus: bus.writer().send([kept("a", "6")])) == [6]


def test_thousands_of_snapshots_leave_as_many_bytes_as_one_of_each_slot(tmp_path):
    sizes = []

    async def story(bus):
        writer = bus.writer()
        for number in range(3_000):
            await writer.send([kept(f"cell/core/0/{number % 2}/0", "x" * 5_000)], durable=False)
            if number % 1_000 == 999:
                await writer.send([kept("cell/core/0/0/0", "x" * 5_000)])
                sizes.append(sum(path.stat().st_size for path in tmp_path.rglob("*")))

    with_bus(tmp_path, story)

    assert max(sizes) - min(sizes) < 100
    assert max(sizes) < 25_000
    assert len(list((tmp_path / "compacted").rglob("*.*"))) == 3


def test_messages_of_all_topics_in_one_batch_keep_their_order_and_headers(tmp_path):
    async def story(bus):
        batch = [out("1"), Outgoing(SNAPSHOTS, 2, b"\xff\n", "k", {"author": "ä"}), out("2"), kept("k", "3", 2)]
        assert await bus.writer().send(batch) == [0, 0, 1, 1]
        await bus.writer().send([Outgoing(SNAPSHOTS, 3, b"\xff\n", "k", {"author": "ä"})])
        return [message.value for message in await everything(bus)], await left(bus, 2)

    assert with_bus(tmp_path, story) == ([b"1", b"2"], [(1, b"3")])
    (message,) = with_bus(tmp_path, lambda bus: bus.fetch(SNAPSHOTS, 3, 0))
    assert (message.value, message.headers) == (b"\xff\n", {"author": "ä"})
    assert [message.value for message in read_journal(tmp_path)] == [b"1", b"2"]


class SlowDisk(Disk):
    """Notes what is there when a sync begins."""

    def __init__(self, folder):
        self.folder = folder
        self.seen = []

    def sync(self, file):
        self.seen.append([path.name for path in files(self.folder)])
        super().sync(file)


def test_a_file_is_written_once_the_journal_before_it_is_on_disk(tmp_path):
    disk = SlowDisk(tmp_path)

    async def story(bus):
        await bus.writer().send([out("not durable")], durable=False)
        await bus.writer().send([kept("a", "1")], durable=False)
        await bus.writer().send([out("durable")])
        assert [path.name for path in files(tmp_path)] == ["a.json"]

    with_bus(tmp_path, story, disk=disk)
    assert disk.seen[0] == []


def test_a_durable_message_supersedes_the_one_before_only_when_it_is_on_disk(tmp_path):
    async def story(bus):
        await bus.writer().send([kept("a", "1")])
        sending = asyncio.create_task(bus.writer().send([kept("a", "2")]))
        await asyncio.sleep(0)
        assert await left(bus) == [(0, b"1")]
        await sending
        return await left(bus)

    assert with_bus(tmp_path, story) == [(1, b"2")]


@pytest.mark.parametrize("harm", [b"", b"\x00" * 300, b"half"])
def test_a_damaged_file_does_not_count_and_the_other_slot_serves(tmp_path, harm):
    async def story(bus):
        await bus.writer().send([kept("slot/0", "older"), kept("slot/1", "newer")])

    with_bus(tmp_path, story)
    newest = files(tmp_path)[1]
    newest.write_bytes(newest.read_bytes()[:40] if harm == b"half" else harm)

    with capture_logs() as logs:
        assert with_bus(tmp_path, left) == [(0, b"older")]
    assert [(entry["event"], entry["file"]) for entry in logs] == [("compacted_file_damaged", str(newest))]
    with_bus(tmp_path, lambda bus: bus.writer().send([kept("slot/1", "again")]))
    assert with_bus(tmp_path, left) == [(0, b"older"), (1, b"again")]


def test_a_file_of_another_key_or_place_does_not_count(tmp_path):
    with_bus(tmp_path, lambda bus: bus.writer().send([kept("a", "1"), kept("b", "2")]))
    first, second = files(tmp_path)
    first.replace(second)

    with capture_logs() as logs:
        assert with_bus(tmp_path, left) == []
    assert [entry["reason"] for entry in logs] == ["it belongs to another place in the file"]


def test_a_file_that_knows_more_than_the_journal_does_not_count(tmp_path):
    """The journal was copied first, or lost its unsynced tail."""

    async def story(bus):
        await bus.writer().send([out("1")])
        await bus.writer().send([kept("slot/0", "older")])
        await bus.writer().send([out("2")])
        await bus.writer().send([kept("slot/1", "newer")])

    with_bus(tmp_path, story)
    crashed(tmp_path)
    path = segments(tmp_path)[0]
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])

    with capture_logs() as logs:
        assert with_bus(tmp_path, left) == [(0, b"older")]
    assert [entry["event"] for entry in logs] == ["compacted_file_skipped", "journal_lines_missing"]
    # Another line in the place of the one that it was written after does not bring it back.
    with_bus(tmp_path, lambda bus: bus.writer().send([out("other 2")]))
    assert with_bus(tmp_path, left) == [(0, b"older")]


def test_a_process_killed_while_it_wrote_a_file_leaves_the_one_before(tmp_path):
    with_bus(tmp_path, lambda bus: bus.writer().send([kept("a", "1")]))
    half = files(tmp_path)[0].with_name("a.json.new")
    half.write_bytes(b'{"line":')

    assert with_bus(tmp_path, left) == [(0, b"1")]
    assert not half.exists()


def test_a_full_disk_at_a_file_stops_the_bus_as_any_other(tmp_path, monkeypatch):
    def refuse(path, data):
        raise OSError(28, "No space left on device")

    async def main():
        bus = FileBus(tmp_path)
        await bus.writer().send([kept("a", "1")])
        with monkeypatch.context() as patched:
            patched.setattr("largesse.bus.file.journal.replace_file", refuse)
            with pytest.raises(BusFull, match=r"a\.json: No space left.*Make room"):
                await bus.writer().send([kept("a", "2")])
        assert await left(bus) == [(0, b"1")]
        with pytest.raises(BusFull):
            await bus.close()

    asyncio.run(main())
    assert with_bus(tmp_path, left) == [(0, b"1")]


def of_before(folder):
    """A journal of a version that kept compacted topics in it: two keys, each superseded once."""
    total, lines = "0" * 64, []
    for number, key in enumerate("abab"):
        items = [
            encode_item(item_opening(SNAPSHOTS, 0), number, kept(key, f'{{"n":{number}}}')),
            encode_item(item_opening("jobs", 0), number, out(f"{number}")),
        ]
        line, total = encode_line(number + 1, total, items)
        lines.append(line)
    folder.mkdir()
    (folder / "journal-000000000001.jsonl").write_bytes(b"".join(lines))
    return crashed(folder)


def test_a_journal_of_before_opens_and_its_snapshots_move_out(tmp_path):
    folder = of_before(tmp_path / "bus")

    assert with_bus(folder, left) == [(2, b'{"n":2}'), (3, b'{"n":3}')]
    assert [path.name for path in files(folder)] == ["a.json", "b.json"]
    assert with_bus(folder, lambda bus: bus.writer().send([kept("b", "5"), out("more")])) == [4, 4]
    assert with_bus(folder, left) == [(2, b'{"n":2}'), (4, b"5")]
    assert values(folder) == [b"0", b"1", b"2", b"3", b"more"]


def test_snapshots_of_before_are_read_where_no_file_can_be_made(tmp_path, monkeypatch):
    folder = of_before(tmp_path / "bus")

    def refuse(path, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("largesse.bus.file.compacted.replace_file", refuse)

    assert with_bus(folder, left) == [(2, b'{"n":2}'), (3, b'{"n":3}')]


def test_keys_have_names_of_their_own_however_long_or_odd(tmp_path):
    keys = ["", ".", "..", "a/b", "a%2Fb", "ä", "x" * NAME_MAX, "x" * (NAME_MAX + 1), "y" * 5_000, "~", "A", "a"]
    assert len({file_name(key) for key in keys}) == len(keys)
    assert all(len(file_name(key).encode()) <= 255 and "/" not in file_name(key) for key in keys)

    with_bus(tmp_path, lambda bus: bus.writer().send([kept(key, str(n)) for n, key in enumerate(keys)]))

    assert with_bus(tmp_path, left) == [(n, str(n).encode()) for n in range(len(keys))]


def test_a_folder_without_its_compacted_files_opens(tmp_path):
    with_bus(tmp_path, lambda bus: bus.writer().send([out("1"), kept("a", "1")]))
    shutil.rmtree(tmp_path / "compacted")

    assert with_bus(tmp_path, left) == []
    assert values(tmp_path) == [b"1"]
