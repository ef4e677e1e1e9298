"""Puts a log into an archive: what the archive has of it is passed over or compared, the rest is written behind that.

A log that lies on a bus is read from the message on behind which the archive ends, which has to be that one; any other
log is read from its first record, and has to come to the archive's hash chain.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from hashlib import sha256
from time import sleep, time

from largesse.archive.archiver import SEGMENT_BYTES, AnotherLog, Archived, Archiver, Overtaken
from largesse.archive.manifest import Manifest, Place
from largesse.archive.store import Store
from largesse.bus.port import Message
from largesse.ids import PREFIX_OF_NOTHING, chain
from largesse.log.decisions import DecisionGap
from largesse.log.fencing import LogOrder
from schemas import RoundClosed
from schemas.topics import LOG
from services.replay.source import Source, Step, deaf, steps_of, winning

SETTLE_S = 2.0
"""So old the last record of a segment is at least: a journal shows it before its sync, which follows at once."""

LOOK_S = 1.0
"""Between two looks at a log that is followed."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When a segment ends: with the round in which it has this many bytes of lines, or, in a log that is followed, its
    first record this age. `follow`: for ever.
    """

    segment_bytes: int = SEGMENT_BYTES
    age_ms: int = 3_600_000
    follow: bool = False


def nothing() -> None:
    """What is done beside archiving, if nothing is."""


def archive_log(
    source: Source,
    store: Store,
    limits: Limits,
    told: Callable[[int], None],
    wrote: Callable[[Manifest], None],
    beside: Callable[[], None] = nothing,
) -> Archived:
    """Archives a log up to the last round that is over. `told`: hears the seq of each record, `wrote`: of each segment.
    `beside`: is called whenever all of a log that is followed has been read, and may raise to end this. Raises
    AnotherLog, ArchiveDamaged, StoreError, DecisionGap, and what reading the source raises.
    """
    done, is_wary = Archived(), False
    while True:
        run = _Run(source, Archiver(store, limits.segment_bytes, done), limits, told, wrote, beside, is_wary)
        try:
            return replace(run.archived(), read=done.read + run.read)
        except (Overtaken, DecisionGap) as why:
            if isinstance(why, DecisionGap) and is_wary:
                raise
            is_wary = isinstance(why, DecisionGap)
            done = replace(run.archiver.archived, read=done.read + run.read)


@dataclass(slots=True)
class _Run:
    """One pass over the log. `is_wary`: decisions are read from their first on. `read`: how many messages of the bus
    were. `message`: the last one of the log, and `time`: of its record. `decisions`: where those of rounds to come
    begin.
    """

    source: Source
    archiver: Archiver
    limits: Limits
    told: Callable[[int], None]
    wrote: Callable[[Manifest], None]
    beside: Callable[[], None]
    is_wary: bool = False
    read: int = 0
    message: Message | None = None
    place: Place | None = None
    time: int = 0
    decisions: dict[str, int] = field(default_factory=dict)

    def archived(self) -> Archived:
        for step in self._steps():
            record = step.accepted.record
            self.told(record.seq)
            is_full = self.archiver.take(step.accepted, _winners(step))
            if not self.archiver.is_open:
                self.time = record.time
                self.place = self._place(step)
            if is_full:
                self._close()
        if self.archiver.since_ms is not None:
            self._close()
        return self.archiver.archived

    def _close(self) -> None:
        if self.message is not None and self.time / 1_000 > time() - SETTLE_S:
            sleep(SETTLE_S)
        self.wrote(self.archiver.close(self.place))

    def _place(self, step: Step) -> Place | None:
        """Behind the record that was read last."""
        if self.message is None:
            return None
        digest = sha256(self.message.value).hexdigest()
        return Place(self.message.offset, digest, step.accepted.header.token, self.decisions)

    def _at_end(self) -> None:
        since_ms = self.archiver.since_ms
        if since_ms is not None and time() * 1_000 - since_ms >= self.limits.age_ms:
            self._close()
        self.beside()
        sleep(LOOK_S)

    def _steps(self) -> Iterator[Step]:
        """What the log has behind the archive."""
        if self.source.messages_behind is None:
            yield from self._compared(self.source.steps())
            return
        newest = self.archiver.newest
        place = newest.manifest.place if newest is not None else None
        at_end = self._at_end if self.limits.follow else None
        since = replace(place, decisions={}) if place is not None and self.is_wary else place
        messages = self._noted(self.source.messages_behind(since, at_end, self._learn))
        if place is None:
            yield from self._compared(steps_of(messages, self.source.partition))
            return
        self._pass_over(messages, place)
        end = self.archiver.end
        order = LogOrder(place.offset + 1, place.token, end.seq, end.prefix, end.time)
        yield from steps_of(messages, self.source.partition, deaf, order)

    def _learn(self, decisions: dict[str, int]) -> None:
        self.decisions = decisions

    def _noted(self, messages: Iterator[Message]) -> Iterator[Message]:
        for message in messages:
            self.read += 1
            if message.topic == LOG and message.partition == self.source.partition:
                self.message = message
            yield message

    def _pass_over(self, messages: Iterator[Message], place: Place) -> None:
        """Up to the message behind which the archive ends. Raises AnotherLog."""
        there = f"{self.archiver.store.url} ends behind the message at offset {place.offset:,}"
        for message in messages:
            if message.topic != LOG or message.partition != self.source.partition or message.offset < place.offset:
                continue
            if message.offset > place.offset:
                raise AnotherLog(f"{there}, and {self.source.name} begins with offset {message.offset:,}")
            if sha256(message.value).hexdigest() != place.sha256:
                raise AnotherLog(f"{there}, and {self.source.name} has another one there: it is another log")
            return
        raise AnotherLog(f"{there}, and {self.source.name} ends before that: it is another log, or it was cut")

    def _compared(self, steps: Iterator[Step]) -> Iterator[Step]:
        """The steps behind the archive's end. Raises AnotherLog where those up to there are not the archive's."""
        end, prefix, seq = self.archiver.end, PREFIX_OF_NOTHING, 0
        for step in steps:
            seq = step.accepted.record.seq
            if seq > end.seq:
                yield step
                continue
            self.told(seq)
            prefix = chain(prefix, step.accepted.content)
            if seq == end.seq and prefix.hex() != end.prefix:
                has = f"than {self.archiver.store.url} has"
                raise AnotherLog(f"{self.source.name}: up to record {seq:,} it is another log {has}")
        if seq < end.seq:
            has = f"{self.archiver.store.url} has records up to {end.seq:,}"
            raise AnotherLog(
                f"{self.source.name}: ends with record {seq:,}, and {has}: it is another log, or it was cut"
            )


def _winners(step: Step) -> list[tuple[str, bytes]]:
    record = step.accepted.record
    return list(winning(step, record)) if isinstance(record.body, RoundClosed) else []
