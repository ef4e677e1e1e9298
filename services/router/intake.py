"""The messages to the router, each once and in order, as what they become."""

from dataclasses import replace

from largesse.bus.port import Bus
from largesse.ids import content_hash
from largesse.log.fencing import LogOrder
from largesse.log.inputs import Input, parse
from schemas import InputRefused, JobCancelled
from schemas.edge.routes import AskedRoute
from schemas.topics import ROUTER_JOBS
from services.router.core.judge import Judged, judge
from services.router.core.state import State


class Intake:
    """Of one instance that leads."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._next = 0

    @property
    def position(self) -> dict[tuple[str, int], int]:
        """What to hand to `wait_any`."""
        return {(ROUTER_JOBS, 0): self._next}

    def begin(self, order: LogOrder) -> None:
        """Goes on behind what the log has taken."""
        self._next = order.positions.get(f"{ROUTER_JOBS}/0", -1) + 1

    async def read(self, most: int) -> list[Input]:
        """What has come, `most` of it at most. Raises PositionGap, BusError, InputStopped."""
        fetched = await self._bus.fetch(ROUTER_JOBS, 0, self._next, most=most)
        self._next = fetched.position
        return [parse(message) for message in fetched]

    @staticmethod
    def become(state: State, item: Input) -> Judged:
        """The body of the record that a message becomes."""
        size, digest = len(item.value), content_hash(item.value)
        if item.fault is not None:
            return InputRefused(item.topic, item.fault.reason, item.fault.field, size, digest, item.author)
        asked = item.body
        assert isinstance(asked, AskedRoute | JobCancelled)
        body = judge(state, asked, item.author)
        return replace(body, size=size, hash=digest) if isinstance(body, InputRefused) else body
