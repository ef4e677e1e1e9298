"""Verifies a log span by span, each from a checkpoint's states, side by side; together they show what one pass does.

Each span has to end with the states, and with the chain of hashes, with which the next one begins. What only a pass
that knows the records before can judge is handed on: forecasts that the log has later, decisions that came late, and
checkpoints that it notes.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256

from largesse.archive.state_file import StateFile
from largesse.beginning import LogTrimmed
from largesse.log.snapshots import dump
from schemas import Checkpoint, Record
from services.admission.core.closings import CLOSINGS_KEPT, Closings
from services.replay.differences import Difference, Diverged
from services.replay.documents import Documents
from services.replay.source import NotItsLog, Source
from services.replay.taken_up import taken_up
from services.replay.verdict import Span, Verdict
from services.replay.verify import Check, Unjudged, check_noted, check_said, checked

DECIDED_TOLD = 1_000
"""Rounds at the end of a span, documents on which may come behind it."""
SPANS_EACH = 4
"""Spans for each process, about: some take longer than others."""


@dataclass(slots=True)
class Known:
    """What was known at the end of a span, and is asked for behind it. `decided`: as Documents has it; `closings`: with
    the chain of hashes up to each.
    """

    forecasts: dict[str, object] = field(default_factory=dict)
    decided: dict[str, str] = field(default_factory=dict)
    closings: list[tuple[int, str]] = field(default_factory=list)


@dataclass(slots=True)
class Part:
    """What the verification of one span came to. `failed`: why it could not be read."""

    verdict: Verdict = field(default_factory=lambda: Verdict(""))
    unjudged: Unjudged = field(default_factory=Unjudged)
    known: Known = field(default_factory=Known)
    failed: str = ""


def begins(source: Source, files: list[StateFile]) -> tuple[StateFile | None, list[StateFile]]:
    """With which of the checkpoints a log begins, None: with its first record, and those behind that. Raises LogTrimmed
    where it begins behind all of them.
    """
    try:
        next(source.steps(), None)
        return None, files
    except LogTrimmed:
        for at, file in enumerate(files):
            try:
                next(taken_up(source, file, told=False).steps(), None)
            except NotItsLog:
                continue
            return file, files[at + 1 :]
        raise


def chosen(files: list[StateFile], first: int, spans: int) -> list[StateFile]:
    """Of checkpoints behind record `first`, in order, those that cut a log into about `spans` of a length."""
    if len(files) < spans:
        return files
    last, found = files[-1].order.seq, list[StateFile]()
    for file in files:
        if file.order.seq - first >= (last - first) * (len(found) + 1) // spans:
            found.append(file)
    return found


def verify_span(
    source: Source, start: StateFile | None, end: StateFile | None, until: int | None, shards: int, across_rules: bool
) -> Part:
    """Verifies what lies between two checkpoints. Raises as `verify` does, and NotItsLog."""
    if start is not None:
        source = taken_up(source, start, told=False)
    source = replace(source, shards_max=lambda: shards)
    last = end.order.seq if end is not None else until
    check = checked(source, last, across_rules=across_rules)
    if end is not None and check.verdict.difference is None:
        check.verdict.difference = _end_differs(check, end)
    known = Known(check.forecasts, check.documents.decided(DECIDED_TOLD), check.closings.kept())
    return Part(check.verdict, check.unjudged, known)


def _end_differs(check: Check, end: StateFile) -> Difference | None:
    """How the end of a span is not where the next one begins."""
    where = f"the checkpoint behind record {end.order.seq:,}"
    if check.last.seq != end.order.seq or check.cores.prefix.hex() != end.order.prefix:
        what = f"{where} is of another log"
        return _difference(check.last, "cluster.log", what, "prefix", check.cores.prefix.hex(), end.order.prefix)
    for hosted in check.cores.all():
        name, shard = hosted.core.NAME, hosted.shard
        kept = end.states.get((name, shard))
        if kept is None:
            continue
        mine, theirs = sha256(dump(hosted.state)).hexdigest(), sha256(kept[1]).hexdigest()
        if mine != theirs:
            what = f"{where} has another state of {name}" + (f", shard {shard}" if shard else "")
            return _difference(check.last, name, what, "sha256", theirs, mine)
    return None


def _difference(record: Record, topic: str, what: str, path: str, recorded: str, decided: str) -> Difference:
    return Difference(record.seq, record.round, topic, what, path, recorded, decided)


def put_together(name: str, parts: Iterable[Part], told: Callable[[int], None]) -> tuple[Verdict, str]:
    """What spans come to, in order, up to the first that differs or cannot be read (then why). `told`: hears of the
    number of records.
    """
    whole, known = Verdict(name), Known()
    for part in parts:
        if part.failed:
            return whole, part.failed
        _judge(part, known)
        _add(whole, part.verdict)
        told(whole.records)
        if whole.difference is not None:
            break
        known = _following(known, part.known)
    return whole, ""


def _judge(part: Part, known: Known) -> None:
    """Judges what the span could not; the earliest difference stands."""
    closings = Closings()
    for seq, prefix in known.closings:
        closings.note(seq, prefix)
    for record in part.unjudged.facts:
        if isinstance(record.body, Checkpoint):
            _note(part, partial(check_noted, record, closings))
        else:
            _note(part, partial(check_said, record, known.forecasts))
    _note(part, partial(Documents().judge, part.unjudged.documents, known.decided, part.verdict.seq))


def _note(part: Part, judge: Callable[[], None]) -> None:
    try:
        judge()
    except Diverged as diverged:
        found, before = diverged.difference, part.verdict.difference
        part.verdict.difference = found if before is None or found.seq <= before.seq else before


def _following(before: Known, after: Known) -> Known:
    closings = [*before.closings, *after.closings][-CLOSINGS_KEPT:]
    decided = dict(list((before.decided | after.decided).items())[-DECIDED_TOLD:])
    return Known(before.forecasts | after.forecasts, decided, closings)


def _add(whole: Verdict, part: Verdict) -> None:
    whole.records += part.records
    whole.rounds_compared += part.rounds_compared
    whole.rounds_abandoned += part.rounds_abandoned
    whole.seq, whole.prefix, whole.difference = part.seq, part.prefix, part.difference
    for span in part.fed:
        last = whole.fed[-1] if whole.fed else None
        if last is not None and (last.rules, last.round_last + 1) == (span.rules, span.round_first):
            _join(last, span)
        else:
            whole.fed.append(span)


def _join(before: Span, after: Span) -> None:
    before.round_last = after.round_last
    before.rounds_compared += after.rounds_compared
    before.rounds_differing += after.rounds_differing
    before.difference = before.difference or after.difference
