"""Group commit: lines queued in the order of their sends, written by one thread, all that wait sharing one sync.

A line's number, sum and place are settled when it is queued, so nothing may be left out afterwards: after the first
failure everything queued fails, and nothing is taken any more until the journal is opened again.

A batch that may share the sync of a later one waits for that, for SHARED_S at most: an input and the record that it
becomes are on disk by one sync.
"""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from largesse.bus.file.head import Head
from largesse.bus.file.journal import Appender, Disk, Run, WholeFile
from largesse.bus.file.lines import encode_line
from largesse.bus.port import BusError, BusFull

LINE_BYTES = 4 << 20
"""A batch above this becomes several lines, each of them atomic."""


SHARED_S = 0.02


class Sync(Enum):
    """When a batch is put on disk: not of its own accord, with the next one that is, or as soon as possible."""

    NONE = 0
    SHARED = 1
    NOW = 2


class WrittenAt(NamedTuple):
    """Where the next `messages` messages of a batch will lie."""

    segment: int
    position: int
    messages: int


@dataclass(slots=True)
class Append:
    """One batch on its way to disk. `ends`: where its partitions end after it. `head`: the last line up to its end.
    `files`: what of it is kept outside of the journal.
    """

    sync: Sync
    ends: dict[tuple[str, int], int]
    done: asyncio.Future[None] | None
    head: Head
    size: int
    files: list[WholeFile] = field(default_factory=list)


