"""A journal whose closed segments are packed says the same as before, byte for byte, or is refused by name."""

import tempfile
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import assume
from hypothesis import given as for_all
from hypothesis import strategies as st

from largesse.bus.file import packed
from largesse.bus.file.bus import FileBus, JournalDamaged
from largesse.bus.file.from_end import Ending
from largesse.bus.file.journal import list_segments, segment_path
from largesse.bus.file.packed import packed_path, read_summary, sum_of
from largesse.bus.file.packing import pack_closed
from largesse.bus.file.reading import read_journal
from largesse.bus.file.scan import Scan
from tests.properties.test_bus_journal import agrees, messages, steps
from tests.unit.file_bus_folders import everything, out, with_bus

SEGMENT_BYTES = 1_500
PLACES = [("jobs", 0), ("tasks", 0), ("tasks", 1)]


@contextmanager
def small_frames():
    """Frames hold a few lines each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("largesse.bus.file.packing.FRAME_BYTES", 400)
        packed.read_index.cache_clear()
        yield


@contextmanager
def folder():
    """A folder, and small frames."""
    with tempfile.TemporaryDirectory() as name, small_frames():
        yield Path(name)


def written(made: Path, lines: int = 30) -> None:
    async def story(bus):
        writer = bus.writer()
        for number in range(lines):
            batch = [out(f'{{"n":{number}}}', key="k"), out(b"\xff\x00" * (number % 7), "tasks", number % 2)]
            await writer.send(batch[: 1 + number % 2], durable=False)

    with_bus(made, story, segment_bytes=SEGMENT_BYTES)


packing = st.sampled_from([("pack",), ("find",)])
PACKS = {
    "pack": lambda made, bus: pack_closed(made),
    "find": lambda made, bus: bus._find_packed(list_segments(made)[:-1]),
}


@for_all(st.lists(steps | packing, max_size=30), st.sampled_from([1, 500, 2_000]), st.sampled_from([0, 1_500]))
def test_a_bus_answers_as_one_in_memory_does_whenever_what_is_packed(story, segment_bytes, cache_bytes):
    with small_frames():
        agrees(story, PACKS, segment_bytes=segment_bytes, cache_bytes=cache_bytes)


@for_all(st.lists(messages, min_size=1, max_size=25), st.integers(1, 4))
def test_every_reader_finds_what_it_found_before(batch, turns):
    async def send(bus):
        for message in batch:
            await bus.writer().send([message])

    def told(made):
        scan = Scan(made)
        lines = [(line.number, scan.sum, line.raw) for line in scan]
        ends = []
        for topic, partition in {(each.topic, each.partition): None for each in batch}:
            ending = Ending(made, topic, partition)
            while ending.earlier():
                pass
            ends.append(list(ending.messages))
        return lines, scan.ends, list(read_journal(made)), ends

    with folder() as made:
        with_bus(made, send, segment_bytes=300)
        before = told(made)
        for _ in range(turns):
            pack_closed(made)
        assert told(made) == before
        closed = list_segments(made)[:-1]
        assert [first for first in closed if segment_path(made, first).exists()] == (closed if turns == 1 else [])
        for number, total, _ in before[0]:
            has = [each for first in closed if (each := read_summary(made, first)) and first <= number <= each.last]
            assert [sum_of(made, each, number) for each in has] == [total] * len(has)


@cache
def packed_files() -> dict[str, bytes]:
    """A journal of several segments, all of them packed but the last; the same one every time."""
    with folder() as made:
        written(made)
        pack_closed(made)
        pack_closed(made)
        assert len(list(made.glob("*.zst"))) > 2
        return {path.name: path.read_bytes() for path in made.iterdir() if path.name != "lock"}


def laid_out(made: Path, files: dict[str, bytes]) -> Path:
    packed.read_index.cache_clear()
    for name, data in files.items():
        (made / name).write_bytes(data)
    return made


def refusal(made: Path) -> JournalDamaged:
    with pytest.raises(JournalDamaged) as reading:
        list(read_journal(made))
    return reading.value


async def all_of_it(bus):
    for place in PLACES:
        await everything(bus, *place)


@for_all(st.data())
def test_any_changed_byte_of_a_packed_segment_is_refused_by_its_name(data):
    files = dict(packed_files())
    name = data.draw(st.sampled_from(sorted(name for name in files if name.endswith(".zst"))))
    at = data.draw(st.integers(0, len(files[name]) - 1))
    other = data.draw(st.integers(0, 255).filter(lambda byte: byte != files[name][at]))
    files[name] = files[name][:at] + bytes([other]) + files[name][at + 1 :]

    with folder() as made:
        assert refusal(laid_out(made, files)).file.name == name
        with pytest.raises(JournalDamaged) as met:  # On opening, or where what is damaged is read.
            with_bus(made, all_of_it)
        assert met.value.file.name == name


@for_all(st.data())
def test_a_packed_segment_that_is_cut_missing_or_in_the_place_of_another_is_refused(data):
    files = dict(packed_files())
    names = sorted(name for name in files if name.endswith(".zst"))
    name = data.draw(st.sampled_from(names))
    match data.draw(st.sampled_from(["cut", "missing", "other"])):
        case "cut":
            files[name] = files[name][: data.draw(st.integers(0, len(files[name]) - 1))]
        case "missing":
            del files[name]
        case "other":
            files[name] = files[data.draw(st.sampled_from(names).filter(lambda other: other != name))]

    with folder() as made:
        refusal(laid_out(made, files))
        with pytest.raises(JournalDamaged):
            FileBus(made)


@for_all(st.data())
def test_a_packed_segment_of_another_journal_is_refused(data):
    with folder() as made, folder() as foreign:
        written(made)
        written(foreign, 40)
        for each in (made, foreign):
            pack_closed(each)
            pack_closed(each)
        first = data.draw(st.sampled_from(list_segments(made)[:-1]))
        assume(first in list_segments(foreign)[:-1])
        ours, theirs = packed_path(made, first), packed_path(foreign, first)
        theirs.write_bytes(data.draw(st.sampled_from([theirs.read_bytes(), _changed(foreign, first)])))
        same = ours.read_bytes() == theirs.read_bytes()
        ours.write_bytes(theirs.read_bytes())
        packed.read_index.cache_clear()

        if not same:
            refusal(made)
            with pytest.raises(JournalDamaged):
                FileBus(made)


def _changed(made: Path, first: int) -> bytes:
    """The same segment with a summary that hangs on nothing of this journal."""
    path = packed_path(made, first)
    summary = read_summary(made, first)
    assert summary is not None
    other = replace(summary, prev="f" * 64, sum="e" * 64)
    return path.read_bytes()[: summary.frames] + packed.ending(packed.read_index(path), other)
