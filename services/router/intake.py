"""The messages to the router, each once and in order, as what they become.

A message over which the router's own code fails is refused as any other bad one: whoever sent it is told, and the jobs
of others go on.
"""

from dataclasses import replace

from largesse.bus.port import Bus, Message
from largesse.ids import content_hash
from largesse.log.fencing import LogOrder
from largesse.log.inputs import Input, InputStopped, parse, unread
from largesse.telemetry import logger
from schemas import InputRefused, JobCancelled
from schemas.edge.base import Malformed
from schemas.edge.routes import AskedRoute
from schemas.topics import ROUTER_JOBS
from services.router.core import NAME
from services.router.core.judge import Judged, judge
from services.router.core.state import State

FAILED = "the router failed over it ({error}), which is no fault of the message: publish it to the jobs of a cell"


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
        """What has come, `most` of it at most. Raises PositionGap, BusError."""
        fetched = await self._bus.fetch(ROUTER_JOBS, 0, self._next, most=most)
        self._next = fetched.position
        return [_read(message) for message in fetched]

    @staticmethod
    def become(state: State, item: Input) -> Judged:
        """The body of the record that a message becomes."""
        size, digest = len(item.value), content_hash(item.value)
        if item.fault is not None:
            return InputRefused(item.topic, item.fault.reason, item.fault.field, size, digest, item.author)
        asked = item.body
        try:
            assert isinstance(asked, AskedRoute | JobCancelled)
            body = judge(state, asked, item.author)
        except Exception as error:
            return InputRefused(item.topic, _failed(item.offset, error), "", size, digest, item.author)
        return replace(body, size=size, hash=digest) if isinstance(body, InputRefused) else body


def _read(message: Message) -> Input:
    try:
        return parse(message)
    except InputStopped as stopped:
        found = unread(message)
        found.fault = Malformed("", _failed(message.offset, stopped.__cause__ or stopped))
        return found


def _failed(offset: int, error: BaseException) -> str:
    logger(service=NAME).error("input_failed", topic=ROUTER_JOBS, offset=offset, exc_info=error)
    return FAILED.format(error=type(error).__name__)
