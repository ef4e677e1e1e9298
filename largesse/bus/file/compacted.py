"""Compacted topics of the embedded bus: one file for each partition and key, which the next message replaces.

    compacted/snapshots.0/default%2Ffairness%2F0%2F1%2F0.json

They are kept outside of the journal, whose lines stay for good. Such a file is one line as in the journal
(lines.py); its number and `prev` are those of the last journal line before it. It is written once that line is on
disk, and does not count where the journal has another line there or none: so a copy of the folder that was made while
a process wrote there, or a journal whose unsynced tail was cut off, never has a snapshot of what it does not know.
"""

from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

import structlog

from largesse.bus.file.head import make_directory, replace_file
from largesse.bus.file.lines import (
    LineWrong,
    cut,
    encode_item,
    encode_line,
    hangs_on,
    item_opening,
    key_of,
    message_of,
    self_checked,
)
from largesse.bus.port import Message, Outgoing
from schemas.topics import TOPICS

COMPACTED = frozenset(topic.name for topic in TOPICS if topic.cleanup == "compact")
DIRECTORY = "compacted"
NAME_MAX = 150
"""Characters of a file's name before its ending; a key that needs more is hashed. File systems take 255 bytes."""

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Slot:
    """The newest message of a key. `message`: as long as it is not in its file."""

    offset: int
    path: Path
    message: Message | None


@dataclass(slots=True)
class CompactedPartition:
    """What is left of one partition. `end`: the next offset. `shown`: the end for readers."""

    directory: Path
    opening: bytes
    end: int = 0
    shown: int = 0
    slots: dict[str, Slot] = field(default_factory=dict)
    hidden: list[tuple[str, Slot]] = field(default_factory=list)
    unwritten: list[Slot] = field(default_factory=list)

    def add(self, key: str, message: Message) -> Path:
        """Takes the next message, hidden as yet; returns the file that it belongs in."""
        slot = Slot(message.offset, self.directory / file_name(key), message)
        self.hidden.append((key, slot))
        self.unwritten.append(slot)
        self.end = message.offset + 1
        return slot.path

    def show(self, end: int) -> None:
        """Readers see everything before `end`, and no longer what that supersedes."""
        self.shown = end
        while self.hidden and self.hidden[0][1].offset < end:
            key, slot = self.hidden.pop(0)
            self.slots[key] = slot

    def written(self, end: int) -> None:
        """Everything before `end` is in its file."""
        while self.unwritten and self.unwritten[0].offset < end:
            self.unwritten.pop(0).message = None

    def bounds(self) -> tuple[int, int]:
        """The first offset that is left and the one after the last."""
        return min((slot.offset for slot in self.slots.values()), default=self.shown), self.shown

    def read(self, offset: int, most: int, bytes_max: int) -> list[Message]:
        """What is left from `offset` on: up to `most` messages, fewer after `bytes_max` bytes of values."""
        found: list[Message] = []
        left = sorted((slot.offset, key) for key, slot in self.slots.items() if slot.offset >= offset)
        size = 0
        for _, key in left[:most]:
            slot = self.slots[key]
            message = slot.message or _read(slot)
            if message is not None:
                found.append(message)
                size += len(message.value)
            if size >= bytes_max:
                break
        return found


@dataclass(frozen=True, slots=True)
class Found:
    """A file as it was found: its message, and the journal line that it was written after."""

    path: Path
    message: Message
    key: str
    line: int
    sum: str


def file_name(key: str) -> str:
    """The name of a key's file: different for different keys, readable where that is possible."""
    text = quote(key, safe=" +,=@")
    return f"{text}.json" if len(text) <= NAME_MAX else f"~{sha256(key.encode()).hexdigest()}.json"


def partition_directory(directory: Path, topic: str, partition: int) -> Path:
    """Where the files of a partition lie."""
    return directory / DIRECTORY / f"{quote(topic, safe='')}.{partition}"


