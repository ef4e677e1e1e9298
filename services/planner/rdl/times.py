"""Durations and points in time as people write them.

90, 90s, 5m, 1h30m, 2d      a duration; bare numbers are seconds
10:00, 10:00:30             the next such time of day; as the end of a window, the next after its start
2026-11-23T10:00            a date and time, 2026-11-23T10:00Z and 2026-11-23T10:00+01:00 with an offset
10:00 Europe/Berlin         either in a zone of its own instead of the document's
+2h                         from now on
7200, 2h                    since second 0 of the plan, as in JSON

A time that does not exist, where clocks go forward, is the end of the gap; one that comes twice is the first.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, tzinfo
from fractions import Fraction
from math import ceil
from zoneinfo import ZoneInfo

_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?[smhd])+")
_PART = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?(Z)?")
_TIME_OF_DAY = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?")
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
        return self.at(self.now_s)

    def at(self, seconds: int) -> datetime:
        """The time `seconds` after the origin. In UTC: Python adds to a time of a zone as wall clocks show it."""
        return self.origin.astimezone(UTC) + timedelta(seconds=seconds)

    def seconds(self, at: datetime) -> int:
        """Seconds from the origin to a time. Raises ValueError before it."""
        seconds = ceil((at.astimezone(UTC) - self.origin.astimezone(UTC)).total_seconds())
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
    return Clock(began if began.tzinfo else instant(began, named), now_s, named)


def instant(wall: datetime, zone: tzinfo) -> datetime:
    """When clocks of a zone show a time, in UTC: the first time that they do; the end of the gap if they never do."""
    found = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if _shown(found, zone) == wall:
        return found
    before, after = wall.replace(tzinfo=zone, fold=1).astimezone(UTC), found  # On either side of the change.
    while after - before > timedelta(seconds=1):
        middle = before + timedelta(seconds=(after - before) // timedelta(seconds=2))
        if _shown(middle, zone) < wall:
            before = middle
        else:
            after = middle
    return after


def days_later(at: datetime, days: int, zone: tzinfo) -> datetime:
    """When clocks of a zone show the same time of day as at `at`, a number of days later."""
    return instant(_shown(at, zone) + timedelta(days=days), zone)


def _shown(at: datetime, zone: tzinfo) -> datetime:
    return at.astimezone(zone).replace(tzinfo=None, fold=0)


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


def time_s(text: str, known: Clock, after_s: int | None = None, after: str = "") -> int:
    """Seconds from the plan's beginning to a point in time. A time of day is the next at `after_s`, or now, or later;
    after `after_s`, which was written as `after`, it is a later one. Raises ValueError.
    """
    words = text.split()
    if not 1 <= len(words) <= 2:
        raise ValueError(_no_time(text))
    zone = zone_of(words[1]) if len(words) == 2 else known.zone
    word = words[0]
    if word.startswith("+") and len(words) == 1:
        return known.now_s + duration_s(word[1:])
    if clocked := _CLOCK.fullmatch(word):
        if after_s is None:
            return _next(clocked, known, UTC if clocked[4] else zone)
        return _next_after(clocked, known, UTC if clocked[4] else zone, after_s, after)
    if _DATE.fullmatch(word):
        try:
            at = datetime.fromisoformat(word)
        except ValueError:
            raise ValueError(_no_time(text)) from None
        return known.seconds(at if at.tzinfo else instant(at, zone))
    if len(words) == 2:
        raise ValueError(_no_time(text))
    try:
        return duration_s(word)
    except ValueError:
        raise ValueError(_no_time(text)) from None


def _next(clocked: re.Match[str], known: Clock, zone: tzinfo) -> int:
    """The first time from now on at which clocks show a time of day."""
    return known.seconds(next(at for at in _days(clocked, known.now, zone) if at >= known.now))


def _next_after(clocked: re.Match[str], known: Clock, zone: tzinfo, after_s: int, after: str) -> int:
    """The same after a start that was written as `after`."""
    start = known.at(after_s)
    begun = _TIME_OF_DAY.search(after)
    for at in _days(clocked, start, zone):
        if at > start:
            return known.seconds(at)
        if at == start and begun is not None and _of_day(begun) < _of_day(clocked):
            shown = _shown(at, zone)
            raise ValueError(
                f"{begun[0]} to {clocked[0]} on {shown.date()} is no time at all: clocks of {zone} go forward then, to "
                f"{shown.time()}; let the window end later, or write a duration after its start like +2h"
            )
    raise AssertionError("days come without end")


def _days(clocked: re.Match[str], least: datetime, zone: tzinfo) -> Iterator[datetime]:
    """When clocks show a time of day, by day, from the day before `least` on: what does not exist on one day may be the
    beginning of the next."""
    hour, minute, second = _of_day(clocked)
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(f'"{clocked[0]}" is no time of day: 00:00 to 23:59:59')
    day = least.astimezone(zone).date() - timedelta(days=1)
    while True:
        yield instant(datetime.combine(day, time(hour, minute, second)), zone)
        day += timedelta(days=1)


def _of_day(clocked: re.Match[str]) -> tuple[int, int, int]:
    return int(clocked[1]), int(clocked[2]), int(clocked[3] or 0)


def _no_time(text: str) -> str:
    return f'"{text}" is no time: write 10:00, 2026-11-23T10:00, +2h from now, or seconds; a zone may follow'


def _no_zone(name: str) -> str:
    return f'"{name}" is no time zone: write one like Europe/Berlin or UTC'
