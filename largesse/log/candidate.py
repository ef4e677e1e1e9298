"""Which of several instances writes a log: the part that the sequencers of a cell and the instances of a router share.

A standby folds the log. Once nothing has been heard of who writes it for a lease, it claims the log, and leads when it
has read its own claim as the latest one. In case of doubt it gives the claim up and stands by for at least a lease.
"""

from collections.abc import Awaitable, Callable
from enum import Enum

from largesse.bus.port import Bus, Writer
from largesse.log.fencing import LogOrder
from largesse.log.writer import Fenced, claim_message
from largesse.telemetry import CLAIMS, STANDBYS
from schemas.topics import LOG


class Turn(Enum):
    """What came of a standby's turn: it waits, has done something, or leads from now on."""

    WAITS = 1
    MOVES = 2
    LEADS = 3


class Candidate:
    """One instance of those that may write a log. Times are of the caller's steady clock, in ms.

    `heard_ms`: when it was last heard, in the log or elsewhere, of who writes; `producer`, `token`: of its own claim.
    """

    def __init__(
        self, bus: Bus, now_ms: int, *, cell: str, partition: int, draw_token: Callable[[], str], topic: str = LOG
    ) -> None:
        self.heard_ms = now_ms
        self.producer: Writer | None = None
        self.token = ""
        self._bus, self._draw_token = bus, draw_token
        self._cell, self._partition, self._topic = cell, partition, topic
        self._claimed_ms = self._rests_until_ms = 0

    def claims_ms(self, silence_ms: int) -> int:
        """When it may claim the log, if nothing is heard meanwhile."""
        return max(self.heard_ms + silence_ms, self._rests_until_ms)

    async def turn(
        self,
        order: LogOrder,
        now_ms: int,
        *,
        silence_ms: int,
        lease_ms: int,
        log_ms: int,
        is_silent: Callable[[], Awaitable[bool]],
    ) -> Turn:
        """One turn of a standby that stands at `order`, where the log has no more now. It claims after `silence_ms`, at
        log time `log_ms`, and has a lease to find its claim. `is_silent`: reads all that the bus has brought by then.
        Raises Fenced, BusError.
        """
        if self.producer is None:
            if now_ms < self.claims_ms(silence_ms):
                return Turn.WAITS
            # Asked where a topic ends, the bus brings all up to there: a pause, or a slow bus, is no silence.
            await self._bus.bounds(self._topic, self._partition)
            if await is_silent():
                await self._claim(order, now_ms, log_ms)
            return Turn.MOVES
        if order.token == self.token:
            return Turn.LEADS
        if now_ms - self._claimed_ms >= lease_ms:
            raise Fenced("its claim did not come back, or is not the latest")
        return Turn.WAITS

    async def _claim(self, order: LogOrder, now_ms: int, log_ms: int) -> None:
        self.producer, self.token = self._bus.writer(), self._draw_token()
        self._claimed_ms = now_ms
        claim = claim_message(self._cell, self._partition, self.token, order, log_ms, self._topic)
        await self.producer.send([claim], durable=True)
        CLAIMS.inc()

    async def give_up(self, now_ms: int, lease_ms: int) -> None:
        """Drops its claim, and claims no more for at least a lease."""
        STANDBYS.inc()
        self.heard_ms, self._rests_until_ms = now_ms, now_ms + lease_ms
        await self.close()

    async def close(self) -> None:
        """Closes the producer."""
        producer, self.producer = self.producer, None
        if producer is not None:
            await producer.drop()
