"""The last records of a recorded log, without reading all that stands before them."""

from dataclasses import dataclass
from pathlib import Path

from largesse.archive.manifest import ArchiveDamaged, Noted
from largesse.archive.reader import read_archive
from largesse.archive.store import Store, StoreError
from largesse.bus.file.from_end import Ending
from largesse.bus.file.head import JournalDamaged
from largesse.bus.file.lines import LineWrong
from largesse.bus.port import Message
from largesse.log.codec import Undecodable, decode, unwrap
from largesse.log.export import read_last
from largesse.log.fencing import Accepted, LogOrder, advance, read_piece
from schemas import SequencerClaimed
from schemas.topics import LOG

_CLAIM = b'"content":{"type":"SequencerClaimed"'


@dataclass(slots=True)
class Last:
    """The last records of a log; `all`: it has no others."""

    records: list[Accepted]
    all: bool


def last_in_folder(path: Path, partition: int, messages: int) -> Last | None:
    """The records in the last messages of a journal. None where only a whole reading can say which records
    those are, or what is wrong. Raises OSError.
    """
    ending, is_all = Ending(path, LOG, partition), False
    try:
        while len(ending.messages) < messages and not is_all:
            is_all = not ending.earlier()
        records = _counted(ending)
    except (LineWrong, Undecodable, JournalDamaged):
        return None
    return None if records is None else Last(records, is_all)


def last_in_export(path: Path, records: int) -> Last | None:
    """The last records of an export, `records` or more if it has them; None where something is wrong."""
    found = read_last(path, records)
    if found is None:
        return None
    try:
        items = [Accepted(decode(each.content), each.header, each.content, each.line) for each in found[0]]
        return Last(items, found[1])
    except Undecodable:
        return None


def last_in_archive(store: Store, manifests: list[Noted], records: int) -> Last | None:
    """The last records of an archive, `records` or more if it has them; None where something is wrong."""
    at = len(manifests)
    while at and manifests[-1].manifest.end.seq - manifests[at - 1].manifest.start.seq < records:
        at -= 1
    at = max(0, at - 1)
    try:
        items = [each for each in read_archive(store, manifests[at:]) if each.topic == LOG]
        return Last([Accepted(decode(each.content), each.header, each.content, each.line) for each in items], at == 0)
    except (ArchiveDamaged, StoreError, Undecodable):
        return None


def _counted(ending: Ending) -> list[Accepted] | None:
    """Of messages from somewhere in the log on, those that count: the last claim before them says whose do."""
    messages = list(ending.messages)
    at = next((at for at, message in enumerate(messages) if _is_begun(message)), None)
    if at is None:
        return None
    order, found = LogOrder(), list[Accepted]()
    if _CLAIM not in messages[at].value:
        claim = ending.last_before(_CLAIM)
        if claim is None or advance(order, claim.offset, claim.value) is None:
            return None
        order.seq = _seq_of(messages[at]) - 1
    for message in messages[at:]:
        accepted = advance(order, message.offset, message.value)
        if accepted is None:
            continue
        if not isinstance(accepted.record.body, SequencerClaimed):
            found.append(accepted)
        elif not order.seq:
            following = next((each for each in messages if each.offset > message.offset and _is_begun(each)), None)
            order.seq = _seq_of(following) - 1 if following is not None else 0
    return found if not order.void else None


def _is_begun(message: Message) -> bool:
    """Whether a record begins with a message."""
    piece = read_piece(message.value)
    return piece is None or piece.header.part == 0


def _seq_of(message: Message) -> int:
    piece = read_piece(message.value)
    return piece.seq if piece is not None else decode(unwrap(message.value)[1]).seq
