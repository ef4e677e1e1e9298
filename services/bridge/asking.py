"""Asks nodes over MQTT for what their tasks have printed and left, for who asks the bridge over HTTP.

`/v1/nodes/NODE/output/...` and `.../results/...` stand for what the node's agent shows at `/v1/output/...` and
`/v1/results/...`. One question has one answer of limited size; who wants more asks for what follows.
"""

import asyncio
import secrets
from contextlib import suppress
from dataclasses import dataclass
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


@dataclass(slots=True)
class _Question:
    """`future`: the answer, and the message that it came in. `shown`: it was asked over HTTP."""

    node: str
    future: asyncio.Future[tuple[NodeReply, bytes]]
    shown: bool


class Asking:
    """Asks for the bridge of that name. `session`: the one with the broker; None: there is none at the moment."""

    def __init__(self, cell: str, bridge: str) -> None:
        self.session: Session | None = None
        self._cell, self.bridge = cell, bridge
        self._open: dict[str, _Question] = {}

    def hear(self, topic: str, payload: bytes) -> bool:
        """A node has answered; whether that was asked for. Raises Refusal."""
        node = replier_of(topic, self._cell)
        if node is None:
            raise Refusal("topic", "no node of this cell answers there")
        try:
            reply = read_reply(payload)
        except Malformed as fault:
            raise Refusal("malformed", str(fault)) from None
        if (reply.cell, reply.node) != (self._cell, node):
            raise Refusal("name", f"names node {reply.node} of cell {reply.cell} on the topic of node {node}")
        question = self._open.get(reply.id)
        if question is None or question.node != node or question.future.done():
            return False  # Nobody waits for it any more.
        question.future.set_result((reply, payload))
        return True

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
            ask_topic(self._cell, node)
        except (NameWrong, UnicodeDecodeError):
            return Page("400 Bad Request", b"node: has to be the name of a node over MQTT\n"), "wrong"
        if len(path) > PATH_MAX:
            return Page("400 Bad Request", b"a path that is too long\n"), "wrong"
        session = self.session
        if session is None:
            text = b"the bridge has no session with the MQTT broker at the moment\n"
            return Page("503 Service Unavailable", text), "no_session"
        shown = [question.node for question in self._open.values() if question.shown]
        if len(shown) >= OPEN_MAX or shown.count(node) >= OPEN_OF_NODE_MAX:
            text = b"too many questions to nodes over MQTT are open: try again\n"
            return Page("503 Service Unavailable", text), "busy"
        try:
            reply, _ = await self.ask(session, node, path, secrets.token_hex(16), ANSWER_MS, shown=True)
            return page_of(reply), "answered"
        except TimeoutError:
            silent = f'node "{node}" has not answered over MQTT within {ANSWER_MS} ms\n'
            return Page("504 Gateway Timeout", silent.encode()), "silent"
        except Malformed as fault:
            unread = f'node "{node}" has answered what cannot be read: {fault}\n'
            return Page("502 Bad Gateway", unread.encode()), "unreadable"

    async def ask(
        self, session: Session, node: str, path: str, number: str, within_ms: int, *, shown: bool = False
    ) -> tuple[NodeReply, bytes]:
        """A node's answer to question `number`, and the message that it came in. Raises TimeoutError, NameWrong."""
        ask = NodeAsk(cell=self._cell, node=node, bridge=self.bridge, id=number, path=path, within_ms=within_ms)
        question = _Question(node, asyncio.get_running_loop().create_future(), shown)
        if number in self._open:
            raise TimeoutError  # Whoever repeats the number of another question gets no answer.
        self._open[number] = question
        try:
            async with asyncio.timeout(within_ms / 1_000):
                with suppress(MqttError):  # It may have arrived.
                    await session.publish(ask_topic(self._cell, node), dumps(ask))
                return await question.future
        finally:
            del self._open[number]
