"""Waiting that can be cancelled at any moment.

`asyncio.wait_for` of Python 3.11 forgets that it was cancelled if what it waits for comes true in the same turn of the
loop: whoever cancelled it then waits for ever. tests/house holds it out of the product.
"""

import asyncio


async def is_set_within(event: asyncio.Event, seconds: float) -> bool:
    """Whether the event is set, waited for that long at most."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return event.is_set()
    return True
