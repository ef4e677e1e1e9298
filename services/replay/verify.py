"""Decides a recorded log again and names the first difference: in an answer, a closing, or what was due.

Folds   the whole log through every core.
Compares every round of this code's own rules: answers byte by byte with what won (its hash stands in the closing), and
with every other document of the decision topics that answers the same opening; the closing, what the sequencer appends
of its own accord, and what it made of inputs whose content the log has. Rounds of other rules are fed their recorded
winners and named. Answers to openings that are not in the log were answers to nothing, and are passed over.
"""

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from largesse.core import RULES
from largesse.ids import content_hash, log_id, opening_id
from largesse.log.codec import decode, encode, record_of
from largesse.log.decisions import DecisionGap
from largesse.log.wanted import Wanted
from largesse.rounds import Answers
from schemas import (
    AttemptsKnown,
    Checkpoint,
    InputRefused,
    JobAdmitted,
    JobCancelled,
    JobChanged,
    JobEnded,
    JobRejected,
    JobRerun,
    JobSpec,
    JobTurns,
    NodeDrained,
    NodeForgotten,
    NodeLost,
    NodeRegistered,
    NodeRemoved,
    NodeReported,
    Plans,
    Record,
    Releases,
    RoundAbandoned,
    RoundClosed,
    RoundOpened,
    TaskFailed,
    TaskFinished,
    TaskStarted,
    TimeReached,
    TokenMade,
    TokenRevoked,
)
from schemas.registry import LogBody
from services.admission.core.closings import Closings
from services.admission.core.judge import judge, lose
from services.admission.core.rounds import accepts_forecast, cause_of_due, close, due
from services.replay.differences import Difference, Diverged, first_difference, shown
from services.replay.documents import Documents, seq_of
from services.replay.refold import CoreRaised, Refold
from services.replay.source import Source, Step
from services.replay.start import Start
from services.replay.verdict import Span, Verdict

FORECASTS_KEPT = 1_000
"""Rounds for which what forecasters said is remembered, until the log has it."""

JUDGED_WHOLE = (
    JobCancelled,
    JobChanged,
    NodeRegistered,
    NodeReported,
    AttemptsKnown,
    NodeDrained,
    NodeRemoved,
    TaskStarted,
    TaskFinished,
    TaskFailed,
    TokenMade,
    TokenRevoked,
)


def verify(source: Source, until: int | None = None, *, across_rules: bool = False) -> Verdict:
    """Goes through the log up to seq `until`. `across_rules`: rounds of other rules are decided, too, each from what
    was recorded before it. Raises StartRefused, and what reading it raises (damage, gaps).
    """
    return checked(source, until, across_rules=across_rules).verdict


def checked(source: Source, until: int | None = None, *, across_rules: bool = False) -> "Check":
    """The same, with where it ended. Raises as `verify`."""
    start = source.start
    check = Check(Refold(source.shards_max(), start=start), Verdict(source.name), across_rules, start)
    try:
        for step in source.steps(check.documents.hear):
            if until is not None and step.accepted.record.seq > until:
                break
            check.documents.check(check.last.seq)
            try:
                check.take(step)
            except CoreRaised as raised:
                raise Diverged(_at(step.accepted.record, "core", str(raised))) from raised
        check.documents.check(check.last.seq)
    except Diverged as diverged:
        check.verdict.difference = diverged.difference
    check.verdict.records, check.verdict.seq = check.cores.records, check.last.seq
    check.verdict.prefix = check.cores.prefix.hex()
    return check


@dataclass(slots=True)
class Unjudged:
    """What only who knows the records before a start can judge: forecasts and checkpoints that the log has behind it,
    and decisions on rounds before it.
    """

    facts: list[Record] = field(default_factory=list)
    documents: list[tuple[str, bytes]] = field(default_factory=list)


