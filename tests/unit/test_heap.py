"""What was freed goes back to the system: which calls of the C library are made, and when."""

import asyncio
from types import SimpleNamespace

import pytest

from largesse.process import heap


class Library:
    """A C library whose heap has so much free; None: one that cannot say."""

    def __init__(self, free):
        self.told, self.trimmed = {}, 0
        self.mallopt = lambda parameter, value: self.told.update({parameter: value})
        self.malloc_trim = self._trim
        if free is not None:
            self.mallinfo2 = lambda: SimpleNamespace(fordblks=free)

    def _trim(self, left):
        self.trimmed += 1


def with_library(monkeypatch, library):
    monkeypatch.setattr(heap.ctypes, "CDLL", lambda name: library)
    return library


@pytest.mark.parametrize(
    ("free", "trims"),
    [
        pytest.param(heap.FREE_BYTES_MAX, 0, id="little is left to whoever asks next"),
        pytest.param(heap.FREE_BYTES_MAX + 1, 1, id="more goes back"),
        pytest.param(None, 1, id="and so does what cannot be measured"),
    ],
)
def test_what_is_free_goes_back_where_it_is_much(monkeypatch, free, trims):
    library = with_library(monkeypatch, Library(free))

    heap.trim()

    assert library.trimmed == trims


def test_a_library_without_these_calls_is_left_alone(monkeypatch):
    with_library(monkeypatch, SimpleNamespace())

    heap.set_up_heap()
    heap.trim()

    assert heap.free_bytes() is None


def test_what_the_environment_says_of_the_heap_goes_before(monkeypatch):
    library = with_library(monkeypatch, Library(0))
    for variable, _, _ in heap._SETTINGS:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("MALLOC_ARENA_MAX", "8")

    heap.set_up_heap()

    assert library.told == {-1: heap.FREE_BYTES_MAX, -3: heap.MAPPED_BYTES}


def test_a_process_looks_again_and_again_until_it_ends(monkeypatch):
    monkeypatch.setattr(heap, "LOOK_SECONDS", 0.001)

    async def story():
        stop, looks = asyncio.Event(), []
        loop = asyncio.get_running_loop()

        def trim():
            looks.append(True)
            if len(looks) == 3:
                loop.call_soon_threadsafe(stop.set)

        monkeypatch.setattr(heap, "trim", trim)
        async with asyncio.timeout(60):
            await heap.keep_small(stop)
        return looks

    assert len(asyncio.run(story())) >= 3
