"""The MQTT port in memory, for tests: exact where nothing was asked for, and as bad as a real broker where a test asks.

Faults are armed one by one with `inject`; `cut`, `freeze`, `bar` and `stop` do to sessions what networks and operators
do. That a publisher sees MqttError says nothing about what has arrived.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal

from largesse.injected import take_due
from largesse.mqtt.port import PAYLOAD_BYTES_MAX, Arrived, MqttError, Refused, Will
from largesse.mqtt.topics import check_filter, check_topic, matches

FaultKind = Literal["lost", "repeated", "late", "cut", "unknown", "refused"]
"""What becomes of a publication. Its publisher hears nothing of it where it is `lost`, arrives twice (`repeated`) or
after later ones (`late`). It sees its session end where nothing arrives (`cut`) or everything (`unknown`); Refused, and
goes on, where it was not allowed to (`refused`)."""


@dataclass(slots=True)
class _Fault:
    kind: FaultKind
    wanted: str | None
    skip: int
    after: int | None


@dataclass(slots=True)
class _Publication:
    topic: str
    payload: bytes
    retain: bool
    after: int | None = None


@dataclass(slots=True, eq=False)
class _Link:
    """What the broker knows of one session. `ended`: why it is over; empty: it is not."""

    client: str
    will: Will | None
    filters: dict[str, None] = field(default_factory=dict)
    waiting: deque[Arrived] = field(default_factory=deque)
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    thawed: asyncio.Event = field(default_factory=asyncio.Event)
    ended: str = ""

    def check(self) -> None:
        if self.ended:
            raise MqttError(self.ended)


class MemoryBroker:
    """Retained messages and sessions in dicts. Belongs to one event loop."""

    def __init__(self) -> None:
        self.retained: dict[str, bytes] = {}
        self._links: dict[str, _Link] = {}
        self._barred: dict[str, None] = {}
        self._faults: list[_Fault] = []
        self._late: deque[_Publication] = deque()
        self._stopped = False

    @asynccontextmanager
    async def session(self, client: str, will: Will | None = None) -> AsyncIterator["MemorySession"]:
        """See the port."""
        await asyncio.sleep(0)
        if self._stopped:
            raise MqttError("no broker is there")
        if client in self._barred:
            raise Refused(f"{client} may not come in")
        self.cut(client, why="another session took over")
        link = self._links[client] = _Link(client, will)
        link.thawed.set()
        try:
            yield MemorySession(self, link)
        finally:
            if self._links.get(client) is link:
                del self._links[client]
            link.ended = link.ended or "the session was closed"
            link.woken.set()
            link.thawed.set()

    @property
    def clients(self) -> list[str]:
        """Ids of those that have a session, in the order in which they came."""
        return list(self._links)

    def inject(self, kind: FaultKind, *, topic: str | None = None, skip: int = 0, after: int | None = None) -> None:
        """Arms one fault for the publication after the next `skip` ones (on topics of the filter `topic`, if given).

        `after`, for `late`: how many later publications it lets pass before it arrives; None: until `deliver_late`.
        """
        self._faults.append(_Fault(kind, topic, skip, after))

    def deliver_late(self) -> int:
        """Lets everything held back arrive now, in the order of sending; returns how many messages that were."""
        late, self._late = self._late, deque()
        for publication in late:
            self._arrive(publication)
        return len(late)

    def cut(self, client: str, *, why: str = "the connection was lost") -> bool:
        """Ends a session without a word of its client's, so that its will is done; False: there was none."""
        link = self._links.pop(client, None)
        if link is None:
            return False
        link.ended = why
        link.woken.set()
        link.thawed.set()
        if link.will is not None:
            self._arrive(_Publication(link.will.topic, link.will.payload, link.will.retain))
        return True

    def freeze(self, client: str) -> None:
        """A connection that is half open: nothing that its session says or should hear gets through, and neither side
        notices, until it is cut. Raises KeyError where there is none.
        """
        self._links[client].thawed.clear()

    def bar(self, client: str) -> None:
        """Nobody is let in under that id any more."""
        self._barred[client] = None
        self.cut(client, why="its credentials were withdrawn")

    def admit(self, client: str) -> None:
        """Who was barred is let in again."""
        self._barred.pop(client, None)

    def stop(self, *, forget: bool = True) -> None:
        """All sessions end, and there are no others until `start`. `forget`: it has no disk for what it retained."""
        self._stopped = True
        for client in self.clients:
            self._links[client].will = None  # Who is gone says nothing for others.
            self.cut(client)
        self._late.clear()
        if forget:
            self.retained.clear()

    def start(self) -> None:
        """The broker is back."""
        self._stopped = False

    def _publish(self, link: _Link, publication: _Publication) -> None:
        fault = self._due_fault(publication.topic)
        kind = fault.kind if fault is not None else None
        if kind == "refused":
            raise Refused(f"{link.client} may not publish on {publication.topic} (injected)")
        if kind == "late":
            assert fault is not None
            publication.after = fault.after
            self._late.append(publication)
        elif kind not in ("lost", "cut"):
            for _ in range(2 if kind == "repeated" else 1):
                self._arrive(publication)
            self._let_late_in()
        if kind in ("cut", "unknown"):
            self.cut(link.client)
            raise MqttError(f"the connection was lost (injected: {kind})")

    def _due_fault(self, topic: str) -> _Fault | None:
        return take_due(self._faults, lambda fault: fault.wanted is None or matches(fault.wanted, topic))

    def _let_late_in(self) -> None:
        waiting, self._late = self._late, deque()
        for late in waiting:
            if late.after is not None:
                late.after -= 1
            if late.after is not None and late.after <= 0:
                self._arrive(late)
            else:
                self._late.append(late)

    def _arrive(self, publication: _Publication) -> None:
        if publication.retain and publication.payload:
            self.retained[publication.topic] = publication.payload
        elif publication.retain:
            self.retained.pop(publication.topic, None)
        for link in self._links.values():
            if link.thawed.is_set() and any(matches(wanted, publication.topic) for wanted in link.filters):
                link.waiting.append(Arrived(publication.topic, publication.payload))
                link.woken.set()


