"""What a session with the MQTT broker has subscribed to."""

from collections.abc import Sequence

from largesse.mqtt.port import Session

AT_ONCE = 100
"""Filters in one message."""


class Subscriptions:
    """Of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._filters: dict[str, None] = {}

    async def become(self, wanted: Sequence[str]) -> None:
        """Subscribes to these filters and to no others any more, to the new ones first. Raises MqttError, Refused."""
        before, self._filters = self._filters, dict.fromkeys(wanted)
        new = [each for each in self._filters if each not in before]
        for at in range(0, len(new), AT_ONCE):
            await self._session.subscribe(*new[at : at + AT_ONCE])
        old = [each for each in before if each not in self._filters]
        for at in range(0, len(old), AT_ONCE):
            await self._session.unsubscribe(*old[at : at + AT_ONCE])
