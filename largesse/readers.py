"""Threads of their own for reading what tasks printed.

A disk that hangs keeps the thread that reads from it, whether or not anybody waits any more. In the loop's own pool it
would soon keep all of them, and with them what else blocks: starting tasks, checkpoints, clearing away.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

READERS_MAX = 4
"""Pieces that are read at once."""
WAITING_MAX = 256
"""Pieces that wait for a reader; more are refused."""

_T = TypeVar("_T")


class ReadersBusy(Exception):
    """More wait for output than may: says how many."""


class Readers:
    """A pool of threads. Belongs to one event loop."""

    def __init__(self, threads: int = READERS_MAX, waiting_max: int = WAITING_MAX) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="output")
        self._threads = threads
        self._waiting_max = waiting_max
        self._under_way = 0

    async def read(self, blocking: Callable[[], _T]) -> _T:
        """What `blocking` returns. Raises ReadersBusy, and what it raises. Cancelled before its turn: not begun."""
        if self._under_way >= self._threads + self._waiting_max:
            raise ReadersBusy(f"{self._waiting_max} pieces of output wait to be read already: try again")
        self._under_way += 1
        loop = asyncio.get_running_loop()

        def ended(_: object) -> None:
            with suppress(RuntimeError):  # The loop is closed, and its waiters with it.
                loop.call_soon_threadsafe(self._ended)

        future = self._pool.submit(blocking)
        future.add_done_callback(ended)
        return await asyncio.wrap_future(future)

    def _ended(self) -> None:
        self._under_way -= 1
