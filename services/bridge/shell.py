"""Bridge: nodes that speak MQTT, on a bus that speaks something else.

Appends what nodes report, and answers once the bus has it and the log was read to where it ended then: so an answer
also says that a node has been told of everything. Tells each node all that it has to do whenever that changes. Keeps
nothing: what is lost on the way, or with a bridge, nodes say again.
"""

import asyncio
import os
import random
import secrets
import socket
import time
from itertools import count

from largesse import failpoints
from largesse.bus.port import Bus, BusError, BusRefused, Outgoing
from largesse.mqtt.parts import DocumentTooLarge, payloads_of
from largesse.mqtt.port import Broker, MqttError, Session, Will
from largesse.mqtt.topics import (
    bridge_filter,
    bridge_of,
    bridge_topic,
    down_topic,
    fetch_filter,
    fetcher_of,
    greeter_of,
    hello_filter,
    node_of,
    node_topics,
    replier_of,
    reply_filter,
    up_filter,
)
from largesse.mqtt.work import content_of, work_of
from largesse.settings import Settings
from largesse.telemetry import (
    BRIDGE_ANSWERS,
    BRIDGE_CONNECTED,
    BRIDGE_NODES,
    BRIDGE_REFUSED,
    BRIDGE_REPORTS,
    BRIDGE_SESSIONS,
    BRIDGE_SHUT_OUT,
    BRIDGE_TOLD,
    logger,
)
from largesse.tls import read_peers
from largesse.waiting import is_set_within, until_first_ends
from schemas.edge.base import REASON_MAX
from schemas.edge.mqtt import NodeAnswered, NodeDown
from schemas.topics import SNAPSHOTS
from services.bridge.allowance import ASKED_MS, REPORT_MS, Allowance
from services.bridge.asking import Asking
from services.bridge.cell_log import SERVICE, CellLog
from services.bridge.dealing import Bridges
from services.bridge.fetching import Fetching
from services.bridge.floods import Floods, Strangers
from services.bridge.heartbeats import lessened
from services.bridge.intake import NODES_MAX, Intake, Refusal, Said
from services.bridge.subscriptions import Subscriptions
from services.bridge.telling import Untold

TOLD_MS = 5
"""A node is told at most so often what it has to do."""
AT_ONCE = 64
"""Nodes that are being told at a time."""
RETRY_MS, RETRY_MS_MAX = 100, 5_000
ALIVE_MS = 5_000
"""So often a bridge says that it is there."""
LOOK_MS, LOOK_FOR_MS = 2_000, 100
"""So often, and for so long, a bridge that does not listen to all looks for nodes that it does not know."""
LOGGED_MS, LOGGED_MAX = 10_000, 10_000
"""So often it is logged, at most, that messages of a node are refused for one reason."""
NO_EPOCH = "-"
"""Stands for the epoch where a node is told that its reports are refused, and none was taken yet."""


