"""State of a leading sequencer beside its fold: readers of inputs and decisions, leases, a pending snapshot."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from largesse.bus.port import Bus
from largesse.log.decisions import FORECASTS, DecisionReader
from largesse.log.fencing import LogOrder
from largesse.log.inputs import InputReader
from largesse.log.writer import LogWriter
from largesse.telemetry import ABANDONED, GRANTS, ROUND_SECONDS, STRUCK, stopwatch
from schemas import Record, RoundAbandoned, RoundClosed, RoundOpened
from schemas.topics import INPUTS
from services.admission.node_leases import Leases
from services.admission.pacing import Pace

DECIDED = ("shares", "asks", "grants")
"""What a closing needs, in the order in which it names it."""


@dataclass(slots=True)
class Pending:
    """A snapshot that waits for its closing to be read back."""

    seq: int
    order: LogOrder
    state: bytes


class Leading:
    """What a sequencer has beyond its fold while its claim is the latest. `taken`: by topic, the offset of the last
    input that was judged. `round_ms`, `round_s`: what the round took that was closed last, by log time and by this
    machine's; `since_opening_s`: tells the seconds since the last opening, None where another instance opened it.
    `paced`: answers come before starts.
    """

    def __init__(
        self, bus: Bus, log: LogWriter, partition: int, decisions: dict[str, int], now_ms: int, paced: bool
    ) -> None:
        taken = log.running.positions
        self.log = log
        self.inputs = InputReader(bus, partition, taken)
        self.taken = {topic: taken.get(f"{topic}/{partition}", -1) for topic in INPUTS}
        self.decisions = DecisionReader(bus, partition, decisions)
        places = {topic: f"{topic}/{partition}" for topic in FORECASTS}
        self.forecasts = {
            topic: DecisionReader(bus, partition, {place: taken.get(place, -1) + 1}) for topic, place in places.items()
        }
        self.leases = Leases()
        self.pace = Pace(applies=paced)
        self.skipped = 0
        self.appended_ms = now_ms
        self.round_ms = 0
        self.round_s = 0.0
        self.since_opening_s: Callable[[], float] | None = None
        self.pending: Pending | None = None

    def time_round(self, body: object, now_ms: int) -> None:
        """Notes when a round opens or ends, if this body does that."""
        if isinstance(body, RoundOpened):
            self.since_opening_s = stopwatch()
            self.pace.opened(now_ms)
        elif isinstance(body, RoundClosed | RoundAbandoned):
            self.pace.closed(now_ms)

    def count_round(self, record: Record, log: Any) -> None:
        """Metrics and a line of what a round came to, where the record ends one."""
        body = record.body
        if isinstance(body, RoundAbandoned):
            ABANDONED.inc()
        if not isinstance(body, RoundClosed):
            return
        granted = sum(grant.count for grant in body.grants)
        struck = sum(item.grant.count for item in body.struck)
        GRANTS.inc(granted)
        STRUCK.inc(struck)
        ROUND_SECONDS.observe(self.round_s)
        log.info("round", round=record.round, seq=record.seq, granted=granted, struck=struck, took_ms=self.round_ms)
