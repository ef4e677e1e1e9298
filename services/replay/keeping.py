"""Keeps a cell's log affordable, for as long as it runs: archives what is closed, has checkpoints made when they are
due, signs what the archive has, and lets go of the log's beginning once that is old and the archive has it.

All that it knows lies in the log and in the store, so it may be killed anywhere and begin again: what is there already
is not done twice. Two at once do no harm: names are given once, and what was let go of stays gone.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import sleep, time

from largesse import failpoints
from largesse.archive.archiver import Archived
from largesse.archive.attest import PrivateKey, attest
from largesse.archive.manifest import Manifest, read_newest
from largesse.archive.state_file import StateFile, StateFileDamaged, get, put, seqs_in
from largesse.archive.store import Store, StoreError
from largesse.bus.port import BusError
from largesse.log.decisions import DecisionGap
from largesse.telemetry import (
    ARCHIVE_BEHIND,
    ARCHIVE_FAILURES,
    ARCHIVE_SEQ,
    CHECKPOINT_BEHIND,
    CHECKPOINT_TIME,
    TRIMMED_SEQ,
)
from services.replay.archiving import Limits, archive_log
from services.replay.checkpoint_logs import (
    CheckpointLog,
    StoreOfAnother,
    last_seq,
    newest,
    noted,
    why_not_archived,
)
from services.replay.checkpointing import FoldsDiffer, NothingToKeep, agree, told
from services.replay.source import Source

NAME = "keep"

LOOK_MS = 5_000
"""Between two looks whether a checkpoint, a signature or trimming is due."""

AGAIN_MS = 60_000
"""Between two tries to make a checkpoint, or to trim: both read much of the log."""

NOTHING_MS = 120_000
"""Between two tries to make a checkpoint where no service had written a snapshot."""

RETRY_S = 10.0
"""After an error of the store or of the log's bus."""

Note = Callable[[dict[str, dict[str, object]], int], bool]
"""Has the log note the checkpoint behind a record; returns whether it has. Raises NotNoted."""


class NotNoted(Exception):
    """The cell did not note a checkpoint: says why. `is_final`: and never will."""

    def __init__(self, why: str, *, is_final: bool) -> None:
        super().__init__(why)
        self.is_final = is_final


class Stopped(Exception):
    """It was asked to end."""


@dataclass(frozen=True, slots=True)
class Terms:
    """When what is done. `checkpoint_ms`, `checkpoint_records`: a checkpoint is due once the newest is so old, or so
    many records behind; `keep_log_ms`: what is older goes, behind the older of two checkpoints; None: nothing goes.
    """

    limits: Limits
    checkpoint_ms: int = 6 * 3_600_000
    checkpoint_records: int = 1_000_000
    keep_log_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """What was done, or went wrong: `what` is archived, checkpoint, attested, trimmed, waits or failed."""

    what: str
    seq: int
    text: str


Say = Callable[[Event], None]


def now_ms() -> int:
    """By this machine's clock: it decides when things are done, and nothing else."""
    return int(time() * 1_000)


