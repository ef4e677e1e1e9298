"""What the memory bus and the file bus have in common: waiting without polling, and the names of gaps.

A waiting reader is woken by the append that it waits for, by a loss that turns its position into a gap, and by closing.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

from largesse.bus.port import BusError, Fetched, Message, PositionGap
from largesse.descriptors import AGAIN_SECONDS

_Key = tuple[str, int]
_End = asyncio.Future[Any]


def position_gap(topic: str, partition: int, offset: int, first: int, end: int) -> PositionGap:
    """The error for a position outside of [first, end]. Says which side, and what exists."""
    side = "before the start" if offset < first else "beyond the end"
    exists = f"offsets {first} to {end - 1} exist" if first < end else f"nothing exists and {end} comes next"
    return PositionGap(f"{topic} partition {partition}: position {offset} is {side}; {exists}")


class NoDescriptor(BusError):
    """What lies there cannot be read at the moment: no more files can be opened."""


class Wakeups:
    """Who waits for which partitions, on one event loop."""

    def __init__(self) -> None:
        self._waiting: dict[_Key, dict[asyncio.Future[bool], None]] = {}

    def wake(self, topic: str, partition: int) -> None:
        """Ends the waits for this partition."""
        for waiter in self._waiting.get((topic, partition), ()):
            _settle(waiter, True)

    def wake_all(self) -> None:
        """Ends every wait."""
        for waiters in self._waiting.values():
            for waiter in waiters:
                _settle(waiter, True)

    async def wait(self, keys: Iterable[_Key], seconds: float, ends: Sequence[_End] = ()) -> bool:
        """Waits until one of the partitions is woken; False once `seconds` are over, or one of the `ends` is done."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[bool] = loop.create_future()
        wanted = list(keys)
        for key in wanted:
            self._waiting.setdefault(key, {})[waiter] = None
        alarm = loop.call_later(seconds, _settle, waiter, False)

        def end(_: _End) -> None:
            _settle(waiter, False)

        for each in ends:
            each.add_done_callback(end)
        try:
            return await waiter
        finally:
            alarm.cancel()
            for each in ends:
                each.remove_done_callback(end)
            for key in wanted:
                waiters = self._waiting[key]
                waiters.pop(waiter, None)
                if not waiters:
                    del self._waiting[key]


class LocalBus(ABC):
    """The reading half of the Bus port over two synchronous questions: what exists, and what lies there."""

    def __init__(self) -> None:
        self._wakeups = Wakeups()
        self._closed = False

    @abstractmethod
    def _bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """The first offset that readers may see and the one after the last; (0, 0) for a partition never written."""

    @abstractmethod
    def _read(self, topic: str, partition: int, offset: int, most: int) -> list[Message]:
        """Up to `most` (>= 1) messages from `offset`, which is below the end. None only where there are none."""

    async def fetch(self, topic: str, partition: int, offset: int, *, wait_ms: int = 0, most: int = 1_000) -> Fetched:
        """See the port. Raises PositionGap; BusError once closed. Cancelling it loses nothing."""
        self._refuse_if_closed()
        if wait_ms <= 0 and self._bounds(topic, partition)[1] == offset:
            return Fetched((), offset)  # Whoever is told so waits next.
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_ms / 1_000
        # A reader with a long way to catch up must not keep other tasks from the loop.
        await asyncio.sleep(0)
        while True:
            self._refuse_if_closed()
            first, end = self._bounds(topic, partition)
            if not first <= offset <= end:
                raise position_gap(topic, partition, offset, first, end)
            if offset < end and most > 0:
                try:
                    messages = self._read(topic, partition, offset, most)
                except NoDescriptor:
                    # Connections and tasks give theirs back; nothing is lost by reading later.
                    await asyncio.sleep(AGAIN_SECONDS)
                    continue
                return Fetched(messages, messages[-1].offset + 1 if messages else end)
            left = deadline - loop.time()
            if left <= 0 or most <= 0:
                return Fetched((), offset)
            await self._wakeups.wait([(topic, partition)], left)

    async def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """See the port. Raises BusError once closed."""
        self._refuse_if_closed()
        return self._bounds(topic, partition)

    async def wait_any(self, positions: dict[tuple[str, int], int], wait_ms: int, ends: Sequence[_End] = ()) -> bool:
        """True as soon as a fetch at one of the positions would not wait, be it that it would raise PositionGap. False
        also once one of the `ends` is done.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_ms / 1_000
        found = has_waited = False
        while True:
            self._refuse_if_closed()
            # At the end, and only there, a fetch waits.
            found = any(self._bounds(*key)[1] != position for key, position in positions.items())
            left = deadline - loop.time()
            if found or left <= 0 or any(end.done() for end in ends):
                break
            await self._wakeups.wait(positions, left, ends)
            has_waited = True
        if not has_waited:
            await asyncio.sleep(0)  # Whoever asks again and again must not keep other tasks from the loop.
        return found

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise BusError("the bus is closed")


def _settle(waiter: asyncio.Future[bool], woken: bool) -> None:
    if not waiter.done():
        waiter.set_result(woken)
