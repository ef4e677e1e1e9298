"""Places in a log, as they are written on the command line."""

from largesse.moments import Moment, moment_of
from services.cli.ending import Wrong


def point_of(option: str, text: str | None) -> Moment:
    """A place in a log: its record, or log time in ms. Raises Wrong."""
    if text is None:
        return Moment(None, None)
    try:
        return moment_of(text)
    except ValueError as error:
        raise Wrong(f"{option}: {error}") from None