def find(directory: Path) -> list[Found]:
    """Every whole file that there is. Names what is damaged in the log, and removes what a crash left half-written."""
    found = []
    for path in sorted((directory / DIRECTORY).glob("*.*/*")):
        if path.suffix == ".new":
            with suppress(OSError):
                path.unlink()
            continue
        try:
            found.append(_checked(directory, path))
        except (LineWrong, OSError) as error:
            _log.warning("compacted_file_damaged", file=str(path), reason=str(error), what="the one before it serves")
    return found


def messages_in(directory: Path, topic: str, partition: int) -> list[Message]:
    """What lies in the files of a partition, in order, whether or not a process holds the folder. What is damaged, or
    being replaced, is left out.
    """
    found = []
    for path in partition_directory(directory, topic, partition).glob("*.json"):
        with suppress(LineWrong, OSError):
            found.append(_checked(directory, path).message)
    return sorted(found, key=lambda message: message.offset)


def lines_needed(directory: Path) -> list[int]:
    """The lines of the journal that the files were written after."""
    needed: dict[int, bool] = {}
    for path in (directory / DIRECTORY).glob("*.*/*.json"):
        with suppress(LineWrong, OSError):
            needed[hangs_on(path.read_bytes())[0]] = True
    return sorted(needed)


def partitions_of(
    directory: Path, files: list[Found], in_journal: dict[tuple[str, int], dict[str, Message]], sums: dict[int, str]
) -> dict[tuple[str, int], CompactedPartition]:
    """What is left of each partition: the newest message of each key, from its file or, of earlier versions, from the
    journal. `sums`: of the journal's lines that files were written after.
    """
    partitions: dict[tuple[str, int], CompactedPartition] = {}

    def take(message: Message, key: str, path: Path | None) -> None:
        place = (message.topic, message.partition)
        partition = partitions.get(place)
        if partition is None:
            partition = partitions[place] = new_partition(directory, *place)
        partition.end = partition.shown = max(partition.end, message.offset + 1)
        if key not in partition.slots or partition.slots[key].offset < message.offset:
            inside = path or partition.directory / file_name(key)
            partition.slots[key] = Slot(message.offset, inside, None if path else message)

    for messages in in_journal.values():
        for key, message in messages.items():
            take(message, key, None)
    for file in files:
        if sums.get(file.line) == file.sum:
            take(file.message, file.key, file.path)
        else:
            what = f"it was written after a line {file.line} that this journal does not have"
            _log.warning("compacted_file_skipped", file=str(file.path), reason=what)
    return partitions


def new_partition(directory: Path, topic: str, partition: int) -> CompactedPartition:
    """A partition that nothing was sent to. Raises TypeError for a topic that is no Unicode text."""
    return CompactedPartition(partition_directory(directory, topic, partition), item_opening(topic, partition))


def move_out(partition: CompactedPartition, line: int, total: str) -> None:
    """Writes what is in the journal only to files of its own: from then on it is superseded there. Raises OSError."""
    for key, slot in partition.slots.items():
        if slot.message is not None:
            message = slot.message
            outgoing = Outgoing(message.topic, message.partition, message.value, key, message.headers)
            item = encode_item(partition.opening, message.offset, outgoing)
            make_directory(slot.path.parent)
            replace_file(slot.path, encode_line(line, total, [item])[0])
            slot.message = None


def _checked(directory: Path, path: Path) -> Found:
    """Raises LineWrong, OSError."""
    line = path.read_bytes().removesuffix(b"\n")
    self_checked(line)
    number, before = hangs_on(line)
    items = list(cut(line))
    topic, partition, offset, item = items[0]
    key = key_of(item)
    if len(items) != 1 or path != partition_directory(directory, topic, partition) / file_name(key):
        raise LineWrong("it belongs to another place in the file")
    return Found(path, message_of(topic, partition, offset, item), key, number, before)


def _read(slot: Slot) -> Message | None:
    """The message in a slot's file; None where a newer one has just taken its place, or it was damaged meanwhile."""
    try:
        line = slot.path.read_bytes().removesuffix(b"\n")
        self_checked(line)
        topic, partition, offset, item = next(cut(line))
        message = message_of(topic, partition, offset, item)
    except (LineWrong, OSError) as error:
        _log.warning("compacted_file_damaged", file=str(slot.path), reason=str(error), what="the one before it serves")
        return None
    return message if message.offset == slot.offset else None
