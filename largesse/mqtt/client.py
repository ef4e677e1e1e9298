"""The MQTT port over a real broker: MQTT 5 by aiomqtt, whose paho-mqtt does the protocol.

A session begins clean and leaves nothing behind. What arrives is acknowledged when it is taken, so that a broker keeps
back what a slow reader has no room for. Whoever publishes waits for the broker's answer; without one in time the
session is over, as it is where the broker is not heard of for two keep-alives.
"""

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from socket import IPPROTO_TCP, TCP_NODELAY

import aiomqtt
from aiomqtt.exceptions import MqttConnectError
from paho.mqtt import client as paho
from paho.mqtt.enums import MQTTErrorCode
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from largesse.mqtt.address import MqttAddress, read_password
from largesse.mqtt.port import PACKET_BYTES_MAX, PAYLOAD_BYTES_MAX, Arrived, MqttError, Refused, Will
from largesse.mqtt.topics import check_filter, check_topic

LEAVE_SECONDS = 1
REFUSALS = (133, 134, 135, 138, 140)
"""Reason codes that the next attempt gets, too: client id, name or password, not authorised, banned, bad method."""
ERRORS_FROM = 128

_SILENT = logging.getLogger("largesse.mqtt")
_SILENT.setLevel(logging.CRITICAL + 1)  # Whatever goes wrong is raised.


@dataclass(frozen=True, slots=True)
class MqttOptions:
    """`keep_alive_seconds`: silence after which either side asks whether the other is there; another one without an
    answer ends the session. `answer_seconds`: longest wait for an answer. `connect_seconds`: for a connection, and TLS.
    `receive_max`: messages that are kept until they are taken. `ca_file`: whose certificates are trusted in place of
    the system's. `password_file`: read again for each session.
    """

    keep_alive_seconds: int = 3
    answer_seconds: float = 10
    connect_seconds: float = 5
    receive_max: int = 64
    ca_file: str = ""
    password_file: str = ""


class ClientBroker:
    """The broker at an address. Raises AddressWrong for options that cannot be used."""

    def __init__(self, address: MqttAddress, options: MqttOptions | None = None) -> None:
        self.address, self.options = address, options or MqttOptions()
        self._tls = address.tls_context(self.options.ca_file)
        self._opening: dict[asyncio.Task[None], None] = {}
        if self.options.password_file:
            read_password(address, self.options.password_file)

    @asynccontextmanager
    async def session(self, client: str, will: Will | None = None) -> AsyncIterator["ClientSession"]:
        """See the port."""
        session = ClientSession(_Client(self.address, self.options, self._tls, client, will))
        opening = asyncio.create_task(session.open())
        self._opening[opening] = None
        opening.add_done_callback(self._opened)
        try:
            await asyncio.shield(opening)
        except asyncio.CancelledError:
            # A thread connects, and nothing stops it: what it brings is let go of at once.
            opening.add_done_callback(lambda _: session.drop())
            raise
        try:
            yield session
        finally:
            await session.close()

    def _opened(self, opening: asyncio.Task[None]) -> None:
        self._opening.pop(opening, None)
        if not opening.cancelled():
            opening.exception()  # Seen, also where nobody waits for it any more.


