"""Places in a log, and lengths of time, as they are written on the command line."""

import re

from largesse.moments import Moment, moment_of
from services.cli.ending import Wrong

_SPAN = re.compile(r"([0-9]{1,9})(ms|s|m|h|d)?")
_SPAN_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
SPAN_MS_MAX = 10 * 365 * 86_400_000


def point_of(option: str, text: str | None) -> Moment:
    """A place in a log: its record, or log time in ms. Raises Wrong."""
    if text is None:
        return Moment(None, None)
    try:
        return moment_of(text)
    except ValueError as error:
        raise Wrong(f"{option}: {error}") from None


def span_ms(option: str, text: str) -> int:
    """Milliseconds of `90s`, `10m`, `2h`, `1d`, or `0`. Raises Wrong."""
    match = _SPAN.fullmatch(text)
    if match is not None and match[2] is None and int(match[1]):
        raise Wrong(f"{option}: {text!r} has no unit: write {text}s for seconds, {text}m for minutes, or h or d")
    span_ms = int(match[1]) * _SPAN_MS[match[2] or "s"] if match is not None else None
    if span_ms is None or span_ms > SPAN_MS_MAX:
        raise Wrong(f"{option}: {text!r} is not a duration: write it like 90s, 10m, 2h or 1d, at most ten years")
    return span_ms
