"""Answers over MQTT what a bridge asks of this node: what its tasks have printed and left, a bounded piece at a time.

Whoever reads asks for each piece when it has room for it, so nothing is sent that nobody waits for.
"""

import asyncio
from contextlib import suppress
from urllib.parse import parse_qsl

from largesse.mqtt.pages import reply_of
from largesse.mqtt.port import MqttError, Session
from largesse.mqtt.topics import NameWrong, reply_topic
from largesse.process.health import Page, Pages
from largesse.telemetry import logger
from schemas.edge.base import Malformed
from schemas.edge.mqtt import NodeAsk, read_ask

PIECE_BYTES = 128 << 10
"""Of output or a file in one reply."""
AT_ONCE = 2
"""Replies that are read and sent at a time: reports of this node have to get through beside them."""
WAITING_MAX = 32
"""Questions that wait for their turn; the asker of a further one gets no answer."""


class Replies:
    """Answers for one node. `pages`: what its agent shows over HTTP."""

    def __init__(self, cell: str, node: str, pages: Pages) -> None:
        self._cell, self._node, self._pages = cell, node, pages
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._under_way: dict[asyncio.Task[None], None] = {}
        self._log = logger(service="agent", node=node)

    def hear(self, session: Session, payload: bytes) -> None:
        """A question has come in a session, which is answered there."""
        try:
            ask = read_ask(payload)
            if (ask.cell, ask.node) != (self._cell, self._node):
                raise Malformed("node", "is another")
        except Malformed as fault:
            self._log.warning("a question that cannot be read", error=str(fault))
            return
        if len(self._under_way) >= AT_ONCE + WAITING_MAX:
            self._log.warning("too many questions wait for an answer", path=ask.path[:200])
            return
        task = asyncio.ensure_future(self._answer(session, ask))
        self._under_way[task] = None
        task.add_done_callback(lambda done: self._under_way.pop(done, None))

    async def close(self) -> None:
        """Answers nothing more."""
        for task in list(self._under_way):
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)

    async def _answer(self, session: Session, ask: NodeAsk) -> None:
        with suppress(MqttError, TimeoutError, NameWrong):  # It is asked again, or by nobody any more.
            async with asyncio.timeout(ask.within_ms / 1_000), self._turns:
                path, _, query = ask.path.partition("?")
                page = await self._pages(path, dict(parse_qsl(query)))
                payload = reply_of(ask, page or Page("404 Not Found", b"there is nothing\n"))
                await session.publish(reply_topic(self._cell, self._node, ask.bridge), payload)
