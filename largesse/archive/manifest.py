"""What is said of each segment of an archive, in a document of its own that is written behind it and never changed.

    manifests/000000000001.json     segments/000000000001-000000004711-6f0c....jsonl.zst
    manifests/000000000002.json     segments/000000004712-000000009930-a1b2....jsonl.zst

A manifest names its segment by its hash, and the manifest before it by that of its bytes. So the newest one stands for
every byte before it; a segment that is damaged, missing, in another's place or of another archive is found by name. A
segment that no manifest names does not count: somebody was stopped, or was not the first.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from itertools import pairwise

import orjson
from pydantic import TypeAdapter, ValidationError

from largesse.archive.store import NameUnknown, Store
from largesse.ids import PREFIX_OF_NOTHING

FORMAT = 1
MANIFESTS, SEGMENTS = "manifests/", "segments/"
_SUFFIX = ".json"
_READERS = 8
"""Manifests that are asked for at a time."""


class ArchiveDamaged(Exception):
    """An archive that is not as it was written: names the manifest or segment, and says what is wrong with it."""


class NoArchive(Exception):
    """There is none in that store: says what was looked for."""


@dataclass(frozen=True, slots=True)
class Edge:
    """Where one segment ends and the next begins: behind record `seq` of the log, with the chain over all records up to
    there. `lines`, `sum`: records of the export up to there, decisions included, and the sum of its last line.
    """

    seq: int = 0
    time: int = 0
    prefix: str = PREFIX_OF_NOTHING.hex()
    lines: int = 0
    sum: str = ""


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """The bytes of a segment, as they lie there and unpacked."""

    name: str
    bytes: int
    sha256: str
    unpacked_bytes: int
    unpacked_sha256: str


@dataclass(frozen=True, slots=True)
class Place:
    """Where an archiver goes on in the log that it reads, if that is still the same one: behind the message at
    `offset`, whose bytes have this hash, of the writer with this token. `decisions`: "topic/partition" -> position.
    """

    offset: int
    sha256: str
    token: str
    decisions: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Manifest:
    """One segment, from `start` to `end`. `before`: hash of the manifest before it, empty for the first. `first_ms`:
    log time of its first record. `round`: the last one that ended. `rules`: those under which its rounds were decided.
    `shards`: most of altruism in a round. `place`: None where the log was read from a file.
    """

    number: int
    cell: str
    before: str
    start: Edge
    end: Edge
    first_ms: int
    round: int
    rules: tuple[int, ...]
    shards: int
    segment: SegmentFile
    place: Place | None = None
    largesse_archive: int = FORMAT

    @property
    def name(self) -> str:
        """The name of this document in its store."""
        return manifest_name(self.number)


@dataclass(frozen=True, slots=True)
class Noted:
    """A manifest as it lies there, with the hash of its bytes."""

    manifest: Manifest
    sha256: str


def manifest_name(number: int) -> str:
    """Of a manifest in its store."""
    return f"{MANIFESTS}{number:012d}{_SUFFIX}"


def segment_name(first: int, last: int, digest: str) -> str:
    """Of a segment in its store: its records, and the hash of its bytes."""
    return f"{SEGMENTS}{first:012d}-{last:012d}-{digest[:16]}.jsonl.zst"


def encode(manifest: Manifest) -> bytes:
    """A manifest's bytes: the same one always has the same."""
    said = {"largesse_archive": manifest.largesse_archive, "number": manifest.number}
    rest = {name: getattr(manifest, name) for name in Manifest.__slots__ if name not in said}
    return orjson.dumps(said | rest, option=orjson.OPT_INDENT_2) + b"\n"


def decode(name: str, data: bytes) -> Noted:
    """Raises ArchiveDamaged."""
    try:
        manifest = _reader().validate_json(data)
    except ValidationError as error:
        raise ArchiveDamaged(f"{name}: it is no manifest: {fault_in(error)}") from None
    if manifest.largesse_archive != FORMAT:
        raise ArchiveDamaged(f"{name}: has format {manifest.largesse_archive}; this version reads {FORMAT}")
    return Noted(manifest, sha256(data).hexdigest())


def fault_in(error: ValidationError) -> str:
    """What is wrong with a document, and in which field."""
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"]))
    return f"{where}: {first['msg']}" if where else str(first["msg"])


@cache
def _reader() -> TypeAdapter[Manifest]:
    return TypeAdapter(Manifest)


def manifest_numbers(store: Store) -> list[int]:
    """Of all manifests in a store: 1, 2, 3 and so on. Raises ArchiveDamaged where one is missing; StoreError."""
    names = [each.name for each in store.names(MANIFESTS)]
    for number, name in enumerate(names, 1):
        if name != manifest_name(number):
            raise ArchiveDamaged(f"{store.url}/{manifest_name(number)}: is missing; behind it there is {name}")
    return list(range(1, len(names) + 1))


def read_manifest(store: Store, number: int) -> Noted:
    """One manifest, by itself. Raises ArchiveDamaged, StoreError."""
    name = manifest_name(number)
    try:
        found = decode(f"{store.url}/{name}", store.get(name))
    except NameUnknown:
        raise ArchiveDamaged(f"{store.url}/{name}: is missing") from None
    if found.manifest.number != number:
        raise ArchiveDamaged(f"{store.url}/{name}: by its content it is manifest {found.manifest.number}")
    return found


def read_newest(store: Store) -> Noted | None:
    """The manifest behind which an archive goes on; None where it has not begun. Raises ArchiveDamaged, StoreError."""
    numbers = manifest_numbers(store)
    return read_manifest(store, numbers[-1]) if numbers else None


def read_all(store: Store) -> list[Noted]:
    """All manifests, checked to hang on each other. Raises NoArchive, ArchiveDamaged, StoreError."""
    numbers = manifest_numbers(store)
    if not numbers:
        text = f"there is no archive: it has no {manifest_name(1)}"
        raise NoArchive(f"{store.url}: {text}; an archiver writes it once the log's first segment is closed")
    with ThreadPoolExecutor(_READERS) as pool:
        found = list(pool.map(lambda number: read_manifest(store, number), numbers))
    first = found[0].manifest
    if first.before or first.start != Edge():
        raise ArchiveDamaged(f"{store.url}/{first.name}: it does not begin with the first record of a log")
    for before, after in pairwise(found):
        _check_follows(store, before, after)
    return found


def _check_follows(store: Store, before: Noted, after: Noted) -> None:
    """Raises ArchiveDamaged."""
    where = f"{store.url}/{after.manifest.name}"
    if after.manifest.cell != before.manifest.cell:
        cells = f"cell {after.manifest.cell!r}, and the archive up to there of {before.manifest.cell!r}"
        raise ArchiveDamaged(f"{where}: is of {cells}")
    if after.manifest.before != before.sha256:
        what = f"was not written behind the {before.manifest.name} that is there: one of both was changed, or is of"
        raise ArchiveDamaged(f"{where}: {what} another archive")
    if after.manifest.start != before.manifest.end:
        raise ArchiveDamaged(f"{where}: does not begin where {before.manifest.name} ends")
