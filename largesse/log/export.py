"""A portable log file: one line a record, each with a running checksum, and a last line that says that it is the last.

    {"line":1,"topic":"cluster.log","message":{"header":{...},"content":{...}},"sum":"<hex>"}

`sum` is SHA-256 over the sum of the line before and this line's bytes up to `,"sum":`. The first line names the format,
the last counts the records. So one changed digit, one line that is missing (also the last) or two that have changed
places are refused with file and line. It holds the records that count (claims left out) and before each closing the
winning decision records of its round. Names that end in `.gz` are compressed. A bundle (services/replay/bundle.py) is
written alike, under another first line.
"""

import gzip
import re
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Literal

import orjson

from largesse.from_end import lines_from_end
from largesse.log.codec import Undecodable, unwrap, wrap
from schemas import Header

FORMAT = b'{"largesse_export":1'
_END = b'{"end":'
_SUM = b',"sum":"'
_CLOSE = b'"}\n'
_SUM_BYTES = len(_SUM) + 64 + len(_CLOSE)
_LINE = re.compile(rb'\{"line":(\d+),')
_OF_LOG = b',"topic":"cluster.log",'


class ExportDamaged(Exception):
    """A file that is not as it was written: names file, line and what is wrong."""

    def __init__(self, path: Path | str, line: int, what: str) -> None:
        super().__init__(f"{path}, line {line}: {what}")
        self.line = line


@dataclass(slots=True)
class Exported:
    """One record of an export. `header` is empty for decisions."""

    topic: str
    header: Header
    content: bytes
    line: int


@dataclass(slots=True)
class Lines:
    """Where lines of an export that are read or written one after the other stand: how many records there are, and the
    sum of the last line, empty before the first.
    """

    records: int = 0
    sum: str = ""

    def first(self, line: bytes = FORMAT) -> bytes:
        """The line that names the format."""
        return self._line(line)

    def record(self, topic: str, header: Header | None, content: bytes) -> bytes:
        """The next record's: of the log, or (`header` None) of a decision topic."""
        self.records += 1
        message = wrap(header if header is not None else Header(""), content)
        return self._line(b'{"line":%d,"topic":%b,"message":%b' % (self.records, orjson.dumps(topic), message))

    def last(self) -> bytes:
        """The line that says that it is the last."""
        return self._line(b"%b%d" % (_END, self.records))

    def _line(self, line: bytes) -> bytes:
        self.sum = _chained(self.sum, line)
        return b"%b%b%b%b" % (line, _SUM, self.sum.encode(), _CLOSE)

    def read(self, path: Path | str, number: int, raw: bytes, first: bytes = FORMAT) -> Exported | None:
        """The record that a line has, verified; None for the first line, and for the last. `number`: of the line in its
        file, for who is told what is wrong. Raises ExportDamaged.
        """
        line, begins = raw[:-_SUM_BYTES], not self.sum
        self.sum = _chained(self.sum, line)
        if raw[-_SUM_BYTES:] != b"%b%b%b" % (_SUM, self.sum.encode(), _CLOSE):
            raise ExportDamaged(path, number, "its bytes and those before it do not give its checksum")
        if begins:
            if line != first:
                raise ExportDamaged(path, number, "it is no export of a format known here")
            return None
        if line == b"%b%d" % (_END, self.records):
            return None
        self.records += 1
        return _record(path, number, self.records, line)


class ExportWriter:
    """Writes an export record by record; only `close` makes it whole. May be handed to the engine as its listener."""

    def __init__(self, path: Path | str, first: bytes = FORMAT) -> None:
        self.path = Path(path)
        self._lines = Lines()
        self._file = _open(self.path, "wb")
        self._file.write(self._lines.first(first))

    @property
    def lines(self) -> int:
        """How many records it has so far."""
        return self._lines.records

    def __call__(self, topic: str, header: Header | None, content: bytes) -> None:
        """Adds one record: of the log, or (`header` None) of a decision topic. Raises OSError."""
        self._file.write(self._lines.record(topic, header, content))

    def close(self) -> None:
        """Writes the last line. Raises OSError."""
        self._file.write(self._lines.last())
        self._file.close()

    def abandon(self) -> None:
        """Leaves the file without its last line, so that it cannot pass as complete."""
        self._file.close()

    def __enter__(self) -> "ExportWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()


def read_export(path: Path | str, first: bytes = FORMAT) -> Iterator[Exported]:
    """The records of an export in order, each verified as it comes. `first`: the line with which files of its kind
    begin. Raises ExportDamaged, OSError."""
    path = Path(path)
    lines, number, ended = Lines(), 0, False
    for number, raw in enumerate(_lines(path), 1):
        if ended:
            raise ExportDamaged(path, number, "it stands after the last line")
        item = lines.read(path, number, raw, first)
        if item is not None:
            yield item
        elif number > 1:
            ended = True
    if not ended:
        raise ExportDamaged(path, number + 1, "the file ends here, without its last line")


