"""Answers before starts: when a round may open while clients submit jobs one after another.

An answer to a submission is one record; a round keeps every service of the cell busy, and its grants the agents. Where
they share one process an answer waits for all of that. So while submissions come in, rounds take at most one part in
ROUND_PARTS of the time, and none waits for longer than GAP_MS: an answer waits for at most one round, and for the
starts of its grants, within that time. A round that opens later holds what came meanwhile, as under `round_gap_ms`.

Only the moment of an opening follows from this clock, as it always does; what is decided follows from the log.
"""

from collections.abc import Iterable

from largesse.log.inputs import Input
from schemas import JobTurns, RoundOpened

TOPIC = "jobs"
QUIET_MS = 100
"""Submissions that are so far apart leave room for rounds: a lone one opens its round at once."""
ROUND_PARTS = 5
GAP_MS = 250
"""However long rounds take and whatever comes in, one opens so long after the last."""


class Pace:
    """Of one leading sequencer. Times are milliseconds of its steady clock. `applies`: rounds wait for answers here."""

    def __init__(self, *, applies: bool) -> None:
        self._applies = applies
        self._heard_ms = self._busy_ms = -QUIET_MS  # The last submission; the last that came soon after another.
        self._opened_ms: int | None = None
        self._round_ms = 0

    def hear(self, items: Iterable[Input], now_ms: int) -> None:
        """Inputs have been read."""
        if any(item.topic == TOPIC for item in items):
            if now_ms - self._heard_ms < QUIET_MS:
                self._busy_ms = now_ms
            self._heard_ms = now_ms

    def opened(self, now_ms: int) -> None:
        """A round has opened."""
        self._opened_ms = now_ms

    def closed(self, now_ms: int) -> None:
        """It has closed."""
        if self._opened_ms is not None:
            self._round_ms = now_ms - self._opened_ms

    def holds_back(self, body: object, now_ms: int) -> bool:
        """Whether it is too early for a round, and for what is said before one opens."""
        return isinstance(body, RoundOpened | JobTurns) and now_ms < self.opens_ms()

    def opens_ms(self) -> int:
        """From when on a round may open."""
        if not self._applies or self._opened_ms is None:
            return 0
        gap_ms = min(ROUND_PARTS * self._round_ms, GAP_MS)
        return min(self._busy_ms + QUIET_MS, self._opened_ms + gap_ms)
