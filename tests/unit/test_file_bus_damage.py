"""A journal that is not as it was written is refused by file and line; one that a crash tore is cut off and logged."""

import asyncio
import os
import shutil
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from largesse.bus.file.bus import Disk, FileBus, JournalDamaged
from largesse.bus.file.lines import encode_line
from largesse.bus.file.reading import read_journal
from largesse.bus.port import BusError
from tests.unit.file_bus_folders import crashed, everything, out, segments, values, with_bus, written

LINES = 12
SEGMENT_BYTES = 1_100
"""Room for four of them."""


@pytest.fixture
def folder(tmp_path):
    """Three segments of four lines, left behind by a killed process."""
    crashed(written(tmp_path, LINES, segment_bytes=SEGMENT_BYTES))
    assert [len(path.read_bytes().splitlines()) for path in segments(tmp_path)] == [4, 4, 4]
    return tmp_path


def refusal(folder) -> JournalDamaged:
    """How opening and reading refuse the folder, and that both do it alike."""
    with pytest.raises(JournalDamaged) as opening:
        FileBus(folder)
    with pytest.raises(JournalDamaged) as reading:
        list(read_journal(folder))
    assert str(opening.value) == str(reading.value)
    assert str(opening.value.file) in str(opening.value)
    assert f"line {opening.value.line}:" in str(opening.value)
    return opening.value


def repairs(logs):
    """Without what is said of lines that were synced: the tests tear such lines too."""
    return [entry for entry in logs if entry["event"] != "journal_lines_missing"]


def edited(path, edit) -> None:
    path.write_bytes(b"".join(edit(path.read_bytes().splitlines(keepends=True))))


def with_line_changed(at, old, new):
    def edit(lines):
        assert old in lines[at]
        return [*lines[:at], lines[at].replace(old, new), *lines[at + 1 :]]

    return edit


@pytest.mark.parametrize(
    ("segment", "edit", "line"),
    [
        pytest.param(0, with_line_changed(1, b'"n":1', b'"n":7'), 2, id="one changed digit in a value"),
        pytest.param(0, with_line_changed(0, b'"line":1', b'"line":2'), 1, id="one changed digit in a line number"),
        pytest.param(1, with_line_changed(0, b'"offset":4', b'"offset":5'), 1, id="one changed digit in an offset"),
        pytest.param(2, with_line_changed(3, b'"n":11', b'"n":12'), 4, id="one changed digit in the last line"),
        pytest.param(2, with_line_changed(3, b'"}\n', b'"]\n'), 4, id="a changed end of the last line"),
        pytest.param(2, with_line_changed(3, b'"}\n', b'"}\r'), 4, id="a changed newline of the last line"),
        pytest.param(0, with_line_changed(2, b"\n", b" "), 3, id="two lines joined"),
        pytest.param(0, with_line_changed(2, b',"batch"', b',\n"batch"'), 3, id="a line broken in two"),
        pytest.param(0, with_line_changed(2, b"\n", b"\r\n"), 3, id="another kind of newline"),
        pytest.param(0, lambda lines: [lines[0], *lines[2:]], 2, id="a removed line"),
        pytest.param(0, lambda lines: lines[1:], 1, id="the first line removed"),
        pytest.param(1, lambda lines: lines[:-1], 4, id="the last line of a full segment removed"),
        pytest.param(0, lambda lines: [lines[0], lines[2], lines[1], lines[3]], 2, id="a swapped pair of lines"),
        pytest.param(0, lambda lines: [*lines[:2], lines[1], *lines[2:]], 3, id="a line twice"),
        pytest.param(0, lambda lines: [*lines[:2], b"\n", *lines[2:]], 3, id="an empty line between"),
        pytest.param(1, lambda lines: [*lines[:3], lines[3][:-20]], 4, id="a full segment cut short"),
        pytest.param(0, lambda lines: [b"\xef\xbb\xbf", *lines], 1, id="a byte order mark"),
    ],
)
def test_a_damaged_line_is_named(folder, segment, edit, line):
    path = segments(folder)[segment]
    edited(path, edit)

    refused = refusal(folder)

    assert (refused.file, refused.line) == (path, line)


