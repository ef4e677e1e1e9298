"""What a power cut leaves of the embedded bus's journal: all that was acknowledged, whatever became of the rest."""

import asyncio
import shutil
from pathlib import Path

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from largesse.bus.file.bus import FileBus, JournalDamaged
from largesse.bus.file.reading import read_journal
from tests.properties.test_bus_journal import Synced, folder, messages
from tests.unit.file_bus_folders import everything, out, segments, with_bus

sends = st.lists(st.tuples(st.lists(messages, min_size=1, max_size=4), st.booleans()), min_size=1, max_size=14)
ROOMY = 1 << 20


async def written(made, copy, batches, segment_bytes):
    """Sends the batches and copies the folder before it is closed. What was sent, how much of it was acknowledged as
    durable, how far each file was synced, and every mark that was set meanwhile.
    """
    disk = Synced()
    bus = FileBus(made, disk=disk, segment_bytes=segment_bytes)
    sent, acknowledged, marks = [], 0, []
    for batch, durable in batches:
        await bus.writer().send(batch, durable=durable)
        sent += batch
        acknowledged = len(sent) if durable else acknowledged
        # In the thread that writes, so between two writes.
        marks.append(await asyncio.wrap_future(bus._commit._thread.submit((made / "synced.json").read_bytes)))
    await asyncio.wrap_future(bus._commit._thread.submit(shutil.copytree, made, copy))
    await bus.close()
    return sent, acknowledged, dict(disk.sizes), marks


def unsynced_lost(path: Path, synced: int, data) -> None:
    """Draws what a disk keeps of the pages that no sync had reached: what was written, zeros, or something older."""
    whole = path.read_bytes()
    page = data.draw(st.sampled_from([512, 4_096]), label="page")
    left = bytearray(whole[: data.draw(st.integers(synced, len(whole)), label="size")])
    for at in range(synced - synced % page, len(left), page):
        begin, end = max(synced, at), min(at + page, len(left))
        match data.draw(st.sampled_from(["kept", "zeros", "older", "torn"]), label=f"page at {at}"):
            case "zeros":
                left[begin:end] = bytes(end - begin)
            case "older":
                start = data.draw(st.integers(0, max(0, begin - 1)))
                old = whole[start : start + end - begin].ljust(end - begin, b"\0")
                left[begin:end] = old
            case "torn":
                cut = data.draw(st.integers(begin, end))
                left[cut:end] = bytes(end - cut)
    path.write_bytes(left)


def contents_of(messages_found):
    return [(message.topic, message.partition, message.value) for message in messages_found]


@for_all(sends, st.sampled_from([700, 3_000, ROOMY]), st.data())
def test_whatever_a_power_cut_makes_of_unsynced_pages_nothing_acknowledged_is_lost(batches, segment_bytes, data):
    with folder() as made:
        copy = made / "copy"
        sent, acknowledged, synced, marks = asyncio.run(written(made / "bus", copy, batches, segment_bytes))
        last = segments(copy)[-1]
        unsynced_lost(last, synced.get(last.name, 0), data)
        left = last.read_bytes()
        # The mark itself is written and not synced: any of them may be the one on disk.
        (copy / "synced.json").write_bytes(data.draw(st.sampled_from(marks), label="mark"))

        found = contents_of(read_journal(copy))
        assert found == [(each.topic, each.partition, each.value) for each in sent][: len(found)]
        assert len(found) >= acknowledged

        async def kept_aside(bus):
            return b"" if bus.kept is None else bus.kept.read_bytes()

        kept = with_bus(copy, kept_aside, segment_bytes=ROOMY)
        cut = left[len(last.read_bytes()) :]
        # What was cut off is kept, or was no more than the torn beginning of one line.
        assert cut == kept or (b"\n" not in cut and not kept)
        with_bus(copy, lambda bus: bus.writer().send([out("new")]), segment_bytes=ROOMY)
        assert contents_of(read_journal(copy))[:-1] == found
        with_bus(copy, everything)


@for_all(sends, st.sampled_from([700, ROOMY]), st.data())
def test_damage_to_what_was_acknowledged_is_refused_and_never_cut_off(batches, segment_bytes, data):
    with folder() as made:
        copy = made / "copy"
        *_, synced, _ = asyncio.run(written(made / "bus", copy, [*batches, ([out("last")], True)], segment_bytes))
        path = data.draw(st.sampled_from(segments(copy)), label="segment")
        whole = bytearray(path.read_bytes())
        at = data.draw(st.integers(0, synced[path.name] - 1), label="byte")
        whole[at] ^= data.draw(st.integers(1, 255), label="harm")
        path.write_bytes(whole)

        with pytest.raises(JournalDamaged) as damaged:
            FileBus(copy, segment_bytes=ROOMY)
        assert damaged.value.file == path
        assert not list(copy.glob("*.cut"))
