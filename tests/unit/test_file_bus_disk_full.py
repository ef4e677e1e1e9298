"""A disk that takes no more: the writers stop with BusFull, what was acknowledged stays, and with room it goes on."""

import asyncio
import errno
import json
import os
import shutil
import subprocess
import sys

import pytest

from largesse.bus.file.bus import Disk, FileBus
from largesse.bus.port import BusError, BusFull
from tests.conftest import ROOT
from tests.unit.file_bus_folders import everything, out, segments, values, with_bus


class FailingDisk(Disk):
    """Takes `bytes_left` more bytes, then fails writes; fails every sync while `sync_error` is set."""

    def __init__(self, bytes_left=1 << 30, error=errno.ENOSPC):
        self.bytes_left = bytes_left
        self.error = error
        self.sync_error = 0

    def write(self, file, data):
        if self.bytes_left == 0:
            raise OSError(self.error, os.strerror(self.error))
        taken = super().write(file, data[: self.bytes_left])
        self.bytes_left -= taken
        return taken

    def sync(self, file):
        if self.sync_error:
            raise OSError(self.sync_error, os.strerror(self.sync_error))
        super().sync(file)


def lines(folder) -> list[bytes]:
    return [line for path in segments(folder) for line in path.read_bytes().splitlines(keepends=True)]


async def until_full(folder, disk, **options) -> tuple[int, BusFull]:
    """Sends, one by one, until the bus is full, and closes. How many it acknowledged, and what it said."""
    bus = FileBus(folder, disk=disk, **options)
    acknowledged = 0

    async def send_on():
        nonlocal acknowledged
        while True:
            await bus.writer().send([out(f'{{"n":{acknowledged}}}')])
            acknowledged += 1

    with pytest.raises(BusFull) as full:
        await send_on()
    assert len(await everything(bus)) == acknowledged
    with pytest.raises(BusFull):
        await bus.writer().send([out("one more")])
    with pytest.raises(BusFull):
        await bus.close()
    return acknowledged, full.value


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EFBIG])
@pytest.mark.parametrize("bytes_left", [0, 1, 100, 1_000, 1_234, 2_000])
def test_a_full_disk_stops_writers_and_keeps_what_was_acknowledged(tmp_path, bytes_left, error):
    acknowledged, full = asyncio.run(until_full(tmp_path, FailingDisk(bytes_left, error)))

    assert str(tmp_path) in str(full)
    assert os.strerror(error) in str(full)
    assert "Make room" in str(full)
    assert all(line.endswith(b"\n") for line in lines(tmp_path))
    assert values(tmp_path) == [b'{"n":%d}' % number for number in range(acknowledged)]

    async def with_room_again(bus):
        assert bus.repaired is None
        return await bus.writer().send([out("goes on")])

    assert with_bus(tmp_path, with_room_again) == [acknowledged]
    assert values(tmp_path)[-1] == b"goes on"


def test_a_disk_that_fills_up_in_a_later_segment_keeps_the_earlier_ones(tmp_path):
    acknowledged, full = asyncio.run(until_full(tmp_path, FailingDisk(3_000), segment_bytes=1_000))

    assert acknowledged > 6
    assert segments(tmp_path)[-1].name in str(full)
    assert values(tmp_path) == [b'{"n":%d}' % number for number in range(acknowledged)]
    assert with_bus(tmp_path, lambda bus: bus.writer().send([out("goes on")])) == [acknowledged]


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_failed_sync_acknowledges_nothing_and_takes_back_what_it_did_not_reach(tmp_path, error):
    """The kernel may drop the pages of a failed sync and still show them: after a restart they must not count."""
    disk = FailingDisk()

    async def main():
        bus = FileBus(tmp_path, disk=disk, cache_bytes=0)
        writer = bus.writer()
        await writer.send([out("kept")])
        await writer.send([out("not durable", "shares")], durable=False)
        disk.sync_error = error
        with pytest.raises(BusFull, match="journal-000000000001"):
            await writer.send([out("never acknowledged")])
        assert [message.value for message in await everything(bus)] == [b"kept"]
        with pytest.raises(BusFull):
            await bus.fetch("shares", 0, 0)
        with pytest.raises(BusFull):
            await bus.close()

    asyncio.run(main())

    assert values(tmp_path) == [b"kept"]
    assert with_bus(tmp_path, lambda bus: bus.writer().send([out("goes on")])) == [1]


