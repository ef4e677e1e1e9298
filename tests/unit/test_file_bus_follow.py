"""A journal is read on while a process writes there."""

import asyncio
from queue import Queue
from threading import Thread

import pytest

from largesse.bus.file.bus import FileBus
from largesse.bus.file.head import HEAD_NAME, MARK_NAME
from largesse.bus.file.reading import follow_journal
from largesse.bus.port import Outgoing
from largesse.log.export import ExportWriter
from schemas.topics import LOG
from services.replay.source import open_source
from tests.unit.cli_here import largesse

GUARD_S = 60


class Enough(Exception):
    """Ends what would follow for ever."""


class Follower:
    """Reads a journal in a thread of its own, as far as it goes whenever it is told to look."""

    def __init__(self, folder):
        self._told, self._found = Queue(), Queue()
        self._values = []
        self._thread = Thread(target=self._run, args=(folder,), daemon=True)
        self._thread.start()

    def _run(self, folder):
        try:
            for message in follow_journal(folder, self._at_end):
                if message.topic == LOG:
                    self._values.append(message.value)
        except Enough:
            return
        except Exception as error:
            self._found.put(error)

    def _at_end(self):
        self._found.put(self._values)
        self._values = []
        if not self._told.get(timeout=GUARD_S):
            raise Enough

    def found(self):
        """What it has read until it came to the end."""
        return self._found.get(timeout=GUARD_S)

    def look(self):
        self._told.put(True)
        return self.found()

    def end(self):
        self._told.put(False)
        self._thread.join(GUARD_S)


@pytest.mark.parametrize("segment_bytes", [1 << 20, 300], ids=["one file", "many files"])
def test_what_is_appended_comes_and_nothing_twice(tmp_path, segment_bytes):
    async def run():
        bus = FileBus(tmp_path, segment_bytes=segment_bytes)
        await bus.writer().send([Outgoing(LOG, 0, b"0")], durable=True)
        follower = Follower(tmp_path)
        assert follower.found() == [b"0"]
        for number in range(1, 12):
            sent = [b"%d" % number] * (number % 3)
            for value in sent:
                await bus.writer().send([Outgoing(LOG, 0, value), Outgoing("jobs", 0, b"{}")], durable=True)
            assert follower.look() == sent
        follower.end()
        await bus.close()

    asyncio.run(run())
    assert (len(list(tmp_path.glob("journal-*"))) > 1) == (segment_bytes == 300)


def test_a_line_that_is_being_written_comes_once_it_is_whole(tmp_path):
    async def run():
        bus = FileBus(tmp_path)
        await bus.writer().send([Outgoing(LOG, 0, b"0")], durable=True)
        before.update({name: (tmp_path / name).read_bytes() for name in (HEAD_NAME, MARK_NAME)})
        await bus.writer().send([Outgoing(LOG, 0, b"1")], durable=True)
        await bus.close()

    before = {}
    asyncio.run(run())
    for name, content in before.items():
        (tmp_path / name).write_bytes(content)
    (file,) = tmp_path.glob("journal-*")
    whole = file.read_bytes()
    file.write_bytes(whole[:-20])
    follower = Follower(tmp_path)
    assert follower.found() == [b"0"]
    assert follower.look() == []
    file.write_bytes(whole)
    assert follower.look() == [b"1"]
    follower.end()


def test_an_exported_log_does_not_grow(tmp_path):
    with ExportWriter(tmp_path / "log"):
        pass

    assert open_source(tmp_path / "log").follow is None
    refused = largesse("tail", tmp_path / "log", "--follow")
    assert (refused.code, "--follow: an exported log does not grow" in refused.err) == (2, True)
