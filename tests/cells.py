"""A cell for stories: every core behind `fold` and `decide` alone, and rounds that stay open while facts come in.

It shares no line with the simulator's engine, so each checks the other. Around every answer it compares the states'
snapshots: `decide` may leave nothing behind. `forgetful` drops all caches before every round; `restore` puts every
core back from its snapshot.
"""

from dataclasses import MISSING, fields
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

from largesse.core import OpenRound
from largesse.ids import PREFIX_OF_NOTHING, chain, content_hash, decision_id, log_id, opening_id
from largesse.log.codec import encode
from largesse.log.compiled_types import readable
from largesse.log.snapshots import dump, load
from schemas import (
    DecisionHash,
    Grant,
    JobCancelled,
    JobEnded,
    NodeDrained,
    Record,
    RoundAbandoned,
    RoundOpened,
    TaskEnd,
    TaskFailed,
    TaskFailure,
    TaskFinished,
    TaskRange,
    TaskStarted,
)
from schemas.registry import VERSION_OF
from services.admission import core as admission
from services.admission.core.judge import judge, lose
from services.admission.core.rounds import accepts_forecast, cause_of_due, close, due, next_due_ms
from services.admission.core.state import State
from services.altruism import core as altruism
from services.estimator import core as estimator
from services.fairness import core as fairness
from services.leftover import core as leftover
from services.planner import core as planner
from tests.builders import node

AUTHOR = "tester"
EPOCH = "e1"


class HeldAttempt(NamedTuple):
    """An attempt that holds room on `node`."""

    node: str
    attempt: int
    epoch: str
    demand: dict[str, int]
    started: bool
    devices: dict[str, int] | None


def attempts_of(state: State) -> list[tuple[str, HeldAttempt]]:
    """What the sequencer's core says is held, as ("job/stage/index", attempt): node by node, there in the order of
    granting."""
    return [
        (key, HeldAttempt(name, hold.attempt, hold.epoch, hold.demand, hold.started, hold.devices))
        for name, node in state.nodes.items()
        for key, hold in node.holds.items()
    ]


def holds_of(state: State) -> dict[str, HeldAttempt]:
    """The same by task, of a cell in which no task has several attempts."""
    return dict(attempts_of(state))


# ---------------------------------------------------------------- the cell
CORES = {"fairness": fairness, "leftover": leftover, "estimator": estimator, "planner": planner}


