"""Which nodes have to be told something: each is told by one at a time, and what comes meanwhile is told next."""

import asyncio
from collections.abc import Iterable


class Untold:
    """Nodes in the order in which something came for them. Belongs to one event loop.

    `take` gives a node to whoever tells it, and to nobody else until `done`: so what is newer never overtakes what is
    older, and one slow publication holds up no other node.
    """

    def __init__(self) -> None:
        self._next: asyncio.Queue[str] = asyncio.Queue()
        self._queued: set[str] = set()
        self._taken: dict[str, bool] = {}  # Whether something has come since.

    def add(self, nodes: Iterable[str]) -> None:
        """Something has come for these nodes."""
        for node in nodes:
            if node in self._taken:
                self._taken[node] = True
            elif node not in self._queued:
                self._queued.add(node)
                self._next.put_nowait(node)

    async def take(self) -> str:
        """The next node to be told, once there is one."""
        node = await self._next.get()
        self._queued.discard(node)
        self._taken[node] = False
        return node

    def done(self, node: str, *, is_told: bool) -> None:
        """The node that was taken has been told, or could not be."""
        if self._taken.pop(node) or not is_told:
            self.add((node,))
