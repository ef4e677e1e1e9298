"""Reservations that come again: a cron expression or a period, as an `all` of the occurrences in the horizon.

The times of the request count from each occurrence: `window(0, 2h, ...)` with "0 6 * * 1-5" is six to eight on
weekdays. With a period the request stands as it is written, and again every so many seconds; a period of whole days
follows the clocks of the zone, so that what begins at 10:00 does so on every day.
"""

from collections.abc import Iterator
from datetime import timedelta
from itertools import count, dropwhile, islice, pairwise
from typing import Any

from services.planner.rdl.times import Clock, clock, days_later, duration_s

NO_WINDOW = "a request that recurs has to be a window, so that each occurrence has an end"

CRON_FIELDS = 5
DAY_S = 86_400
OCCURRENCES_MAX = 366
BEGIN_S_MAX = 366 * 86_400
"""A window that begins so long after each occurrence of a series, or longer, is meant as a date."""

CHECKED_MAX = 64  # Occurrences whose distance is compared with the length of the window.


def starts_s(expression: str, known: Clock) -> Iterator[int]:
    """When a cron expression comes due from now on, in seconds of the plan, without end. Raises ValueError."""
    from cronsim import CronSim, CronSimError  # Simulations without cron expressions run where it is not installed.

    try:
        # From a second before now, since the library begins after the moment it is given.
        due = CronSim(expression, (known.now - timedelta(seconds=1)).astimezone(known.zone))
    except CronSimError as error:
        raise ValueError(f'"{expression}" is no cron expression like "0 6 * * 1-5": {error}') from None
    return (known.seconds(at) for at in due)


def least_distance_s(expression: str, known: Clock) -> int | None:
    """The least distance between occurrences, of the next CHECKED_MAX; None if there is only one. Raises ValueError."""
    starts = list(islice(starts_s(expression, known), CHECKED_MAX))
    return min((b - a for a, b in pairwise(starts)), default=None)


def occurrences(every: str, start_s: int, from_s: int, zone: str) -> Iterator[int]:
    """When a series has occurrences, in seconds of Unix time, from `from_s` and `start_s` on. `every`: a period in
    seconds from `start_s` on, or a cron expression in the time zone `zone`. Raises ValueError."""
    least = max(start_s, from_s)
    if not every.isdecimal():
        return starts_s(every, clock(now_s=least, zone=zone))
    period = int(every)
    known = clock(zone=zone)
    ahead = (least - start_s) // period - 1  # Days differ in length by less than a day.
    return dropwhile(least.__gt__, _repeated(start_s, period, known, max(0, ahead)))


def _repeated(start_s: int, period: int, known: Clock, first: int = 0) -> Iterator[int]:
    """The moments of a period from the one of number `first` on; the same time of day where it is whole days."""
    if period % DAY_S:
        yield from count(start_s + first * period, period)
    days = period // DAY_S
    for i in count(first):
        try:
            at = days_later(known.at(start_s), i * days, known.zone)
        except OverflowError:
            return  # Beyond the year 9999 nothing comes.
        yield known.seconds(at)


def when_of(every: str) -> int | str:
    """A period in seconds, or a cron expression, as people write it: `86400`, `2h`, `0 6 * * 1-5`. Raises
    ValueError."""
    text = every.strip()
    if len(text.split()) == CRON_FIELDS:
        return text
    try:
        period = duration_s(text.removeprefix("-"))
    except ValueError:
        known = f'a period like 86400, 2h or 1d12h nor a cron expression of {CRON_FIELDS} fields like "0 6 * * 1-5"'
        message = f'"{text}" is neither {known}'
        raise ValueError(message) from None
    if text.startswith("-") or period < 1:
        raise ValueError(f"{text}: a period has to be at least 1 second")
    return period


def series_of(rdl: object, every: str | int, known: Clock) -> tuple[object, int]:
    """The window of an occurrence, with times that count from its beginning, and `start_s` of the series. Of a period,
    `rdl` is the first occurrence; of a cron expression its times count from each already. Raises ValueError."""
    if not isinstance(rdl, dict) or rdl.get("op") != "window":
        raise ValueError(NO_WINDOW)
    begin, end = rdl["s"], rdl["e"]
    _check_meaning(begin, end, every, known, BEGIN_S_MAX)
    moved: object = rdl
    length, start = end - begin, known.now_s
    if isinstance(every, str):
        distance = least_distance_s(every, known)
    else:
        distance, moved, start = every, occurrence(rdl, -begin), begin
    if distance is not None and distance < length:
        raise ValueError(_overlap(distance, length))
    return moved, start


def expanded(rdl: Any, recurrence: str | int, known: Clock, horizon_s: int) -> Any:
    """One request for all occurrences whose window ends in the horizon. Raises ValueError."""
    if not isinstance(rdl, dict) or rdl.get("op") != "window":
        raise ValueError(NO_WINDOW)
    begin, end = rdl["s"], rdl["e"]
    _check_meaning(begin, end, recurrence, known, max(1, horizon_s - known.now_s))
    if isinstance(recurrence, str):
        distance = least_distance_s(recurrence, known)
        starts: Iterator[int] = starts_s(recurrence, known)
    else:
        distance = recurrence
        starts = (at - begin for at in islice(_repeated(begin, recurrence, known), OCCURRENCES_MAX + 1))
    if distance is not None and distance < end - begin:
        raise ValueError(_overlap(distance, end - begin))
    found = []
    for start in starts:
        if start + end > horizon_s:
            break
        found.append(occurrence(rdl, start))
        if len(found) > OCCURRENCES_MAX:
            raise ValueError(f"comes more than {OCCURRENCES_MAX} times in the horizon")
    if not found:
        raise ValueError("no occurrence ends inside the horizon")
    return {"op": "all", "of": found}


def _overlap(distance: int, length: int) -> str:
    text = f"an occurrence begins {distance} s after another, and the window has {length} s"
    return f"{text}: repeat it less often, or take a shorter window"


def _check_meaning(begin: int, end: int, recurrence: str | int, known: Clock, begin_max: int) -> None:
    """Raises ValueError for a window whose times are meant in the other way: a cron expression needs times that count
    from each occurrence, less than `begin_max`, a period those of the first occurrence.
    """
    if isinstance(recurrence, str):
        if begin >= begin_max:
            raise ValueError(
                "with a cron expression the times of the window count from each occurrence: write durations like "
                f"window(0, 2h, ...); this window begins {begin} s after each, beyond what is planned"
            )
    elif end <= known.now_s:
        raise ValueError(
            "with a period the window is that of the first occurrence, which ends before now: write times like "
            "window(10:00, 12:00, ...) or window(+1h, +2h, ...)"
        )


def occurrence(rdl: object, by_s: int) -> object:
    """The same request, with the times of its windows moved by a number of seconds."""
    if not isinstance(rdl, dict):
        return rdl
    moved = dict(rdl)
    if rdl.get("op") == "window":
        moved["s"], moved["e"] = max(0, rdl["s"] + by_s), rdl["e"] + by_s
    if "of" in rdl:
        of = rdl["of"]
        moved["of"] = [occurrence(each, by_s) for each in of] if isinstance(of, list) else occurrence(of, by_s)
    return moved
