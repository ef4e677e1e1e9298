"""The beginning of a packed journal is let go without anything being lost that somebody needs, whenever it dies."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from largesse.bus.file import packed
from largesse.bus.file.bus import FileBus, JournalDamaged
from largesse.bus.file.from_end import Ending
from largesse.bus.file.journal import every_segment, list_segments
from largesse.bus.file.packing import pack_closed
from largesse.bus.file.reading import read_journal
from largesse.bus.file.trim import trim
from largesse.bus.file.trimming import ASKED_NAME, TRIMMED_NAME, ask, read_trimmed
from largesse.bus.port import PositionGap
from largesse.failpoints import VARIABLE
from tests.conftest import ROOT
from tests.unit.file_bus_folders import out, with_bus
from tests.unit.test_file_bus_compacted import kept, left

SEGMENT_BYTES = 700
PLACES = [("jobs", 0), ("tasks", 0), ("tasks", 1)]
GUARD_S = 60


def journal(folder, name="n"):
    """Messages in three partitions and a compacted topic, all segments but the last packed."""

    async def story(bus):
        writer = bus.writer()
        for number in range(40):
            topic, partition = PLACES[number % 3]
            await writer.send([out(f'{{"{name}":{number}}}', topic, partition)])
            if number % 9 == 0:
                await writer.send([kept(f"k{number % 4}", f'{{"k":{number}}}')])

    with_bus(folder, story, segment_bytes=SEGMENT_BYTES)
    pack_closed(folder)
    pack_closed(folder)
    return folder


async def lying(bus):
    """All that there is: of each partition where it begins and ends, and its messages; and the compacted topic's."""
    found = {}
    for place in PLACES:
        first, end = await bus.bounds(*place)
        found[place] = first, end, list(await bus.fetch(*place, first)) if first < end else []
    return found, await left(bus)


def rest(before, after):
    """What lay there before, from where each partition begins now on."""
    found, compacted = before
    firsts = {place: first for place, (first, _, _) in after[0].items()}
    return {
        place: (firsts[place], end, [each for each in messages if each.offset >= firsts[place]])
        for place, (_, end, messages) in found.items()
    }, compacted


keeps = st.fixed_dictionaries({place: st.integers(0, 14) for place in PLACES})


@for_all(st.lists(keeps, min_size=1, max_size=3), st.booleans())
def test_what_is_needed_is_there_as_before_in_the_bus_that_trims_and_in_the_next(turns, live):
    with tempfile.TemporaryDirectory() as name:
        packed.read_index.cache_clear()
        folder = journal(Path(name))
        before = with_bus(folder, lying)

        async def trimming(bus):
            for keep in turns:
                assert bus.trim(keep)
            return await lying(bus)

        if live:
            after = with_bus(folder, trimming, segment_bytes=SEGMENT_BYTES)
        else:
            for keep in turns:
                trim(folder, keep)
            after = with_bus(folder, lying)

        most = {place: max(keep[place] for keep in turns) for place in PLACES}
        assert all(first <= most[place] for place, (first, _, _) in after[0].items())
        assert after == rest(before, after)
        assert with_bus(folder, lying) == after
        assert every_segment(folder) == list_segments(folder)
        scanned = [(each.topic, each.partition, each.offset, each.value) for each in read_journal(folder)]
        for place, (_, _, messages) in after[0].items():
            wanted = [(*place, each.offset, each.value) for each in messages]
            assert [each for each in scanned if each[:2] == place and each[2] >= after[0][place][0]] == wanted
            ending = Ending(folder, *place)
            while ending.earlier():
                pass
            assert [(*place, each.offset, each.value) for each in ending.messages] == wanted


def test_as_much_goes_as_nobody_needs_and_the_rest_goes_on(tmp_path):
    folder = journal(tmp_path)
    segments = list_segments(folder)
    before = with_bus(folder, lying)
    trim(folder, dict.fromkeys(PLACES, 1_000))

    assert list_segments(folder) == segments[-1:]

    async def going_on(bus):
        offsets = await bus.writer().send([out("{}", *place) for place in PLACES])
        assert offsets == [before[0][place][1] for place in PLACES]
        first = (await bus.bounds("jobs", 0))[0]
        assert first > 0
        with pytest.raises(PositionGap, match=f"jobs partition 0: position 0 is before the start; offsets {first} to"):
            await bus.fetch("jobs", 0, 0)
        return await lying(bus)

    assert with_bus(folder, going_on) == with_bus(folder, lying)


