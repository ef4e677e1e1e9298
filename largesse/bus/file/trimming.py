"""The beginning of a journal that is let go: whole packed segments without a message that anybody needs.

    trimmed.json    the last line that is gone, with its sum, where each partition begins by now, and the sums of lines
                    that files of compacted topics were written after
    trim.json       up to where somebody has asked for it; whoever holds the folder does it, and removes this

trimmed.json is written durably before a segment is removed, and what it names does not count any more: a segment that
a kill has left lying is removed by the next turn. The lines that stay hang on its sum, as they did on the line.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import orjson

from largesse.bus.file.head import RESTORE, JournalDamaged, replace_file, sync_directory
from largesse.bus.file.lines import SUM_OF_NOTHING

TRIMMED_NAME, ASKED_NAME = "trimmed.json", "trim.json"

Places = dict[tuple[str, int], int]
"""By topic and partition, an offset."""


@dataclass(frozen=True, slots=True)
class Trimmed:
    """What a journal begins behind: line `line` with its sum. `firsts`: the offset with which a partition begins;
    `sums`: of lines before it that files of compacted topics were written after.
    """

    line: int = 0
    sum: str = SUM_OF_NOTHING
    firsts: Places = field(default_factory=dict)
    sums: dict[int, str] = field(default_factory=dict)


def read_trimmed(directory: Path) -> Trimmed:
    """Where a journal begins. Raises JournalDamaged, OSError."""
    path = directory / TRIMMED_NAME
    try:
        found = orjson.loads(_checked(path.read_bytes()))
        sums = {int(line): str(total) for line, total in found["sums"].items()}
        return Trimmed(int(found["line"]), str(found["sum"]), _places(found["firsts"]), sums)
    except FileNotFoundError:
        return Trimmed()
    except (ValueError, KeyError, TypeError) as error:
        raise JournalDamaged(path, 1, f"it is not what was written there: {RESTORE}") from error


def write_trimmed(directory: Path, trimmed: Trimmed) -> None:
    """Says durably where a journal begins. Raises OSError."""
    sums = {str(line): total for line, total in trimmed.sums.items()}
    firsts = [[*place, first] for place, first in sorted(trimmed.firsts.items())]
    text = _text({"line": trimmed.line, "sum": trimmed.sum, "firsts": firsts, "sums": sums})
    replace_file(directory / TRIMMED_NAME, text)


def ask(directory: Path, keep: Mapping[tuple[str, int], int]) -> None:
    """Asks whoever holds the folder to trim it. `keep`: the first offset of each partition that is still needed; of one
    that is not named all is. Raises OSError.
    """
    replace_file(directory / ASKED_NAME, _text({"keep": [[*place, first] for place, first in sorted(keep.items())]}))


def asked(directory: Path) -> Places | None:
    """What was asked for; None where nothing was. Raises JournalDamaged, OSError."""
    path = directory / ASKED_NAME
    try:
        return _places(orjson.loads(_checked(path.read_bytes()))["keep"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise JournalDamaged(path, 1, "it is not what was written there: remove it, and ask again") from error


def answered(directory: Path) -> None:
    """What was asked for is done. Raises OSError."""
    with suppress(FileNotFoundError):
        (directory / ASKED_NAME).unlink()
        sync_directory(directory)


def _places(found: Iterable[tuple[str, int, int]]) -> Places:
    return {(str(topic), int(partition)): int(first) for topic, partition, first in found}


def _text(document: dict[str, object]) -> bytes:
    about = orjson.dumps(document)
    return about[:-1] + b',"sha256":"%b"}\n' % sha256(about).hexdigest().encode()


def _checked(text: bytes) -> bytes:
    """The document without its checksum. Raises ValueError, KeyError, TypeError."""
    document = orjson.loads(text)
    digest = document.pop("sha256")
    about = orjson.dumps(document)
    if sha256(about).hexdigest() != digest:
        raise ValueError("its checksum is another one")
    return about