class ClientSession:
    """A session with a real broker."""

    def __init__(self, client: "_Client") -> None:
        self._client = client

    async def open(self) -> None:
        """Connects. Raises MqttError, Refused."""
        client = self._client
        try:
            await client.__aenter__()
        except aiomqtt.MqttError as error:
            client.drop("it was never opened")
            code = error.rc if isinstance(error, MqttConnectError) else None
            if isinstance(code, ReasonCode) and code.value in REFUSALS:
                raise Refused(f"{client.place} lets {client.who} not in: {code}") from None
            raise MqttError(f"no session with {client.place}: {code or error}") from None
        if client.paho.socket() is None:
            client.over("it ended as soon as it began")
        client.check()
        if client.packet_bytes_max < PACKET_BYTES_MAX:
            client.drop("its broker takes too little")
            raise MqttError(
                f"{client.place} takes messages of up to {client.packet_bytes_max} bytes: "
                f"set its max_packet_size to {PACKET_BYTES_MAX} or more"
            )

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """See the port."""
        check_topic(topic)
        if len(payload) > PAYLOAD_BYTES_MAX:
            raise ValueError(f"{topic}: a message of {len(payload)} bytes; {PAYLOAD_BYTES_MAX} at most are published")
        self._client.check()
        info = self._client.paho.publish(topic, payload, qos=1, retain=retain)
        code = await self._client.answer("publish", info.mid, info.rc)
        if code in REFUSALS:
            raise Refused(f"{self._client.place} does not let {self._client.who} publish on {topic}")
        if code >= ERRORS_FROM:
            raise MqttError(f"{self._client.place} did not take a message on {topic}: reason code {code}")

    async def subscribe(self, *filters: str) -> None:
        """See the port."""
        for wanted in filters:
            check_filter(wanted)
        self._client.check()
        rc, mid = self._client.paho.subscribe([(wanted, 1) for wanted in filters])
        code = await self._client.answer("subscribe", mid, rc)
        if code in REFUSALS:
            raise Refused(f"{self._client.place} does not let {self._client.who} read {', '.join(filters)}")
        if code >= ERRORS_FROM:
            raise MqttError(f"{self._client.place} did not take {', '.join(filters)}: reason code {code}")

    async def unsubscribe(self, *filters: str) -> None:
        """See the port."""
        for wanted in filters:
            check_filter(wanted)
        self._client.check()
        rc, mid = self._client.paho.unsubscribe(list(filters))
        code = await self._client.answer("unsubscribe", mid, rc)
        if code >= ERRORS_FROM:
            raise MqttError(f"{self._client.place} goes on with {', '.join(filters)}: reason code {code}")

    async def next(self) -> Sequence[Arrived]:
        """See the port. Cancelling it loses nothing."""
        client = self._client
        await asyncio.sleep(0)
        while not client.inbox:
            client.check()
            client.woken.clear()
            await client.woken.wait()
        client.check()
        return client.taken()

    async def close(self) -> None:
        """Says goodbye, for a moment at most, and lets go."""
        try:
            await self._client.leave()
        finally:
            self.drop()

    def drop(self) -> None:
        """Lets go of the connection without a word."""
        self._client.drop("it was closed")


