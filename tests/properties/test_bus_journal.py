"""What must hold of the embedded bus's journal whatever was sent, and whatever becomes of its files."""

import asyncio
import shutil
import tempfile
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
from hypothesis import assume
from hypothesis import given as for_all
from hypothesis import strategies as st

from largesse.bus.file.bus import Disk, FileBus, JournalDamaged
from largesse.bus.file.reading import read_journal
from largesse.bus.memory import MemoryBus
from largesse.bus.port import Outgoing
from tests.unit.file_bus_folders import crashed, everything, out, segments, with_bus

LINES = 9
SEGMENT_BYTES = 1_000


@contextmanager
def folder():
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@cache
def journal(*, closed: bool) -> dict[str, bytes]:
    """The files of a journal of three segments with every kind of message in it; the same ones every time."""

    async def story(bus):
        writer = bus.writer()
        for number in range(LINES):
            batch = [
                out(f'{{"n":{number}}}', key="k"),
                out(b"\xff\x00", "tasks", number % 2, headers={"author": "a,b"}),
            ]
            await writer.send(batch[: 1 + number % 2], durable=False)

    with folder() as made:
        with_bus(made, story, segment_bytes=SEGMENT_BYTES)
        assert len(segments(made)) == 3
        if not closed:
            crashed(made)
        return {path.name: path.read_bytes() for path in made.iterdir() if path.name != "lock"}


