"""Log time: what the sequencer's records carry, in Unix milliseconds.

Log time passes with the machine's steady clock (which counts time asleep and is never set) and is corrected towards the
wall clock slowly: it runs up to 1/SLEW faster or slower than time passes, and never back. So a wall clock that jumps,
either way and by any amount, delays no wake-up by more than 1/SLEW, and leads to no sudden leap.

Only two things make log time leap, and only forward: a sequencer that begins to lead without having followed the log
live (the cell was down, for a week perhaps) takes the wall clock's word; and so does one whose wall clock is ahead and
has kept pace with the steady clock for BELIEVED_AFTER_MS (the machine was started with a wrong clock that was set
later). A log whose last record is ahead of the wall clock goes on from that record.
"""

from collections.abc import Callable

SLEW = 20
"""Log time is corrected by one millisecond in so many."""

AGREES_MS = 1_000
"""The wall clock has jumped where it moves against the steady clock by more than this."""

BELIEVED_AFTER_MS = 600_000
"""A wall clock that is ahead is believed once it has not jumped for so long. A wrong one is usually set right sooner;
the NTP daemon waits for 5 to 15 minutes before it steps a clock."""


class LogClock:
    """One sequencer's. `wall_ms`: Unix milliseconds. `steady_ms`: milliseconds since anything, that only ever rise.

    Read once in a turn, by `tick`; all other members tell what was read.
    """

    def __init__(self, wall_ms: Callable[[], int], steady_ms: Callable[[], int]) -> None:
        self._wall = wall_ms
        self._steady = steady_ms
        self.steady_ms = steady_ms()
        """What the steady clock said: for leases, time-outs and everything else that lasts."""
        self.wall_ms = wall_ms()
        self.log_ms = self.wall_ms
        """Log time."""
        self.jumped_ms = 0
        """By how much the wall clock jumped just now; 0: it did not."""
        self.leapt_ms = 0
        """By how much log time was put forward just now, because the wall clock is believed."""
        self._offset_ms, self._offset_at_ms = self.wall_ms - self.steady_ms, self.steady_ms
        self._agreed_since_ms = self.steady_ms
        self._credit_ms = 0
        self._is_known = False
        self._ticked_ms: int | None = None  # Log time after the last tick, where it was known,
        self._unheard_ms: int | None = None  # and now, had nothing been heard since the last but one.

    def tick(self) -> None:
        """Reads both clocks."""
        steady_ms = max(self._steady(), self.steady_ms)
        elapsed_ms, self.steady_ms = steady_ms - self.steady_ms, steady_ms
        self.wall_ms = self._wall()
        self._look_for_jump()
        self.leapt_ms = 0
        self._unheard_ms = None if self._ticked_ms is None else self._ticked_ms + elapsed_ms
        if self._is_known:
            self._go_on(elapsed_ms)
        else:
            self.log_ms = self.wall_ms
        self._ticked_ms = self.log_ms if self._is_known else None

    def _go_on(self, elapsed_ms: int) -> None:
        self.log_ms += elapsed_ms
        behind_ms = self.wall_ms - self.log_ms
        if behind_ms > 0 and self.steady_ms - self._agreed_since_ms >= BELIEVED_AFTER_MS:
            self.log_ms, self.leapt_ms = self.wall_ms, behind_ms
        # What is too little for a whole millisecond is kept: a busy sequencer reads the clocks every one or two.
        most_ms, self._credit_ms = divmod(self._credit_ms + elapsed_ms, SLEW)
        if not self.leapt_ms:
            self.log_ms += max(-most_ms, min(most_ms, behind_ms))

    def now_ms(self) -> int:
        """The steady clock as it is now, between two ticks."""
        return max(self._steady(), self.steady_ms)

    def hear(self, time_ms: int) -> None:
        """Another sequencer has just written a record of this log time."""
        self.log_ms, self._is_known = time_ms, True

    def discard_heard(self) -> None:
        """This process was away between the last two ticks, so it is unknown when what it received meanwhile was
        written: log time goes on from the first of the two. The wall clock says it where it was not known by then.
        """
        if self._unheard_ms is None:
            self.log_ms, self._is_known = self.wall_ms, False
        else:
            self.log_ms = self._unheard_ms
        self._ticked_ms = self._unheard_ms

    def lead(self, last_ms: int) -> None:
        """Begins to tell log time for a log whose last record is of `last_ms`."""
        known_ms = self.log_ms if self._is_known else self.wall_ms
        self.log_ms, self._is_known = max(known_ms, last_ms), True
        # However long this machine's clock has been as it is: it has to agree with itself while log time follows it.
        self._agreed_since_ms = self.steady_ms

    def _look_for_jump(self) -> None:
        offset_ms = self.wall_ms - self.steady_ms
        moved_ms = offset_ms - self._offset_ms
        self.jumped_ms = moved_ms if abs(moved_ms) > AGREES_MS else 0
        if self.jumped_ms:
            self._agreed_since_ms = self.steady_ms
        # Measured again from time to time: a drift of years is no jump.
        if self.jumped_ms or self.steady_ms - self._offset_at_ms >= BELIEVED_AFTER_MS:
            self._offset_ms, self._offset_at_ms = offset_ms, self.steady_ms
