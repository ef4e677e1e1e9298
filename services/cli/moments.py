"""Places in a log, as they are written on the command line."""

from datetime import UTC, datetime

from services.cli.ending import Wrong


def point_of(option: str, text: str | None) -> tuple[int | None, int | None]:
    """A place in a log: its record, or log time in ms. Raises Wrong."""
    if text is None:
        return None, None
    if text.isascii() and text.isdecimal() and len(text) <= 18:
        return int(text), None
    try:
        moment = datetime.fromisoformat(text.removesuffix(" UTC"))
    except ValueError:
        raise Wrong(
            f"{option}: {text!r} is neither a record's seq nor a time like 2026-11-28T14:03 (UTC, or with its offset)"
        ) from None
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    return None, round(moment.timestamp() * 1_000)