def laid_out(made: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (made / name).write_bytes(data)
    return made


def segments_of(files: dict[str, bytes]) -> list[str]:
    return sorted(name for name in files if name.startswith("journal-"))


def lines_of(files: dict[str, bytes]) -> list[tuple[str, bytes]]:
    return [(name, line) for name in segments_of(files) for line in files[name].splitlines(keepends=True)]


def refusal(made: Path) -> JournalDamaged:
    with pytest.raises(JournalDamaged) as reading:
        list(read_journal(made))
    with pytest.raises(JournalDamaged) as opening:
        FileBus(made)
    assert str(opening.value) == str(reading.value)
    return opening.value


@for_all(st.booleans(), st.data())
def test_any_single_changed_byte_is_refused_by_file_and_line(closed, data):
    files = dict(journal(closed=closed))
    name = data.draw(st.sampled_from(segments_of(files)))
    at = data.draw(st.integers(0, len(files[name]) - 1))
    other = data.draw(st.integers(0, 255).filter(lambda byte: byte != files[name][at]))
    line = files[name][:at].count(b"\n") + 1
    files[name] = files[name][:at] + bytes([other]) + files[name][at + 1 :]

    with folder() as made:
        refused = refusal(laid_out(made, files))
        assert (refused.file.name, refused.line) == (name, line)


@for_all(st.data())
def test_any_removed_repeated_or_moved_line_is_refused(data):
    files = dict(journal(closed=True))
    lines = lines_of(files)
    order = data.draw(st.lists(st.integers(0, len(lines) - 1), max_size=len(lines) + 2))
    assume(order != list(range(len(lines))))
    changed = files | dict.fromkeys(segments_of(files), b"")
    for place, chosen in enumerate(order):
        # Every segment keeps its number of lines as far as there are any.
        name = lines[min(place, len(lines) - 1)][0]
        changed[name] += lines[chosen][1]

    with folder() as made:
        refusal(laid_out(made, changed))


@for_all(st.data())
def test_two_exchanged_lines_are_refused_at_the_first_of_them(data):
    files = dict(journal(closed=False))
    lines = lines_of(files)
    first, second = sorted(data.draw(st.lists(st.integers(0, len(lines) - 1), min_size=2, max_size=2, unique=True)))
    swapped = [line for _, line in lines]
    swapped[first], swapped[second] = swapped[second], swapped[first]
    changed = files | dict.fromkeys(segments_of(files), b"")
    for (name, _), line in zip(lines, swapped, strict=True):
        changed[name] += line

    with folder() as made:
        refused = refusal(laid_out(made, changed))
        before = [name for name, _ in lines[: first + 1]]
        assert (refused.file.name, refused.line) == (before[-1], before.count(before[-1]))


@for_all(st.integers(0, 10_000), st.binary(max_size=30).filter(lambda tail: b"\n" not in tail))
def test_a_journal_torn_anywhere_in_its_last_segment_keeps_every_whole_line(cut, rest):
    files = dict(journal(closed=False))
    last = segments_of(files)[-1]
    kept = cut % (len(files[last]) + 1)
    lacks_newline = files[last][kept:].startswith(b"\n")
    # Bytes of somebody else in the place of a newline are damage; anywhere else they make a torn line.
    torn = files[last][:kept] + (b"" if lacks_newline else rest)
    files[last] = torn
    whole = b"".join(files[name] for name in segments_of(files)).count(b"\n") + lacks_newline

    with folder() as made:
        read = list(read_journal(laid_out(made, files)))

        async def story(bus):
            assert (bus.repaired is None) == (torn == b"" or torn.endswith(b"\n"))
            await bus.writer().send([out("new")])

        with_bus(made, story, segment_bytes=SEGMENT_BYTES)
        assert list(read_journal(made))[:-1] == read
        lines = b"".join(path.read_bytes() for path in segments(made)).splitlines()
        assert len(lines) == whole + 1


@for_all(st.lists(st.binary(max_size=60).filter(lambda chunk: b"\n" not in chunk), max_size=4))
def test_bytes_of_somebody_else_are_damage_or_a_torn_line_and_never_a_message(chunks):
    with folder() as made:
        (made / "journal-000000000001.jsonl").write_bytes(b"\n".join(chunks))
        crashed(made)
        # A line with an end is damage; one without, torn.
        if len(chunks) > 1:
            assert refusal(made).line == 1
        else:
            assert list(read_journal(made)) == []


messages = st.builds(
    Outgoing,
    topic=st.sampled_from(["jobs", "tasks", 'täsks,"size":1', "cluster.log"]),
    partition=st.integers(0, 2),
    value=st.one_of(st.binary(max_size=40), st.integers(0, 9).map(lambda digit: b'{"n":%d,"value":"}]"}' % digit)),
    key=st.text(max_size=3),
    headers=st.dictionaries(st.sampled_from(["author", "size", 'va"lue":']), st.text(max_size=3), max_size=2),
)
steps = st.one_of(
    st.tuples(st.just("send"), st.lists(messages, min_size=1, max_size=5), st.booleans()),
    st.tuples(st.just("reopen")),
    st.tuples(st.just("read"), messages, st.integers(0, 9), st.integers(1, 4)),
)


def agrees(story, also=None, **options):
    """Tells a story to a file bus and to one in memory: each answer is the same, and so is all there is at the end.
    `also`: further steps by name, as what they do to the folder and the file bus."""

    async def compare(made):
        plain, bus = MemoryBus(), FileBus(made, **options)
        for step in story:
            match step:
                case "send", batch, durable:
                    expected = await plain.writer().send(batch)
                    assert await bus.writer().send(batch, durable=durable) == expected
                case ("reopen",):
                    await bus.close()
                    bus = FileBus(made, **options)
                case "read", where, offset, most:
                    first, end = await plain.bounds(where.topic, where.partition)
                    assert await bus.bounds(where.topic, where.partition) == (first, end)
                    asked = (where.topic, where.partition, min(offset, end))
                    assert await bus.fetch(*asked, most=most) == await plain.fetch(*asked, most=most)
                case (name,):
                    also[name](made, bus)
        for topic, partition in plain._partitions:
            assert await everything(bus, topic, partition) == await everything(plain, topic, partition)
        await bus.close()

    with folder() as made:
        asyncio.run(compare(made))


@for_all(st.lists(steps, max_size=25), st.sampled_from([1, 500, 1 << 20]), st.sampled_from([0, 1_500, 1 << 20]))
def test_the_file_bus_answers_as_the_memory_bus_does_however_often_it_is_opened(story, segment_bytes, cache_bytes):
    agrees(story, segment_bytes=segment_bytes, cache_bytes=cache_bytes)


class Synced(Disk):
    """Notes how far each sync reached, by file."""

    def __init__(self):
        self.sizes: dict[str, int] = {}

    def sync(self, file):
        super().sync(file)
        path = Path(f"/proc/self/fd/{file}").resolve()
        self.sizes[path.name] = path.stat().st_size


@for_all(
    st.lists(st.tuples(st.lists(messages, min_size=1, max_size=3), st.booleans()), min_size=1, max_size=12),
    st.sampled_from([700, 1 << 20]),
    st.data(),
)
def test_a_power_cut_loses_nothing_that_was_acknowledged_as_durable(sends, segment_bytes, data):
    """Of what was written and never synced, any beginning may be left."""

    async def write(made, copy):
        disk = Synced()
        bus = FileBus(made, disk=disk, segment_bytes=segment_bytes)
        durable_until = 0
        written = []
        for batch, durable in sends:
            await bus.writer().send(batch, durable=durable)
            written += batch
            durable_until = len(written) if durable else durable_until
        # In the thread that writes, so between two writes.
        await asyncio.wrap_future(bus._commit._thread.submit(shutil.copytree, made, copy))
        synced = dict(disk.sizes)
        await bus.close()
        return written, durable_until, synced

    with folder() as made:
        copy = made / "copy"
        written, durable_until, synced = asyncio.run(write(made / "journal", copy))
        for path in segments(copy)[-1:]:
            least, size = synced.get(path.name, 0), path.stat().st_size
            with path.open("rb+") as file:
                file.truncate(data.draw(st.integers(least, size)))
        found = [(message.topic, message.partition, message.value) for message in read_journal(copy)]
        assert found == [(each.topic, each.partition, each.value) for each in written][: len(found)]
        assert len(found) >= durable_until
        with_bus(copy, everything)