class GroupCommit:
    """The end of the journal. Calls `on_written` on the loop with what is written, and synced if any was durable, and
    `on_failed` once, when nothing is written any more.
    """

    def __init__(
        self,
        directory: Path,
        head: Head,
        position: int,
        *,
        segment_bytes: int,
        disk: Disk,
        on_written: Callable[[list[Append]], None],
        on_failed: Callable[[], None],
    ) -> None:
        self.head = head
        """The last line queued."""
        self.queued_bytes = 0
        self.failure: BusError | None = None
        """Why nothing is written any more."""
        self._segment = max(1, head.segment)
        self._position = position
        self._segment_bytes = segment_bytes
        self._on_written = on_written
        self._on_failed = on_failed
        self._directory = directory
        self._queue: list[Append] = []
        self._runs: list[tuple[int, str, list[bytes]]] = []
        self._asked = False
        self._alarm: asyncio.TimerHandle | None = None
        self._overdue = False
        self._written: list[Append] = []  # Of those that share a sync: on their way to disk, or only written.
        self._writing = False
        self._idle: asyncio.Future[None] | None = None
        self._appender = Appender(directory, self._segment, position, disk)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="file-bus")

    def enqueue(
        self,
        items: list[bytes],
        ends: dict[tuple[str, int], int],
        *,
        sync: Sync,
        done: asyncio.Future[None] | None,
        kept: list[tuple[Path, bytes]],
    ) -> list[WrittenAt]:
        """Queues one batch, and settles where it lies. `done` ends when it is written, or synced where it is to be.

        `items` become lines of the journal; each of `kept` is an item for a file of its own.
        """
        places = []
        size = 0
        for part in _parts(items):
            line, total = encode_line(self.head.line + 1, self.head.sum, part)
            if self._position > 0 and self._position + len(line) > self._segment_bytes:
                self._segment, self._position = self.head.line + 1, 0
            if not self._runs or self._runs[-1][0] != self._segment:
                self._runs.append((self._segment, self.head.sum, []))
            self._runs[-1][2].append(line)
            places.append(WrittenAt(self._segment, self._position, len(part)))
            self._position += len(line)
            size += len(line)
            self.head = Head(self.head.line + 1, total, self._segment)
        files = [WholeFile(path, encode_line(self.head.line, self.head.sum, [item])[0]) for path, item in kept]
        size += sum(len(file.data) for file in files)
        self.queued_bytes += size
        self._queue.append(Append(sync, ends, done, self.head, size, files))
        loop = asyncio.get_running_loop()
        if sync is Sync.SHARED:
            if self._alarm is None:
                self._alarm = loop.call_later(SHARED_S, self._sync_written, loop)
        elif not self._asked:
            # Not at once: what others send in this turn of the loop shares the sync.
            self._asked = True
            loop.call_soon(self._write, loop)
        return places

    async def close(self) -> None:
        """Puts everything queued on disk and ends the thread. Raises BusFull if that did not come about."""
        loop = asyncio.get_running_loop()
        self._sync_written(loop)
        try:
            while self._writing or self._queue:
                self._idle = loop.create_future()
                await self._idle
            if self.failure is None:
                await asyncio.wrap_future(self._thread.submit(self._appender.close, self.head))
        finally:
            if self._alarm is not None:
                self._alarm.cancel()
            self._thread.shutdown()
            self._appender.abandon()
            if self._queue:
                # Cancelled before its turn came: never wait for a thread that is gone.
                self._fail([], BusError("the bus was closed before this was written"))
        self.refuse_if_failed()

    def refuse_if_failed(self) -> None:
        """Raises what stopped the writing, if anything did."""
        if self.failure is not None:
            raise type(self.failure)(str(self.failure))

    def _write(self, loop: asyncio.AbstractEventLoop) -> None:
        """Hands everything queued to the thread, unless it is at work: then again when it comes back."""
        self._asked = False
        if self._writing or not (self._queue or (self._overdue and self._written)):
            return
        self._writing = True
        group, self._queue = self._queue, []
        runs, self._runs = self._runs, []
        joined = [Run(first_line, sum_before, b"".join(lines)) for first_line, sum_before, lines in runs]
        self._written += [append for append in group if append.sync is Sync.SHARED]
        sync = self._overdue or any(append.sync is Sync.NOW for append in group)
        if sync:
            self._overdue = False
            if self._alarm is not None:
                self._alarm.cancel()
                self._alarm = None
        # What is superseded before it was written never is.
        files = {file.path: file for append in group for file in append.files}
        head = (group or self._written)[-1].head
        written = self._thread.submit(self._appender.append, joined, list(files.values()), head, sync=sync)

        def hand_back(written: Future[None]) -> None:
            # If the loop is closed, nothing waits any more.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._come_back, loop, group, written, sync)

        written.add_done_callback(hand_back)

    def _sync_written(self, loop: asyncio.AbstractEventLoop) -> None:
        """Nothing came whose sync could be shared."""
        self._overdue = True
        self._write(loop)

    def _come_back(
        self, loop: asyncio.AbstractEventLoop, group: list[Append], written: Future[None], synced: bool
    ) -> None:
        self._writing = False
        error = written.exception()
        if error is not None:
            self._fail(group, error if isinstance(error, BusFull) else _stopped(self._directory, error))
        else:
            self.queued_bytes -= sum(append.size for append in group)
            if group:
                self._on_written(group)
            shared, self._written = (self._written, []) if synced else ([], self._written)
            for append in shared + [append for append in group if append.sync is not Sync.SHARED]:
                if append.done is not None and not append.done.done():
                    append.done.set_result(None)
        self._write(loop)
        if self._idle is not None and not self._writing and not self._idle.done():
            self._idle.set_result(None)

    def _fail(self, group: list[Append], failure: BusError) -> None:
        self.failure = failure
        for append in group + self._written + self._queue:
            if append.done is not None and not append.done.done():
                append.done.set_exception(type(failure)(str(failure)))
        self._queue, self._runs, self._written = [], [], []
        self._on_failed()


def _stopped(directory: Path, error: BaseException) -> BusError:
    return BusError(
        f"{directory}: the journal's writer stopped ({error!r}): nothing more is written, and nothing that was "
        f"acknowledged is lost. Start again."
    )


def _parts(items: list[bytes]) -> Iterator[list[bytes]]:
    """Cuts a batch where a line would become longer than LINE_BYTES; a longer message has a line of its own."""
    part: list[bytes] = []
    size = 0
    for item in items:
        if part and size + len(item) > LINE_BYTES:
            yield part
            part, size = [], 0
        part.append(item)
        size += len(item)
    if part:
        yield part
