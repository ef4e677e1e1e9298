"""Asks bridges over MQTT for results that were handed on to tasks of this node, whoever has them.

A question has one answer of limited size; what follows is asked for once that is taken.
"""

import asyncio
import concurrent.futures
import secrets

from largesse.mqtt.pages import page_of
from largesse.mqtt.parts import dumps
from largesse.mqtt.port import MqttError, Session
from largesse.mqtt.topics import NameWrong, ask_topic, fetch_topic
from largesse.process.health import Page
from largesse.task_results import BadAnswer, FilePiece, Listed, WantedResults, path_of
from largesse.telemetry import logger
from schemas.edge.base import Malformed
from schemas.edge.mqtt import NodeFetch, NodeReply, read_reply
from services.agent.peers import NotServed, Peer, Silent, found_in

ANSWER_MS = 10_000
"""So long an answer is waited for: many may ask a bridge at the same time."""
NO_SESSION = "there is no session with the MQTT broker"


class Fetches:
    """Asks for one node. `session`: one in which answers can be heard; None: there is none at the moment."""

    def __init__(self, cell: str, node: str) -> None:
        self.session: Session | None = None
        self._cell, self._node = cell, node
        self._open: dict[str, tuple[str, asyncio.Future[NodeReply]]] = {}
        self._log = logger(service="agent", node=node)

    def end(self) -> None:
        """The session is over: what was asked in it is to be asked again."""
        self.session = None
        for _, future in self._open.values():
            if not future.done():
                future.set_exception(MqttError("the session is over"))

    def hear(self, payload: bytes) -> None:
        """An answer has come."""
        try:
            reply = read_reply(payload)
            of, future = self._open.get(reply.id, ("", None))
            if future is None or future.done():
                return  # It was late, or comes twice.
            if (reply.cell, reply.node) != (self._cell, of):
                raise Malformed("node", "is another")
            future.set_result(reply)
        except Malformed as fault:
            self._log.warning("an answer that cannot be read", error=str(fault))

    def peer(self) -> Peer:
        """Asks from threads, by the loop that runs now."""
        loop = asyncio.get_running_loop()

        def ask(node: str, wanted: WantedResults) -> Listed | FilePiece | None:
            try:
                ask_topic(self._cell, node)
            except NameWrong as why:
                raise NotServed(f"no bridge can be asked for it: {why}") from None
            try:
                page = asyncio.run_coroutine_threadsafe(self._ask(node, path_of(wanted)), loop).result()
            except (concurrent.futures.CancelledError, RuntimeError):
                raise Silent("the agent ends") from None
            if not page.status.startswith(("200", "404")):
                raise Silent(f"by a bridge: {page.body[:200].decode(errors='replace').strip()}")
            try:
                return found_in(wanted, int(page.status[:3]), page.headers, page.body)
            except BadAnswer as why:
                raise Silent(f"by a bridge: {why}") from None

        return ask

    async def _ask(self, of: str, path: str) -> Page:
        """Raises Silent."""
        session, number = self.session, secrets.token_hex(16)
        if session is None:
            raise Silent(NO_SESSION)
        fetch = NodeFetch(cell=self._cell, node=self._node, id=number, of=of, path=path, within_ms=ANSWER_MS)
        future: asyncio.Future[NodeReply] = asyncio.get_running_loop().create_future()
        self._open[number] = of, future
        try:
            async with asyncio.timeout(ANSWER_MS / 1_000):
                await session.publish(fetch_topic(self._cell, self._node), dumps(fetch))
                return page_of(await future)
        except TimeoutError:
            raise Silent(f"no bridge has answered within {ANSWER_MS} ms") from None
        except MqttError as error:
            raise Silent(f"no bridge can be asked: {error}") from None
        except Malformed as fault:
            raise Silent(f"by a bridge: {fault}") from None
        finally:
            del self._open[number]
