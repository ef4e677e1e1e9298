"""Moments of a log, as people name them: by a record, or by a time."""

from datetime import UTC, datetime
from typing import NamedTuple

SEQ_DIGITS_MAX = 18


class Moment(NamedTuple):
    """A moment of a log: behind the record `seq`, or behind all up to `time_ms` (Unix). One of them is None."""

    seq: int | None
    time_ms: int | None

    def is_before(self, seq: int, time_ms: int) -> bool:
        """Whether it lies before a record with this seq and time."""
        if self.seq is not None:
            return seq > self.seq
        return self.time_ms is not None and time_ms > self.time_ms

    def is_reached_by(self, seq: int, time_ms: int) -> bool:
        """Whether a record with this seq and time is the first from here on, or a later one."""
        if self.seq is not None:
            return seq >= self.seq
        return self.time_ms is None or time_ms >= self.time_ms


def moment_of(text: str) -> Moment:
    """A record's seq, or a time in ISO 8601, UTC unless it has an offset. Raises ValueError where it is neither."""
    if text.isascii() and text.isdecimal() and len(text) <= SEQ_DIGITS_MAX:
        return Moment(int(text), None)
    try:
        found = datetime.fromisoformat(text.removesuffix(" UTC"))
        found = found.replace(tzinfo=UTC) if found.tzinfo is None else found
        return Moment(None, round(found.timestamp() * 1_000))
    except (ValueError, OverflowError):
        problem = f"{text!r} is neither a record's seq nor a time like 2026-11-28T14:03 (UTC, or with its offset)"
        raise ValueError(problem) from None