def own_name() -> str:
    """A name that no other bridge has."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


async def run(bus: Bus, settings: Settings, broker: Broker, stop: asyncio.Event, asking: Asking) -> None:
    """Serves the nodes of one cell until `stop` is set. A bus or a broker that fails for a while is waited for. Raises
    PositionGap and Undecodable (the log cannot be followed).
    """
    bridge = _Bridge(bus, settings, broker, asking)
    try:
        await until_first_ends([bridge.read_log(), bridge.append(), bridge.serve(), stop.wait()])
    finally:
        await bridge.drop()


def _mono_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class _Bridge:
    """One bridge. Everything happens on one event loop."""

    def __init__(self, bus: Bus, settings: Settings, broker: Broker, asking: Asking) -> None:
        self._bus, self._settings, self._broker = bus, settings, broker
        self._asking, self._name = asking, asking.bridge
        name = self._name
        self._log = logger(service=SERVICE, bridge=name)
        self._cell_log = CellLog(bus, settings, self._log_moved, lambda: self._bridges.serves(SNAPSHOTS))
        self._intake = Intake(settings.cell)
        self._fetching = Fetching(settings.cell, asking, lambda: self._cell_log.state, read_peers(settings))
        self._bridges = Bridges(name)
        self._writer = bus.writer()
        self._inbox: dict[str, Said] = {}  # The last report of each node that the bus has not.
        self._arrived = asyncio.Event()
        self._unconfirmed: list[tuple[int, list[Said]]] = []  # What is answered once the log is read to there.
        self._answered: dict[str, NodeAnswered] = {}
        self._allowance = Allowance()
        self._floods = Floods()
        self._asked_for: dict[str, None] = {}  # While a node is shut out, those whose topics are asked for by name.
        self._strangers = Strangers()
        self._topics_stale = asyncio.Event()
        self._refused: dict[str, tuple[str, str]] = {}  # Of each node the last, until a report is taken: reason, why.
        self._refusals_logged: dict[tuple[str, str], int] = {}
        self._arrived_ms: dict[str, int] = {}  # When the first report came that is not answered yet.
        self._caught_up = asyncio.Event()
        self._untold = Untold()
        self._numbers = count(1)

    async def drop(self) -> None:
        """Says nothing more."""
        self._fetching.close()
        await self._writer.drop()
        await self._cell_log.drop()

    # ---------------------------------------------------------------- the log
    async def read_log(self) -> None:
        """For ever, or until the log cannot be followed."""
        await self._cell_log.follow()

    def _log_moved(self) -> None:
        self._caught_up.set()
        stirred = self._cell_log.state.stirred
        for node in stirred:
            if node not in self._cell_log.state.nodes:
                self._answered.pop(node, None)  # The cell has forgotten it.
            elif self._floods.shut_out and node not in self._asked_for:
                self._topics_stale.set()
        self._tell(stirred)
        stirred.clear()
        self._confirm()

    def _confirm(self) -> None:
        """Answers what the bus had when the log ended where it is read to by now."""
        while self._unconfirmed and self._unconfirmed[0][0] <= self._cell_log.folded_to:
            for said in self._unconfirmed.pop(0)[1]:
                self._answered.pop(said.node, None)
                self._answered[said.node] = NodeAnswered(epoch=said.epoch, number=said.number)
                self._refused.pop(said.node, None)
                if (arrived_ms := self._arrived_ms.pop(said.node, None)) is not None:
                    BRIDGE_ANSWERS.observe((_mono_ms() - arrived_ms) / 1_000)
                if len(self._answered) > NODES_MAX:
                    del self._answered[next(iter(self._answered))]
                self._tell({said.node: True})

    def _tell(self, nodes: dict[str, bool]) -> None:
        self._untold.add(node for node in nodes if self._bridges.serves(node))

    # ---------------------------------------------------------------- what nodes report
    def _hear(self, topic: str, payload: bytes) -> None:
        bridge = bridge_of(topic, self._settings.cell)
        if bridge is not None:
            if self._bridges.hear(bridge, is_there=bool(payload), now_ms=_mono_ms()):
                self._deal_anew()
            return
        cell, free_ms = self._settings.cell, 0
        node = node_of(topic, cell) or replier_of(topic, cell) or fetcher_of(topic, cell) or ""
        begun_ms, begun_ns = _mono_ms(), time.perf_counter_ns()
        try:
            if self._allowance.left(node, begun_ms) <= 0:
                self._drop(node, begun_ms)
                raise Refusal("flood", "it sends more than a bridge has time for")
            said, free_ms = self._taken(topic, payload)
        except Refusal as refusal:
            self._refuse(node, refusal, topic)
            return
        finally:
            cost_ms = (time.perf_counter_ns() - begun_ns) / 1_000_000
            self._allowance.charge(node, max(0, cost_ms - free_ms), begun_ms)
        if said is None or not self._bridges.serves(said.node):
            return
        if said.values:
            self._allowance.charge(node, REPORT_MS, begun_ms)
        waiting = self._inbox.get(said.node)
        if waiting is None or waiting.epoch != said.epoch or waiting.number <= said.number:
            self._inbox[said.node] = said
            self._arrived_ms.setdefault(said.node, begun_ms)
            self._arrived.set()

    def _drop(self, node: str, now_ms: int) -> None:
        if self._floods.drop(node, now_ms):
            seconds = self._floods.shut_out[node].for_ms / 1_000
            self._log.warning("shut out", node=node[:200], seconds=seconds, why="it floods the broker")
            self._topics_stale.set()

    def _taken(self, topic: str, payload: bytes) -> tuple[Said | None, int]:
        """The report that a message makes whole, and how many milliseconds are not the node's. Raises Refusal."""
        cell = self._settings.cell
        if replier_of(topic, cell) is not None:
            return None, ASKED_MS if self._asking.hear(topic, payload) else 0
        if (fetcher := fetcher_of(topic, cell)) is not None:
            if self._bridges.serves(fetcher) and self._cell_log.is_caught_up:  # Else it asks again.
                self._fetching.hear(topic, payload)
            return None, ASKED_MS
        said = self._intake.take(topic, payload)
        if said is not None:
            self._fetching.reported(said.node)
        return said, 0

    def _refuse(self, node: str, refusal: Refusal, topic: str) -> None:
        """Counts it, and tells the node once."""
        BRIDGE_REFUSED.labels(refusal.reason).inc()
        if not self._bridges.serves(node):
            return
        now_ms, about = _mono_ms(), (node, refusal.reason)
        if now_ms - self._refusals_logged.get(about, -LOGGED_MS) >= LOGGED_MS:
            if len(self._refusals_logged) >= LOGGED_MAX:
                self._refusals_logged.clear()
            self._refusals_logged[about] = now_ms
            self._log.warning("refused", topic=topic[:200], reason=refusal.reason, why=str(refusal)[:500])
        before = self._refused.pop(node, None)
        if node:
            self._refused[node] = refusal.reason, str(refusal)
            if len(self._refused) > NODES_MAX:
                del self._refused[next(iter(self._refused))]
            if before is None or before[0] != refusal.reason:
                self._tell({node: True})

    def _deal_anew(self) -> None:
        self._topics_stale.set()
        self._tell(dict.fromkeys(self._cell_log.state.nodes, True))

    async def append(self) -> None:
        """Appends what comes, for ever, all that has come meanwhile at once."""
        retry_ms = RETRY_MS
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            inbox, self._inbox = self._inbox, {}
            new = [said for said in inbox.values() if not self._intake.has_taken(said)]
            try:
                if batch := [message for said in new for message in self._outgoing(said)]:
                    failpoints.hit(SERVICE, "before_publish")
                    await self._writer.send(batch)
                    failpoints.hit(SERVICE, "after_publish")
                end = await self._cell_log.end()
            except BusRefused:
                raise
            except BusError as error:
                # Nodes say it again, so nothing is kept.
                self._log.warning("the bus took no reports at the moment", error=str(error))
                await self._writer.drop()
                self._writer = self._bus.writer()
                await asyncio.sleep(retry_ms / 1_000)
                retry_ms = min(2 * retry_ms, RETRY_MS_MAX)
                continue
            retry_ms = RETRY_MS
            for said in new:
                self._intake.taken(said)
                BRIDGE_REPORTS.inc()
            self._unconfirmed.append((end, list(inbox.values())))
            if self._cell_log.is_caught_up:
                self._confirm()

    def _outgoing(self, said: Said) -> list[Outgoing]:
        headers, partition = {"author": f"agent:{said.node}", "via": "bridge"}, self._settings.partition
        state = self._cell_log.state
        values = [lessened(topic, value, state) for topic, value in said.values]
        # As a rule a record follows these at once.
        return [Outgoing(topic, partition, value, "", headers, topic == "tasks") for topic, value in values]

    # ---------------------------------------------------------------- the broker
    async def serve(self) -> None:
        """Sessions with the broker, one after another, for ever."""
        retry_ms = RETRY_MS
        BRIDGE_CONNECTED.set(0)
        BRIDGE_SHUT_OUT.set(0)
        topic = bridge_topic(self._settings.cell, self._name)
        while True:
            begun_ms = _mono_ms()
            try:
                async with self._broker.session(self._name, Will(topic, b"", retain=True)) as session:
                    BRIDGE_SESSIONS.inc()
                    BRIDGE_CONNECTED.set(1)
                    self._log.info("speaks to nodes")
                    try:
                        await self._serve(session, topic)
                    finally:
                        self._asking.session = None
                        BRIDGE_CONNECTED.set(0)
                        await self._say_goodbye(session, topic)
            except MqttError as error:
                self._log.warning("no session with the MQTT broker at the moment", error=str(error))
            if _mono_ms() - begun_ms > RETRY_MS_MAX:
                retry_ms = RETRY_MS
            await asyncio.sleep(retry_ms * random.uniform(0.5, 1) / 1_000)
            retry_ms = min(2 * retry_ms, RETRY_MS_MAX)

    async def _serve(self, session: Session, topic: str) -> None:
        """Until the session ends. Raises MqttError."""
        await session.subscribe(bridge_filter(self._settings.cell))
        await session.publish(topic, b"here", retain=True)
        topics = Subscriptions(session)
        await topics.become(self._topics())
        self._asking.session = session
        self._deal_anew()  # The broker may have forgotten what it kept.
        await until_first_ends(
            [self._listen(session), self._speak(session), self._stay(session, topic), self._shut_out(session, topics)]
        )

    def _topics(self) -> list[str]:
        """What nodes send: by one filter for each kind of topic, or while some are shut out by node."""
        cell, name, self._asked_for = self._settings.cell, self._name, {}
        if not self._floods.shut_out:
            return [up_filter(cell), reply_filter(cell, name), fetch_filter(cell)]
        there = {**self._cell_log.state.nodes, **self._strangers.names}
        served = [node for node in there if self._bridges.serves(node)]
        self._asked_for = dict.fromkeys(served)
        return [each for node in served if node not in self._floods.shut_out for each in node_topics(cell, node, name)]

    async def _shut_out(self, session: Session, topics: Subscriptions) -> None:
        """Shuts out nodes that flood, and hears them again, for ever."""
        looked_ms = 0
        while True:
            over_in_ms = self._floods.over_in_ms(_mono_ms())
            wait_ms = None if over_in_ms is None else min(over_in_ms, max(0, looked_ms + LOOK_MS - _mono_ms()))
            await is_set_within(self._topics_stale, None if wait_ms is None else wait_ms / 1_000)
            self._topics_stale.clear()
            if heard := self._floods.end(_mono_ms()):
                self._log.info("heard again", nodes=[node[:200] for node in heard[:10]])
            BRIDGE_SHUT_OUT.set(len(self._floods.shut_out))
            if not self._floods.shut_out:
                self._strangers.names.clear()
            await topics.become(self._topics())
            if self._floods.shut_out and _mono_ms() - looked_ms >= LOOK_MS:
                looked_ms = _mono_ms()
                await self._look_for_strangers(session)
                await topics.become(self._topics())

    async def _look_for_strangers(self, session: Session) -> None:
        """What the broker keeps of nodes that nobody has answered arrives, and little of what they say meanwhile."""
        await session.subscribe(hello_filter(self._settings.cell))
        await asyncio.sleep(LOOK_FOR_MS / 1_000)
        await session.unsubscribe(hello_filter(self._settings.cell))

    async def _say_goodbye(self, session: Session, topic: str) -> None:
        try:
            async with asyncio.timeout(1):
                await session.publish(topic, b"", retain=True)
        except (MqttError, TimeoutError):
            pass  # Its will says the same.

    async def _listen(self, session: Session) -> None:
        while True:
            for arrived in await session.next():
                stranger = greeter_of(arrived.topic, self._settings.cell)
                if stranger is None:
                    self._hear(arrived.topic, arrived.payload)
                elif arrived.retained and arrived.payload and stranger not in self._cell_log.state.nodes:
                    self._strangers.note(stranger)

    async def _stay(self, session: Session, topic: str) -> None:
        """Says that this bridge is there, and takes those that are silent for gone."""
        while True:
            BRIDGE_NODES.set(sum(map(self._bridges.serves, self._cell_log.state.nodes)))
            await asyncio.sleep(ALIVE_MS / 1_000)
            await session.publish(topic, b"here", retain=True)
            for silent in self._bridges.forget_silent(_mono_ms()):
                await session.publish(bridge_topic(self._settings.cell, silent), b"", retain=True)
                self._deal_anew()

    async def _speak(self, session: Session) -> None:
        """Tells nodes what they have to do, where that has changed."""
        await self._caught_up.wait()
        await until_first_ends([self._tell_each(session) for _ in range(AT_ONCE)])

    async def _tell_each(self, session: Session) -> None:
        """Tells one node after another, for ever. Raises MqttError."""
        while True:
            node, is_told = await self._untold.take(), False
            begun_ms = _mono_ms()
            try:
                topic = down_topic(self._settings.cell, node)
                for payload, retain in self._documents(node):
                    await session.publish(topic, payload, retain=retain)
                is_told = True
                BRIDGE_TOLD.inc()
                await asyncio.sleep(max(0, begun_ms + TOLD_MS - _mono_ms()) / 1_000)
            finally:
                self._untold.done(node, is_told=is_told)

    def _documents(self, node: str) -> list[tuple[bytes, bool]]:
        """What a node is told now, and whether the broker is to keep it: a part alone is of no use."""
        log, answered, refused = self._cell_log, self._answered.get(node), self._refused.get(node)
        known = log.state.nodes.get(node)
        if known is None and answered is None and refused is None:
            return [(b"", True)]
        speaker = answered.epoch if answered is not None else ""
        work = work_of(log.state, node, speaker)
        down = NodeDown.model_construct(
            cell=self._settings.cell,
            node=node,
            epoch=speaker or (known.epoch if known is not None else NO_EPOCH),
            number=next(self._numbers),
            seq=log.seq,
            time=log.time,
            answered=answered,
            refused=None if refused is None else ": ".join(refused)[:REASON_MAX],
            in_round=log.in_round,
            work=content_of(work),
        )
        try:
            payloads = payloads_of(down)
        except DocumentTooLarge as error:
            self._log.error("a node cannot be told what it has to do", node=node, error=str(error))
            BRIDGE_REFUSED.labels("too_large").inc()
            return []
        keep = len(payloads) == 1 and (known is not None or answered is not None)
        return [(payload, keep) for payload in payloads]
