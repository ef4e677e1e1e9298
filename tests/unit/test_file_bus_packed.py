"""Closed segments of the embedded bus are packed beside it: nothing is lost by that, whenever it dies."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from structlog.testing import capture_logs

from largesse.bus.file import packed
from largesse.bus.file.bus import FileBus, JournalDamaged
from largesse.bus.file.head import Head, write_head
from largesse.bus.file.journal import list_segments, segment_path
from largesse.bus.file.lines import encode_item, encode_line, item_opening
from largesse.bus.file.packed import packed_path
from largesse.bus.file.packing import LOCK_NAME, pack_closed
from largesse.bus.file.reading import read_journal
from largesse.failpoints import VARIABLE
from schemas.topics import LOG, SNAPSHOTS
from tests.conftest import ROOT
from tests.unit.file_bus_folders import everything, out, values, with_bus, written
from tests.unit.test_file_bus_compacted import kept, left
from tests.unit.test_file_bus_follow import Follower

SEGMENT_BYTES = 1_000
GUARD_S = 60


def packing(folder, failpoint=""):
    """The process that packs, to its end."""
    command = [sys.executable, "-m", "largesse.bus.file.packing", str(folder)]
    env = {**os.environ, VARIABLE: failpoint}
    return subprocess.run(command, cwd=ROOT, env=env, timeout=GUARD_S, check=False, capture_output=True, text=True)


def closed(folder):
    """What there is of each closed segment: as it was, packed."""
    places = [(segment_path(folder, first), packed_path(folder, first)) for first in list_segments(folder)[:-1]]
    return [(plain.exists(), zipped.exists()) for plain, zipped in places]


def unpacked(path):
    """What any reader of zstd finds there."""
    if shutil.which("zstdcat"):
        return subprocess.run(["zstdcat", path], check=True, capture_output=True).stdout
    with packed.zstd.open(path) as file:
        return file.read()


async def until(holds):
    end_s = time.monotonic() + GUARD_S
    while not holds():
        assert time.monotonic() < end_s
        await asyncio.sleep(0.02)


def test_what_is_packed_goes_with_the_next_turn_and_reads_as_before(tmp_path):
    written(tmp_path, 30, segment_bytes=SEGMENT_BYTES)
    before = list(read_journal(tmp_path))
    plain = {first: segment_path(tmp_path, first).read_bytes() for first in list_segments(tmp_path)}
    turns = []
    for _ in range(3):
        assert packing(tmp_path).returncode == 0
        turns.append(closed(tmp_path))
        assert list(read_journal(tmp_path)) == before

    both, alone = [[each] * (len(plain) - 1) for each in ((True, True), (False, True))]
    assert turns == [both, alone, alone]
    for first in list_segments(tmp_path)[:-1]:
        assert unpacked(packed_path(tmp_path, first)) == plain[first]


@pytest.mark.parametrize("point", ["before_pack:1", "before_pack:3", "after_pack:1", "after_pack:2"])
def test_a_death_while_packing_loses_nothing_and_the_next_turn_goes_on(tmp_path, point):
    written(tmp_path, 30, segment_bytes=SEGMENT_BYTES)
    before = list(read_journal(tmp_path))

    assert packing(tmp_path, f"packing:{point}").returncode == -signal.SIGKILL
    assert list(read_journal(tmp_path)) == before
    assert with_bus(tmp_path, everything) == before

    assert packing(tmp_path).returncode == 0
    assert packing(tmp_path).returncode == 0
    assert set(closed(tmp_path)) == {(False, True)}
    assert not list(tmp_path.glob("*.new"))
    assert list(read_journal(tmp_path)) == before


def test_a_bus_packs_what_is_full_while_it_writes_and_what_it_finds_when_it_opens(tmp_path):
    async def story(bus):
        for number in range(40):
            await bus.writer().send([out(f'{{"n":{number}}}')])
            if len(list_segments(tmp_path)) % 3 == 0:
                # The process is given the time that a full segment gives it.
                await until(lambda: bus._packer.is_idle())
        return await everything(bus)

    first = with_bus(tmp_path, story, segment_bytes=SEGMENT_BYTES, cache_bytes=0, packs=True)
    assert [message.value for message in first] == [f'{{"n":{number}}}'.encode() for number in range(40)]
    assert (False, True) in closed(tmp_path)

    async def again(bus):
        await until(lambda: bus._packer.is_idle())
        return await everything(bus)

    for _ in range(2):
        assert with_bus(tmp_path, again, segment_bytes=SEGMENT_BYTES, packs=True) == first
    assert set(closed(tmp_path)) == {(False, True)}


def test_a_bus_that_closes_ends_what_packs_for_it(tmp_path):
    written(tmp_path, 30, segment_bytes=SEGMENT_BYTES)
    before = list(read_journal(tmp_path))
    processes = []

    async def story(bus):
        processes.append(bus._packer._process)

    with_bus(tmp_path, story, packs=True)

    assert processes[0].returncode == -signal.SIGKILL
    assert list(read_journal(tmp_path)) == before


def test_a_second_process_that_packs_ends_at_once(tmp_path):
    written(tmp_path, 30, segment_bytes=SEGMENT_BYTES)
    script = (
        "import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.flock(file, 2); print(flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, str(tmp_path / LOCK_NAME)]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with holder:
        holder.stdout.readline()
        (tmp_path / LOCK_NAME).write_text(f"{holder.pid}\n")
        assert packing(tmp_path).returncode == 0
        assert {zipped for _, zipped in closed(tmp_path)} == {False}


def test_opening_reads_what_is_not_packed_alone(tmp_path, monkeypatch):
    written(tmp_path, 200, segment_bytes=SEGMENT_BYTES)
    pack_closed(tmp_path)
    pack_closed(tmp_path)

    def never(*_):
        raise AssertionError("a frame was read")

    with monkeypatch.context() as patch:
        patch.setattr(packed, "read_frame", never)
        assert with_bus(tmp_path, lambda bus: bus.bounds("jobs", 0)) == (0, 200)


def test_a_damaged_frame_stops_who_reads_it_and_nobody_else(tmp_path):
    written(tmp_path, 200, segment_bytes=SEGMENT_BYTES)
    pack_closed(tmp_path)
    pack_closed(tmp_path)
    damaged = packed_path(tmp_path, list_segments(tmp_path)[1])
    data = bytearray(damaged.read_bytes())
    data[40] ^= 1
    damaged.write_bytes(data)

    async def story(bus):
        assert [message.value for message in await bus.fetch("jobs", 0, 0, most=2)] == [b'{"n":0}', b'{"n":1}']
        assert await bus.writer().send([out("{}")]) == [200]
        with pytest.raises(JournalDamaged) as met:
            await everything(bus)
        return met.value.file

    assert with_bus(tmp_path, story) == damaged
    with pytest.raises(JournalDamaged, match=damaged.name):
        list(read_journal(tmp_path))


def test_a_reader_that_follows_goes_on_when_what_it_reads_is_packed(tmp_path):
    async def run():
        bus = FileBus(tmp_path, segment_bytes=300)
        await bus.writer().send([out("0", LOG)])
        follower = Follower(tmp_path)
        assert follower.found() == [b"0"]
        for number in range(1, 12):
            await bus.writer().send([out(f"{number}", LOG), out("{}")])
            pack_closed(tmp_path)
            if number % 3:
                assert follower.look() == [
                    b"%d" % number for number in range(number - (number % 3 == 1 and number > 1), number + 1)
                ]
        follower.end()
        await bus.close()

    asyncio.run(run())


def test_what_compacted_files_were_written_after_is_found_in_packed_segments(tmp_path):
    async def story(bus):
        for number in range(30):
            await bus.writer().send([out(f'{{"n":{number}}}'), kept(f"k{number}", str(number))])

    with_bus(tmp_path, story, segment_bytes=SEGMENT_BYTES)
    before = with_bus(tmp_path, left)
    pack_closed(tmp_path)
    pack_closed(tmp_path)
    assert with_bus(tmp_path, left) == before
    assert len(before) == 30

    # Of another journal, which has another line there.
    path = next((tmp_path / "compacted").rglob("k3.json"))
    item = encode_item(item_opening(SNAPSHOTS, 0), 3, kept("k3", "other"))
    path.write_bytes(encode_line(4, "e" * 64, [item])[0])
    with capture_logs() as logs:
        assert with_bus(tmp_path, left) == [each for each in before if each[0] != 3]
    assert [(log["event"], log["file"]) for log in logs] == [("compacted_file_skipped", str(path))]


def test_a_segment_that_has_what_is_kept_elsewhere_by_now_stays_as_it_is(tmp_path):
    """As an earlier version wrote it."""
    total, lines = "0" * 64, []
    for number in range(1, 4):
        topic = SNAPSHOTS if number == 2 else "jobs"
        item = encode_item(item_opening(topic, 0), 0 if number < 3 else 1, out(str(number), topic, key="k"))
        line, total = encode_line(number, total, [item])
        lines.append(line)
    for number, line in enumerate(lines, 1):
        segment_path(tmp_path, number).write_bytes(line)
    write_head(tmp_path, Head(3, total, 3))

    assert pack_closed(tmp_path) == [1]
    assert closed(tmp_path) == [(True, True), (True, False)]
    assert values(tmp_path) == [b"1", b"3"]
    assert with_bus(tmp_path, left) == [(0, b"2")]
