"""A cell with all its cores in one process, called in sequence: no bus, the caller's clock.

Every record is made, encoded, hashed and folded by every core that folds its type, as on a bus; only the transport is
missing. Simulation drives it in virtual time.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from largesse.core import RULES
from largesse.ids import PREFIX_OF_NOTHING, chain, log_id, opening_id
from largesse.log.codec import encode
from largesse.log.wanted import Wanted
from largesse.rounds import Answer, Answers, Deciders, Hosted, places_read
from schemas import Header, Record, RoundOpened
from schemas.registry import VERSION_OF
from services.admission import core as admission
from services.admission.core import State as AdmissionState
from services.admission.core.judge import judge
from services.admission.core.rounds import accepts_forecast, cause_of_due, close, due, earliest_opening_ms, next_due_ms
from services.altruism import core as altruism
from services.altruism.core import State as AltruismState
from services.estimator import core as estimator
from services.estimator.core import State as EstimatorState
from services.fairness import core as fairness
from services.fairness.core import State as FairnessState
from services.leftover import core as leftover
from services.leftover.core import State as LeftoverState
from services.planner import core as planner
from services.planner.core import State as PlannerState
from services.replay.deciders import deciders_of

Listener = Callable[[str, Header | None, bytes], None]
"""Told of every record's bytes: topic, header (None for a decision), content."""

_OWN = Header("simulation")


@dataclass(slots=True)
class Cell:
    """One cell's cores and the end of its log. `digest` covers every log record and, by closings, every decision.
    `followers`: fold as the cores do, and answer nothing, as the gateway's view does."""

    name: str = "default"
    shards: int = 1
    listener: Listener | None = None
    observers: list[Callable[[Record], None]] = field(default_factory=list)
    asks_observer: Callable[[Record], None] | None = None
    grants_observer: Callable[[Record], None] | None = None
    before_round: Callable[["Cell"], None] | None = None
    followers: list[Hosted] = field(default_factory=list)
    seq: int = 0
    rounds: int = 0
    time: int = 0
    prefix: bytes = PREFIX_OF_NOTHING
    admission: AdmissionState = field(default_factory=admission.start)
    fairness: FairnessState = field(default_factory=fairness.start)
    altruism: list[AltruismState] = field(default_factory=list)
    leftover: LeftoverState = field(default_factory=leftover.start)
    estimator: EstimatorState = field(default_factory=estimator.start)
    planner: PlannerState = field(default_factory=planner.start)
    _folds: dict[type, list[tuple[Callable[[Any, Record], None], object]]] = field(default_factory=dict)
    _winners: list[Wanted] = field(default_factory=list)
    _reads: list[tuple[Callable[[Any, Record], None], object, int]] = field(default_factory=list)
    _deciders: Deciders = field(init=False)

    def __post_init__(self) -> None:
        self.altruism = [altruism.start(shard, self.shards) for shard in range(self.shards)]
        self._rewire()

    def _rewire(self) -> None:
        self._folds, self._winners = {}, []
        for kind, learn in admission.FOLDS.items():
            self._folds[kind] = [(learn, self.admission)]
        self._deciders = deciders_of(self.fairness, self.altruism, self.leftover, self.estimator, self.planner)
        for hosted in [*self._deciders.all(), *self.followers]:
            for kind, learn in hosted.core.FOLDS.items():
                self._folds.setdefault(kind, []).append((learn, hosted.state))

    def take_up(self, cores: list[Hosted], last: Record, prefix: bytes) -> None:
        """Goes on behind `last`, the end of another log, with the states of all cores there: admission, fairness, each
        shard of altruism, leftover, estimator, planner."""
        states = [hosted.state for hosted in cores]
        self.admission, self.fairness, *self.altruism, self.leftover, self.estimator, self.planner = states
        self.name, self.seq, self.rounds, self.time, self.prefix = last.cell, last.seq, last.round, last.time, prefix
        self._rewire()

    def take(self, body: object, author: str, source: Header = _OWN) -> Record | None:
        """Judges one input at the present log time: the record it became, or None if it changes nothing."""
        verdict = judge(self.admission, body, author, self.time)
        return None if verdict is None else self.put(verdict, source)

    def put(self, body: Any, header: Header = _OWN, cause: str = "") -> Record:
        """Appends one record and folds it everywhere."""
        kind = type(body)
        seq = self.seq = self.seq + 1
        if kind is RoundOpened:
            self.rounds += 1
            id_ = opening_id(self.name, seq, self.rounds, body.prefix)
        else:
            id_ = log_id(self.name, seq)
        record = Record(kind.__name__, VERSION_OF[kind], self.name, seq, self.rounds, self.time, id_, cause, body)
        content = encode(record)
        self.prefix = chain(self.prefix, content)
        if self.listener is not None:
            self.listener("cluster.log", header, content)
        folds = self._folds.get(kind)
        if folds is not None:
            for fold, state in folds:
                fold(state, record)
        for observe in self.observers:
            observe(record)
        return record

    def advance(self, time: int) -> None:
        """Moves log time on; it never goes back."""
        assert time >= self.time, f"log time goes back from {self.time} to {time}"
        self.time = time

    def settle(self) -> Record | None:
        """Appends what is due at the present time, at most one round with it: its closing, or None if none opened."""
        while (body := due(self.admission, self.time, self.prefix)) is not None:
            record = self.put(body, cause=cause_of_due(self.admission))
            if type(body) is RoundOpened:
                return self._round(record)
        return None

    def next_due_ms(self) -> int | None:
        """The earliest time at which something is due without another input."""
        return next_due_ms(self.admission)

    def earliest_opening_ms(self) -> int:
        """No round opens before this time."""
        return earliest_opening_ms(self.admission)

    def _round(self, opening: Record) -> Record:
        if self.before_round is not None:
            self.before_round(self)
            self._rewire()
        assert opening.body.rules == RULES
        return self.close_round(self._deciders.decide(opening))

    def close_round(self, answers: Answers) -> Record:
        """Closes the open round by what is decided on its opening; returns the closing."""
        if self.listener is not None:
            for each in [*answers.closing, *answers.forecasts]:
                self.listener(each.wanted.topic, None, each.content)
        shares, *asks, grants = [each.record for each in answers.closing]
        body = close(self.admission, shares, asks, grants, [each.named for each in answers.closing])
        self._fold_winners(answers.closing)
        if self.asks_observer is not None:
            for record in asks:
                if record.body.ledger:
                    self.asks_observer(record)
        if self.grants_observer is not None and grants.body.held:
            self.grants_observer(grants)
        closing = self.put(body, cause=answers.opening.id)
        for forecast in answers.forecasts:
            if accepts_forecast(self.admission, forecast.record.body):
                self.put(forecast.record.body, cause=forecast.record.id)
        return closing

    def _fold_winners(self, winners: list[Answer]) -> None:
        """Each core folds the decision records of a round that it reads. Which those are is found out once."""
        if len(self._winners) != len(winners):
            self._winners = [each.wanted for each in winners]
            self._reads = [
                (hosted.core.FOLDS[type(winners[at].record.body)], hosted.state, at)
                for hosted in [*self._deciders.all(), *self.followers]
                for at in places_read(hosted, self._winners)
            ]
        for learn, state, at in self._reads:
            learn(state, winners[at].record)

    @property
    def digest(self) -> str:
        """Names the whole stream of facts and decisions so far."""
        return self.prefix.hex()
