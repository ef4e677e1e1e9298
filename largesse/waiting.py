"""Waiting that can be cancelled at any moment.

`asyncio.wait_for` of Python 3.11 forgets that it was cancelled if what it waits for comes true in the same turn of the
loop: whoever cancelled it then waits for ever. tests/house holds it out of the product.
"""

import asyncio
from collections.abc import Coroutine, Iterable


async def is_set_within(event: asyncio.Event, seconds: float | None) -> bool:
    """Whether the event is set, waited for that long at most; None: without end."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return event.is_set()
    return True


async def until_first_ends(lives: Iterable[Coroutine[object, object, object]]) -> None:
    """Runs all of these until the first has ended, and the others have been cancelled. Raises what the first of them,
    in their order, raised.
    """
    parts: list[asyncio.Future[object]] = [asyncio.ensure_future(life) for life in lives]
    try:
        await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for part in parts:
            part.cancel()
        outcomes = await asyncio.gather(*parts, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome
