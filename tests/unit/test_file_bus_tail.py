"""What no sync had reached when the power failed is cut off and kept aside; what a sync had reached is never cut."""

import asyncio
import shutil
from contextlib import suppress

import pytest
from structlog.testing import capture_logs

from largesse.bus.file.bus import FileBus, JournalDamaged
from largesse.bus.file.head import MARK_BYTES, Head, mark_text, read_mark
from largesse.bus.file.reading import read_journal
from largesse.failpoints import VARIABLE
from tests.unit.file_bus_folders import crashed, out, segments, values, with_bus, written
from tests.unit.test_file_bus_crash import process

LINES = 12
SEGMENT_BYTES = 1_100
"""Room for four of them."""


def synced_to(folder, line):
    """The folder as a killed process leaves it whose last sync had reached this line."""
    crashed(folder)
    sums = {0: "0" * 64}
    for path in segments(folder):
        for raw in path.read_bytes().splitlines():
            sums[len(sums)] = raw[-66:-2].decode()
    (folder / "synced.json").write_bytes(mark_text(Head(line, sums[line])))
    return folder


@pytest.fixture
def folder(tmp_path):
    """Three segments of four lines; the last two lines were written and never synced."""
    return synced_to(written(tmp_path, LINES, segment_bytes=SEGMENT_BYTES), LINES - 2)


def holed(path, line, at=20, size=30):
    """Zeros in the middle of a line, counted from 1."""
    lines = path.read_bytes().splitlines(keepends=True)
    raw = lines[line - 1]
    lines[line - 1] = raw[:at] + bytes(size) + raw[at + size :]
    path.write_bytes(b"".join(lines))
    return b"".join(lines[line - 1 :])


def test_a_hole_behind_the_last_sync_ends_the_journal_before_it_and_what_follows_is_kept_aside(folder):
    path = segments(folder)[-1]
    tail = holed(path, 3)

    with capture_logs() as reading:
        assert values(folder) == [b'{"n":%d}' % number for number in range(LINES - 2)]
    assert [entry["event"] for entry in reading] == ["journal_tail_cut"]

    async def story(bus):
        assert (bus.repaired.file, bus.repaired.line, bus.repaired.bytes_torn) == (path, 3, len(tail))
        assert bus.kept.read_bytes() == tail
        return await bus.writer().send([out("new")])

    with capture_logs() as opening:
        assert with_bus(folder, story) == [LINES - 2]
    assert [(entry["event"], entry["log_level"]) for entry in opening] == [("journal_tail_cut", "warning")]
    assert opening[0]["kept"] == str(folder / "journal-000000000009.line-3-1.cut")
    assert values(folder)[-1] == b"new"


def test_every_cut_tail_has_a_file_of_its_own(folder):
    for _ in range(2):
        holed(segments(folder)[-1], 3)
        with_bus(folder, lambda bus: bus.writer().send([out("new"), out("newer")]))
        synced_to(folder, LINES - 2)

    assert len(list(folder.glob("*.cut"))) == 2


@pytest.mark.parametrize("line", [1, 2])
def test_a_hole_before_the_last_sync_is_damage_by_file_and_line(folder, line):
    path = segments(folder)[-1]
    holed(path, line)

    for refused in (lambda: FileBus(folder), lambda: list(read_journal(folder))):
        with pytest.raises(JournalDamaged) as damaged:
            refused()
        assert (damaged.value.file, damaged.value.line) == (path, line)
    assert not list(folder.glob("*.cut"))


@pytest.mark.parametrize("segment", [0, 1])
def test_a_hole_in_an_earlier_segment_is_damage_however_old_the_mark_is(folder, segment):
    path = segments(folder)[segment]
    holed(path, 2)
    synced_to(folder, 0)

    with pytest.raises(JournalDamaged, match=path.name):
        FileBus(folder)


@pytest.mark.parametrize("rest", [b"\n", b"hello\n", b"\x00" * 4_096 + b"\n"])
def test_bytes_of_somebody_else_behind_the_last_line_are_kept_aside(folder, rest):
    path = segments(folder)[-1]
    path.write_bytes(path.read_bytes() + rest)

    with_bus(folder, lambda bus: bus.writer().send([out("new")]))

    assert (folder / "journal-000000000009.line-5-1.cut").read_bytes() == rest
    assert values(folder)[-2:] == [b'{"n":%d}' % (LINES - 1), b"new"]


@pytest.mark.parametrize("mark", [None, b"", b"{}", b"\x00" * MARK_BYTES, b'{"line":"x"}'])
def test_without_a_mark_that_can_be_read_every_unreadable_line_is_damage(folder, mark):
    """As in a journal of an earlier version: nobody knows what of it was acknowledged."""
    (folder / "synced.json").unlink()
    if mark is not None:
        (folder / "synced.json").write_bytes(mark)
    assert values(folder)[-1] == b'{"n":%d}' % (LINES - 1)
    holed(segments(folder)[-1], 3)

    with pytest.raises(JournalDamaged):
        FileBus(folder)


def test_a_mark_of_another_journal_is_damage(folder):
    (folder / "synced.json").write_bytes(mark_text(Head(11, "0" * 64)))

    with pytest.raises(JournalDamaged, match=r"synced\.json remembers another line 11"):
        FileBus(folder)


