"""Messages of the file bus that readers may see early: what they see, when senders are told, and what a sync costs."""

import asyncio
import errno
import threading

import pytest

from largesse.bus.file import group_commit
from largesse.bus.file.bus import Disk, FileBus
from largesse.bus.file.reading import read_journal
from largesse.bus.port import BusFull
from tests.unit.file_bus_folders import everything, out, values, with_bus
from tests.unit.test_file_bus import CountingDisk, GatedDisk
from tests.unit.test_file_bus_disk_full import FailingDisk


class TellingDisk(Disk):
    """Lets others wait for a write."""

    def __init__(self):
        self.writes = threading.Semaphore(0)

    def write(self, file, data):
        written = super().write(file, data)
        self.writes.release()
        return written


@pytest.fixture
def patient(monkeypatch):
    """A batch that may share a sync waits for one for as long as the test lasts."""
    monkeypatch.setattr(group_commit, "SHARED_S", 600.0)


def early(value, topic="jobs"):
    return out(value, topic, early=True)


async def begun(sending):
    """What a send settles before it waits."""
    task = asyncio.ensure_future(sending)
    await asyncio.sleep(0)
    return task


def test_an_early_message_is_shown_at_once_and_acknowledged_once_it_is_on_disk(tmp_path, patient):
    disk = GatedDisk()

    async def story(bus):
        sending = await begun(bus.writer().send([early("1")]))
        assert [message.value for message in await everything(bus)] == [b"1"]
        record = await begun(bus.writer().send([out("2", "cluster.log")]))
        assert await asyncio.to_thread(disk.begun.wait, 60)
        assert not sending.done()
        disk.gate.set()
        assert [await sending, await record] == [[0], [0]]

    with_bus(tmp_path, story, disk=disk)


def test_an_input_and_the_record_that_it_becomes_share_a_sync_and_keep_their_order(tmp_path, patient):
    disk = CountingDisk()

    async def story(bus):
        for number in range(5):
            sending = await begun(bus.writer().send([early(str(number))]))
            await bus.writer().send([out("decision", "shares")], durable=False)
            await bus.writer().send([out(f"r{number}", "cluster.log")])
            assert await sending == [number]
        assert disk.syncs == 5

    with_bus(tmp_path, story, disk=disk)

    kept = [message.value for message in read_journal(tmp_path) if message.topic != "shares"]
    assert kept == [text for number in range(5) for text in (b"%d" % number, b"r%d" % number)]


def test_what_is_written_without_a_sync_acknowledges_no_early_message(tmp_path, patient):
    disk = TellingDisk()

    async def story(bus):
        sending = await begun(bus.writer().send([early("1")]))
        for _ in range(2):  # The second is written once the bus knows of the first.
            await bus.writer().send([out("decision", "shares")], durable=False)
            assert await asyncio.to_thread(disk.writes.acquire, timeout=60)
        assert not sending.done()
        await bus.writer().send([out("2", "cluster.log")])
        assert await sending == [0]

    with_bus(tmp_path, story, disk=disk)


@pytest.mark.parametrize("written_before", [True, False])
def test_an_early_message_that_nothing_follows_gets_a_sync_of_its_own(tmp_path, written_before):
    disk = CountingDisk()

    async def story(bus):
        sending = await begun(bus.writer().send([early("1"), early("2")]))
        if written_before:
            await bus.writer().send([out("decision", "shares")], durable=False)
        assert await sending == [0, 1]
        assert disk.syncs == 1
        assert await bus.writer().send([early("3")]) == [2]
        assert disk.syncs == 2

    with_bus(tmp_path, story, disk=disk)

    assert len(values(tmp_path)) == 3 + written_before


def test_an_early_message_behind_a_hidden_one_is_shown_with_that(tmp_path, patient):
    disk = GatedDisk()

    async def story(bus):
        hidden = await begun(bus.writer().send([out("1")]))
        assert await asyncio.to_thread(disk.begun.wait, 60)
        behind = await begun(bus.writer().send([early("2")]))
        assert await everything(bus) == []
        disk.gate.set()
        assert [await hidden, await behind] == [[0], [1]]

    with_bus(tmp_path, story, disk=disk)


def test_what_was_shown_later_is_not_hidden_by_a_sync_that_was_asked_for_before(tmp_path, patient):
    disk = GatedDisk()

    async def story(bus):
        first = await begun(bus.writer().send([early("1")]))
        record = await begun(bus.writer().send([out("r", "cluster.log")]))
        assert await asyncio.to_thread(disk.begun.wait, 60)
        second = await begun(bus.writer().send([early("2")]))
        disk.gate.set()
        await record
        assert [message.value for message in await everything(bus)] == [b"1", b"2"]
        assert await first == [0]
        assert not second.done()
        await bus.writer().send([out("r", "cluster.log")])
        assert await second == [1]

    with_bus(tmp_path, story, disk=disk)


def test_a_failed_sync_acknowledges_no_early_message(tmp_path, patient):
    disk = FailingDisk()

    async def main():
        bus = FileBus(tmp_path, disk=disk)
        sending = [await begun(bus.writer().send([early("1")]))]
        await bus.writer().send([out("decision", "shares")], durable=False)
        sending.append(await begun(bus.writer().send([early("2")])))
        disk.sync_error = errno.EIO
        sending.append(await begun(bus.writer().send([out("r", "cluster.log")])))
        outcomes = await asyncio.gather(*sending, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [BusFull] * 3
        with pytest.raises(BusFull):
            await bus.close()

    asyncio.run(main())

    assert values(tmp_path) == []


def test_closing_puts_early_messages_on_disk_and_tells_their_senders(tmp_path, patient):
    async def main():
        bus = FileBus(tmp_path)
        sending = [await begun(bus.writer().send([early("1")]))]
        await bus.writer().send([out("decision", "shares")], durable=False)
        sending.append(await begun(bus.writer().send([early("2")])))
        await bus.close()
        assert await asyncio.gather(*sending) == [[0], [1]]

    asyncio.run(main())

    assert [message.value for message in read_journal(tmp_path)] == [b"1", b"decision", b"2"]