def test_a_topic_that_nobody_names_is_kept_and_so_is_all_behind_it(tmp_path):
    folder = journal(tmp_path)
    before = list_segments(folder)

    trim(folder, {("jobs", 0): 1_000, ("tasks", 1): 1_000})
    assert list_segments(folder) == before


def test_compacted_messages_from_before_the_beginning_stay(tmp_path):
    folder = journal(tmp_path)
    before = with_bus(folder, left)
    trim(folder, dict.fromkeys(PLACES, 1_000))

    assert len(before) == 4
    assert with_bus(folder, left) == before
    assert with_bus(folder, left) == before


CRASHES = ["before_trim:1", "after_trim:1", "after_remove:1", "after_remove:2"]


@pytest.mark.parametrize("point", CRASHES)
def test_a_death_while_trimming_loses_nothing_and_the_next_turn_goes_on(tmp_path, point):
    folder = journal(tmp_path)
    before = with_bus(folder, lying)
    code = (
        "from pathlib import Path; from largesse.bus.file.trim import trim; "
        f"trim(Path({str(folder)!r}), {dict.fromkeys(PLACES, 9)!r})"
    )
    env = {**os.environ, VARIABLE: f"trimming:{point}"}
    died = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, timeout=GUARD_S, check=False)

    assert died.returncode == -signal.SIGKILL
    after = with_bus(folder, lying)
    assert after == rest(before, after)
    assert all(first <= 9 for first, _, _ in after[0].values())
    trim(folder, dict.fromkeys(PLACES, 9))
    assert every_segment(folder) == list_segments(folder)
    again = with_bus(folder, lying)
    assert again == rest(before, again)
    assert again[0]["jobs", 0][0] > 0


def test_where_it_begins_is_believed_only_as_it_was_written(tmp_path):
    folder = journal(tmp_path)
    trim(folder, dict.fromkeys(PLACES, 9))
    path = folder / TRIMMED_NAME
    text = path.read_bytes()
    for at in range(len(text)):
        path.write_bytes(text[:at] + bytes([text[at] ^ 1]) + text[at + 1 :])
        with pytest.raises(JournalDamaged, match=TRIMMED_NAME):
            read_trimmed(folder)
    path.unlink()
    with pytest.raises(JournalDamaged, match=f"are missing.*or {TRIMMED_NAME}, if the journal was trimmed"):
        FileBus(folder)


def test_that_of_another_journal_does_not_fit(tmp_path):
    folder, other = journal(tmp_path / "one"), journal(tmp_path / "other", "m")
    for each in (folder, other):
        assert trim(each, dict.fromkeys(PLACES, 9)).line
    (folder / TRIMMED_NAME).write_bytes((other / TRIMMED_NAME).read_bytes())

    with pytest.raises(JournalDamaged):
        FileBus(folder)


def test_who_holds_the_folder_does_what_another_process_asks_for(tmp_path):
    folder = journal(tmp_path)

    async def story(bus):
        ask(folder, dict.fromkeys(PLACES, 9))
        deadline = asyncio.get_running_loop().time() + GUARD_S
        number = 0
        while (folder / ASKED_NAME).exists():
            assert asyncio.get_running_loop().time() < deadline
            await bus.writer().send([out(f'{{"more":{number}}}')])  # It looks when a segment is full.
            await asyncio.sleep(0.01)
            number += 1
        return await lying(bus)

    after = with_bus(folder, story, segment_bytes=SEGMENT_BYTES, packs=True)
    assert 0 < after[0]["jobs", 0][0] <= 9
    assert with_bus(folder, lying) == after


def test_what_was_asked_for_while_nobody_held_it_is_done_at_the_next_start(tmp_path):
    folder = journal(tmp_path)
    ask(folder, dict.fromkeys(PLACES, 9))

    after = with_bus(folder, lying, packs=True)
    assert 0 < after[0]["jobs", 0][0] <= 9
    assert not (folder / ASKED_NAME).exists()
