"""A bus that an agent, or a whole cell, can be cut off from."""

import asyncio

from largesse.bus.port import BusError


class CuttableBus:
    """A bus that fails every call of an agent while it is cut off."""

    def __init__(self, behind):
        self._behind = behind
        self.cut = False

    def __getattr__(self, name):
        return getattr(self._behind, name)

    def _check(self):
        if self.cut:
            raise BusError("cut off")

    async def fetch(self, *args, **options):
        self._check()
        found = await self._behind.fetch(*args, **options)
        self._check()
        return found

    async def bounds(self, *args):
        self._check()
        return await self._behind.bounds(*args)

    async def wait_any(self, positions, wait_ms):
        if self.cut:
            await asyncio.sleep(min(wait_ms, 50) / 1_000)
            return False
        return await self._behind.wait_any(positions, min(wait_ms, 50))

    def writer(self):
        return CuttableWriter(self, self._behind.writer())


class CuttableWriter:
    def __init__(self, bus, behind):
        self._bus, self._behind = bus, behind

    async def send(self, batch, *, durable=True):
        if self._bus.cut:
            raise BusError("cut off")
        return await self._behind.send(batch, durable=durable)

    async def drop(self):
        await self._behind.drop()
