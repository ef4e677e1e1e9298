"""Durations and points in time as people write them.

90, 90s, 5m, 1h30m, 2d      a duration; bare numbers are seconds
10:00, 10:00:30             the next such time of day; as the end of a window, the next after its start
2026-11-23T10:00            a date and time, 2026-11-23T10:00Z and 2026-11-23T10:00+01:00 with an offset
10:00 Europe/Berlin         either in a zone of its own instead of the document's
+2h                         from now on
7200, 2h                    since second 0 of the plan, as in JSON
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from fractions import Fraction
from math import ceil
from zoneinfo import ZoneInfo

_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?[smhd])+")
_PART = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?(Z)?")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}(T.*)?")


@dataclass(frozen=True, slots=True)
class Clock:
    """`origin`: second 0 of the plan. `now_s`: seconds since then. `zone`: of times that name none."""

    origin: datetime
    now_s: int = 0
    zone: tzinfo = UTC

    @property
    def now(self) -> datetime:
        """The present."""
        return self.origin + timedelta(seconds=self.now_s)

    def seconds(self, at: datetime) -> int:
        """Seconds from the origin to a time. Raises ValueError before it."""
        seconds = ceil((at - self.origin).total_seconds())
        if seconds < 0:
            raise ValueError(f"{at.isoformat()} lies before the plan's beginning, {self.origin.isoformat()}")
        return seconds


def clock(origin: str = "1970-01-01T00:00Z", now_s: int = 0, zone: str = "UTC") -> Clock:
    """A clock from texts. Raises ValueError."""
    try:
        began = datetime.fromisoformat(origin)
    except ValueError:
        raise ValueError(f'origin: "{origin}" is no date and time like 2026-11-23T10:00Z') from None
    named = zone_of(zone)
    return Clock(began if began.tzinfo else began.replace(tzinfo=named), now_s, named)


def zone_of(name: str) -> tzinfo:
    """A zone by its name. Raises ValueError."""
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError):
        raise ValueError(_no_zone(name)) from None


def duration_s(text: str) -> int:
    """Seconds of a duration, rounded up. Raises ValueError."""
    if re.fullmatch(r"\d+", text):
        return int(text)
    if not _DURATION.fullmatch(text):
        raise ValueError(f'"{text}" is no duration: write seconds, or 90s, 5m, 1h30m, 2d')
    return ceil(sum(Fraction(number) * _SECONDS[unit] for number, unit in _PART.findall(text)))


def time_s(text: str, known: Clock, after_s: int | None = None) -> int:
    """Seconds from the plan's beginning to a point in time. A time of day is the next at `after_s`, or now, or later;
    after `after_s` it is a later one. Raises ValueError.
    """
    words = text.split()
    if not 1 <= len(words) <= 2:
        raise ValueError(_no_time(text))
    zone = zone_of(words[1]) if len(words) == 2 else known.zone
    word = words[0]
    if word.startswith("+") and len(words) == 1:
        return known.now_s + duration_s(word[1:])
    if clocked := _CLOCK.fullmatch(word):
        return _next(clocked, known, UTC if clocked[4] else zone, after_s)
    if _DATE.fullmatch(word):
        try:
            at = datetime.fromisoformat(word)
        except ValueError:
            raise ValueError(_no_time(text)) from None
        return known.seconds(at if at.tzinfo else at.replace(tzinfo=zone))
    if len(words) == 2:
        raise ValueError(_no_time(text))
    try:
        return duration_s(word)
    except ValueError:
        raise ValueError(_no_time(text)) from None


def _next(clocked: re.Match[str], known: Clock, zone: tzinfo, after_s: int | None) -> int:
    hour, minute, second = int(clocked[1]), int(clocked[2]), int(clocked[3] or 0)
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(f'"{clocked[0]}" is no time of day: 00:00 to 23:59:59')
    least = known.now if after_s is None else known.origin + timedelta(seconds=after_s)
    day = least.astimezone(zone).date()
    while True:  # At most two days on: where clocks go forward, a time of day may not be there.
        at = datetime(day.year, day.month, day.day, hour, minute, second, tzinfo=zone)
        if at.astimezone(UTC) >= least and (after_s is None or at.astimezone(UTC) > least):
            return known.seconds(at.astimezone(UTC))
        day += timedelta(days=1)


def _no_time(text: str) -> str:
    return f'"{text}" is no time: write 10:00, 2026-11-23T10:00, +2h from now, or seconds; a zone may follow'


def _no_zone(name: str) -> str:
    return f'"{name}" is no time zone: write one like Europe/Berlin or UTC'
