"""The states of a cell's cores behind one closing, in one file of an archive that never changes.

    checkpoints/000000048007.zst        behind seq 48,007

Packed are a first line that says where the states are and what each has to hash to, the states as their cores write
them, and a last line with the hash of all before it. So a file that is damaged, cut, or of another place or log is
refused by name. The log's `Checkpoint` record names its bytes.
"""

import sys
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from itertools import accumulate, pairwise

import orjson
from pydantic import TypeAdapter, ValidationError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

from largesse.archive.store import NameTaken, Store
from largesse.log.fencing import LogOrder
from schemas.topics import DEADLETTER, LOG

FOLDER, SUFFIX = "checkpoints/", ".zst"
FORMAT = 1
NO_OFFSET = 1 << 62
"""Nothing that lies before the closing is needed."""
_OPTIONS = {int(zstd.CompressionParameter.compression_level): 6, int(zstd.CompressionParameter.checksum_flag): 1}
_SUM_BYTES = 64


class StateFileDamaged(Exception):
    """A file of states that is not what was written there: names it, and says what is wrong."""


@dataclass(slots=True)
class Whereabouts:
    """Directly behind the end of a round, where the log stands at `order`. `landmark`: hash of the log's message before
    `order.offset`. `decisions`: where the decision topics were, as DecisionReader tells it. `rules`: of the last
    opening. `shards`: of altruism that have a state of their own; the one after them is what any other has.
    """

    cell: str
    order: LogOrder
    landmark: str
    decisions: dict[str, int]
    rules: int | None
    shards: int
    version: str


@dataclass(slots=True)
class StateFile(Whereabouts):
    """The states there. `states`: by service and shard, the layout and the JSON."""

    states: dict[tuple[str, int], tuple[int, bytes]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Under which it is kept."""
        return name_of(self.order.seq)

    def needed(self, partition: int) -> dict[tuple[str, int], int]:
        """By topic and partition, the first offset that whoever goes on from here may read. Of the log that is the
        message before, which says that it is the same log.
        """
        found = {(LOG, partition): self.order.offset - 1, (DEADLETTER, partition): NO_OFFSET}
        taken = {place: offset + 1 for place, offset in self.order.positions.items()}
        for place, first in (self.decisions | taken).items():
            topic, _, number = place.rpartition("/")
            found[topic, int(number)] = first
        return found

    def sums(self) -> list[tuple[str, int, int, str]]:
        """Service, shard, layout and SHA-256 of each state."""
        return [(*key, layout, sha256(data).hexdigest()) for key, (layout, data) in sorted(self.states.items())]


@dataclass(slots=True)
class _Head(Whereabouts):
    format: int
    states: list[tuple[str, int, int, int, str]]


_heads: TypeAdapter[_Head] = TypeAdapter(_Head)


def name_of(seq: int) -> str:
    """The name of the file with the states behind a record."""
    return f"{FOLDER}{seq:012d}{SUFFIX}"


def seqs_in(store: Store) -> list[int]:
    """Behind which records there are files, in order. Raises StoreError."""
    names = (each.name.removeprefix(FOLDER).removesuffix(SUFFIX) for each in store.names(FOLDER))
    return sorted(int(name) for name in names if name.isdecimal())


def pack(file: StateFile) -> bytes:
    """The bytes of a file: of equal states the same, by one version of the packer."""
    states = sorted(file.states.items())
    sums = [(*key, layout, len(data), sha256(data).hexdigest()) for key, (layout, data) in states]
    kept = (file.landmark, file.decisions, file.rules, file.shards, file.version)
    head = orjson.dumps(asdict(_Head(file.cell, file.order, *kept, FORMAT, sums)))
    text = b"".join((head, b"\n", *(data for _, (_, data) in states), b"\n"))
    return zstd.compress(text + sha256(text).hexdigest().encode(), options=_OPTIONS)


def unpack(data: bytes, where: str) -> StateFile:
    """What a file has that lies there. Raises StateFileDamaged."""
    try:
        text = zstd.decompress(data)
    except zstd.ZstdError as error:
        raise StateFileDamaged(f"{where}: it cannot be unpacked: {error}") from None
    text, total = text[:-_SUM_BYTES], text[-_SUM_BYTES:]
    if sha256(text).hexdigest().encode() != total:
        raise StateFileDamaged(f"{where}: its bytes do not give its checksum")
    head, _, states = text.partition(b"\n")
    try:
        found = _heads.validate_json(head)
    except ValidationError as error:
        raise StateFileDamaged(f"{where}: its first line cannot be read: {error.errors()[0]}") from None
    if found.format != FORMAT:
        raise StateFileDamaged(f"{where}: it has format {found.format}, this version reads {FORMAT}")
    kept: dict[tuple[str, int], tuple[int, bytes]] = {}
    ends = accumulate((size for *_, size, _ in found.states), initial=0)
    for (service, shard, layout, _, digest), (start, end) in zip(found.states, pairwise(ends), strict=True):
        state = states[start:end]
        if sha256(state).hexdigest() != digest:
            raise StateFileDamaged(f"{where}: the state of {service}, shard {shard}, is not what its hash says")
        kept[service, shard] = layout, state
    place = (found.cell, found.order, found.landmark, found.decisions)
    return StateFile(*place, found.rules, found.shards, found.version, kept)


def put(store: Store, file: StateFile) -> str:
    """Keeps a file; returns the hash of its bytes. One that is there already serves if its states are these. Raises
    StoreError, StateFileDamaged.
    """
    data = pack(file)
    try:
        store.put(file.name, data)
    except NameTaken:
        data, where = store.get(file.name), f"{store.url}/{file.name}"
        there = unpack(data, where)
        if (there.cell, there.order.prefix, there.sums()) != (file.cell, file.order.prefix, file.sums()):
            raise StateFileDamaged(f"{where}: it is there, with other states or of another log") from None
    return sha256(data).hexdigest()


def get(store: Store, seq: int) -> tuple[StateFile, str]:
    """The states behind a record, and the hash of the file's bytes. Raises StoreError, StateFileDamaged."""
    data, where = store.get(name_of(seq)), f"{store.url}/{name_of(seq)}"
    file = unpack(data, where)
    if file.order.seq != seq:
        raise StateFileDamaged(f"{where}: it holds the states behind seq {file.order.seq}")
    return file, sha256(data).hexdigest()