class Check:
    """One pass over a log, from its `start`. `rules`: of the latest opening; None before the first. `forecasts`: what
    forecasters said that the log has not yet.
    """

    def __init__(self, cores: Refold, verdict: Verdict, across_rules: bool, start: Start | None = None) -> None:
        self.cores = cores
        self.across_rules = across_rules
        self.verdict = verdict
        self.unjudged = Unjudged()
        self.begin = 0 if start is None else start.seq
        self.documents = Documents(self.begin, self.unjudged.documents)
        self.rules = None if start is None else start.rules
        self.opening: Record | None = None
        self.answers: Answers | None = None
        self.forecasts: dict[str, object] = {}
        self.last = Record("", 0, "", 0, 0, 0, "", "", None) if start is None else start.last()
        self.closings = Closings()

    def take(self, step: Step) -> None:
        """Checks and folds one record. Raises Diverged, CoreRaised, DecisionGap."""
        record = step.accepted.record
        self._check_envelope(record)
        if isinstance(record.body, RoundOpened):
            self.rules = record.body.rules
        if self.rules == RULES:
            self._check_own_accord(step)
            self._check_judged(step)
            self._check_forecast(record)
        if isinstance(record.body, RoundClosed | RoundAbandoned):
            self.documents.ended(step.decisions)
        if isinstance(record.body, RoundClosed):
            self._close(step)
        self.cores.fold(step.accepted)
        if isinstance(record.body, RoundOpened):
            self._open(record)
        elif isinstance(record.body, RoundClosed | RoundAbandoned):
            self.verdict.rounds_abandoned += isinstance(record.body, RoundAbandoned)
            self.closings.note(record.seq, self.cores.prefix.hex())
            self.opening = self.answers = None
        self.last = record

    def _check_envelope(self, record: Record) -> None:
        last, opens = self.last, isinstance(record.body, RoundOpened)
        number = last.round + opens
        id_ = (
            opening_id(record.cell, record.seq, number, record.body.prefix)
            if opens
            else log_id(record.cell, record.seq)
        )
        expected = {"seq": last.seq + 1, "cell": last.cell or record.cell, "round": number, "id": id_}
        for name, value in expected.items():
            if getattr(record, name) != value:
                raise Diverged(_at(record, "cluster.log", "the envelope", name, getattr(record, name), value))
        if record.time < last.time:
            raise Diverged(_at(record, "cluster.log", f"log time goes back from {last.time}", "time", record.time, ""))

    # ---------------------------------------------------------------- the sequencer's records
    def _check_own_accord(self, step: Step) -> None:
        """What `due` says, and lost nodes, are functions of the fold and log time."""
        record, state = step.accepted.record, self.cores.admission
        body = record.body
        if isinstance(body, JobEnded | JobTurns | TimeReached | RoundOpened | NodeForgotten) or (
            isinstance(body, RoundAbandoned) and body.reason == "rules"
        ):
            self._compare_log(step, due(state, record.time, self.cores.prefix), cause_of_due(state))
        elif isinstance(body, NodeLost):
            self._compare_log(step, lose(state, body.node, left=body.left) if body.node in state.nodes else None, "")

    def _check_judged(self, step: Step) -> None:
        """Inputs whose content the log has are judged again."""
        record, state = step.accepted.record, self.cores.admission
        body = record.body
        if isinstance(body, JobAdmitted | JobRejected):
            given: JobSpec | JobRerun = body.submitted if isinstance(body, JobAdmitted) else body.spec
            if isinstance(body, JobAdmitted) and body.run > 1:
                given = JobRerun(body.submitted, body.from_stage)
            self._compare_log(step, judge(state, given, body.author, record.time), "")
        elif isinstance(body, Checkpoint):
            if body.closing <= self.begin:
                self.unjudged.facts.append(record)
            else:
                check_noted(record, self.closings)
        elif isinstance(body, JUDGED_WHOLE):
            self._compare_log(step, judge(state, body, body.author, record.time), "")

    def _check_forecast(self, record: Record) -> None:
        body = record.body
        if not isinstance(body, Releases | Plans):
            return
        if not accepts_forecast(self.cores.admission, body):
            raise Diverged(_at(record, "cluster.log", "it was stale: another of its kind came after what it saw"))
        if self.begin and seq_of(record.cause.partition("/")[2].partition("/")[2]) <= self.begin:
            self.unjudged.facts.append(record)
        check_said(record, self.forecasts)

    def _compare_log(self, step: Step, body: LogBody | None, cause: str) -> None:
        record = step.accepted.record
        if body is None or isinstance(body, InputRefused):
            raise Diverged(_at(record, "cluster.log", "nothing of the kind was due"))
        expected = record_of(
            body,
            cell=record.cell,
            seq=record.seq,
            round_number=record.round,
            time=record.time,
            id_=record.id,
            cause=cause,
        )
        if encode(expected) != step.accepted.content:
            _compare(record, "cluster.log", _plain(decode(step.accepted.content)), _plain(expected))

    # ---------------------------------------------------------------- rounds
    def _open(self, opening: Record) -> None:
        self.opening = opening
        if opening.body.rules != RULES:
            self._feed_span(opening)
            if self.across_rules:
                self.answers = self.cores.decide(opening)
            return
        self.answers = self.cores.decide(opening)
        self.documents.opened(self.answers)
        for each in self.answers.forecasts:
            self.forecasts[each.record.id] = each.record.body
            if len(self.forecasts) > FORECASTS_KEPT:
                del self.forecasts[next(iter(self.forecasts))]

    def _feed_span(self, opening: Record) -> None:
        rules, number = opening.body.rules, opening.round
        if self.verdict.fed and self.verdict.fed[-1].rules == rules and self.verdict.fed[-1].round_last == number - 1:
            self.verdict.fed[-1].round_last = number
        else:
            self.verdict.fed.append(Span(rules, number, number))

    def _close(self, step: Step) -> None:
        closing = step.accepted.record
        if self.opening is None or closing.cause != self.opening.id:
            raise Diverged(_at(closing, "cluster.log", "it closes a round that is not open"))
        if self.answers is None or self.rules != RULES:
            if self.answers is not None:
                self._compare_across(self.verdict.fed[-1], step, closing, self.answers)
            self.cores.feed(recorded_winners(step, closing))
            return
        mine = self.answers.closing
        by_place = {(each.topic, each.shard, each.of): each for each in closing.body.hashes}
        for each in mine:
            named = by_place.get(each.wanted)
            if named is None or named.hash != each.named.hash:
                self._differ(step, closing, each.wanted, each.content)
        shares, *asks, grants = (each.record for each in mine)
        hashes = [each.named for each in mine]
        body = close(self.cores.admission, shares, asks, grants, hashes)
        self._compare_log(step, body, closing.cause)
        self.cores.feed([(each.wanted, each.record) for each in mine])
        self.verdict.rounds_compared += 1

    def _compare_across(self, span: Span, step: Step, closing: Record, answers: Answers) -> None:
        """What these rules answer to a round of others, beside what was answered. What an earlier version did not say
        yet counts as said empty.
        """
        span.rounds_compared += 1
        recorded = dict(recorded_winners(step, closing))
        for each in answers.closing:
            winner = recorded.get(each.wanted)
            found = first_difference(None if winner is None else _plain(winner.body), _plain(each.record.body))
            if found is not None:
                span.rounds_differing += 1
                topic = f"{each.wanted.topic} of shard {each.wanted.shard} of {each.wanted.of}"
                span.difference = span.difference or _at(closing, topic, "these rules answer otherwise", *found)
                return

    def _differ(self, step: Step, closing: Record, wanted: Wanted, content: bytes) -> None:
        """Names where an answer differs; without the recorded bytes, that it does."""
        topic = f"{wanted.topic} of shard {wanted.shard} of {wanted.of}"
        named = next((h for h in closing.body.hashes if (h.topic, h.shard, h.of) == wanted), None)
        recorded = step.decision(closing.cause, named) if named is not None else None
        if recorded is not None:
            _compare(closing, topic, json.loads(recorded), json.loads(content))
        expected = named.hash if named is not None else "no such answer"
        raise Diverged(_at(closing, topic, "the answers differ", "hash", expected, content_hash(content)))


