"""The Bus port on one directory: the embedded bus. One process, one journal for all topics, no server.

Appends are lines of the journal in the order of their sends (lines.py, group_commit.py); messages of compacted
topics are files of their own (compacted.py), and what nobody keeps stays in memory (passing.py). A durable message is
shown to readers after its sync, unless it may be early, any other at once; one that follows a message still hidden
waits for the same sync, so what was sent can always be read. What is written because of an early one lies behind it, so
no crash leaves that without this. Closed segments are packed beside it (packing.py). Opening verifies every byte of
what is not packed, and that the packed segments hang together; what is in them is verified by whoever reads it, all of
it by a replay. After BusFull the bus still reads and writes nothing more, with room again or without; opened again, it
goes on where the disk ends.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from largesse.bus.file.compacted import COMPACTED, CompactedPartition, find, move_out, new_partition, partitions_of
from largesse.bus.file.group_commit import Append, GroupCommit, Sync
from largesse.bus.file.head import Head, JournalDamaged, make_directory, write_head, write_mark
from largesse.bus.file.index import Stretches, read_back
from largesse.bus.file.journal import Disk, Repair, list_segments, segment_path, settle
from largesse.bus.file.lines import SUM_OF_NOTHING, encode_item, item_opening, key_of, message_of
from largesse.bus.file.lock import DirectoryHeld, DirectoryLock
from largesse.bus.file.packed import Summary, read_summary, sum_of
from largesse.bus.file.packer import Packer
from largesse.bus.file.reading import read_journal, report, report_missing
from largesse.bus.file.scan import Scan
from largesse.bus.file.trim import trim
from largesse.bus.file.trimming import Trimmed, answered, asked
from largesse.bus.local import LocalBus
from largesse.bus.passing import PASSING, PassingPartition
from largesse.bus.port import BusError, Message, Outgoing, check_sizes

__all__ = ["DirectoryHeld", "Disk", "FileBus", "FileWriter", "JournalDamaged", "Repair", "read_journal"]

SEGMENT_BYTES = 64 << 20
CACHE_BYTES = 8 << 20
"""So many bytes of messages stay in memory after they were written, for readers that keep up."""
CACHE_SECONDS = 60.0
"""For so long they do at most: whoever is further behind reads from disk."""
QUEUE_BYTES_MAX = 64 << 20
"""While more than this waits for the disk, sends that are not durable wait too."""
FETCH_BYTES_MAX = 8 << 20
"""A fetch from disk ends after this many bytes of values."""
_MESSAGE_BYTES = 400
"""What a message in memory costs beside its value, about."""


@dataclass(slots=True)
class _Partition:
    """`start`: the first offset that was not trimmed; `end`: the next one. `shown`: the end for readers. Messages from
    `cached` on are in `recent`.
    """

    opening: bytes
    stretches: Stretches
    start: int = 0
    end: int = 0
    shown: int = 0
    cached: int = 0
    recent: dict[int, Message] = field(default_factory=dict)


class FileBus(LocalBus):
    """Holds `directory` (made where it is missing) from construction to `close`. Belongs to one event loop.

    Raises DirectoryHeld (names the pid), JournalDamaged (names file and line), BusFull, OSError. `repaired` tells of an
    end that a crash had left unfinished, `kept` where an unsynced tail that was cut off lies. `packs`: has closed
    segments packed, by another process.
    """

    def __init__(
        self,
        directory: Path | str,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        cache_bytes: int = CACHE_BYTES,
        cache_seconds: float = CACHE_SECONDS,
        packs: bool = False,
        disk: Disk | None = None,
    ) -> None:
        super().__init__()
        self.directory = Path(directory)
        self.repaired: Repair | None = None
        self.kept: Path | None = None
        self._partitions: dict[tuple[str, int], _Partition] = {}
        self._compacted: dict[tuple[str, int], CompactedPartition] = {}
        self._passing: dict[tuple[str, int], PassingPartition] = {}
        self._cache: deque[tuple[int, float, int, _Partition]] = deque()
        self._cache_bytes, self._cache_seconds = cache_bytes, cache_seconds
        self._cached_bytes = 0
        self._written_line = 0
        self._packed: list[int] = []
        self._packer = Packer(self.directory) if packs else None
        self.on_failure: Callable[[], None] = lambda: None
        """Called when `failure` is set."""
        make_directory(self.directory)
        self._lock = DirectoryLock(self.directory)
        try:
            head, position = self._open()
        except BaseException:
            self._lock.release()
            raise
        self._commit = GroupCommit(
            self.directory,
            head,
            position,
            segment_bytes=segment_bytes,
            disk=disk or Disk(),
            on_written=self._written,
            on_failed=lambda: self.on_failure(),
        )
        self._newest = head.segment
        self._pack()

    @property
    def failure(self) -> BusError | None:
        """Why nothing is written any more; BusFull, as a rule. None as long as all is well."""
        return self._commit.failure

    def writer(self) -> "FileWriter":
        """A new producer."""
        self._refuse_if_closed()
        return FileWriter(self)

    async def close(self) -> None:
        """Puts everything sent on disk and lets the directory go. Raises BusFull if that did not come about."""
        if self._closed:
            return
        self._closed = True
        self._wakeups.wake_all()
        try:
            await self._commit.close()
        finally:
            if self._packer is not None:
                self._packer.stop()
            self._lock.release()

    def trim(self, keep: Mapping[tuple[str, int], int]) -> bool:
        """Lets go of packed segments whose messages all lie before what is to be kept: by topic and partition, the
        first offset that is needed; of one that is not named, all are. False while segments are being packed. Raises
        JournalDamaged, OSError.
        """
        if self._packer is not None and not self._packer.is_idle():
            return False
        self._find_packed(list_segments(self.directory)[:-1])
        self._note_trimmed(trim(self.directory, keep))
        return True

    def _note_trimmed(self, trimmed: Trimmed) -> None:
        self._packed = [first for first in self._packed if first > trimmed.line]
        for key, first in trimmed.firsts.items():
            partition = self._partition(*key)
            partition.start = first
            partition.stretches.trim(trimmed.line)

    def _pack(self) -> None:
        """Has closed segments packed, finds what is packed by now, and trims where that was asked for."""
        if self._packer is None or not self._packer.is_idle():
            return
        try:
            closed = list_segments(self.directory)[:-1]
            self._find_packed(closed)
            keep = asked(self.directory)
            if keep is not None and self.trim(keep):
                answered(self.directory)
            # What is packed already is there as it was until now, too.
            if any(segment_path(self.directory, first).exists() for first in closed):
                self._packer.start()
        except (JournalDamaged, OSError) as error:
            # Whoever reads it meets it; what is written meanwhile is none the worse.
            self._packer.failed(str(error))

    def _find_packed(self, closed: list[int]) -> None:
        for first in closed:
            if first > (self._packed[-1] if self._packed else 0):
                summary = read_summary(self.directory, first)
                if summary is None:
                    return
                self._note_packed(summary)

    def _open(self) -> tuple[Head, int]:
        files = find(self.directory)
        sums = {file.line: "" for file in files}
        scan = Scan(self.directory)
        sums |= {0: SUM_OF_NOTHING, scan.line: scan.sum} | scan.trimmed.sums
        self._pass_over_packed(scan, sums)
        in_journal: dict[tuple[str, int], dict[str, Message]] = {}
        for line in scan:
            if line.number in sums:
                sums[line.number] = scan.sum
            for topic, partition, offset, item in line.items:
                if topic in COMPACTED:
                    # An earlier version wrote it there.
                    message = message_of(topic, partition, offset, item)
                    in_journal.setdefault((topic, partition), {})[key_of(item)] = message
                else:
                    self._partition(topic, partition).stretches.note(offset, line.segment, line.position)
        self._compacted = partitions_of(self.directory, files, in_journal, sums)
        for key, end in scan.ends.items():
            if key[0] not in COMPACTED:
                found = self._partition(*key)
                found.end = found.shown = found.cached = end
        self._note_trimmed(scan.trimmed)
        return self._settle(scan)

    def _pass_over_packed(self, scan: Scan, sums: dict[int, str]) -> None:
        """Takes packed segments at their summaries' word, from the first one on as far as they go. `sums`: are filled
        in for lines that they have. Raises JournalDamaged.
        """
        for first in scan.segments[:-1]:
            summary = read_summary(self.directory, first)
            if summary is None:
                return
            scan.pass_over(summary)
            self._note_packed(summary)
            for line in sums:
                if summary.first <= line <= summary.last:
                    sums[line] = sum_of(self.directory, summary, line)

    def _note_packed(self, summary: Summary) -> None:
        self._packed.append(summary.first)
        for topic, partition, _, end in summary.ends:
            if topic not in COMPACTED:
                self._partition(topic, partition).stretches.pack(summary.first, end)

    def _settle(self, scan: Scan) -> tuple[Head, int]:
        """Puts what was read in order and on disk: what is shown must be durable. Raises BusFull."""
        head, position = Head(scan.line, scan.sum), 0
        self.repaired = scan.repair
        if scan.segments:
            head = Head(scan.line, scan.sum, scan.segments[-1])
            position, self.kept = settle(segment_path(self.directory, head.segment), scan.position, scan.repair)
        if scan.repair is not None:
            report(scan.repair, self.kept)
        report_missing(scan)
        # These say only what must be there at least, and save room, so a full disk is no reason to refuse to read.
        with suppress(OSError):
            write_head(self.directory, head)
            write_mark(self.directory, head)
            for partition in self._compacted.values():
                move_out(partition, scan.line, scan.sum)
        return head, position

    def _bounds(self, topic: str, partition: int) -> tuple[int, int]:
        if topic in COMPACTED:
            compacted = self._compacted.get((topic, partition))
            return compacted.bounds() if compacted else (0, 0)
        if topic in PASSING:
            passing = self._passing.get((topic, partition))
            return passing.bounds() if passing else (0, 0)
        found = self._partitions.get((topic, partition))
        return (found.start, found.shown) if found else (0, 0)

    def _read(self, topic: str, partition: int, offset: int, most: int) -> list[Message]:
        if topic in COMPACTED:
            return self._compacted[topic, partition].read(offset, most, FETCH_BYTES_MAX)
        if topic in PASSING:
            return self._passing[topic, partition].read(offset, most)
        found = self._partitions[topic, partition]
        end = min(offset + most, found.shown)
        messages: list[Message] = []
        if offset < found.cached:
            on_disk = min(end, found.cached)
            try:
                messages = read_back(self.directory, found.stretches, found.opening, offset, on_disk, FETCH_BYTES_MAX)
            except JournalDamaged:
                # A failed sync takes back what was written and not durable: that is the news, not what is missing.
                self._commit.refuse_if_failed()
                raise
        if offset + len(messages) >= found.cached:
            messages += [found.recent[at] for at in range(offset + len(messages), end)]
        return messages

    async def _send(self, batch: list[Outgoing], durable: bool) -> list[int]:
        self._refuse_if_closed()
        self._commit.refuse_if_failed()
        if not batch:
            return []
        if any(each.topic in PASSING for each in batch):
            kept = iter(await self._send([each for each in batch if each.topic not in PASSING], durable))
            offsets = [self._pass_on(each) if each.topic in PASSING else next(kept) for each in batch]
            await asyncio.sleep(0)
            return offsets
        partitions = {key: self._any_partition(*key) for key in {(each.topic, each.partition): None for each in batch}}
        ends = {key: partition.end for key, partition in partitions.items()}
        messages, items = [], []
        for each in batch:
            key = (each.topic, each.partition)
            items.append(encode_item(partitions[key].opening, ends[key], each))
            messages.append(Message(*key, ends[key], each.value, dict(each.headers)))
            ends[key] += 1
        # From here on nothing can fail: a batch that cannot be encoded has left no trace.
        hidden = any(partition.shown != partition.end for partition in partitions.values())
        sync = Sync.NOW if durable or hidden else Sync.NONE
        if durable and not hidden and all(each.early for each in batch):
            sync = Sync.SHARED
        waits = sync is not Sync.NONE or self._commit.queued_bytes > QUEUE_BYTES_MAX
        done = asyncio.get_running_loop().create_future() if waits else None
        self._enqueue(batch, messages, items, ends, sync=sync, done=done)
        if sync is not Sync.NOW:
            self._show(ends)
        # Cancelling the sender does not take the batch back.
        await (asyncio.sleep(0) if done is None else done)
        return [message.offset for message in messages]

    def _pass_on(self, message: Outgoing) -> int:
        """Shows a message that is not kept; returns its offset."""
        place = message.topic, message.partition
        offset = self._passing.setdefault(place, PassingPartition()).add(message)
        self._wakeups.wake(*place)
        return offset

    def _enqueue(
        self,
        batch: list[Outgoing],
        messages: list[Message],
        items: list[bytes],
        ends: dict[tuple[str, int], int],
        *,
        sync: Sync,
        done: asyncio.Future[None] | None,
    ) -> None:
        """Sends each message on its way: to the journal, or to a file of its own."""
        lines: list[tuple[Message, bytes]] = []
        kept: list[tuple[Path, bytes]] = []
        for outgoing, message, item in zip(batch, messages, items, strict=True):
            if message.topic in COMPACTED:
                partition = self._compacted[message.topic, message.partition]
                kept.append((partition.add(outgoing.key, message), item))
            else:
                lines.append((message, item))
        at, now_s = 0, asyncio.get_running_loop().time()
        for segment, position, many in self._commit.enqueue(
            [item for _, item in lines], ends, sync=sync, done=done, kept=kept
        ):
            for message, _ in lines[at : at + many]:
                self._keep(self._partitions[message.topic, message.partition], message, segment, position, now_s)
            at += many

    def _keep(self, partition: _Partition, message: Message, segment: int, position: int, now_s: float) -> None:
        partition.stretches.note(message.offset, segment, position)
        partition.recent[message.offset] = message
        partition.end = message.offset + 1
        size = len(message.value) + _MESSAGE_BYTES
        # Until its batch is written a message exists in memory only; the batch's last line is a safe measure of that.
        self._cache.append((self._commit.head.line, now_s, size, partition))
        self._cached_bytes += size

    def _written(self, group: list[Append]) -> None:
        self._written_line = group[-1].head.line
        for append in group:
            if append.sync is Sync.NOW:
                self._show(append.ends)
            for key, end in append.ends.items() if append.files else ():
                if key in self._compacted:
                    self._compacted[key].written(end)
        self._forget_read()
        if group[-1].head.segment != self._newest:
            self._newest = group[-1].head.segment
            self._pack()

    def _forget_read(self) -> None:
        """Drops from memory what is on disk and too much, or was sent too long ago."""
        too_old_s = asyncio.get_running_loop().time() - self._cache_seconds
        while self._cache:
            line, sent_s, size, partition = self._cache[0]
            if line > self._written_line or (self._cached_bytes <= self._cache_bytes and sent_s > too_old_s):
                return
            self._cache.popleft()
            del partition.recent[partition.cached]
            partition.cached += 1
            self._cached_bytes -= size

    def _show(self, ends: dict[tuple[str, int], int]) -> None:
        for key, end in ends.items():
            if key in self._compacted:
                self._compacted[key].show(end)
            else:
                self._partitions[key].shown = end
            self._wakeups.wake(*key)

    def _any_partition(self, topic: str, partition: int) -> "_Partition | CompactedPartition":
        if topic not in COMPACTED:
            return self._partition(topic, partition)
        found = self._compacted.get((topic, partition))
        if found is None:
            found = self._compacted[topic, partition] = new_partition(self.directory, topic, partition)
        return found

    def _partition(self, topic: str, partition: int) -> _Partition:
        found = self._partitions.get((topic, partition))
        if found is None:
            found = self._partitions[topic, partition] = _Partition(
                item_opening(topic, partition), Stretches(topic, partition)
            )
        return found


class FileWriter:
    """A producer of a FileBus."""

    def __init__(self, bus: FileBus) -> None:
        self._bus = bus
        self._dropped = False

    async def send(self, batch: list[Outgoing], *, durable: bool = True) -> list[int]:
        """See the port. Raises BusFull; BusError once dropped or closed; MessageTooLarge; TypeError for texts that are
        no Unicode."""
        if self._dropped:
            raise BusError("this writer was dropped")
        check_sizes(batch)
        return await self._bus._send(batch, durable)

    async def drop(self) -> None:
        """Nothing more is sent. What is on its way to disk arrives."""
        self._dropped = True
