"""An archive and the live log behind it, as one log: the archive as far as it goes, then the bus, with the hash chain
carried across. The live log may begin anywhere up to there: what its bus has no more, the archive has.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain as chained

from largesse.archive.state_file import StateFile
from largesse.bus.port import Message
from largesse.ids import PREFIX_OF_NOTHING, chain
from largesse.log.answers import name_of
from largesse.log.codec import Undecodable, heading, unwrap
from largesse.log.fencing import LogOrder, read_piece
from schemas import RoundOpened
from schemas.topics import LOG
from services.replay.source import Hear, NoLog, NotItsLog, Source, Step, steps_of


class SeamBroken(Exception):
    """A live log that does not go on where its archive ends: says which record is missing, or another one."""


def joined(archive: Source, live: Source) -> Source:
    """Both as one. Raises NoLog where the second is no live log."""
    if live.messages is None:
        raise NoLog(f"{live.name}: is not the live log of a cell, so an archive cannot be read before it")
    read = live.messages
    return Source(
        f"{archive.name} and {live.name}",
        lambda hear: _Seam(archive, live, read).steps(hear),
        lambda: max(archive.shards_max(), live.shards_max()),
        behind=lambda file: lambda hear: _behind(archive, live, read, file, hear),
    )


def _behind(
    archive: Source, live: Source, read: Callable[[], Iterator[Message]], file: StateFile, hear: Hear
) -> Iterator[Step]:
    """From a checkpoint on: the live log where it still has that place, else both. Raises NotItsLog, SeamBroken."""
    assert live.behind is not None
    assert archive.behind is not None
    steps = live.behind(file)(hear)
    with suppress(NotItsLog):
        first = next(steps, None)
        return steps if first is None else chained([first], steps)
    begun = replace(archive, read=archive.behind(file))
    order = replace(file.order, offset=0, void=0, positions={}, pieces=[], open="")
    return _Seam(begun, live, read, order, file.order.seq, bytes.fromhex(file.order.prefix)).steps(hear)


@dataclass(slots=True)
class _Seam:
    """One pass. `order`: where the log stands before the first record of the live log, once the archive was read up to
    there. `prefix`, `seq`: behind the last record of the archive.
    """

    archive: Source
    live: Source
    messages: Callable[[], Iterator[Message]]
    order: LogOrder = field(default_factory=LogOrder)
    seq: int = 0
    prefix: bytes = PREFIX_OF_NOTHING

    def steps(self, hear: Hear) -> Iterator[Step]:
        """Raises SeamBroken, and what reading both raises."""
        first, token = self._first()
        for step in self.archive.steps(hear):
            record = step.accepted.record
            if record.seq == first:
                self.order.token = step.accepted.header.token  # Of a claim that the live log may have no more.
            self.seq, self.prefix = record.seq, chain(self.prefix, step.accepted.content)
            if record.seq == first - 1:
                self.order.seq, self.order.time = record.seq, record.time
                self.order.token, self.order.prefix = step.accepted.header.token, self.prefix.hex()
            yield step
        if first > self.seq + 1:
            missing = f"records {self.seq + 1:,} to {first - 1:,} are in neither"
            raise SeamBroken(f"{self.archive.name} ends with record {self.seq:,}, and {self.live.name}: {missing}")
        if first == self.seq + 1 > 1:
            self.order.token = token  # Its claim may be in neither. Whether it is his turn, the next opening shows.
        yield from self._behind(hear)

    def _behind(self, hear: Hear) -> Iterator[Step]:
        """What the live log has behind the archive, once it was shown to be the same log up to there."""
        seq, prefix, is_shown = self.order.seq, bytes.fromhex(self.order.prefix), False
        self._check(seq, prefix)
        for step in steps_of(self.messages(), self.live.partition, self._deaf_before(hear), self.order):
            record = step.accepted.record
            seq = record.seq
            if not is_shown and isinstance(record.body, RoundOpened) and seq > self.seq:
                is_shown = True
                if record.body.prefix != prefix.hex():
                    raise self._another(seq)
            if not is_shown:
                prefix = chain(prefix, step.accepted.content)
                self._check(seq, prefix)
            if seq > self.seq:
                yield step
        if seq < self.seq:
            has = f"{self.archive.name} has records up to {self.seq:,}"
            raise SeamBroken(f"{self.live.name}: ends with record {seq:,}, and {has}: it is another log, or was cut")

    def _check(self, seq: int, prefix: bytes) -> None:
        if seq == self.seq and prefix != self.prefix:
            raise self._another(seq)

    def _another(self, seq: int) -> SeamBroken:
        return SeamBroken(f"{self.live.name}: up to record {seq:,} it is another log than {self.archive.name}")

    def _deaf_before(self, hear: Hear) -> Hear:
        """Tells of documents that the archive has no closing for."""

        def heard(name: str, content: bytes) -> None:
            with suppress(Undecodable):
                if name_of(name).seq <= self.seq:
                    return
            hear(name, content)

        return heard

    def _first(self) -> tuple[int, str]:
        """The seq of the first record that the live log may have, and its writer's token: of its first message that
        begins one; 1 where it has none.
        """
        for message in self.messages():
            if message.topic == LOG and message.partition == self.live.partition and (begun := _begun(message)):
                return begun
        return 1, ""


def _begun(message: Message) -> tuple[int, str] | None:
    """Seq and writer's token of the record that begins with a message; None where none does, and for a claim."""
    try:
        piece = read_piece(message.value)
        if piece is not None:
            return (piece.seq, piece.header.token) if piece.header.part == 0 else None
        header, content = unwrap(message.value)
        seq = heading(content)[0]
    except Undecodable:
        return None
    return (seq, header.token) if seq else None
