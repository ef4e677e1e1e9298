"""An agent's line to the bridges of its cell, over MQTT: one report at a time until it is answered, and its work.

Nothing on the way is trusted: a report is repeated until a document says that the cell has it, and of what the node is
told only that counts which is not older than what it knows.
"""

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress

from largesse.bus.port import BusError
from largesse.mqtt.parts import DocumentTooLarge, Gathering, payloads_of
from largesse.mqtt.port import Arrived, Broker, MqttError, Refused, Session
from largesse.mqtt.topics import ask_topic, down_topic, fetched_topic, hello_topic, up_topic
from largesse.mqtt.work import Work, read_work
from largesse.telemetry import logger
from schemas.edge.base import Malformed
from schemas.edge.mqtt import NodeDown, NodeUp, NodeUpMessage, read_down
from services.agent.fetches import Fetches
from services.agent.local import mono_ms
from services.agent.replies import Replies

ANSWER_MS = 5_000
"""So long an answer is waited for. A report without one is given up for the next, which says no less."""
AGAIN_MS, AGAIN_MS_MAX = 500, 2_000
RETRY_MS, RETRY_MS_MAX = 100, 5_000
HELLO = b"hello"
"""Retained while a report is not answered in time, and before the first: a bridge that listens only to nodes that it
knows looks for it.
"""