def test_a_mark_beyond_the_last_line_demands_nothing(tmp_path):
    """A copy of the folder that was made while a process wrote there: the mark was copied last."""
    written(tmp_path, 3)
    mark = (tmp_path / "synced.json").read_bytes()
    crashed(tmp_path)
    path = segments(tmp_path)[0]
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:2])[:-5])
    assert read_mark(tmp_path).line == 3

    with_bus(tmp_path, lambda bus: bus.writer().send([out("new")]))

    assert values(tmp_path) == [b'{"n":0}', b"new"]
    assert (tmp_path / "synced.json").read_bytes() != mark


def test_the_mark_follows_every_sync_and_keeps_its_size(tmp_path):
    async def story(bus):
        for number in range(3):
            await bus.writer().send([out("1")])
            assert read_mark(tmp_path).line == 2 * number + 1
            await bus.writer().send([out("2")], durable=False)
            assert (tmp_path / "synced.json").stat().st_size == MARK_BYTES

    with_bus(tmp_path, story)
    assert read_mark(tmp_path).line == 6


def test_a_mark_that_cannot_be_written_hinders_nobody(tmp_path):
    async def story(bus):
        (tmp_path / "synced.json").unlink()
        (tmp_path / "synced.json").mkdir()
        return await bus.writer().send([out("1")])

    assert with_bus(tmp_path, story) == [0]
    assert values(tmp_path) == [b"1"]


@pytest.mark.parametrize("point", ["before_mark", "after_mark"])
def test_a_death_between_a_sync_and_its_mark_loses_nothing(tmp_path, point, monkeypatch):
    monkeypatch.setenv(VARIABLE, f"bus:{point}:5")
    with process("write", tmp_path, 0) as writing:
        said = writing.stdout.readlines()
        assert writing.wait() == -9
    monkeypatch.delenv(VARIABLE)
    acknowledged = [line.split(" ", 1)[1].strip() for line in said if line.endswith("\n")]

    log = [message.value.decode() for message in read_journal(tmp_path) if message.topic == "cluster.log"]

    assert acknowledged == log[: len(acknowledged)]
    assert len(log) > len(acknowledged) >= 4
    assert with_bus(tmp_path, lambda bus: bus.bounds("cluster.log", 0)) == (0, len(log))


def test_a_copy_made_at_any_moment_of_writing_opens(tmp_path):
    """Whatever is copied first, and however much is written meanwhile."""
    copies = []

    async def story(bus):
        await bus.writer().send([out("first"), out("first", "snapshots", key="k")])
        for number in range(8):
            for path in (tmp_path / "one").rglob("*"):
                # The later a file is copied, the more it knows.
                await bus.writer().send(
                    [out(str(number)), out("s" * number, "snapshots", key="k")], durable=number % 2 == 0
                )
                copy = tmp_path / f"copy-{number}" / path.relative_to(tmp_path / "one")
                copy.parent.mkdir(parents=True, exist_ok=True)
                with suppress(FileNotFoundError, IsADirectoryError):
                    shutil.copy(path, copy)
            copies.append(tmp_path / f"copy-{number}")

    with_bus(tmp_path / "one", story)
    opened = [with_bus(copy, lambda bus: bus.writer().send([out("new")])) for copy in copies]

    assert len(opened) == 8


@pytest.mark.parametrize("segment_bytes", [700, 1 << 20])
def test_a_copy_that_begins_with_the_head_opens_whatever_is_written_meanwhile(tmp_path, segment_bytes):
    """Also where segments begin between two files of the copy. docs/operations.md tells operators so."""
    one, copy = tmp_path / "one", tmp_path / "copy"

    async def story(bus):
        writer = bus.writer()
        for number in range(10):
            await writer.send([out(f"{number}"), out("s", "snapshots", key="k")])
        shutil.copytree(one, copy, ignore=lambda _, names: {*names} - {"head.json"})
        for path in sorted(one.rglob("*.json*")):
            await writer.send([out("meanwhile"), out("t", "snapshots", key="k")], durable=False)
            await writer.send([out("meanwhile, durable")])
            (copy / path.relative_to(one)).parent.mkdir(parents=True, exist_ok=True)
            if path.name != "head.json":
                with suppress(FileNotFoundError):
                    shutil.copy(path, copy / path.relative_to(one))

    with_bus(one, story, segment_bytes=segment_bytes)

    found = with_bus(copy, lambda bus: bus.fetch("jobs", 0, 0, most=10))
    assert [message.value for message in found] == [b"%d" % number for number in range(10)]


def test_a_full_disk_while_a_tail_is_kept_aside_is_said_and_cuts_nothing(folder, monkeypatch):
    path = segments(folder)[-1]
    holed(path, 3)
    before = path.read_bytes()

    def refuse(place, data):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("largesse.bus.file.journal.replace_file", refuse)
        with pytest.raises(Exception, match=r"journal-000000000009\.jsonl: No space left.*Make room"):
            FileBus(folder)
    assert path.read_bytes() == before
    assert asyncio.run(_opens(folder))


async def _opens(folder):
    bus = FileBus(folder)
    await bus.close()
    return bus.kept is not None
