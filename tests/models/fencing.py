"""Fencing as a model: writers of one log that claim it, write, read back, give up; their messages come late or never.

What a message comes to is decided by the real `advance`. `Rules` are what a writer keeps to; each can be left out.
"""

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import lru_cache

from largesse.log.codec import decode, encode, record_of, unwrap, wrap
from largesse.log.fencing import Accepted, LogOrder, advance
from schemas import Header, JobCancelled, SequencerClaimed

Advance = Callable[[LogOrder, int, bytes], Accepted | None]


@dataclass(frozen=True, slots=True)
class Rules:
    """`reads_back`: what was sent counts once it was read. `waits`: a claim holds once it was read. `advance`: which
    messages count. `claims`, `records`: how many each writer may send; `repeats`: how many messages come twice."""

    reads_back: bool = True
    waits: bool = True
    advance: Advance = advance
    claims: int = 2
    records: int = 2
    repeats: int = 0


@dataclass(frozen=True, slots=True)
class Side:
    """A writer. `phase`: follows, claimed, leads or sent. `read`: how much of the log it has read."""

    phase: str = "follows"
    read: int = 0
    token: str = ""
    sent: bytes = b""
    claims: int = 0
    records: int = 0


@dataclass(frozen=True, slots=True)
class Cell:
    """`flying`: messages on their way, of any writer. `acked`: what a writer took for written, as (seq, message).
    `repeats`: how many messages have come twice."""

    sides: tuple[Side, ...] = (Side(), Side())
    log: tuple[bytes, ...] = ()
    flying: tuple[bytes, ...] = ()
    acked: tuple[tuple[int, bytes], ...] = ()
    repeats: int = 0


class Fencing:
    """Steps and law of the model."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._fold = lru_cache(None)(self._folded)

    def _folded(self, log: tuple[bytes, ...]) -> tuple[LogOrder, tuple[bytes, ...], bool]:
        """Order and records of a log, and whether its last message counts."""
        if not log:
            return LogOrder(), (), False
        order, records, _ = self._fold(log[:-1])
        order = deepcopy(order)
        accepted = self.rules.advance(order, len(log) - 1, log[-1])
        counts = accepted is not None
        return order, (*records, log[-1]) if accepted is not None and accepted.record.seq else records, counts

    def law(self, cell: Cell) -> str:
        """What is broken; empty: nothing."""
        order, records, _ = self._fold(cell.log)
        if order.seq != len(records):
            return f"seq {order.seq}, but {len(records)} records"
        for seq, message in cell.acked:
            if not seq <= len(records) or records[seq - 1] != message:
                return f"what was taken for written as {seq} is not in the log"
        return ""

    # ---------------------------------------------------------------- steps
    def steps(self, cell: Cell) -> Iterator[tuple[str, Cell]]:
        """All that may happen next."""
        for at, message in enumerate(cell.flying):
            rest = cell.flying[:at] + cell.flying[at + 1 :]
            yield f"arrives {at}", self._arrived(replace(cell, log=(*cell.log, message), flying=rest), message)
            yield f"lost {at}", replace(cell, flying=rest)
            if cell.repeats < self.rules.repeats:
                twice = replace(cell, log=(*cell.log, message), repeats=cell.repeats + 1)
                yield f"arrives {at}, and once more", self._arrived(twice, message)
        for number, side in enumerate(cell.sides):
            for name, after in self._moves(number, side, cell):
                yield f"{number} {name}", after

    def _arrived(self, cell: Cell, message: bytes) -> Cell:
        if self.rules.reads_back:
            return cell
        for number, side in enumerate(cell.sides):
            if side.phase == "sent" and side.sent == message:
                done = replace(side, phase="leads", sent=b"", read=len(cell.log))
                return _with(replace(cell, acked=(*cell.acked, (_seq_in(message), message))), number, done)
        return cell

    def _moves(self, number: int, side: Side, cell: Cell) -> Iterator[tuple[str, Cell]]:
        rules, has_read_all = self.rules, side.read == len(cell.log)
        if not has_read_all:
            yield "reads", self._reads(number, side, cell)
        if side.phase != "follows":
            yield "gives up", _with(cell, number, replace(side, phase="follows", sent=b""))
        order = self._fold(cell.log[: side.read])[0]
        if side.phase == "follows" and has_read_all and side.claims < rules.claims:
            token = f"{number}.{side.claims}"
            claimed = replace(side, phase="claimed" if rules.waits else "leads", token=token, claims=side.claims + 1)
            yield "claims", _with(_sent(cell, claim(token)), number, claimed)
        if side.phase == "claimed" and has_read_all and order.token == side.token:
            yield "leads", _with(cell, number, replace(side, phase="leads"))
        if side.phase == "leads" and side.records < rules.records:
            message = record(side.token, order.seq + 1)
            wrote = replace(side, phase="sent", sent=message, records=side.records + 1)
            yield "writes", _with(_sent(cell, message), number, wrote)

    def _reads(self, number: int, side: Side, cell: Cell) -> Cell:
        log = cell.log[: side.read + 1]
        order, _, counts = self._fold(log)
        after = replace(side, read=side.read + 1)
        if side.phase in ("leads", "sent") and self.rules.waits and order.token != side.token:
            return _with(cell, number, replace(after, phase="follows", sent=b""))
        if side.phase == "sent" and log[-1] == side.sent:
            if not counts:
                return _with(cell, number, replace(after, phase="follows", sent=b""))
            done = replace(after, phase="leads", sent=b"")
            return _with(replace(cell, acked=(*cell.acked, (order.seq, side.sent))), number, done)
        return _with(cell, number, after)


def _with(cell: Cell, number: int, side: Side) -> Cell:
    sides = list(cell.sides)
    sides[number] = side
    return replace(cell, sides=tuple(sides))


def _sent(cell: Cell, message: bytes) -> Cell:
    return replace(cell, flying=tuple(sorted((*cell.flying, message))))


@lru_cache(None)
def claim(token: str) -> bytes:
    """A claim of the log."""
    made = record_of(SequencerClaimed(token), cell="c", seq=0, round_number=0, time=0, id_=f"claim/{token}", cause="")
    return wrap(Header(token), encode(made))


@lru_cache(None)
def record(token: str, seq: int) -> bytes:
    """A record of a leader, other than any of another leader's."""
    made = record_of(JobCancelled(token), cell="c", seq=seq, round_number=0, time=0, id_=f"c/{seq}", cause="")
    return wrap(Header(token), encode(made))


def _seq_in(message: bytes) -> int:
    return decode(unwrap(message)[1]).seq
