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

LIVE_MS, IDLE_MS = 10_000, 60_000
"""So long after the last record one says how late it is: with live jobs, and without."""


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
    `paced`: answers come before starts. `skipped`: inputs that changed nothing since the log has said how far they were
    read; `asked_ms`: when the first came of those that somebody may wait for. `appended_ms`: when the last record was
    written; `spoke_ms`: or a sign of life was given.
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
        self.asked_ms: int | None = None
        self.appended_ms = self.spoke_ms = now_ms
        self.round_ms = 0
        self.round_s = 0.0
        self.since_opening_s: Callable[[], float] | None = None
        self.pending: Pending | None = None

    def says_by_ms(self, answer_ms: int, *, has_jobs: bool) -> int:
        """When the log is to say how far inputs were read, and how late it is. `answer_ms`: so long somebody waits who
        has sent one."""
        due_ms = self.appended_ms + (LIVE_MS if has_jobs else IDLE_MS)
        return due_ms if self.asked_ms is None else min(due_ms, self.asked_ms + answer_ms)

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
