"""A file bus that finds no descriptor waits for one: nothing is in doubt, and nothing ends."""

import asyncio
import os
import resource
from contextlib import contextmanager

import pytest

from largesse.bus.file.bus import FileBus
from largesse.bus.port import Outgoing

GUARD_S = 240


@contextmanager
def no_descriptors():
    """No file can be opened in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))  # What is open stays so.
    try:
        with pytest.raises(OSError, match="Too many open files"):
            os.open(os.devnull, os.O_RDONLY)
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def tell(story):
    return asyncio.run(asyncio.wait_for(story(), GUARD_S))


def out(number):
    return Outgoing("log", 0, b"%d/" % number + b"x" * 500)


async def waits(task):
    """Whether a task is not done after many turns of the loop."""
    for _ in range(100):
        await asyncio.sleep(0.001)
    return not task.done()


def test_a_segment_that_cannot_be_opened_is_opened_later(tmp_path):
    async def story():
        bus = FileBus(tmp_path, segment_bytes=1_000)
        writer = bus.writer()
        await writer.send([out(0)])
        with no_descriptors():
            # More than one segment holds.
            sends = [asyncio.ensure_future(writer.send([out(number)])) for number in range(1, 6)]
            assert await waits(sends[-1])
            assert bus.failure is None
        assert await asyncio.gather(*sends) == [[number] for number in range(1, 6)]
        await bus.close()
        again = FileBus(tmp_path)
        assert await again.bounds("log", 0) == (0, 6)
        await again.close()

    tell(story)


def test_what_cannot_be_read_back_is_read_later(tmp_path):
    async def story():
        bus = FileBus(tmp_path, cache_bytes=0)
        await bus.writer().send([out(number) for number in range(5)])
        with no_descriptors():
            reading = asyncio.ensure_future(bus.fetch("log", 0, 0))
            assert await waits(reading)
        found = await reading
        await bus.close()
        return [message.value[:2] for message in found]

    assert tell(story) == [b"%d/" % number for number in range(5)]
