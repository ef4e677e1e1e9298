"""Archiving the log of a bus: it is passed over up to the archive's end, followed, and no other log is taken for it."""

import asyncio
import signal
import subprocess

import pytest

from largesse.archive.archiver import AnotherLog
from largesse.archive.manifest import read_all
from largesse.archive.reader import check_archive
from largesse.archive.store import FolderStore
from largesse.bus.file.bus import FileBus
from largesse.bus.file.packing import pack_closed
from largesse.bus.file.reading import read_journal
from largesse.bus.port import Outgoing
from services.gateway import view
from services.replay.onto_bus import put_onto
from services.replay.source import open_source, write_export
from tests.archives import Writer, archived, recorded, up_to
from tests.unit.cli_process import COMMAND, ROOT

GUARD_S = 300


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return recorded(tmp_path_factory.mktemp("live") / "log")


def put(source, folder):
    """Puts a log onto the bus in a folder."""

    async def send():
        bus = FileBus(folder)
        await put_onto(source, bus.writer(), view.NAME, lambda _: None)
        await bus.close()

    asyncio.run(send())
    return folder


def ends_at(folder):
    return read_all(FolderStore(folder))[-1].manifest


def exported(location, path):
    write_export(open_source(location), path)
    return path.read_bytes()


def test_a_log_of_a_bus_is_taken_up_where_the_archive_ends(log, tmp_path):
    archived(up_to(open_source(log), 250), tmp_path / "whole", 60_000)
    bus = put(up_to(open_source(log), 250), tmp_path / "bus")
    archived(open_source(bus), tmp_path / "archive", 60_000)
    place = ends_at(tmp_path / "archive").place
    assert place is not None
    assert ends_at(tmp_path / "archive").end.prefix == ends_at(tmp_path / "whole").end.prefix

    longer = put(open_source(log), tmp_path / "longer")
    source = open_source(longer)
    archived(source, tmp_path / "archive", 60_000)

    assert ends_at(tmp_path / "archive").end.seq == 431
    assert exported(f"archive:{tmp_path / 'archive'}", tmp_path / "a") == exported(longer, tmp_path / "b")
    store = FolderStore(tmp_path / "archive")
    assert check_archive(store, read_all(store), lambda _: None, 1) == []


def packed(source, folder):
    """Puts a log onto the bus in a folder, in small files, of which all but the last are packed."""

    async def send():
        bus = FileBus(folder, segment_bytes=20_000)
        await put_onto(source, bus.writer(), view.NAME, lambda _: None)
        await bus.close()

    asyncio.run(send())
    for _ in range(2):
        pack_closed(folder)
    return folder


def test_what_an_archiver_reads_follows_what_is_new(log, tmp_path):
    bus = packed(open_source(log), tmp_path / "bus")
    messages = sum(1 for _ in read_journal(bus))
    first = archived(open_source(bus), tmp_path / "archive")
    again = archived(open_source(bus), tmp_path / "archive")
    short = packed(up_to(open_source(log), 400), tmp_path / "short")
    begun = archived(open_source(short), tmp_path / "behind")
    rest = archived(open_source(bus), tmp_path / "behind")

    assert (first.read, first.records) == (messages, 431)
    assert again.records == 0
    assert begun.records + rest.records == 431
    assert max(again.read, rest.read) < messages / 2, "what lies in the last file, which is not packed"


def test_another_log_of_a_bus_is_refused(log, tmp_path):
    archived(open_source(put(up_to(open_source(log), 250), tmp_path / "bus")), tmp_path / "archive")
    other = put(open_source(recorded(tmp_path / "other", seed=1)), tmp_path / "otherbus")

    with pytest.raises(
        AnotherLog, match=r"ends behind the message at offset .* has another one there: it is another log"
    ):
        archived(open_source(other), tmp_path / "archive")


def test_a_log_of_a_bus_that_ends_before_the_archive_is_refused(log, tmp_path):
    archived(open_source(put(open_source(log), tmp_path / "bus")), tmp_path / "archive")
    shorter = put(up_to(open_source(log), 200), tmp_path / "shorter")

    with pytest.raises(AnotherLog, match="it is another log, or it was cut"):
        archived(open_source(shorter), tmp_path / "archive")


def test_a_log_that_is_followed_is_archived_as_it_grows(log, tmp_path):
    """The journal grows by being written again, longer: to who follows it, its old lines are as they were."""
    bus, folder = tmp_path / "bus", tmp_path / "archive"
    put(up_to(open_source(log), 250), bus)
    words = ("archive", "run", folder, "--log", bus, "--follow", "--segment-age", "1s")
    with subprocess.Popen([*COMMAND, *map(str, words)], cwd=ROOT, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        first = running.stdout.readline()
        assert first.startswith("records 1 to "), first
        asyncio.run(_go_on(log, bus))
        second = running.stdout.readline()
        assert second.startswith(f"records {ends_of(first) + 1} to 431: segments/"), second
        running.send_signal(signal.SIGINT)
        assert running.wait(GUARD_S) == 130
    assert exported(f"archive:{folder}", tmp_path / "a") == exported(bus, tmp_path / "b")


def ends_of(line):
    return int(line.split()[3].rstrip(":"))


async def _go_on(log, bus):
    """Sends what is behind record 250."""
    whole = Writer()
    await put_onto(open_source(log), whole, view.NAME, lambda _: None)
    opened = FileBus(bus)
    writer = opened.writer()
    rest = []
    for message in whole.messages:
        if message.offset >= (await opened.bounds(message.topic, message.partition))[1]:
            rest.append(message)
    await writer.send([Outgoing(each.topic, each.partition, each.value) for each in rest])
    await opened.close()