def test_a_pair_swapped_across_two_segments_is_named(folder):
    first, second, _ = segments(folder)
    last_of_first = first.read_bytes().splitlines(keepends=True)[-1]
    first_of_second = second.read_bytes().splitlines(keepends=True)[0]
    edited(first, lambda lines: [*lines[:-1], first_of_second])
    edited(second, lambda lines: [last_of_first, *lines[1:]])

    refused = refusal(folder)

    assert (refused.file, refused.line) == (first, 4)
    assert "it is line 5 by its own number where line 4 belongs" in refused.reason


def test_a_line_from_another_journal_is_named(folder, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")

    async def story(bus):
        for number in range(LINES):
            await bus.writer().send([out(f'{{"m":{number}}}')], durable=False)

    with_bus(other, story, segment_bytes=SEGMENT_BYTES)
    foreign = segments(other)[1].read_bytes().splitlines(keepends=True)[2]
    edited(segments(folder)[1], lambda lines: [*lines[:2], foreign, lines[3]])

    refused = refusal(folder)

    assert (refused.file, refused.line) == (segments(folder)[1], 3)
    assert "the line before it is not the one it was written after" in refused.reason


def test_a_well_made_line_with_a_wrong_offset_is_named(folder):
    path = segments(folder)[0]
    item = b'{"topic":"jobs","partition":0,"offset":7,"size":1,"value":1}'
    path.write_bytes(encode_line(1, "0" * 64, [item])[0])
    for later in segments(folder)[1:]:
        later.unlink()

    assert "offset 7 of jobs partition 0 where 0 belongs" in refusal(folder).reason


@pytest.mark.parametrize("number", [0, 1])
def test_a_missing_segment_is_named(folder, number):
    first, *_ = segments(folder)
    path = segments(folder)[number]
    path.unlink()

    refused = refusal(folder)

    assert (refused.file, refused.line) == (first, number * 4 + 1)
    assert f"lines {number * 4 + 1} to {number * 4 + 4} are missing" in refused.reason
    assert path.name in refused.reason


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("name", ["journal-000000000099.jsonl", "journal-000000000002.jsonl", "old.jsonl"])
def test_a_renamed_segment_is_missed(tmp_path, number, name):
    path = segments(written(tmp_path, LINES, segment_bytes=SEGMENT_BYTES))[number]
    path.rename(tmp_path / name)

    refused = refusal(tmp_path)

    assert "missing" in refused.reason or "by its name" in refused.reason
    assert refused.file.name.startswith("journal-")


def test_two_segments_with_their_names_exchanged_are_noticed(folder):
    first, second, _ = segments(folder)
    first.rename(folder / "aside")
    second.rename(first)
    (folder / "aside").rename(second)

    assert (refusal(folder).file, refusal(folder).line) == (first, 1)


# The end of the journal, which nothing hangs on


def test_a_missing_newest_segment_is_missed_even_after_a_crash(tmp_path):
    """The newest segment is remembered when it begins."""

    async def main():
        bus = FileBus(tmp_path, segment_bytes=SEGMENT_BYTES)
        for number in range(LINES):
            await bus.writer().send([out(f'{{"n":{number}}}')])
        killed = tmp_path / "killed"
        shutil.copytree(tmp_path, killed)
        await bus.close()
        return killed

    killed = asyncio.run(main())
    segments(killed)[-1].unlink()

    assert refusal(killed).file.name == "journal-000000000009.jsonl"


@pytest.mark.parametrize("kept", [0, 2])
def test_last_lines_that_are_missing_after_closing_are_missed(tmp_path, kept):
    written(tmp_path, LINES, segment_bytes=SEGMENT_BYTES)
    path = segments(tmp_path)[-1]
    edited(path, lambda lines: lines[:kept])

    refused = refusal(tmp_path)

    assert (refused.file, refused.line) == (path, kept + 1)
    assert "head.json remembers that line 12 was written" in refused.reason


def test_a_line_torn_by_hand_after_closing_is_damage(tmp_path):
    written(tmp_path, LINES, segment_bytes=SEGMENT_BYTES)
    path = segments(tmp_path)[-1]
    path.write_bytes(path.read_bytes()[:-9])

    assert (refusal(tmp_path).file, refusal(tmp_path).line) == (path, 4)


def test_another_journal_under_the_same_head_is_noticed(tmp_path):
    written(tmp_path / "one", 3)
    with_bus(tmp_path / "two", lambda bus: bus.writer().send([out("other")]))
    shutil.copy(tmp_path / "one" / "head.json", tmp_path / "two" / "head.json")
    with_bus(tmp_path / "three", lambda bus: asyncio.gather(*(bus.writer().send([out(str(n))]) for n in range(3))))
    shutil.copy(tmp_path / "one" / "head.json", tmp_path / "three" / "head.json")

    assert refusal(tmp_path / "two").line == 2
    assert "another line 3" in refusal(tmp_path / "three").reason


@pytest.mark.parametrize("text", [b"", b"{}", b'{"line":"x"}', b"[1]", b"\x00" * 50])
def test_an_unreadable_head_is_damage(tmp_path, text):
    written(tmp_path, 3)
    (tmp_path / "head.json").write_bytes(text)

    assert refusal(tmp_path).file == tmp_path / "head.json"


@pytest.mark.parametrize("left", [0, 2])
def test_a_missing_head_is_missed_where_there_are_lines(folder, left):
    (folder / "head.json").unlink()
    for path in segments(folder)[:-1][: 2 - left]:
        path.write_bytes(b"")

    refused = refusal(folder)

    assert refused.file == folder / "head.json"
    assert f"this file is missing, and {segments(folder)[2 - left].name} has lines" in refused.reason
    assert "put it back from a copy of this folder" in refused.reason


def test_a_head_from_an_older_copy_will_do(tmp_path):
    written(tmp_path, 3, segment_bytes=SEGMENT_BYTES)
    older = (tmp_path / "head.json").read_bytes()
    with_bus(tmp_path, lambda bus: bus.writer().send([out("later")] * 5), segment_bytes=SEGMENT_BYTES)
    (tmp_path / "head.json").write_bytes(older)

    assert values(tmp_path)[3:] == [b"later"] * 5


def test_a_journal_whose_making_was_cut_short_at_any_point_opens_as_new(tmp_path, monkeypatch):
    """What the disk holds after each step that makes or names a file, up to the first line."""
    seen: list[Path] = []

    def keep() -> None:
        seen.append(tmp_path / f"cut-{len(seen)}")
        shutil.copytree(tmp_path / "made", seen[-1])

    class Watched(Disk):
        def write(self, file, data):
            keep()
            return super().write(file, data)

    def kept(act):
        def done(*given, **more):
            keep()
            result = act(*given, **more)
            keep()
            return result

        return done

    with monkeypatch.context() as patched:
        for module, name in ((os, "open"), (os, "fdatasync"), (os, "fsync"), (Path, "replace")):
            patched.setattr(module, name, kept(getattr(module, name)))
        with_bus(tmp_path / "made", lambda bus: bus.writer().send([out("first")]), disk=Watched())

    assert any(segments(cut) and not segments(cut)[0].stat().st_size for cut in seen)
    assert any(not (cut / "head.json").exists() for cut in seen)
    for cut in seen:
        before = values(cut)
        assert before in ([], [b"first"])
        with_bus(cut, lambda bus: bus.writer().send([out("new")]))
        assert values(cut) == [*before, b"new"]


# Torn by a crash


@pytest.mark.parametrize("left", [1, 10, 60, 150, -70, -2])
def test_a_torn_last_line_is_cut_off_and_told(folder, left):
    path = segments(folder)[-1]
    *whole, last = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(whole) + last[:left])
    torn = len(last[:left])

    with capture_logs() as logs:
        assert values(folder) == [b'{"n":%d}' % number for number in range(LINES - 1)]
    assert [(entry["event"], entry["line"]) for entry in repairs(logs)] == [("journal_line_torn", 4)]

    async def story(bus):
        assert (bus.repaired.file, bus.repaired.line, bus.repaired.bytes_torn, bus.repaired.whole) == (
            path,
            4,
            torn,
            False,
        )
        assert await bus.writer().send([out("new")]) == [LINES - 1]

    with capture_logs() as logs:
        with_bus(folder, story)
    assert [(entry["event"], entry["log_level"]) for entry in repairs(logs)] == [("journal_line_torn", "warning")]

    async def again(bus):
        assert bus.repaired is None
        return [message.value for message in await everything(bus)]

    assert with_bus(folder, again) == [b'{"n":%d}' % number for number in range(LINES - 1)] + [b"new"]


