"""The MQTT port: sessions with a broker that publish and hear messages, at least once each, and no more.

Whoever speaks over it answers at the level of documents and trusts no more than such an answer: a broker that loses,
repeats or reorders messages, or forgets a session, does no harm. So nothing is acknowledged by hand, and no session
outlives its connection.

Adapters: memory (tests), a real broker (client.py). One contract suite runs over both (tests/contract/test_mqtt.py).
"""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

PACKET_BYTES_MAX = 256 * 1024
"""Largest message that is published, and that brokers have to let through: its payload, and 1 KiB for all else."""
PAYLOAD_BYTES_MAX = PACKET_BYTES_MAX - 1024


class MqttError(Exception):
    """The session is over, or a message may not have arrived: says why. A new session may have more luck."""


class Refused(MqttError):
    """The broker lets nobody in with these credentials, or nobody do this: says what."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """A message. `retained`: the broker had kept it from before this session asked for its topic."""

    topic: str
    payload: bytes
    retained: bool = False


@dataclass(frozen=True, slots=True)
class Will:
    """What the broker says for a session that ends without a word. Empty and retained: it forgets what it kept."""

    topic: str
    payload: bytes
    retain: bool = False


class Session(Protocol):
    """One connection, from which nothing is left once it has ended."""

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Returns once the broker has it. `retain`: the broker keeps it for those who come later, in place of the one
        before; an empty one takes that away. Raises MqttError, and ValueError above PAYLOAD_BYTES_MAX."""

    async def subscribe(self, *filters: str) -> None:
        """From now on messages of these topics arrive (`+` and `#` as MQTT has them), first what is retained. Raises
        MqttError, Refused."""

    async def unsubscribe(self, *filters: str) -> None:
        """No more messages arrive by these filters than have arrived, or are on their way; nothing happens where one
        was not subscribed to. Raises MqttError."""

    async def next(self) -> Sequence[Arrived]:
        """What has arrived since the last call, at least one, in order. Raises MqttError once the session is over."""


class Broker(Protocol):
    """Where sessions are opened."""

    def session(self, client: str, will: Will | None = None) -> AbstractAsyncContextManager[Session]:
        """A session of that client id; an older one of the same id ends. Entering it raises MqttError, Refused."""
