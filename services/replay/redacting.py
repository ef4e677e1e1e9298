"""A log with other names: what came from outside is renamed, and all that follows from it is decided again.

Nothing of what was decided is translated, so hashes and chains are those of the renamed log, and `replay --verify`
finds it as sound as any. That decisions are the same but for names is checked record by record.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory

from largesse.core import RULES
from largesse.ids import log_id, opening_id
from largesse.log.codec import encode, record_of
from largesse.log.fencing import Accepted
from largesse.rounds import Answers
from schemas import (
    Header,
    JobAdmitted,
    JobEnded,
    JobRejected,
    JobRerun,
    JobSpec,
    JobTurns,
    NodeForgotten,
    NodeLost,
    Plans,
    Record,
    Releases,
    RoundAbandoned,
    RoundClosed,
    RoundOpened,
    TimeReached,
)
from schemas.registry import LogBody
from services.admission.core.judge import judge, lose
from services.admission.core.rounds import close, due
from services.replay.bundling import Slice, Written, write_bundle
from services.replay.differences import first_difference, shown
from services.replay.redaction import Names, masked, walk, words_of
from services.replay.refold import Refold
from services.replay.source import Hear, Source, Step, open_source, write_export
from services.replay.verify import JUDGED_WHOLE, verify

FORECASTS_KEPT = 1_000


class NotRedactable(Exception):
    """Why a log cannot be given other names: says at which record."""


@dataclass(slots=True)
class _Renaming:
    """One pass over a log. `ids`: of the open round, by old id the new one."""

    names: Names
    cores: Refold
    ids: dict[str, str] = field(default_factory=dict)
    answers: Answers | None = None
    forecasts: dict[str, tuple[str, object]] = field(default_factory=dict)


def write_redacted(source: Source, path: Path, wanted: Slice, secret: bytes) -> tuple[Written, Names]:
    """Writes a slice of a log with other names as a bundle, and decides that again. Raises NotRedactable, and what
    writing a bundle raises.
    """
    if source.start is not None:
        raise NotRedactable("it begins in the middle of a log: redact that log itself")
    source = replace(source, read=partial(_until, wanted, source))
    names = names_of(source, secret)
    with TemporaryDirectory(prefix="largesse-") as folder:
        whole = Path(folder) / "log.gz"
        # Its states are those that the renamed log leads to, from its first record on.
        write_export(replace(source, read=lambda hear: redacted(source, names)), whole)
        written = write_bundle(open_source(whole), path, wanted)
    verdict = verify(open_source(path))
    if verdict.difference is not None:
        path.unlink()
        raise NotRedactable(f"what was renamed is decided otherwise: {verdict.text()}")
    return written, names


def _until(wanted: Slice, source: Source, hear: Hear) -> Iterator[Step]:
    return takewhile(lambda step: not wanted.is_behind(step.accepted.record), source.steps(hear))


def names_of(source: Source, secret: bytes) -> Names:
    """New names for all that a log names."""
    words: dict[str, bool] = {}

    def hear(name: str) -> None:
        words.update(dict.fromkeys(words_of(name), True))

    for step in source.steps():
        hear(step.accepted.record.cell)
        walk(step.accepted.record.body, hear)
    return Names(words, secret)


def redacted(source: Source, names: Names) -> Iterator[Step]:
    """The steps of a log with other names, which it has to have for all words. Raises NotRedactable, CoreRaised, and
    what reading the source raises.
    """
    run = _Renaming(names, Refold(source.shards_max()))
    for step in source.steps():
        yield _step(run, step.accepted.record)


def _step(run: _Renaming, record: Record) -> Step:
    cores, cell = run.cores, run.names.of(record.cell)
    body = _body(run, record)
    id_ = log_id(cell, record.seq)
    if isinstance(body, RoundOpened):
        id_ = opening_id(cell, record.seq, record.round, body.prefix)
    run.ids[record.id] = id_
    new = record_of(
        body,
        cell=cell,
        seq=record.seq,
        round_number=record.round,
        time=record.time,
        id_=id_,
        cause=_cause(run, record, cell),
    )
    accepted = Accepted(new, Header(""), encode(new), record.seq)
    decisions = {}
    if isinstance(body, RoundClosed) and run.answers is not None:
        decisions = {each.record.id: each.content for each in (*run.answers.closing, *run.answers.forecasts)}
        cores.feed([(each.wanted, each.record) for each in run.answers.closing])
    if isinstance(body, RoundClosed | RoundAbandoned):
        run.answers, run.ids = None, {}
    cores.fold(accepted)
    if isinstance(body, RoundOpened):
        run.answers = cores.decide(new)
        for each in run.answers.forecasts:
            topic, place = each.wanted.topic, f"{each.wanted.shard}-{each.wanted.of}"
            run.forecasts[f"{topic}/{place}/{record.id}"] = each.record.id, each.record.body
            if len(run.forecasts) > FORECASTS_KEPT:
                del run.forecasts[next(iter(run.forecasts))]
    return Step(accepted, decisions)


def _cause(run: _Renaming, record: Record, cell: str) -> str:
    cause = record.cause
    if cause in run.ids:
        return run.ids[cause]
    if cause in run.forecasts:
        return run.forecasts[cause][0]
    return cell + cause.removeprefix(record.cell) if cause.startswith(f"{record.cell}/") else cause


def _body(run: _Renaming, record: Record) -> LogBody:
    """What the record says in the other names. Raises NotRedactable."""
    if isinstance(record.body, RoundOpened) and record.body.rules != RULES:
        raise NotRedactable(f"round {record.round} was decided by rules {record.body.rules}, and these are {RULES}")
    renamed = run.names.body(record.body)
    derived = _derived(run, record, renamed)
    found = first_difference(masked(renamed), masked(derived))
    if found is not None:
        path, recorded, decided = found
        raise NotRedactable(
            f"{record.type} {record.seq} depends on names: {path} is {shown(decided)}, and was {shown(recorded)}"
        )
    return derived  # type: ignore[return-value]


def _derived(run: _Renaming, record: Record, renamed: object) -> object:
    """What follows from the fold in the other names; what comes from outside is only renamed."""
    state = run.cores.admission
    match renamed:
        case RoundClosed():
            assert run.answers is not None
            closing = run.answers.closing
            shares, *asks, grants = [each.record for each in closing]
            return close(state, shares, asks, grants, [each.named for each in closing])
        case JobEnded() | JobTurns() | TimeReached() | RoundOpened() | NodeForgotten():
            return due(state, record.time, run.cores.prefix)
        case NodeLost(node):
            return lose(state, node, left=renamed.left)
        case JobAdmitted() | JobRejected():
            given: JobSpec | JobRerun = renamed.submitted if isinstance(renamed, JobAdmitted) else renamed.spec
            if isinstance(renamed, JobAdmitted) and renamed.run > 1:
                given = JobRerun(renamed.submitted, renamed.from_stage)
            return judge(state, given, renamed.author, record.time)
        case Releases() | Plans() if record.cause in run.forecasts:
            return run.forecasts[record.cause][1]
        case _ if isinstance(renamed, JUDGED_WHOLE):
            return judge(state, renamed, renamed.author, record.time)
    return renamed
