"""The C library's heap: what was freed goes back to the system, so that a process is as large as what lives in it.

glibc keeps what was freed for the next who asks: after a flood of jobs, and after a start that has read a long log,
that is as much as all that lives. Python's own arenas, of small objects, go back by themselves once they are empty.
Where the C library has no such calls (musl) nothing happens.
"""

import asyncio
import ctypes
import os
from contextlib import suppress

from largesse.waiting import is_set_within

LOOK_SECONDS = 60.0
FREE_BYTES_MAX = 8 << 20
"""Less than this is left to whoever asks next."""

MAPPED_BYTES = 1 << 20
"""Blocks from this size on are mapped by themselves, and go back when they are freed: a snapshot's text, say. Without
this glibc raises the size to that of the largest block that was freed, up to 32 MB, and such blocks leave holes."""
ARENAS_MAX = 2
"""Heaps for all threads together. As it is each thread of a pool has its own, and what it frees stays there."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_SETTINGS = (
    ("MALLOC_MMAP_THRESHOLD_", _M_MMAP_THRESHOLD, MAPPED_BYTES),
    ("MALLOC_TRIM_THRESHOLD_", _M_TRIM_THRESHOLD, FREE_BYTES_MAX),
    ("MALLOC_ARENA_MAX", _M_ARENA_MAX, ARENAS_MAX),
)
"""By the environment's variable, which goes before: what mallopt() is told."""


_BEFORE_FREE = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks")


class _Info(ctypes.Structure):
    """`struct mallinfo2`. `fordblks`: bytes that are free."""

    _fields_ = [(name, ctypes.c_size_t) for name in (*_BEFORE_FREE, "fordblks", "keepcost")]


def set_up_heap() -> None:
    """For a process that is about to serve."""
    with suppress(OSError, AttributeError):
        tell = ctypes.CDLL(None).mallopt
        for variable, parameter, value in _SETTINGS:
            if variable not in os.environ:
                tell(parameter, value)


def free_bytes() -> int | None:
    """How much of the heap is free; None where the C library cannot say (glibc before 2.33, musl)."""
    with suppress(OSError, AttributeError):
        look = ctypes.CDLL(None).mallinfo2
        look.restype = _Info
        free: int = look().fordblks
        return free
    return None


def trim() -> None:
    """Gives back what is free, where that is much."""
    free = free_bytes()
    if free is None or free > FREE_BYTES_MAX:
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)


async def keep_small(stop: asyncio.Event) -> None:
    """Gives back what is free now and then, until `stop`."""
    while not stop.is_set():
        if await is_set_within(stop, LOOK_SECONDS):
            return
        await asyncio.to_thread(trim)
