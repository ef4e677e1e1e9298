"""Asks nodes over MQTT for what their tasks have printed and left, for who asks the bridge over HTTP.

`/v1/nodes/NODE/output/...` and `.../results/...` stand for what the node's agent shows at `/v1/output/...` and
`/v1/results/...`. One question has one answer of limited size; who wants more asks for what follows.
"""

import asyncio
import secrets
from contextlib import suppress
from urllib.parse import unquote_to_bytes, urlencode

from largesse import task_output, task_results
from largesse.mqtt.pages import page_of
from largesse.mqtt.parts import dumps
from largesse.mqtt.port import MqttError, Session
from largesse.mqtt.topics import NameWrong, ask_topic, replier_of
from largesse.process.health import Page
from largesse.telemetry import BRIDGE_ASKED
from schemas.edge.base import Malformed
from schemas.edge.mqtt import PATH_MAX, NodeAsk, NodeReply, read_reply
from services.bridge.intake import Refusal

PREFIX = "/v1/nodes/"
ANSWER_MS = 4_000
"""So long a node has: less than who asks over HTTP waits (largesse/process/health.py)."""
OPEN_MAX = 48
"""Questions at a time. There are more connections, so that whoever watches over the bridge gets through beside them."""
OPEN_OF_NODE_MAX = 16
"""Of them for one node: one that is silent keeps no others waiting."""

_OWN = (task_output.PREFIX, task_results.PREFIX)


class Asking:
    """Asks for the bridge of that name. `session`: the one with the broker; None: there is none at the moment."""

    def __init__(self, cell: str, bridge: str) -> None:
        self.session: Session | None = None
        self._cell, self.bridge = cell, bridge
        self._open: dict[str, tuple[str, asyncio.Future[NodeReply]]] = {}

    def hear(self, topic: str, payload: bytes) -> None:
        """A node has answered. Raises Refusal."""
        node = replier_of(topic, self._cell)
        if node is None:
            raise Refusal("topic", "no node of this cell answers there")
        try:
            reply = read_reply(payload)
        except Malformed as fault:
            raise Refusal("malformed", str(fault)) from None
        if (reply.cell, reply.node) != (self._cell, node):
            raise Refusal("name", f"names node {reply.node} of cell {reply.cell} on the topic of node {node}")
        asked, future = self._open.get(reply.id, ("", None))
        if future is None or asked != node:
            return  # Nobody waits for it any more.
        if not future.done():
            future.set_result(reply)

    async def pages(self, path: str, query: dict[str, str]) -> Page | None:
        """What a bridge answers beside its health."""
        node, slash, rest = path.removeprefix(PREFIX).partition("/")
        inner = f"/v1/{rest}"
        if not path.startswith(PREFIX) or not slash or not inner.startswith(_OWN):
            return None
        page, outcome = await self._answer(node, f"{inner}?{urlencode(query)}")
        BRIDGE_ASKED.labels(outcome).inc()
        return page

    async def _answer(self, encoded: str, path: str) -> tuple[Page, str]:
        """What a node answers, or why it does not, and a word for the metric."""
        try:
            node = unquote_to_bytes(encoded).decode()
            topic = ask_topic(self._cell, node)
        except (NameWrong, UnicodeDecodeError):
            return Page("400 Bad Request", b"node: has to be the name of a node over MQTT\n"), "wrong"
        if len(path) > PATH_MAX:
            return Page("400 Bad Request", b"a path that is too long\n"), "wrong"
        session = self.session
        if session is None:
            text = b"the bridge has no session with the MQTT broker at the moment\n"
            return Page("503 Service Unavailable", text), "no_session"
        of_node = sum(asked == node for asked, _ in self._open.values())
        if len(self._open) >= OPEN_MAX or of_node >= OPEN_OF_NODE_MAX:
            text = b"too many questions to nodes over MQTT are open: try again\n"
            return Page("503 Service Unavailable", text), "busy"
        return await self._ask(session, topic, node, path)

    async def _ask(self, session: Session, topic: str, node: str, path: str) -> tuple[Page, str]:
        number = secrets.token_hex(16)
        ask = NodeAsk(cell=self._cell, node=node, bridge=self.bridge, id=number, path=path, within_ms=ANSWER_MS)
        future: asyncio.Future[NodeReply] = asyncio.get_running_loop().create_future()
        self._open[number] = node, future
        try:
            async with asyncio.timeout(ANSWER_MS / 1_000):
                with suppress(MqttError):  # It may have arrived.
                    await session.publish(topic, dumps(ask))
                return page_of(await future), "answered"
        except TimeoutError:
            text = f'node "{node}" has not answered over MQTT within {ANSWER_MS} ms\n'
            return Page("504 Gateway Timeout", text.encode()), "silent"
        except Malformed as fault:
            text = f'node "{node}" has answered what cannot be read: {fault}\n'
            return Page("502 Bad Gateway", text.encode()), "unreadable"
        finally:
            del self._open[number]
