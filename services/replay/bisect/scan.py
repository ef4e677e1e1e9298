"""Goes through a log and finds after which records a condition holds.

Most conditions come and go, so nothing can be halved: the log is read once, the view is folded and
nothing is decided. A condition is looked at after each record; where it changes with time alone, also as the time of
the next record is reached.
"""

from dataclasses import dataclass, field
from fractions import Fraction

from services.gateway.view.state import State
from services.replay.bisect.language import Compared, Condition, Joined, Lasting, Negated, measures_in
from services.replay.bisect.measures import Value, World
from services.replay.source import Source
from services.replay.viewing import learn, viewing


@dataclass(slots=True)
class Span:
    """Records after which it holds, with when it began to and how long it did. `last`, `last_ms`: None where nobody
    has looked how long."""

    first: int
    first_ms: int
    last: int | None = None
    last_ms: int | None = None


@dataclass(slots=True)
class Bisected:
    """`spans`: in order; only the first one's beginning where no more was asked for. `records`: how many were read.
    `unseen`: of the queues, jobs and nodes that are named, those that were never there.
    """

    spans: list[Span] = field(default_factory=list)
    records: int = 0
    unseen: list[tuple[str, str]] = field(default_factory=list)

    def document(self) -> dict[str, object]:
        """As `largesse bisect --json` prints it."""
        first = self.spans[0] if self.spans else None
        return {
            "held": first is not None,
            "seq": first and first.first,
            "time": first and first.first_ms,
            "records": self.records,
            "spans": [[span.first, span.last] for span in self.spans],
            "times": [[span.first_ms, span.last_ms] for span in self.spans],
        }


def bisect(source: Source, condition: Condition, *, every: bool = False) -> Bisected:
    """The first record after which a condition holds, or `every` span of them. Raises StartRefused, DecisionGap, and
    what reading the source raises.
    """
    view = viewing(source.start)
    state: State = view.state
    world = World(state, state.time)
    look, found = _Look(condition), Bisected()
    world.catch_up()
    seq = state.seq
    span: Span | None = None
    for step in source.steps():
        record = step.accepted.record
        if look.has_time and span is None and seq:
            world.time = record.time
            if look.holds(world):  # The record before has led to it, and this one only says how late it is.
                span = Span(seq, record.time)
                found.spans.append(span)
                if not every:
                    break
        learn(view, step)
        world.learn(record)
        found.records += 1
        holds = look.holds(world)
        if holds and span is None:
            span = Span(record.seq, record.time)
            found.spans.append(span)
            if not every:
                break
        elif span is not None and not holds:
            span.last, span.last_ms, span = seq, record.time, None
        seq = record.seq
    if every and span is not None:
        span.last, span.last_ms = seq, world.time
    named = dict.fromkeys((each.subject, each.name) for each in measures_in(condition) if each.subject)
    found.unseen = [each for each in named if each not in world.seen]
    return found


class _Look:
    """Looks whether a condition holds; what has to last is remembered."""

    def __init__(self, condition: Condition) -> None:
        self._condition = condition
        self._since: dict[int, int] = {}
        self.has_time = _lasts(condition) or any(each.changes_with_time() for each in measures_in(condition))

    def holds(self, world: World) -> bool:
        """Now."""
        return self._holds(self._condition, world)

    def _holds(self, condition: Condition, world: World) -> bool:
        match condition:
            case Compared(left, operator, right):
                other = world.value(right) if not isinstance(right, Fraction | str) else right
                return compare(world.value(left), operator, other)
            case Negated(of):
                return not self._holds(of, world)
            case Joined(parts, is_all):
                held = [self._holds(part, world) for part in parts]  # Each of them: what has to last is looked at.
                return all(held) if is_all else any(held)
            case Lasting(of, ms):
                if not self._holds(of, world):
                    self._since.pop(id(condition), None)
                    return False
                return world.time - self._since.setdefault(id(condition), world.time) >= ms


def _lasts(condition: Condition) -> bool:
    match condition:
        case Lasting():
            return True
        case Negated(of):
            return _lasts(of)
        case Joined(parts):
            return any(map(_lasts, parts))
    return False


def compare(left: Value | None, operator: str, right: Value | None) -> bool:
    """Of what is not there nothing holds. Quantities of several resources: one in which it holds is enough."""
    if left is None or right is None:
        return False
    if isinstance(left, dict) and isinstance(right, dict):
        pairs = [(left.get(kind, 0), right.get(kind, 0)) for kind in {**left, **right}]
        return any(_compare(Fraction(a), operator, Fraction(b)) for a, b in pairs)
    if isinstance(left, str) or isinstance(right, str):
        return (left == right) == (operator == "==")
    assert isinstance(left, Fraction)
    assert isinstance(right, Fraction)
    return _compare(left, operator, right)


def _compare(left: Fraction, operator: str, right: Fraction) -> bool:
    match operator:
        case "<":
            return left < right
        case "<=":
            return left <= right
        case ">":
            return left > right
        case ">=":
            return left >= right
        case "==":
            return left == right
    return left != right