class SlowCell:
    """One cell with instances for `shards` altruism shards. `records`: the log; `granted`: all that was ever bound."""

    def __init__(self, shards=1, *, forgetful=False):
        self.forgetful = forgetful
        self.time = 0
        self.prefix = PREFIX_OF_NOTHING
        self.records: list[Record] = []
        self.rounds = 0
        self.states: dict[str, Any] = {"admission": admission.start()}
        self.states |= {name: core.start(0, 1) for name, core in CORES.items()}
        self.states |= {f"altruism/{k}": altruism.start(k, shards) for k in range(shards)}
        self.opening: Record | None = None
        self.answers: dict[str, list[Record]] = {}
        self.decided: list[Record] = []
        self.decisions: list[bytes] = []
        self.granted: list[Grant] = []
        self.struck = []

    @property
    def digest(self):
        return self.prefix.hex()

    @property
    def admission(self):
        return self.states["admission"]

    @property
    def fairness(self):
        return self.states["fairness"]

    @property
    def altruism(self):
        return self.states["altruism/0"]

    @property
    def leftover(self):
        return self.states["leftover"]

    # ------------------------------------------------------------ the log
    def put(self, body, cause=""):
        """Appends one record and folds it everywhere."""
        kind, seq = type(body), len(self.records) + 1
        id_ = log_id("default", seq)
        if kind is RoundOpened:
            self.rounds += 1
            id_ = opening_id("default", seq, self.rounds, body.prefix)
        record = Record(kind.__name__, VERSION_OF[kind], "default", seq, self.rounds, self.time, id_, cause, body)
        self.records.append(record)
        self.prefix = chain(self.prefix, encode(record))
        self._fold(record)
        return record

    def _fold(self, record):
        for name, state in self.states.items():
            core = admission if name == "admission" else _core_of(name)
            if type(record.body) in core.FOLDS:
                core.fold(state, record)

    def take(self, *inputs):
        """Judges inputs at the present log time. Returns the body that the last one became, or None."""
        body = None
        for given in inputs:
            body = judge(self.admission, given, AUTHOR, self.time)
            if body is not None:
                self.put(body)
        return body

    def lose(self, name="n1"):
        """The node's lease runs out."""
        if (body := lose(self.admission, name)) is not None:
            self.put(body)
        return body

    def at(self, time):
        assert time >= self.time
        self.time = time
        return self

    # ------------------------------------------------------------ rounds
    def open(self):
        """What is due, up to an opening. Returns whether there is an open round now."""
        while (body := due(self.admission, self.time, self.prefix)) is not None:
            record = self.put(body, cause_of_due(self.admission))
            if isinstance(body, RoundOpened):
                self.opening = record
                self._answer()
                return True
        return self.opening is not None

    def _answer(self):
        if self.forgetful:
            drop_caches(self.states.values())
        opening = self.opening
        shards = opening.body.shards
        shares = self._ask("fairness", 0, 1, {})
        asks = [each for k in range(shards) for each in self._ask(f"altruism/{k}", k, shards, {"shares": shares})]
        grants = self._ask("leftover", 0, 1, {"shares": shares, "asks": asks})
        self.answers = {"shares": shares, "asks": asks, "grants": grants}
        self.forecasts = [*self._ask("estimator", 0, 1, {}), *self._ask("planner", 0, 1, {})]

    def _ask(self, name, shard, of, upstream):
        core, state, opening = _core_of(name), self.states[name], self.opening
        before = dump(state)
        bodies = core.decide(state, OpenRound(opening, upstream))
        assert dump(state) == before, f"{name}: `decide` changed what a snapshot shows"
        records = []
        for body in bodies:
            kind = type(body).__name__
            id_ = decision_id(core.TOPIC, shard, of, opening.id)
            number = VERSION_OF[type(body)]
            record = Record(kind, number, "default", opening.seq, opening.round, opening.time, id_, opening.id, body)
            self.decided.append(record)
            self.decisions.append(encode(record))
            records.append(record)
        return records

    def close(self):
        """Closes the open round with the answers it got; facts may have come since. Returns the closing's body."""
        shares, asks, grants = (self.answers[topic] for topic in ("shares", "asks", "grants"))
        of = self.opening.body.shards
        hashes = [DecisionHash("shares", 0, 1, content_hash(encode(shares[0])))]
        hashes += [DecisionHash("asks", k, of, content_hash(encode(record))) for k, record in enumerate(asks)]
        hashes.append(DecisionHash("grants", 0, 1, content_hash(encode(grants[0]))))
        body = close(self.admission, shares[0], asks, grants[0], hashes)
        for name, state in self.states.items():
            core = admission if name == "admission" else _core_of(name)
            for topic in core.READS:
                said = self.answers[topic]
                own = name.partition("altruism/")[2]  # A shard reads its own asks only.
                for record in said:
                    if not own or topic != "asks" or record.body.shard == int(own):
                        core.fold(state, record)
        self.put(body, self.opening.id)
        self.opening = None
        self.granted += body.grants
        self.struck += body.struck
        for forecast in self.forecasts:
            if accepts_forecast(self.admission, forecast.body):
                self.put(forecast.body, forecast.id)
        return body

    def abandon(self):
        """An operator gives the open round up."""
        self.opening = None
        return self.put(RoundAbandoned("operator", AUTHOR))

    def round(self):
        """One whole round at the present time: the closing's body, or None if nothing was due."""
        return self.close() if self.open() else None

    def settle(self):
        """Rounds until nothing is due at the present time. Returns all that they granted."""
        before = len(self.granted)
        while self.round() is not None:
            pass
        return self.granted[before:]

    def next_ms(self):
        """The earliest time at which something is due without another input."""
        return next_due_ms(self.admission)

    def restore(self):
        """Every core goes on from its snapshot. Only between rounds."""
        assert self.opening is None
        self.states = {name: load(type(state), dump(state)) for name, state in self.states.items()}
        return self

    # ------------------------------------------------------------ what agents say
    def start(self, *grants):
        return self.take(TaskStarted([TaskRange(*place(grant)) for grant in grants]))

    def finish(self, *grants, run_ms=1_000):
        return self.take(TaskFinished([TaskEnd(*place(grant), [run_ms]) for grant in grants]))

    def fail(self, *grants, reason="exit_code", detail=""):
        return self.take(TaskFailed([TaskFailure(*place(grant), reason, detail=detail) for grant in grants]))

    def cancel(self, name):
        return self.take(JobCancelled(name, AUTHOR))

    def drain(self, name="n1"):
        return self.take(NodeDrained(name, True, AUTHOR))

    def resume(self, name="n1"):
        return self.take(NodeDrained(name, False, AUTHOR))

    # ------------------------------------------------------------ what tests ask
    def bodies(self, kind):
        return [record.body for record in self.records if isinstance(record.body, kind)]

    def bodies_in_log(self, name):
        return [record.body for record in self.records if record.type == name]

    def bodies_of(self, name):
        """Bodies of all answers of one type, in order."""
        return [record.body for record in self.decided if record.type == name]

    def ended(self):
        """Job -> outcome, of all jobs that ended."""
        return {end.job: end.outcome for body in self.bodies(JobEnded) for end in body.jobs}

    def answer(self, topic):
        """The body of the last answer on a topic."""
        return self.answers[topic][0].body