def test_zeros_after_the_last_line_are_cut_off(folder):
    """What some file systems leave of a write that a power cut ended."""
    path = segments(folder)[-1]
    path.write_bytes(path.read_bytes() + b"\x00" * 4_096)

    async def story(bus):
        assert bus.repaired.bytes_torn == 4_096
        assert await bus.bounds("jobs", 0) == (0, LINES)

    with_bus(folder, story)
    assert len(values(folder)) == LINES


def test_a_last_line_that_lacks_nothing_but_its_newline_counts(folder):
    path = segments(folder)[-1]
    path.write_bytes(path.read_bytes()[:-1])
    assert len(values(folder)) == LINES

    async def story(bus):
        assert bus.repaired.whole
        return await bus.writer().send([out("new")])

    assert with_bus(folder, story) == [LINES]
    assert with_bus(folder, everything)[-1].value == b"new"


def test_a_crash_right_after_a_new_segment_leaves_an_empty_file_that_is_used(folder):
    path = folder / f"journal-{LINES + 1:012d}.jsonl"
    path.touch()

    with_bus(folder, lambda bus: bus.writer().send([out("new")]), segment_bytes=SEGMENT_BYTES)

    assert len(path.read_bytes().splitlines()) == 1
    assert values(folder)[-1] == b"new"