def check_said(record: Record, forecasts: dict[str, object]) -> None:
    """A forecast in the log is what was said. Raises Diverged."""
    said = forecasts.pop(record.cause, None)
    if said is not None and said != record.body:
        _compare(record, record.cause.partition("/")[0], _plain(record.body), _plain(said))


def check_noted(record: Record[Checkpoint], closings: Closings) -> None:
    """A checkpoint that the log notes is behind one of its closings. Raises Diverged."""
    # One before those that are remembered was judged by a sequencer that remembered it.
    if record.body.closing > closings.first and (why := closings.refusal(record.body)) is not None:
        raise Diverged(_at(record, "cluster.log", why[1], why[0]))


def _compare(record: Record, topic: str, recorded: object, decided: object) -> None:
    found = first_difference(recorded, decided)
    if found is not None:
        raise Diverged(_at(record, topic, "the documents differ", *found))


def recorded_winners(step: Step, closing: Record) -> list[tuple[Wanted, Record]]:
    winners = []
    for named in closing.body.hashes:
        content = step.decision(closing.cause, named)
        if content is None or content_hash(content) != named.hash:
            raise DecisionGap(f"{closing.id} names {named.topic} of shard {named.shard}, which are not recorded")
        winners.append((Wanted(named.topic, named.shard, named.of), decode(content)))
    return winners


def _plain(body: Any) -> Any:
    return asdict(body)


def _at(
    record: Record, topic: str, what: str, path: str = "", recorded: object = "", decided: object = ""
) -> Difference:
    text = f"{record.type} {record.id}: {what}"
    return Difference(record.seq, record.round, topic, text, path, shown(recorded), shown(decided))