@pytest.mark.parametrize(("error", "kind"), [(OSError(errno.ENOSPC, "no"), BusFull), (RuntimeError("odd"), BusError)])
def test_whoever_holds_the_bus_hears_once_that_it_writes_nothing_more(tmp_path, error, kind):
    class Broken(Disk):
        def write(self, file, data):
            raise error

    async def main():
        bus = FileBus(tmp_path, disk=Broken())
        heard = []
        bus.on_failure = lambda: heard.append(bus.failure)
        assert bus.failure is None
        for _ in range(2):
            with pytest.raises(kind, match=f"{tmp_path}.*nothing that was acknowledged is lost.*tart again"):
                await bus.writer().send([out("lost")])
        with pytest.raises(kind):
            await bus.close()
        assert [type(each) for each in heard] == [kind]

    asyncio.run(main())


def test_everybody_who_waits_hears_of_it(tmp_path):
    async def main():
        bus = FileBus(tmp_path, disk=FailingDisk(0))
        sends = [bus.writer().send([out(str(number))]) for number in range(10)]
        outcomes = await asyncio.gather(*sends, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [BusFull] * 10
        assert await bus.bounds("jobs", 0) == (0, 0)
        with pytest.raises(BusFull):
            await bus.close()

    asyncio.run(main())


def test_a_line_that_could_not_be_taken_back_is_cut_off_at_the_next_start(tmp_path, monkeypatch):
    async def main():
        bus = FileBus(tmp_path, disk=FailingDisk(300))
        await bus.writer().send([out("kept")])
        with monkeypatch.context() as patched:
            patched.setattr(os, "ftruncate", refuse)
            with pytest.raises(BusFull):
                await bus.writer().send([out("torn")])
        with pytest.raises(BusFull):
            await bus.close()

    def refuse(file, size):
        raise OSError(errno.EIO, "no")

    asyncio.run(main())

    assert not segments(tmp_path)[0].read_bytes().endswith(b"\n")

    async def again(bus):
        assert bus.repaired is not None
        return await bus.writer().send([out("goes on")])

    assert with_bus(tmp_path, again) == [1]
    assert values(tmp_path) == [b"kept", b"goes on"]


def test_a_fault_of_our_own_stops_the_writers_too(tmp_path):
    class Broken(Disk):
        def write(self, file, data):
            raise ZeroDivisionError

    async def main():
        bus = FileBus(tmp_path, disk=Broken())
        with pytest.raises(Exception, match="ZeroDivisionError"):
            await bus.writer().send([out("1")])
        with pytest.raises(Exception, match="ZeroDivisionError"):
            await bus.writer().send([out("2")])
        with pytest.raises(Exception, match="ZeroDivisionError"):
            await bus.close()

    asyncio.run(main())
    assert values(tmp_path) == []


# The kernel's own errors


def report_of(command):
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_file_size_limit_of_the_kernel_is_a_full_disk(tmp_path):
    report = report_of([sys.executable, "-m", "tests.unit.file_bus_process", "fill", tmp_path, "50000"])

    assert report["acknowledged"] > 30
    assert report["readable"] == report["acknowledged"]
    assert report["refused_again"]
    assert "File too large" in report["error"]
    assert len(values(tmp_path)) == report["acknowledged"]
    assert with_bus(tmp_path, lambda bus: bus.writer().send([out("goes on")])) == [report["acknowledged"]]


TMPFS = """
mount -t tmpfs -o size=256k none "$1" || exit 77
cd "$2"
head -c 100000 /dev/zero > "$1/ballast"
"$3" -m tests.unit.file_bus_process fill "$1/journal" || exit 1
cp -r "$1/journal" "$4/full"
rm "$1/ballast"
"$3" -m tests.unit.file_bus_process fill "$1/journal" > "$4/second" || exit 1
cp -r "$1/journal" "$4/later"
cat "$4/second"
"""


@pytest.mark.slow
def test_a_full_file_system_is_survived_and_with_room_it_goes_on(tmp_path):
    if shutil.which("unshare") is None:
        pytest.skip("no unshare: no small file system to fill")
    mount, kept = tmp_path / "mount", tmp_path / "kept"
    mount.mkdir()
    kept.mkdir()
    inside = ["sh", "-c", TMPFS, "sh", str(mount), str(ROOT), sys.executable, str(kept)]
    done = subprocess.run(
        ["unshare", "--mount", "--map-root-user", *inside], capture_output=True, text=True, timeout=300
    )
    if done.returncode not in (0, 1):
        pytest.skip(f"no small file system to fill: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr

    first, second = (json.loads(line) for line in done.stdout.splitlines())
    assert "No space left on device" in first["error"]
    assert first["readable"] == first["acknowledged"] > 30
    assert second["acknowledged"] > 30
    # The copy was made on a roomy disk, and says what the full one held.
    assert len(values(kept / "full")) == first["acknowledged"]
    assert len(values(kept / "later")) == first["acknowledged"] + second["acknowledged"]
