"""A node at the edge: what its agent has in place of a bus, and what brings it what the log has for it."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

from largesse.bus.port import Bus, BusError, Fetched, Outgoing, Writer
from largesse.lifecycle import node_work
from largesse.lifecycle.handed import Handed
from largesse.lifecycle.node_work import Action, NodeWork, Start
from largesse.mqtt.port import Broker
from largesse.mqtt.settings import is_mqtt, open_broker
from largesse.mqtt.topics import NameWrong, down_topic
from largesse.mqtt.work import Work, take_in
from largesse.settings import PREFIX, Settings, SettingWrong, open_bus
from largesse.telemetry import logger
from largesse.waiting import is_set_within
from schemas import NodeReported
from schemas.edge.mqtt import NodeDown, NodeUpMessage
from services.agent.fetches import Fetches
from services.agent.line import Line
from services.agent.local import mono_ms
from services.agent.peers import Peer
from services.agent.replies import PIECE_BYTES, Replies
from services.agent.settings import NodeSettings
from services.agent.task_output import pages_of
from services.agent.task_results import results_beside

READ_WAIT_MS = 1_000
RETRY_MS = 100
ROUND_MS = 100
"""What a node was told is news of a round for so long."""
MESSAGES_MAX, BYTES_MAX = 500, 4 << 20
"""Of one report."""


def opened(settings: Settings) -> Bus:
    """The bus of an agent, or what it has in place of one. Raises SettingWrong, and what opening a bus raises."""
    if not is_mqtt(settings.bus):
        return open_bus(settings)
    try:
        down_topic(settings.cell, "n")
    except NameWrong as error:
        raise SettingWrong(f"{PREFIX}CELL={settings.cell}: {error}") from None
    return EdgeBus(open_broker("BUS", settings.bus), settings.cell)


class EdgeBus:
    """A bus that an agent can only write to, and only what a bridge takes; `feed` is all that it can read."""

    def __init__(self, broker: Broker, cell: str) -> None:
        self._broker, self._cell = broker, cell
        self._line: Line | None = None
        self._running: asyncio.Task[None] | None = None
        self._replies: Replies | None = None
        self._fetches: Fetches | None = None

    def feed(self, node: NodeSettings, epoch: str, ended: Callable[[str, int], None]) -> "EdgeFeed":
        """What the log has for a node. `ended`: called with each job that ends, and the seq of its admission."""
        feed = EdgeFeed(node, epoch, ended, self.say)
        output = pages_of(node.name, node.data, PIECE_BYTES)
        self._replies = Replies(self._cell, node.name, results_beside(output, node.name, node.data, PIECE_BYTES))
        self._fetches = Fetches(self._cell, node.name)
        feed.line = self._line = Line(self._broker, self._cell, node.name, feed.told, self._replies, self._fetches)
        self._line.epoch = epoch
        if self._running is not None:
            self._running.cancel()
        self._running = asyncio.ensure_future(self._line.run())
        return feed

    def peer(self) -> Peer:
        """Asks bridges for what agents of other nodes keep, once there is a feed."""
        assert self._fetches is not None
        return self._fetches.peer()

    def writer(self) -> Writer:
        """See the port."""
        return _EdgeWriter(self)

    async def say(self, messages: list[NodeUpMessage]) -> None:
        """Returns once the cell has it. Raises BusError, and what ended the line."""
        if self._line is None or self._running is None:
            raise BusError("there is no line to the cell")
        if self._running.done():
            self._running.result()
        await self._line.say(messages)

    async def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """See the port: nothing is there to be read. Raises BusError without a session."""
        if self._line is None or not self._line.is_open:
            raise BusError("no session with the MQTT broker")
        return 0, 0

    async def fetch(self, topic: str, partition: int, offset: int, *, wait_ms: int = 0, most: int = 1_000) -> Fetched:
        """See the port. Raises BusError: nothing can be read."""
        raise BusError(f"{topic} is not read over MQTT")

    async def wait_any(self, positions: dict[tuple[str, int], int], wait_ms: int) -> bool:
        """See the port. Raises BusError: nothing can be read."""
        raise BusError("topics are not read over MQTT")

    async def close(self) -> None:
        """See the port."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait((self._running,))
        if self._replies is not None:
            await self._replies.close()


