"""What has changed in the view, by record of the log: kept for those who are told of changes, so that each goes on
where it stopped.

Of every name only the last change is kept, so memory follows the cell and not its log. What lies further back than is
kept counts as changed altogether.
"""

from dataclasses import dataclass, field

from schemas import (
    Checkpoint,
    ConfigChanged,
    InputRefused,
    InputRepeated,
    InputSkipped,
    Record,
    RoundAbandoned,
    RoundClosed,
    RoundOpened,
    TimeReached,
    TokenMade,
    TokenRevoked,
)
from schemas.rounds import SequencerAlive
from services.gateway.view.state import EVERY, NAMED, State, note

NAMES_TOLD = 100
"""Names that are told of one kind at a time, those that changed last; beyond that only how many there are."""

NAMES_KEPT = 50_000
"""Names of one kind whose last change is kept; beyond it half of them are, those that changed last."""

WITHOUT_NAMES = ("queues", "classes", "config", "rounds", "ledger", "refused")
"""Kinds with a single document."""

REASONS = "reasons"
"""Stands for what waiting jobs wait for: it may be another although nothing of the job has changed."""

_TIME_ALONE = (
    SequencerAlive, TimeReached, InputRefused, InputRepeated, InputSkipped, TokenMade, TokenRevoked, Checkpoint
)  # fmt: skip
"""Records that change no document but for the time at which it is read."""

_ROUNDS = (RoundOpened, RoundClosed, RoundAbandoned)


@dataclass(slots=True)
class Changed:
    """What has changed behind record `since`; None: that is not known, and everything may have. `names`: by kind, how
    many documents, and the names of those that changed last. `kinds`: others. `reasons`: waiting jobs may say others.
    """

    since: int | None
    names: dict[str, tuple[int, list[str]]] = field(default_factory=dict)
    kinds: list[str] = field(default_factory=list)
    reasons: bool = False


class Changes:
    """The last changes of one view, which it is told of record by record. `floor`: what changed up to that record is
    not known.
    """

    def __init__(self, state: State) -> None:
        state.noted = {}
        self.floor = state.seq
        self._state = state
        self._time = state.time
        self._names: dict[str, dict[str, int]] = {kind: {} for kind in NAMED}
        self._kinds: dict[str, int] = {}
        self._every: dict[str, int] = {}
        self._retry_ms = max((max(job.retry_ms, default=0) for job in state.jobs.values()), default=0)
        self._lent_ms = 0
        self._look_at_lent()

    def take(self, record: Record) -> None:
        """The view has folded this record."""
        state, seq = self._state, record.seq
        if isinstance(record.body, ConfigChanged):
            self._kinds["config"] = seq
            note(state, EVERY, "jobs")  # The names of their classes may be others.
        if isinstance(record.body, _ROUNDS):
            self._kinds["rounds"] = seq
        if not isinstance(record.body, _TIME_ALONE):
            self._kinds |= {"queues": seq, "classes": seq, REASONS: seq}
        if record.time > self._time:
            self._pass_time(record)
        noted = state.noted or {}
        if "reservations" in noted:
            self._note_lent()
        self._keep(noted, seq)
        state.noted = {}
        if isinstance(record.body, RoundClosed) or "reservations" in noted:
            self._look_at_lent()

    def since(self, seq: int) -> Changed:
        """What has changed behind record `seq`."""
        if not self.floor <= seq <= self._state.seq:
            every: dict[str, tuple[int, list[str]]] = {kind: (self._count(kind), []) for kind in NAMED}
            return Changed(None, every, list(WITHOUT_NAMES), True)
        found = Changed(seq, reasons=self._kinds.get(REASONS, 0) > seq)
        for kind, names in self._names.items():
            count, told = 0, []
            for name, at in reversed(names.items()):
                if at <= seq:
                    break
                count += 1
                if count <= NAMES_TOLD:
                    told.append(name)
            if self._every.get(kind, 0) > seq:
                count = max(count, self._count(kind))
                told = told if len(told) == count else []
            if count:
                found.names[kind] = count, told
        found.kinds = [kind for kind in WITHOUT_NAMES if self._kinds.get(kind, 0) > seq]
        return found

    def _keep(self, noted: dict[str, dict[str, bool]], seq: int) -> None:
        for kind, names in noted.items():
            if kind == EVERY:
                self._every |= dict.fromkeys(names, seq)
            elif kind not in self._names:
                self._kinds[kind] = seq
            else:
                kept = self._names[kind]
                for name in names:
                    kept.pop(name, None)  # So that it comes last.
                    kept[name] = seq
                if len(kept) > NAMES_KEPT:
                    self._forget(kept)
        for name in noted.get("jobs", ()):
            job = self._state.jobs.get(name)
            if job is not None:
                self._retry_ms = max(self._retry_ms, *job.retry_ms)

    def _forget(self, kept: dict[str, int]) -> None:
        for name in list(kept)[: len(kept) - NAMES_KEPT // 2]:
            self.floor = max(self.floor, kept.pop(name))

    def _pass_time(self, record: Record) -> None:
        """Notes what reads otherwise since time has passed."""
        state, before, now = self._state, self._time, record.time
        self._time = now
        if before < self._retry_ms or state.reservations:
            self._kinds[REASONS] = record.seq
        if state.reservations:
            self._kinds["queues"] = record.seq  # What they promise now.
        if state.forecast is not None:
            self._kinds["classes"] = record.seq
        for node, failures in state.failures.items():
            if before < failures.until_ms <= now:
                note(state, "nodes", node)
        if before < self._lent_ms <= now:
            self._note_lent()
            self._look_at_lent()

    def _look_at_lent(self) -> None:
        """Finds when the next lease is over for which a running task may be taken back."""
        time = self._state.time
        ends = (row.until_ms for rows in self._state.lent.values() for row in rows.values() if row.until_ms > time)
        self._lent_ms = min(ends, default=0)

    def _note_lent(self) -> None:
        for name in self._state.lent:
            note(self._state, "jobs", name)

    def _count(self, kind: str) -> int:
        state = self._state
        counts = {"nodes": len(state.nodes), "reservations": len(state.reservations), "series": len(state.series)}
        return counts.get(kind, len(state.jobs) + len(state.ended))
