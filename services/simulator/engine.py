"""A cell with all its cores in one process, called in sequence: no bus, the caller's clock.

Every record is made, encoded, hashed and folded by every core that folds its type, as on a bus; only the transport is
missing. Simulation drives it in virtual time.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from largesse.core import RULES, Core, OpenRound, S
from largesse.ids import PREFIX_OF_NOTHING, chain, content_hash, decision_id, log_id, opening_id
from largesse.log.codec import encode
from schemas import DecisionHash, Header, Record, RoundOpened
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

_Hosted = tuple[Core[Any], Any]
"""A core and its state."""

Listener = Callable[[str, Header | None, bytes], None]
"""Told of every record's bytes: topic, header (None for a decision), content."""

_OWN = Header("simulation")


@dataclass(slots=True)
class Cell:
    """One cell's cores and the end of its log. `digest` covers every log record and, by closings, every decision."""

    name: str = "default"
    shards: int = 1
    listener: Listener | None = None
    observer: Callable[[Record], None] | None = None
    asks_observer: Callable[[Record], None] | None = None
    grants_observer: Callable[[Record], None] | None = None
    before_round: Callable[["Cell"], None] | None = None
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

    def __post_init__(self) -> None:
        self.altruism = [altruism.start(shard, self.shards) for shard in range(self.shards)]
        self._rewire()

    def _rewire(self) -> None:
        self._folds = {}
        for kind, learn in admission.FOLDS.items():
            self._folds[kind] = [(learn, self.admission)]
        hosted: list[_Hosted] = [
            (fairness, self.fairness),
            *((altruism, state) for state in self.altruism),
            (leftover, self.leftover),
            (estimator, self.estimator),
            (planner, self.planner),
        ]
        for core, state in hosted:
            for kind, learn in core.FOLDS.items():
                self._folds.setdefault(kind, []).append((learn, state))

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
        for fold, state in self._folds.get(kind, ()):
            fold(state, record)
        if self.observer is not None:
            self.observer(record)
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
        hashes: list[DecisionHash] = []
        shares = self._ask(fairness, self.fairness, opening, {}, hashes)[0]
        asks: list[Record] = []
        for shard in range(opening.body.shards):
            asks += self._ask(
                altruism, self.altruism[shard], opening, {"shares": [shares]}, hashes, shard, opening.body.shards
            )
        upstream = {"shares": [shares], "asks": asks}
        grants = self._ask(leftover, self.leftover, opening, upstream, hashes)[0]
        forecasts = [
            *self._ask(estimator, self.estimator, opening, {}, None),
            *self._ask(planner, self.planner, opening, {}, None),
        ]
        body = close(self.admission, shares, asks, grants, hashes)
        self._feed({"shares": [shares], "asks": asks, "grants": [grants]})
        if self.asks_observer is not None:
            for record in asks:
                if record.body.ledger:
                    self.asks_observer(record)
        if self.grants_observer is not None and grants.body.held:
            self.grants_observer(grants)
        closing = self.put(body, cause=opening.id)
        for forecast in forecasts:
            if accepts_forecast(self.admission, forecast.body):
                self.put(forecast.body, cause=forecast.id)
        return closing

    def _ask(
        self,
        core: Core[S],
        state: S,
        opening: Record,
        upstream: dict[str, list[Record]],
        hashes: list[DecisionHash] | None,
        shard: int = 0,
        of: int = 1,
    ) -> list[Record]:
        """A core's decision records for the open round, encoded and hashed."""
        records = []
        for body in core.decide(state, OpenRound(opening, upstream)):
            id_ = decision_id(core.TOPIC, shard, of, opening.id)
            kind = type(body)
            record = Record(
                kind.__name__,
                VERSION_OF[kind],
                self.name,
                opening.seq,
                opening.round,
                opening.time,
                id_,
                opening.id,
                body,
            )
            content = encode(record)
            if hashes is not None:
                hashes.append(DecisionHash(core.TOPIC, shard, of, content_hash(content)))
            if self.listener is not None:
                self.listener(core.TOPIC, None, content)
            records.append(record)
        return records

    def _feed(self, winners: dict[str, list[Record]]) -> None:
        """Gives every core the winners it reads, in the order of READS; a shard only its own asks."""
        hosted: list[_Hosted] = [
            (fairness, self.fairness),
            *((altruism, state) for state in self.altruism),
            (leftover, self.leftover),
        ]
        for core, state in hosted:
            for topic in core.READS:
                for record in winners[topic]:
                    if topic != core.TOPIC or core is not altruism or record.body.shard == state.shard:
                        core.fold(state, record)

    @property
    def digest(self) -> str:
        """Names the whole stream of facts and decisions so far."""
        return self.prefix.hex()