class Line:
    """Speaks for one node. `told`: called with each document that is not older than the one before, and what it holds.
    `replies`: answers what bridges ask. `fetches`: asks them. `sure_ms`: when the last report that was answered was
    begun: the node knows all that the log held by then.
    """

    def __init__(
        self,
        broker: Broker,
        cell: str,
        node: str,
        told: Callable[[NodeDown, Work], None],
        replies: Replies,
        fetches: Fetches,
    ) -> None:
        self.epoch = ""
        self.sure_ms: int | None = None
        self._broker, self._cell, self._node, self._told = broker, cell, node, told
        self._replies, self._fetches = replies, fetches
        self._ask_topic, self._fetched_topic = ask_topic(cell, node), fetched_topic(cell, node)
        self._session: Session | None = None
        self._connected = asyncio.Event()
        self._turn = asyncio.Lock()
        self._numbers: dict[str, int] = {}
        self._awaited: tuple[str, int, asyncio.Event] | None = None
        self._gathering: Gathering[NodeDown] = Gathering()
        self._seq = -1
        self._refused: str | None = None
        self._is_heard = False  # Whether the last report was answered in time.
        self._log = logger(service="agent", node=node)

    @property
    def is_open(self) -> bool:
        """Whether there is a session with the broker."""
        return self._session is not None

    async def run(self) -> None:
        """Sessions with the broker, one after another, for ever."""
        retry_ms = RETRY_MS
        while True:
            begun_ms = mono_ms()
            try:
                # Of its own for each epoch: two agents of one name would end each other's for ever.
                async with self._broker.session(f"{self._cell}/{self._node}/{self.epoch}") as session:
                    await session.subscribe(down_topic(self._cell, self._node))
                    self._session = session
                    self._connected.set()
                    if not self._is_heard:
                        await self._greet(session, HELLO)
                    await self._let_ask(session)
                    while True:
                        for arrived in await session.next():
                            self._take(session, arrived)
            except MqttError as error:
                self._log.warning("no session with the MQTT broker at the moment", error=str(error))
            finally:
                self._session = None
                self._connected.clear()
                self._fetches.end()
            if mono_ms() - begun_ms > RETRY_MS_MAX:
                retry_ms = RETRY_MS
            await asyncio.sleep(retry_ms * random.uniform(0.5, 1) / 1_000)
            retry_ms = min(2 * retry_ms, RETRY_MS_MAX)

    async def _greet(self, session: Session, word: bytes) -> None:
        """Raises MqttError."""
        try:
            await session.publish(hello_topic(self._cell, self._node), word, retain=True)
        except Refused as error:
            self._log.warning("a bridge that is flooded may not notice this node", error=str(error))

    async def _let_ask(self, session: Session) -> None:
        """From now on bridges can ask, and be asked. Raises MqttError."""
        try:
            await session.subscribe(self._ask_topic)
            await session.subscribe(self._fetched_topic)
            self._fetches.session = session
        except Refused as error:
            # Its rules are of before there were questions. Tasks run without.
            self._log.warning("results can be shown to nobody, or not be fetched", error=str(error))

    def _take(self, session: Session, arrived: Arrived) -> None:
        if arrived.topic == self._ask_topic:
            self._replies.hear(session, arrived.payload)
        elif arrived.topic == self._fetched_topic:
            self._fetches.hear(arrived.payload)
        else:
            self._hear(arrived.payload)

    async def say(self, messages: list[NodeUpMessage]) -> None:
        """Returns once the cell has it, and the node knows all that the log held before. Raises BusError where there is
        no answer in time: it may or may not have arrived.
        """
        async with self._turn:
            epoch = self.epoch
            number = self._numbers.get(epoch, 0) + 1
            self._numbers = {epoch: number}
            up = NodeUp.model_construct(
                cell=self._cell, node=self._node, epoch=epoch, number=number, seq=self._seq, messages=messages
            )
            try:
                payloads = payloads_of(up)
            except DocumentTooLarge as error:
                raise BusError(str(error)) from None
            begun_ms, answered = mono_ms(), asyncio.Event()
            self._awaited = epoch, number, answered
            repeating = asyncio.ensure_future(self._repeat(payloads))
            try:
                async with asyncio.timeout(ANSWER_MS / 1_000):
                    await answered.wait()
            except TimeoutError:
                await self._note_heard(False)
                there = "no answer from a bridge" if self.is_open else "no session with the MQTT broker"
                raise BusError(f"{there} within {ANSWER_MS} ms") from None
            finally:
                self._awaited = None
                repeating.cancel()
                await asyncio.wait((repeating,))
            self.sure_ms = begun_ms
            await self._note_heard(True)

    async def _note_heard(self, is_heard: bool) -> None:
        """Notes whether a report was answered, and says hello or takes it back where that has changed."""
        if self._is_heard == is_heard:
            return
        self._is_heard = is_heard
        if (session := self._session) is not None:
            with suppress(MqttError):  # The next session says it; a word that is of no use any more does no harm.
                await self._greet(session, b"" if is_heard else HELLO)

    async def _repeat(self, payloads: list[bytes]) -> None:
        again_ms = AGAIN_MS
        topic = up_topic(self._cell, self._node)
        while True:
            await self._connected.wait()
            session = self._session
            try:
                for payload in payloads:
                    if session is not None:
                        await session.publish(topic, payload)
            except MqttError as error:
                self._log.warning("a report may not have arrived", error=str(error))
            await asyncio.sleep(again_ms * random.uniform(0.5, 1) / 1_000)
            again_ms = min(2 * again_ms, AGAIN_MS_MAX)

    def _hear(self, payload: bytes) -> None:
        if not payload:
            return  # The broker is to keep nothing for a node that was forgotten.
        try:
            down = self._gathering.take(read_down(payload))
            if down is None:
                return
            if (down.cell, down.node) != (self._cell, self._node):
                raise Malformed("node", "is another")
            answer = self._answer_in(down)
            if down.seq < self._seq and answer is None:
                return  # It was late, or of a bridge that is.
            work = read_work(down.work or {})
        except Malformed as fault:
            self._log.warning("what the node is told cannot be read", error=str(fault))
            return
        self._seq = down.seq
        if down.refused and down.refused != self._refused:
            self._log.warning("a bridge has refused a report", why=down.refused)
        self._refused = down.refused
        self._told(down, work)
        if answer is not None:
            answer.set()

    def _answer_in(self, down: NodeDown) -> asyncio.Event | None:
        """What waits for the answer that this is the first to bring. It is as new as the report, whatever was heard
        before: a broker may have kept a document of an earlier cell of this name, whose log was longer.
        """
        answered = down.answered
        if answered is None or self._awaited is None:
            return None
        epoch, number, event = self._awaited
        return event if (answered.epoch, answered.number) == (epoch, number) and not event.is_set() else None
