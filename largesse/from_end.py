"""Lines of a file from its end."""

from collections.abc import Iterator
from os import SEEK_END
from pathlib import Path

READ_BYTES = 1 << 20


def lines_from_end(path: Path) -> Iterator[bytes]:
    """The lines of a file, the last one first, without their ends. Before them comes what follows the last end:
    nothing, where the file is whole. Raises OSError.
    """
    with path.open("rb") as file:
        at, rest = file.seek(0, SEEK_END), b""
        while at:
            step = min(READ_BYTES, at)
            at -= step
            file.seek(at)
            rest, *lines = (file.read(step) + rest).split(b"\n")
            yield from reversed(lines)
        yield rest