class Keeper:
    """One cell's. `note`: how the log is told of checkpoints; `key`: with which the archive is signed."""

    def __init__(
        self,
        source: Source,
        log: CheckpointLog,
        store: Store,
        terms: Terms,
        note: Note,
        say: Say,
        *,
        key: PrivateKey | None = None,
        stop: Callable[[], bool] = lambda: False,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self.failures = 0
        self._source, self._log, self._store, self._terms = source, log, store, terms
        self._note, self._say, self._key = note, say, key
        self._stop, self._clock = stop, clock
        self._seq = self._archived = self._attested = self._trimmed = 0
        self._next_ms = self._next_try_ms = self._next_trim_ms = 0
        self._known: list[StateFile] | None = None
        self._folds_differ = False
        self._waits = ""

    # ---------------------------------------------------------------- for as long as it runs
    def run(self) -> None:
        """Until it is asked to end. Raises AnotherLog, ArchiveDamaged, DecisionGap, and what reading the log raises but
        an error of its bus."""
        limits = self._terms.limits
        while not self._stop():
            with self._step("archive"):
                self._begin()
                try:
                    archive_log(self._source, self._store, limits, self._read, self._wrote, self._beside)
                except Stopped:
                    return
            self._wait()

    def once(self) -> Archived:
        """One turn of everything, for a time table. Raises as `run` does, and StoreError, BusError."""
        limits = Limits(self._terms.limits.segment_bytes, self._terms.limits.age_ms)
        self._begin()
        done = archive_log(self._source, self._store, limits, self._read, self._wrote)
        self.look()
        return done

    def planned(self) -> list[Event]:
        """What `once` would do, and does not. Raises as that does."""
        self._begin()
        begun, self._seq = self._archived, max(self._archived, last_seq(self._log))
        events = []
        if self._seq > begun:
            text = f"records {begun + 1:,} to {self._seq:,}, as far as their rounds are over"
            events.append(Event("archived", self._seq, text))
        if self.is_due():
            known = self._noted()
            after = f"the newest is behind record {known[-1].order.seq:,}" if known else "there is none"
            events.append(Event("checkpoint", self._seq, f"is due: {after}"))
        if (behind := self.trimmable()) is not None:
            seq, why = behind.order.seq, why_not_archived(self._store, self._log, behind)
            text = f"not yet: {why}" if why else f"behind the checkpoint at record {seq:,}"
            events.append(Event("trimmed", seq, text))
        return events

    def _beside(self) -> None:
        if self._stop():
            raise Stopped
        self._count(0)
        if self._clock() >= self._next_ms:
            self.look()
            self._next_ms = self._clock() + LOOK_MS

    def _wait(self) -> None:
        until = time() + RETRY_S
        while time() < until and not self._stop():
            sleep(0.1)

    def look(self) -> None:
        """Does what is due, one after another. An error of one is told and counted, and hinders no other."""
        with self._step("checkpoint"):
            self._checkpoint()
        with self._step("attest"):
            self._attest()
        with self._step("trim"):
            self._trim()

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        try:
            yield
        except (StoreError, BusError, StateFileDamaged, StoreOfAnother, FoldsDiffer, NotNoted) as error:
            self._fail(name, str(error))

    def _fail(self, name: str, why: str) -> None:
        self.failures += 1
        ARCHIVE_FAILURES.labels(name).inc()
        self._say(Event("failed", self._seq, f"{name}: {why}"))

    # ---------------------------------------------------------------- the archive
    def _read(self, seq: int) -> None:
        self._seq = max(self._seq, seq)

    def _wrote(self, manifest: Manifest) -> None:
        text = f"records {manifest.start.seq + 1:,} to {manifest.end.seq:,}: {manifest.segment.name}"
        self._say(Event("archived", manifest.end.seq, text))
        self._count(manifest.end.seq)

    def _count(self, archived: int) -> None:
        self._archived = max(self._archived, archived)
        self._seq = max(self._seq, self._archived)
        ARCHIVE_SEQ.set(self._archived)
        ARCHIVE_BEHIND.set(self._seq - self._archived)
        CHECKPOINT_BEHIND.set(self._seq - (self._known[-1].order.seq if self._known else 0))

    def _begin(self) -> None:
        """Where the archive stands. Raises StoreError, ArchiveDamaged."""
        found = read_newest(self._store)
        self._count(0 if found is None else found.manifest.end.seq)

    def _attest(self) -> None:
        """Raises StoreError, ArchiveDamaged."""
        if self._key is None or self._attested == self._archived:
            return
        found = read_newest(self._store)
        if found is None:
            return
        signed, is_new = attest(self._store, found, self._key, self._clock())
        self._attested = self._archived
        if is_new:
            self._say(Event("attested", signed.seq, f"records 1 to {signed.seq:,}: {signed.name}"))

    # ---------------------------------------------------------------- checkpoints
    def _noted(self) -> list[StateFile]:
        """Those that store and log agree about, in order. Raises StoreError, BusError."""
        if self._known is None:
            self._known = [each.file for each in noted(self._store, self._log)]
            CHECKPOINT_TIME.set(self._known[-1].order.time / 1_000 if self._known else 0)
        return self._known

    def is_due(self) -> bool:
        """Whether a checkpoint is. Raises StoreError, BusError."""
        found = self._noted()
        if not found:
            return True
        last = found[-1].order
        is_old = self._clock() - last.time >= self._terms.checkpoint_ms
        return self._seq > last.seq and (is_old or self._seq - last.seq >= self._terms.checkpoint_records)

    def _checkpoint(self) -> None:
        """Raises FoldsDiffer, NotNoted, StateFileDamaged, StoreOfAnother, StoreError, BusError."""
        if self._clock() < self._next_try_ms or not self.is_due():
            return
        self._next_try_ms = self._clock() + AGAIN_MS
        file = self._unnoted() or self._folded()
        if file is None:
            return
        failpoints.hit(NAME, "before_states")
        digest = put(self._store, file)
        failpoints.hit(NAME, "after_states")
        self._tell(file, digest)
        self._known = None
        self._noted()

    def _tell(self, file: StateFile, digest: str) -> None:
        """Raises NotNoted."""
        seq = file.order.seq
        if get(self._store, seq)[1] != digest:
            raise StateFileDamaged(f"{self._store.url}/{file.name}: it was not read back as it was written")
        try:
            has_noted = self._note(told(file, digest), seq)
        except NotNoted as why:
            if why.is_final:
                self._store.delete(file.name)
            raise
        failpoints.hit(NAME, "after_note")
        what = "the log has noted it" if has_noted else "the log has not answered yet"
        text = f"{len(file.states)} states behind record {seq:,}: {file.name}; {what}"
        self._say(Event("checkpoint", seq, text))

    def _unnoted(self) -> StateFile | None:
        """States that were kept before the one who did it was killed: the log has yet to note them."""
        seqs, known = seqs_in(self._store), self._noted()
        last = known[-1].order.seq if known else 0
        if not seqs or seqs[-1] <= last:
            return None
        file = newest(self._store, self._log)
        return file if file is not None and file.order.seq == seqs[-1] else None

    def _folded(self) -> StateFile | None:
        """The states behind the last snapshot; None where there is none yet. Raises FoldsDiffer, DecisionGap."""
        log = self._log
        self._folds_differ = True
        try:
            agreed = agree(log.messages(), log.partition, log.snapshots(), newest(self._store, log))
        except NothingToKeep as why:
            self._folds_differ = False
            self._next_try_ms = self._clock() + NOTHING_MS
            self._tell_waits(str(why))
            return None
        except DecisionGap as gap:
            raise FoldsDiffer(str(gap)) from None
        self._folds_differ = False
        return agreed.file

    def _tell_waits(self, why: str) -> None:
        if why != self._waits:
            self._waits = why
            self._say(Event("waits", self._seq, why))

    # ---------------------------------------------------------------- trimming
    def trimmable(self) -> StateFile | None:
        """The checkpoint behind which the log may begin: the newest that is old enough, but not the last. Raises
        StoreError, BusError."""
        keep_ms = self._terms.keep_log_ms
        if keep_ms is None:
            return None
        until_ms = self._clock() - keep_ms
        old = [file for file in self._noted()[:-1] if file.order.time <= until_ms and file.order.seq > self._trimmed]
        return old[-1] if old else None

    def _trim(self) -> None:
        """Raises StoreError, BusError."""
        behind = self.trimmable() if self._clock() >= self._next_trim_ms else None
        if behind is None or self._folds_differ:
            return  # What two folds do not agree about has to be looked into with the whole log.
        self._next_trim_ms = self._clock() + AGAIN_MS
        if why := why_not_archived(self._store, self._log, behind):
            self._fail("trim", why)
            return
        failpoints.hit(NAME, "before_trim")
        text = self._log.trim(behind.needed(self._log.partition))
        failpoints.hit(NAME, "after_trim")
        self._trimmed = behind.order.seq
        TRIMMED_SEQ.set(self._trimmed)
        self._known = None  # The log may have lost the records that noted earlier ones.
        self._say(Event("trimmed", self._trimmed, f"behind the checkpoint at record {self._trimmed:,}: {text}"))
