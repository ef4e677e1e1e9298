"""Waiting for an event, cut short by time or by a cancellation."""

import asyncio

import pytest

from largesse.waiting import is_set_within, until_first_ends

GUARD_S = 60


def test_it_says_whether_the_event_was_set():
    async def story():
        event = asyncio.Event()
        assert not await is_set_within(event, 0.01)
        asyncio.get_running_loop().call_later(0.01, event.set)
        assert await is_set_within(event, GUARD_S)
        assert await is_set_within(event, 0)

    asyncio.run(story())


@pytest.mark.parametrize("turns", range(6))
def test_a_cancellation_is_heard_however_soon_it_follows_the_event(turns):
    async def for_ever(event):
        while True:
            event.clear()
            await is_set_within(event, GUARD_S)

    async def story():
        event = asyncio.Event()
        waiting = asyncio.create_task(for_ever(event))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        event.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        waiting.cancel()
        _, pending = await asyncio.wait([waiting], timeout=5)
        assert not pending
        assert waiting.cancelled()

    asyncio.run(story())


def test_the_first_that_ends_ends_the_others_and_what_it_raised_is_raised():
    ended = []

    async def lasting(name):
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(name)

    async def failing():
        await asyncio.sleep(0)
        raise ValueError("it cannot go on")

    async def story():
        await until_first_ends([lasting("a"), asyncio.sleep(0), lasting("b")])
        assert ended == ["a", "b"]
        with pytest.raises(ValueError, match="it cannot go on"):
            await until_first_ends([lasting("c"), failing()])
        whole = asyncio.create_task(until_first_ends([lasting("d")]))
        await asyncio.sleep(0)
        whole.cancel()
        with pytest.raises(asyncio.CancelledError):
            await whole
        assert ended == ["a", "b", "c", "d"]

    asyncio.run(story())