def read_last(path: Path | str, least: int) -> tuple[list[Exported], bool] | None:
    """The log's last records, `least` or more if there are, and whether these are all. All of a compressed file is
    verified, of another one what is read from its end. None where something is wrong: reading it all says what.
    """
    path = Path(path)
    try:
        lines = _last_lines(path, least) if path.name.endswith(".gz") else _lines_at_end(path, least)
        if not lines or lines[-1][:-_SUM_BYTES] != b"%b%d" % (_END, _number(lines[-2]) if len(lines) > 1 else 0):
            return None
        is_all = lines[0][:-_SUM_BYTES] == FORMAT
        of_log = [(_number(raw), raw[:-_SUM_BYTES]) for raw in lines[is_all:-1] if _is_of_log(raw)]
        items = [_record(path, number + 1, number, line) for number, line in of_log]
    except (ExportDamaged, OSError):
        return None
    return items, is_all


def _lines_at_end(path: Path, least: int) -> list[bytes]:
    """The last lines, read from there. Raises OSError."""
    kept, records = deque[bytes](), 0
    lines = lines_from_end(path)
    if next(lines):
        return []
    for raw in lines:
        kept.appendleft(raw + b"\n")
        records += _is_of_log(raw)
        if records > least:
            break  # Of the first one it is not known that its bytes give its sum.
    return list(kept) if _hang_together(kept) else []


def _last_lines(path: Path, least: int) -> list[bytes]:
    """The last lines, with all others read before them. Raises ExportDamaged, OSError."""
    kept, records = deque[bytes](), 0
    for raw in _verified(path):
        kept.append(raw)
        records += _is_of_log(raw)
        while records > least and (records > least + 1 or not _is_of_log(kept[0])):
            records -= _is_of_log(kept.popleft())
    return list(kept)


def _verified(path: Path) -> Iterator[bytes]:
    total = ""
    for number, raw in enumerate(_lines(path), 1):
        total = _chained(total, raw[:-_SUM_BYTES])
        if raw[-_SUM_BYTES:] != b"%b%b%b" % (_SUM, total.encode(), _CLOSE):
            raise ExportDamaged(path, number, "its bytes and those before it do not give its checksum")
        yield raw


def _hang_together(lines: Iterable[bytes]) -> bool:
    """Whether each line gives its sum with that of the line before; of the first one only that of a file."""
    total: str | None = None
    for raw in lines:
        said = raw[-_SUM_BYTES + len(_SUM) : -len(_CLOSE)].decode(errors="replace")
        if raw[:-_SUM_BYTES] == FORMAT:
            total = ""
        if total is not None and _chained(total, raw[:-_SUM_BYTES]) != said:
            return False
        total = said
    return True


def _is_of_log(raw: bytes) -> bool:
    return _OF_LOG in raw[:60]


def _number(raw: bytes) -> int:
    found = _LINE.match(raw)
    return int(found[1]) if found is not None else 0


def is_export(path: Path, first: bytes = FORMAT) -> bool:
    """Whether a file begins as an export does, or as `first` says."""
    try:
        with _open(path, "rb") as file:
            return file.read(len(first)) == first
    except (OSError, EOFError, zlib.error):
        return False


def _record(path: Path | str, number: int, records: int, line: bytes) -> Exported:
    opening, between = b'{"line":%d,"topic":' % records, b',"message":'
    split = line.find(between)
    if not line.startswith(opening) or split < 0:
        raise ExportDamaged(path, number, f"record {records} should stand here")
    try:
        topic: object = orjson.loads(line[len(opening) : split])
        header, content = unwrap(line[split + len(between) :])
    except (orjson.JSONDecodeError, Undecodable) as error:
        raise ExportDamaged(path, number, f"it holds no record: {error}") from error
    return Exported(str(topic), header, content, number)


def _lines(path: Path) -> Iterator[bytes]:
    number = 0
    with _open(path, "rb") as file:
        try:
            for raw in file:
                number += 1
                yield raw
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ExportDamaged(path, number + 1, f"the compressed file is damaged: {error}") from error


def _chained(before: str, line: bytes) -> str:
    return sha256(before.encode() + line).hexdigest()


def _open(path: Path, mode: Literal["rb", "wb"]) -> BinaryIO | gzip.GzipFile:
    if path.name.endswith(".gz"):
        # Level 1: a log compresses well, and simulations write it as they run. No time in it: equal runs, equal files.
        return _Zipped(path, mode) if mode == "wb" else gzip.open(path, "rb")
    return path.open(mode)


class _Zipped(gzip.GzipFile):
    """A gzip file that says neither its name nor when it was written."""

    def __init__(self, path: Path, mode: Literal["rb", "wb"]) -> None:
        self._under = path.open(mode)
        super().__init__("", mode, 1, self._under, mtime=0)

    def close(self) -> None:
        try:
            super().close()
        finally:
            self._under.close()