class MemorySession:
    """A session of a MemoryBroker."""

    def __init__(self, broker: MemoryBroker, link: _Link) -> None:
        self._broker, self._link = broker, link

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """See the port. Of a frozen session it does not return before that is cut."""
        check_topic(topic)
        if len(payload) > PAYLOAD_BYTES_MAX:
            raise ValueError(f"{topic}: a message of {len(payload)} bytes; {PAYLOAD_BYTES_MAX} at most are published")
        await self._reached()
        self._broker._publish(self._link, _Publication(topic, bytes(payload), retain))

    async def subscribe(self, *filters: str) -> None:
        """See the port."""
        for wanted in filters:
            check_filter(wanted)
        await self._reached()
        for wanted in filters:
            self._link.filters[wanted] = None
            for topic, payload in self._broker.retained.items():
                if matches(wanted, topic):
                    self._link.waiting.append(Arrived(topic, payload, retained=True))
        self._link.woken.set()

    async def unsubscribe(self, *filters: str) -> None:
        """See the port."""
        for wanted in filters:
            check_filter(wanted)
        await self._reached()
        for wanted in filters:
            self._link.filters.pop(wanted, None)

    async def next(self) -> Sequence[Arrived]:
        """See the port. Cancelling it loses nothing."""
        link = self._link
        await asyncio.sleep(0)
        while not link.waiting:
            link.check()
            link.woken.clear()
            await link.woken.wait()
        link.check()
        arrived = list(link.waiting)
        link.waiting.clear()
        return arrived

    async def _reached(self) -> None:
        """Returns once the broker hears the session. Raises MqttError once that is over."""
        await asyncio.sleep(0)
        await self._link.thawed.wait()
        self._link.check()
