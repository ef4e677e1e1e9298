"""A disk that hangs stalls those who read from it, and nobody else."""

import asyncio
import threading

import pytest

from largesse.readers import Readers, ReadersBusy
from services.agent import task_output
from services.agent.task_output import pages_of

GUARD_S = 240


def tell(story):
    return asyncio.run(asyncio.wait_for(story(), GUARD_S))


def test_readers_that_hang_leave_the_threads_of_everybody_else_alone(monkeypatch, tmp_path):
    """An agent is asked for output again and again while its disk hangs; whoever asked gives up after a while."""
    disk = threading.Event()
    monkeypatch.setattr(task_output, "read_piece", lambda data, wanted: disk.wait(GUARD_S) and None)

    async def story():
        pages = pages_of("n1", tmp_path)
        asked = [asyncio.ensure_future(pages("/v1/output/j/s/0", {})) for _ in range(50)]
        for _ in range(10):
            await asyncio.sleep(0)
        for each in asked:
            each.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        try:
            # More than the loop's own pool has, one after another.
            return [await asyncio.to_thread(lambda number=number: number) for number in range(50)]
        finally:
            disk.set()

    assert tell(story) == list(range(50))


def test_no_more_wait_for_a_reader_than_may_and_room_comes_back():
    gate = threading.Event()

    async def story():
        readers = Readers(threads=2, waiting_max=3)
        reads = [
            asyncio.ensure_future(readers.read(lambda number=number: gate.wait(GUARD_S) and number))
            for number in range(5)
        ]
        await asyncio.sleep(0)
        with pytest.raises(ReadersBusy, match="3 pieces of output wait"):
            await readers.read(lambda: None)
        reads[4].cancel()
        gate.set()
        assert await asyncio.gather(*reads[:4]) == [0, 1, 2, 3]
        assert await readers.read(lambda: "again") == "again"

    tell(story)
