"""Makes a bundle of a recorded log: finds where the slice begins, folds every core up to there, and writes the rest."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from largesse.ids import PREFIX_OF_NOTHING
from largesse.log.fencing import Accepted
from largesse.log.snapshots import dump
from largesse.log.wanted import Wanted
from largesse.release import VERSION
from largesse.rounds import Hosted, read_by
from schemas import Record, RoundAbandoned, RoundClosed, RoundOpened
from services.replay.bundle import BundleWriter
from services.replay.refold import Refold
from services.replay.source import Source, Step, winning
from services.replay.start import Remains, Start, live_after
from services.replay.verify import recorded_winners
from services.replay.viewing import viewing


class SliceEmpty(Exception):
    """A slice that is asked for has no record: says why."""


@dataclass(slots=True)
class Slice:
    """Which records: from `first` or log time `first_ms` on, up to `last` or `last_ms`. Where that is in the middle of
    a round it begins with the round's opening."""

    first: int | None = None
    first_ms: int | None = None
    last: int | None = None
    last_ms: int | None = None

    def is_before(self, record: Record) -> bool:
        """Whether the slice begins behind this record."""
        early = self.first_ms is not None and record.time < self.first_ms
        return early or (self.first is not None and record.seq < self.first)

    def is_behind(self, record: Record) -> bool:
        """Whether the slice has ended before this record."""
        late = self.last_ms is not None and record.time > self.last_ms
        return late or (self.last is not None and record.seq > self.last)


@dataclass(slots=True)
class Found:
    """What a first reading finds. `start`: the last record before the slice; `live`: the jobs that live there, with the
    seqs of their admissions. `records`: how many the slice has.
    """

    start: Record
    rules: int | None = None
    live: dict[str, int] = field(default_factory=dict)
    records: int = 0


def survey(steps: Iterable[Step], start: Start | None, wanted: Slice) -> Found:
    """Reads a log's steps for where a slice of it begins. Raises SliceEmpty."""
    rules: int | None = None
    live: dict[str, int] = {}
    in_round = False
    last: Record = Record("", 0, "", 0, 0, 0, "", "", None)
    if start is not None:
        rules, last = start.rules, start.last()
        for record in start.before:
            live_after(live, record)
    found = Found(last, rules, dict(live))
    for step in steps:
        last = step.accepted.record
        if wanted.is_behind(last):
            break
        if isinstance(last.body, RoundOpened):
            rules, in_round = last.body.rules, True
        elif isinstance(last.body, RoundClosed | RoundAbandoned):
            in_round = False
        live_after(live, last)
        found.records += 1
        if wanted.is_before(last) and not in_round:
            found = Found(last, rules, dict(live))
    if not found.records:
        raise SliceEmpty(f"no record of the log is in it: the last one before its end is {found.start.seq:,}")
    return found


@dataclass(slots=True)
class Written:
    """The slice that a bundle has: its first and last seq, and how many records are in it."""

    first: int
    last: int
    records: int


def write_bundle(source: Source, path: Path | str, wanted: Slice) -> Written:
    """Writes a slice of a log as a bundle. Raises SliceEmpty, StartRefused, CoreRaised, OSError, DecisionGap, and what
    reading the source raises; the file is whole only when this returns.
    """
    found, shards = survey(source.steps(), source.start, wanted), source.shards_max()
    steps = iter(source.steps())
    start = _start(source, steps, found, shards)
    with BundleWriter(path, start) as writer:
        for step in steps:
            record = step.accepted.record
            if wanted.is_behind(record):
                break
            if isinstance(record.body, RoundClosed):
                for topic, content in winning(step, record):
                    writer.decision(topic, content)
            writer.record(step.accepted)
    return Written(start.seq + 1, start.seq + writer.records, writer.records)


def _start(source: Source, steps: Iterator[Step], found: Found, shards: int) -> Start:
    """What the slice begins with: folds what lies before it, and leaves the rest in `steps`."""
    place = found.start.seq
    if not place:
        return Start("", 0, 0, 0, None, PREFIX_OF_NOTHING, shards, VERSION)
    cell = cell_of(source.start, shards, found.live)
    if source.start is None or place > source.start.seq:
        for step in steps:
            if isinstance(step.accepted.record.body, RoundClosed):
                cell.feed(recorded_winners(step, step.accepted.record))
            cell.fold(step.accepted)
            if step.accepted.record.seq == place:
                break
    return cell.start(found.start, found.rules, shards)


@dataclass(slots=True)
class Cell:
    """All states of a cell that follow a log, those of its cores and the gateway's view, with what is left to say of
    the records before a slice."""

    cores: Refold
    view: Hosted
    remains: Remains

    def feed(self, winners: list[tuple[Wanted, Record]]) -> None:
        """The winning records of a round, before its closing."""
        self.cores.feed(winners)
        for record in read_by(self.view, winners):
            self.view.core.FOLDS[type(record.body)](self.view.state, record)

    def fold(self, accepted: Accepted) -> None:
        """The next record before the slice."""
        self.cores.fold(accepted)
        learn = self.view.core.FOLDS.get(type(accepted.record.body))
        if learn is not None:
            learn(self.view.state, accepted.record)
        self.remains.learn(accepted.record)

    def start(self, last: Record, rules: int | None, shards: int) -> Start:
        """What a slice behind `last` begins with."""
        states = {
            (each.core.NAME, each.shard): (each.core.LAYOUT, dump(each.state))
            for each in [*self.cores.all(), self.view]
        }
        before = self.remains.result(self.view.state.reservations)
        place = last.cell, last.seq, last.round, last.time
        return Start(*place, rules, self.cores.prefix, shards, VERSION, states, before)


def cell_of(start: Start | None, shards: int, live: dict[str, int]) -> Cell:
    """Where a log begins. Raises StartRefused."""
    remains = Remains(live)
    for record in start.before if start is not None else ():
        remains.learn(record)
    return Cell(Refold(shards, start=start), viewing(start), remains)