def _core_of(name):
    return altruism if name.startswith("altruism/") else CORES[name]


def one_node_cell(*inputs, shards=1):
    """A cell with one node n1 of four cores, and whatever else is given."""
    story = SlowCell(shards)
    story.take(node("n1"), *inputs)
    return story


def running_cell(*inputs, shards=1):
    """The same after rounds have granted all that fits."""
    story = one_node_cell(*inputs, shards=shards)
    story.settle()
    return story


def place(grant):
    """Where a grant's attempts are, as a report names them."""
    return grant.job, grant.stage, grant.first, grant.count, grant.attempt, grant.node, grant.epoch


def served(grants):
    """Job -> how many tasks it got."""
    counts = {}
    for grant in grants:
        counts[grant.job] = counts.get(grant.job, 0) + grant.count
    return counts


def indexes(grants):
    """(stage, index) of every task granted, in order."""
    return sorted((grant.stage, i) for grant in grants for i in range(grant.first, grant.first + grant.count))


def targets(fairness):
    """Up to where each unit is filled, by the levels in force."""
    return {unit: level.target for unit, level in fairness.levels.units.items()}


def by_leaf(fairness, name):
    """A field of the demand of each leaf queue that has something there."""
    return {leaf: amount for leaf, demand in fairness.demands.leaves.items() if (amount := getattr(demand, name))}


def drop_caches(states):
    """Sets every field annotated `Cache` to its default."""
    for state in states:
        for each in _cache_fields(type(state)):
            setattr(state, each.name, each.default_factory() if each.default is MISSING else each.default)


def _cache_fields(kind):
    hints = get_type_hints(readable(kind), include_extras=True)
    return [each for each in fields(kind) if get_origin(hints[each.name]) is Annotated and _excluded(hints[each.name])]


def _excluded(hint):
    return any(getattr(note, "exclude", None) for note in get_args(hint)[1:])