class _Client(aiomqtt.Client):
    """aiomqtt's connection and its place on the event loop, with answers that carry their reason codes."""

    def __init__(
        self, address: MqttAddress, options: MqttOptions, tls: ssl.SSLContext | None, client: str, will: Will | None
    ) -> None:
        password = read_password(address, options.password_file) if options.password_file else None
        super().__init__(
            address.host,
            address.port,
            username=address.user or None,
            password=password,
            logger=_SILENT,
            identifier=client,
            protocol=aiomqtt.ProtocolVersion.V5,
            will=None if will is None else aiomqtt.Will(will.topic, will.payload, 1, will.retain),
            timeout=options.answer_seconds,
            keepalive=options.keep_alive_seconds,
            clean_start=True,
            properties=_connect_properties(options),
            tls_context=tls,
            socket_options=[(IPPROTO_TCP, TCP_NODELAY, 1)],
        )
        self.paho = self._client
        self.paho.connect_timeout = options.connect_seconds
        self.paho.manual_ack_set(True)
        self._read_packet = self.paho.loop_read
        self.paho.loop_read = self._read_on  # type: ignore[method-assign]
        self.place = address.place
        self.who = f"{address.user or 'a client without a name'} ({client})"
        self.packet_bytes_max = PACKET_BYTES_MAX
        self.inbox: deque[paho.MQTTMessage] = deque()
        self.woken = asyncio.Event()
        self._ended = ""
        self._inbox_max = options.receive_max
        self._answers: dict[tuple[str, int], asyncio.Future[int]] = {}

    def check(self) -> None:
        """Raises MqttError once the session is over."""
        if self._ended:
            raise MqttError(f"the session with {self.place} is over: {self._ended}")

    async def answer(self, kind: str, mid: int | None, rc: int) -> int:
        """The broker's reason code for what was sent as `mid`. Raises MqttError; without an answer all is over."""
        if rc != paho.MQTT_ERR_SUCCESS or mid is None:
            self.drop("the connection was lost")
            self.check()
        assert mid is not None
        future: asyncio.Future[int] = self._loop.create_future()
        self._answers[kind, mid] = future
        try:
            answered, _ = await asyncio.wait({future}, timeout=self.timeout)
            if not answered:
                self.drop(f"no answer in {self.timeout:g} s")
            return future.result()
        finally:
            del self._answers[kind, mid]
            if future.done():
                future.exception()  # Seen, also where the wait was cancelled meanwhile.

    def taken(self) -> list[Arrived]:
        """What has arrived, acknowledged."""
        found = []
        while self.inbox:
            message = self.inbox.popleft()
            self.paho.ack(message.mid, message.qos)
            with suppress(UnicodeDecodeError):  # A topic that is no text was never asked for.
                found.append(Arrived(message.topic, bytes(message.payload), bool(message.retain)))
        return found

    async def leave(self) -> None:
        """Tells the broker that the session ends, so that there is no will to be done."""
        if self._ended or self.paho.socket() is None:
            return
        self.paho.disconnect()
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS):
                while not self._ended:
                    self.woken.clear()
                    await self.woken.wait()

    def drop(self, why: str) -> None:
        """Closes the connection."""
        self.over(why)
        self.paho._sock_close()
        if self._misc_task is not None:
            self._misc_task.cancel()

    def over(self, why: str) -> None:
        """Notes the end, and tells all who wait. The first reason stands."""
        self._ended = self._ended or why
        self.woken.set()
        for future in self._answers.values():
            if not future.done():
                future.set_exception(MqttError(f"the session with {self.place} is over: {self._ended}"))

    def _read_on(self, max_packets: int = 1) -> MQTTErrorCode:
        """Reads on for as long as messages come: one a turn of the loop would be too few beside much else."""
        for _ in range(self._inbox_max):
            before = len(self.inbox)
            code = self._read_packet(max_packets)
            if code or len(self.inbox) == before:
                return code
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def _settle(self, kind: str, mid: int, code: int) -> None:
        future = self._answers.get((kind, mid))
        if future is not None and not future.done():
            future.set_result(code)

    def _on_connect(
        self,
        client: paho.Client,
        userdata: object,
        flags: paho.ConnectFlags,
        reason_code: ReasonCode,
        properties: Properties | None = None,
    ) -> None:
        self.packet_bytes_max = getattr(properties, "MaximumPacketSize", PACKET_BYTES_MAX)
        super()._on_connect(client, userdata, flags, reason_code, properties)

    def _on_disconnect(
        self,
        client: paho.Client,
        userdata: object,
        flags: paho.DisconnectFlags,
        reason_code: ReasonCode,
        properties: Properties | None = None,
    ) -> None:
        super()._on_disconnect(client, userdata, flags, reason_code, properties)
        if self._disconnected.done():
            self._disconnected.exception()  # Seen: it is told by `over`.
        said = flags.is_disconnect_packet_from_server
        self.over(f"the broker ended it: {reason_code}" if said else "the connection was lost")

    def _on_publish(
        self, client: paho.Client, userdata: object, mid: int, reason_code: ReasonCode, properties: Properties
    ) -> None:
        self._settle("publish", mid, reason_code.value)

    def _on_subscribe(
        self,
        client: paho.Client,
        userdata: object,
        mid: int,
        reason_codes: list[ReasonCode],
        properties: Properties | None = None,
    ) -> None:
        self._settle("subscribe", mid, max((code.value for code in reason_codes), default=0))

    def _on_unsubscribe(
        self,
        client: paho.Client,
        userdata: object,
        mid: int,
        reason_codes: list[ReasonCode],
        properties: Properties | None = None,
    ) -> None:
        self._settle("unsubscribe", mid, max((code.value for code in reason_codes), default=0))

    def _on_message(self, client: paho.Client, userdata: object, message: paho.MQTTMessage) -> None:
        if message.qos == 0 and len(self.inbox) >= self._inbox_max:
            return  # Nothing holds these back, and nobody was promised them.
        self.inbox.append(message)
        self.woken.set()


def _connect_properties(options: MqttOptions) -> Properties:
    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    properties.ReceiveMaximum = options.receive_max
    properties.MaximumPacketSize = PACKET_BYTES_MAX
    return properties