def test_a_torn_only_line_leaves_an_empty_journal(tmp_path):
    crashed(written(tmp_path, 1))
    path = segments(tmp_path)[0]
    path.write_bytes(path.read_bytes()[:30])

    with_bus(tmp_path, lambda bus: bus.writer().send([out("new")]))

    assert values(tmp_path) == [b"new"]


# While it is open


@pytest.mark.parametrize("harm", ["removed", "emptied"])
def test_a_segment_that_is_taken_from_an_open_journal_is_an_error_of_the_bus(tmp_path, harm):
    async def story(bus):
        for number in range(LINES):
            await bus.writer().send([out(f'{{"n":{number}}}')])
        path = segments(tmp_path)[1]
        if harm == "removed":
            path.unlink()
        else:
            path.write_bytes(b"")
        with pytest.raises(BusError, match=path.name):
            await bus.fetch("jobs", 0, 5, most=1)
        assert [message.offset for message in await bus.fetch("jobs", 0, 1, most=1)] == [1]

    with_bus(tmp_path, story, segment_bytes=SEGMENT_BYTES, cache_bytes=0)


def test_damage_done_to_an_open_journal_is_noticed_when_the_line_is_read(tmp_path):
    async def story(bus):
        for number in range(LINES):
            await bus.writer().send([out(f'{{"n":{number}}}')])
        path = segments(tmp_path)[1]
        edited(path, with_line_changed(2, b'"n":6', b'"n":9'))
        assert len(await bus.fetch("jobs", 0, 8)) == LINES - 8
        with pytest.raises(JournalDamaged) as damaged:
            await bus.fetch("jobs", 0, 0)
        assert (damaged.value.file, damaged.value.line) == (path, 3)

    with_bus(tmp_path, story, segment_bytes=SEGMENT_BYTES, cache_bytes=0)


def test_a_journal_that_was_cut_before_what_was_synced_says_how_many_lines_are_missing(tmp_path):
    with_bus(written(tmp_path, LINES), lambda bus: bus.writer().send([out("synced")]))
    crashed(tmp_path)
    edited(segments(tmp_path)[-1], lambda lines: lines[:-3])

    with capture_logs() as logs:
        list(read_journal(tmp_path))
    with capture_logs() as more:
        with_bus(tmp_path, lambda bus: bus.bounds("t", 0))

    for logged in (logs, more):
        (entry,) = [entry for entry in logged if entry["event"] == "journal_lines_missing"]
        assert (entry["log_level"], entry["lines"]) == ("warning", 3)
