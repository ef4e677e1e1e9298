"""Signs of life on the topic `beats`, as whoever needs them hears them.

It begins at the end of the topic, so it never hears what was said before. Whoever may have missed something goes on
from the end, and has to believe everybody again.
"""

from largesse.bus.port import Bus, Message, PositionGap
from largesse.telemetry import INPUTS
from schemas.edge.base import Malformed
from schemas.edge.beats import Beat, read_beat
from schemas.edge.strict_json import loads
from schemas.topics import BEATS

BEATS_MOST = 1_000
"""Signs of life that are taken in one turn."""

_OF_NODE = b'{"node"'


class Hearing:
    """What comes on one partition of `beats`."""

    def __init__(self, bus: Bus, partition: int) -> None:
        self._bus, self._partition = bus, partition
        self._next: int | None = None

    async def begin(self) -> None:
        """Hears what is said from now on. Raises BusError."""
        if self._next is None:
            self._next = (await self._bus.bounds(BEATS, self._partition))[1]

    async def read(self, *, with_nodes: bool = True) -> list[Beat] | None:
        """What has come; what is no sign of life is passed over. None: some of it may have been missed. Raises
        BusError. Without that of nodes it takes hardly any time.
        """
        await self.begin()
        assert self._next is not None
        try:
            fetched = await self._bus.fetch(BEATS, self._partition, self._next, most=BEATS_MOST)
        except PositionGap:
            self._next = None
            await self.begin()
            return None
        self._next = fetched.position
        wanted = fetched if with_nodes else [each for each in fetched if not each.value.startswith(_OF_NODE)]
        return [beat for message in wanted if (beat := _beat_in(message)) is not None]

    async def is_drained(self) -> bool:
        """Whether everything that lies there has been read. Raises BusError."""
        return self._next == (await self._bus.bounds(BEATS, self._partition))[1]


def _beat_in(message: Message) -> Beat | None:
    INPUTS.labels(BEATS, "none").inc()
    try:
        return read_beat(loads(message.value))
    except Malformed:
        return None