class _EdgeWriter:
    """Success means that a bridge has answered."""

    def __init__(self, bus: EdgeBus) -> None:
        self._bus = bus

    async def send(self, batch: list[Outgoing], *, durable: bool = True) -> list[int]:
        """See the port. No offsets are known."""
        messages: list[NodeUpMessage] = []
        size = 0
        for each in batch:
            if messages and (len(messages) == MESSAGES_MAX or size + len(each.value) > BYTES_MAX):
                await self._bus.say(messages)
                messages, size = [], 0
            messages.append(NodeUpMessage.model_validate({"topic": each.topic, "document": json.loads(each.value)}))
            size += len(each.value)
        await self._bus.say(messages)
        return [0] * len(batch)

    async def drop(self) -> None:
        """See the port."""


class EdgeFeed:
    """What the log has for one node, as bridges tell it (feed.py). `line`: to them."""

    line: Line

    def __init__(
        self,
        node: NodeSettings,
        epoch: str,
        ended: Callable[[str, int], None],
        say: Callable[[list[NodeUpMessage]], Awaitable[None]],
    ) -> None:
        self.state = node_work.start(node.name, epoch)
        self.time = 0
        self._say = say
        self._name, self._ended = node.name, ended
        self._in_round, self._told_ms = False, 0
        self._news = asyncio.Event()
        self._knows_of_loss = False
        self._log = logger(service="agent", node=node.name)

    def told(self, down: NodeDown, work: Work) -> None:
        """A bridge has told the node what it has to do."""
        before = self.work.runs
        take_in(self.state, self._name, work)
        for job, run in before.items():
            if work.runs.get(job) != run:
                self._ended(job, run)
        self.time = max(self.time, down.time)
        self._in_round, self._told_ms = down.in_round, mono_ms()
        self._news.set()

    @property
    def work(self) -> NodeWork:
        """See Feed."""
        return self.state.nodes[self._name]

    @property
    def node_lease_ms(self) -> int:
        """See Feed."""
        return self.state.node_lease_ms

    @property
    def in_round(self) -> bool:
        """See Feed."""
        return self._in_round and mono_ms() - self._told_ms < ROUND_MS

    def take(self, *, may_start: bool = True) -> list[Action]:
        """See Feed."""
        return node_work.take(self.state, self._name, may_start=may_start)

    def handed_to(self, start: Start) -> list[Handed]:
        """See Feed."""
        return node_work.handed_to(self.state, start)

    def address_of(self, node: str) -> str | None:
        """See Feed."""
        return self.state.addresses.get(node)

    def live_runs(self) -> Iterable[tuple[str, int]]:
        """See Feed."""
        return self.work.runs.items()

    def has(self, said: NodeReported) -> bool:
        """See Feed: a bridge finds that out for its nodes."""
        return False

    def renew(self, epoch: str) -> None:
        """See Feed."""
        node_work.renew(self.work, epoch)
        self.line.epoch = epoch

    async def catch_up(self) -> None:
        """See Feed: until a bridge has answered. What the broker had kept may be older than what ran here."""
        while not await self._hears():
            pass
        node_work.look_again(self.work)
        self._log.info("caught up", epoch=self.work.epoch, attempts=len(self.work.held))

    async def read(self) -> None:
        """See Feed."""
        # Heartbeats come more often; without them, before it would count as fallen behind.
        if mono_ms() - (self.line.sure_ms or 0) > max(READ_WAIT_MS, self.node_lease_ms * 2 // 5):
            await self._hears()
        await is_set_within(self._news, READ_WAIT_MS / 1_000)
        self._news.clear()

    def fell_behind(self) -> bool:
        """See Feed."""
        return mono_ms() - (self.line.sure_ms or 0) > max(2 * READ_WAIT_MS, self.node_lease_ms // 2)

    async def kept_up(self) -> None:
        """See Feed."""
        while True:
            if not self.fell_behind():
                return
            await asyncio.sleep(RETRY_MS / 1_000)

    async def read_on(self, act: Callable[[list[Action]], Awaitable[None]]) -> None:
        """See Feed."""
        await self._hears()
        await act(self.take(may_start=False))

    async def knows_of_the_loss(self) -> bool:
        """See Feed."""
        self._knows_of_loss = self._knows_of_loss or await self._hears()
        return self._knows_of_loss

    def forget_loss(self) -> None:
        """See Feed."""
        self._knows_of_loss = False

    async def save(self) -> None:
        """See Feed: there is nothing to keep, for a bridge tells all of it each time."""

    async def _hears(self) -> bool:
        """Whether the node knows by now all that the log held when this was asked."""
        with suppress(BusError):
            await self._say([])
            return True
        await asyncio.sleep(RETRY_MS / 1_000)
        return False
