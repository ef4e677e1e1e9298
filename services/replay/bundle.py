"""A bundle: a slice of a log in one file, with the states of all cores where it begins.

Written as an export is (largesse/log/export.py), every line with a running checksum, under a first line of its own. Its
first record says where it begins, with the SHA-256 of each state; then come the states, what is left to say of what
lives there, and the slice with the decisions that won; the last record names the chain of hashes at its end. So lines
of two bundles cannot be mixed, even with new checksums.
"""

from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from json import dumps, loads
from pathlib import Path

from largesse.ids import chain, content_hash
from largesse.log.codec import Undecodable, decode, encode, heading
from largesse.log.export import ExportDamaged, Exported, ExportWriter, is_export, read_export
from largesse.log.fencing import Accepted
from schemas.topics import LOG
from services.replay.start import Start

FORMAT = b'{"largesse_bundle":1'
_START, _STATE, _BEFORE, _END = "start", "state", "before", "end"


class BundleWriter:
    """Writes a bundle record by record."""

    def __init__(self, path: Path | str, start: Start) -> None:
        self._writer = ExportWriter(path, FORMAT)
        self._prefix = start.prefix
        self.records = 0
        states = {f"{service}/{shard}": state for (service, shard), state in start.states.items()}
        before = [encode(record) for record in start.before]
        head = {
            "version": start.version,
            "cell": start.cell,
            "seq": start.seq,
            "round": start.round,
            "time": start.time,
            "rules": start.rules,
            "prefix": start.prefix.hex(),
            "shards": start.shards,
            "states": {name: [layout, content_hash(data)] for name, (layout, data) in states.items()},
            "before": [len(before), _sum_of(before)],
        }
        self._writer(_START, None, _json(head))
        for _, data in states.values():
            self._writer(_STATE, None, data)
        for content in before:
            self._writer(_BEFORE, None, content)

    def decision(self, topic: str, content: bytes) -> None:
        """A decision record that won, or a forecast, before the closing of its round."""
        self._writer(topic, None, content)

    def record(self, accepted: Accepted) -> None:
        """The next record of the log."""
        self._prefix = chain(self._prefix, accepted.content)
        self.records += 1
        self._writer(LOG, accepted.header, accepted.content)

    def __enter__(self) -> "BundleWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._writer(_END, None, _json({"prefix": self._prefix.hex()}))
            self._writer.close()
        else:
            self._writer.abandon()


# ---------------------------------------------------------------- reading
def is_bundle(path: Path) -> bool:
    """Whether a file begins as a bundle does."""
    return is_export(path, FORMAT)


def start_of(path: Path) -> tuple[Start | None, int]:
    """What a bundle begins with, None where that is nothing, and its shards. Raises ExportDamaged."""
    start, _ = _opened(path, read_export(path, FORMAT))
    return (start if start.seq else None), start.shards


def read_bundle(path: Path) -> Iterator[Exported]:
    """The slice: its records and decisions in order. Raises ExportDamaged."""
    lines = read_export(path, FORMAT)
    start, item = _opened(path, lines)
    prefix, seq = start.prefix, start.seq
    while item.topic != _END:
        if item.topic == LOG:
            seq += 1
            with suppress(Undecodable):
                if heading(item.content)[0] != seq:
                    raise ExportDamaged(path, item.line, f"record {seq} of the log should stand here")
            prefix = chain(prefix, item.content)
        yield item
        item = _next(path, lines, item.line)
    if item.content != _json({"prefix": prefix.hex()}):
        raise ExportDamaged(path, item.line, "its records do not follow from each other: they are not of one log")
    for _ in lines:
        raise ExportDamaged(path, item.line + 1, "it stands after the last record")


def _opened(path: Path, lines: Iterator[Exported]) -> tuple[Start, Exported]:
    """What it begins with, and the first line behind that."""
    item = _next(path, lines, 1)
    try:
        head = loads(item.content)
        if item.topic != _START:
            raise ValueError("it does not say where it begins")
        place = str(head["cell"]), int(head["seq"]), int(head["round"]), int(head["time"])
        rest = head["rules"], bytes.fromhex(head["prefix"]), int(head["shards"]), str(head["version"])
        start, named, (count, total) = Start(*place, *rest), dict(head["states"]), head["before"]
    except (ValueError, KeyError, TypeError) as error:
        raise ExportDamaged(path, item.line, f"it does not say where it begins: {error}") from None
    for name, (layout, expected) in named.items():
        item = _next(path, lines, item.line)
        service, _, shard = name.rpartition("/")
        if item.topic != _STATE or content_hash(item.content) != expected:
            raise ExportDamaged(path, item.line, f"it is not the state of {name} with which the bundle begins")
        start.states[service, int(shard)] = layout, item.content
    before = []
    for _ in range(count):
        item = _next(path, lines, item.line)
        if item.topic != _BEFORE:
            raise ExportDamaged(path, item.line, "what there was before its first record should stand here")
        before.append(item.content)
    if _sum_of(before) != total:
        raise ExportDamaged(path, item.line, "it is not what there was before its first record")
    start.before += map(decode, before)
    return start, _next(path, lines, item.line)


def _json(document: object) -> bytes:
    return dumps(document, separators=(",", ":")).encode()


def _sum_of(contents: list[bytes]) -> str:
    return sha256(b"\n".join(contents)).hexdigest()


def _next(path: Path, lines: Iterator[Exported], line: int) -> Exported:
    item = next(lines, None)
    if item is None:
        raise ExportDamaged(path, line + 1, "the bundle ends here, without its last record")
    return item
