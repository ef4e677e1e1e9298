"""After a loss of capacity: moves promises until what is left holds them all, and breaks as little as it can if none
of its plans does.

Only what is not yet due moves. First the promises that hold room where there is too little; then, where they may,
leases that run are cut short and go on later; then all promises are planned again. Each is tried in several orders.
Where none of those keeps every promise, a complete search (least_loss.py) looks for plans that lose less than the best
of them: at once where there are few promises, else after more orders have been tried. It covers PROMISES_MAX promises
at most, and has a budget; as far as it gets, what is broken is broken by every plan, or is the least that can be lost.

Where promises have different weights, one of greater weight counts more than all lighter ones together, and none is
broken where it would do to break a lighter one alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from services.planner.planning.agents import Agent
from services.planner.planning.answers import AcceptedRequest
from services.planner.planning.least_loss import PROMISES_MAX, Outcome, Piece, losing_less
from services.planner.planning.placing import Form
from services.planner.planning.repair_orders import HarderOrders, PlanPiece, Try, first_orders
from services.planner.planning.request import Plan, bounds, extent, inside
from services.planner.planning.residual import Known, Split, joined, split
from services.planner.planning.search import Search
from services.planner.planning.shortfall import lacking

ALL_MAX = 64
"""With more promises than these, not all are planned again: only those that hold room where there is too little, and as
many of the others as there are up to here, the largest first."""

WORK_MAX = 200_000
"""Orders, and then further orders, are tried until they come to so much each, as planning/book.py counts: about 0.2 s,
over as many rounds as that takes."""


@dataclass(slots=True)
class _Best:
    """What loses least of all that was tried. `kept`: it keeps every promise, and its plans are those held now."""

    lost: int
    order: Sequence[PlanPiece]
    forms: Sequence[Form]
    kept: bool = False


def repairing(agent: Agent, known: dict[str, Known], first: int, until: int) -> Search[list[str]]:
    """Mends the plan, of which steps from `first` on can move, up to step `until`. Changes what the agent holds, and
    what is `known` of leases that are cut. Returns the names of promises that are broken: they hold nothing any more.
    """
    agent.factors = _factors(agent, known)
    before = {name: _promise(agent, known, name) for name in known}
    alone = (yield from _alone(agent, known, first, until)) if agent.factors else None
    mark, held_before, known_before = len(agent.book.journal or []), dict(agent.held), dict(known)
    yield from _repairing(agent, known, before, first, until)
    lost = sum(piece.loss for name, piece in before.items() if name not in known)
    if alone is not None and before[alone].loss < lost:
        agent.book.undo(mark)
        agent.held = held_before
        known.clear()
        known.update(known_before)
        _break(agent, known, alone)
    # In the order of before: others count on it.
    mine, held = dict(known), agent.held
    known.clear()
    known.update((name, mine[name]) for name in before if name in mine)
    agent.held = {name: held[name] for name in before if name in held}
    return [name for name in before if name not in known]


def _factors(agent: Agent, known: Mapping[str, Known]) -> dict[str, int]:
    """By promise, by what its loss counts, so that one of greater weight counts more than all lighter ones together;
    nothing where all weigh alike."""
    weights = sorted({mine.weight for mine in known.values()})
    if len(weights) < 2:
        return {}
    base = 1 + sum(_lost(agent, known, name) for name in known)
    return {name: base ** weights.index(mine.weight) for name, mine in known.items()}


def _alone(agent: Agent, known: dict[str, Known], first: int, until: int) -> Search[str | None]:
    """The promise that loses least of those of which each would be enough to break, the others left as they are."""
    assert agent.book.journal is not None, "an attempt may have to be undone"
    over = yield from lacking(agent, first, until)
    hit = [name for name in known if _meets(agent, known, name, over)]
    for name in sorted(hit, key=lambda name: (_loss(agent, known, name), name)):
        mark = len(agent.book.journal)
        agent.book.give_back(known[name].user, _promise(agent, known, name).old)
        is_enough = not (yield from lacking(agent, first, until))
        agent.book.undo(mark)
        if is_enough:
            return name
    return None


def _repairing(
    agent: Agent, known: dict[str, Known], before: Mapping[str, Piece], first: int, until: int
) -> Search[None]:
    over = yield from lacking(agent, first, until)
    hit = [name for name in known if _meets(agent, known, name, over)]
    others = sorted((n for n in agent.held if n not in hit), key=lambda name: (-_loss(agent, known, name), name))
    every = hit + others[: max(0, ALL_MAX - len(hit))]
    stages = ((hit, False), (hit, True), (every, True))
    pieces = [[_piece(agent, known, name, first, cut=cut) for name in names] for names, cut in stages]
    tries: Iterator[Try] = chain.from_iterable(((order, ()) for order in first_orders(each)) for each in pieces)
    harder = HarderOrders(pieces[-1])
    best = yield from _best_of(agent, known, tries, harder, None, first, until)
    assert best is not None, "nothing holds room where there is too little"
    names = list(dict.fromkeys([*every, *before]))
    is_small = len(before) <= PROMISES_MAX
    if best.kept or (is_small and (yield from _settled(agent, known, best, names, before, first, until, last=False))):
        return
    best = yield from _best_of(agent, known, iter(harder), harder, best, first, until)
    assert best is not None, "the best of before, at the worst"
    if not best.kept and is_small:
        yield from _done(agent, known, best, first, until)
    elif not best.kept:
        yield from _settled(agent, known, best, names, before, first, until, last=True)


def _best_of(
    agent: Agent,
    known: dict[str, Known],
    tries: Iterator[Try],
    harder: "HarderOrders",
    best: _Best | None,
    first: int,
    until: int,
) -> Search[_Best | None]:
    """The better of `best` and the tries, as far as those may go; one that keeps every promise ends them."""
    begun = agent.book.work
    for order, forms in tries:
        mark, before = len(agent.book.journal or []), dict(agent.held)
        broken = yield from _attempt(agent, known, order, first, until, forms)
        lost = sum(piece.loss for piece in broken)
        if not broken and not (yield from lacking(agent, first, until)):
            _keep(known, order)
            return _Best(0, order, forms, kept=True)
        if best is None or lost < best.lost:
            best = _Best(lost, order, forms)
        agent.book.undo(mark)
        agent.held = before
        harder.failed = broken
        if agent.book.work - begun > WORK_MAX:
            break
    return best


def _settled(
    agent: Agent,
    known: dict[str, Known],
    best: _Best,
    names: Sequence[str],
    before: Mapping[str, Piece],
    first: int,
    until: int,
    *,
    last: bool,
) -> Search[bool]:
    """Does what loses least, or what a complete search beside it finds that loses less. `names`: all promises, those
    that may move first. Returns whether nothing loses less still, as far as is known; if something might, nothing is
    changed, unless this is the `last` word.
    """
    mark, held_before, known_before = len(agent.book.journal or []), dict(agent.held), dict(known)
    broken = yield from _done(agent, known, best, first, until)
    pieces = _beside(broken, names, before)
    most = sum(piece.loss for piece in pieces if piece.name in broken)
    found = yield from losing_less(agent, known, pieces, most, first, until)
    is_least = found is Outcome.LESS or (found is Outcome.LEAST and len(pieces) == len(before))
    if not (is_least or last):
        agent.book.undo(mark)
        agent.held = held_before
        known.clear()
        known.update(known_before)
    return is_least


def _done(agent: Agent, known: dict[str, Known], best: _Best, first: int, until: int) -> Search[list[str]]:
    """Plans as `best` says. Returns the names of promises that are broken by that."""
    broken = yield from _attempt(agent, known, best.order, first, until, best.forms)
    _keep(known, best.order)
    names = [piece.name for piece in broken]
    for name in names:
        del known[name]
    # Packing on nodes is no exact science: with other units gone, those that stay may be packed in another way.
    while over := (yield from lacking(agent, first, until)):
        for name in [name for name in known if _meets(agent, known, name, over)]:
            _break(agent, known, name)
            names.append(name)
    return names


def _promise(agent: Agent, known: Mapping[str, Known], name: str) -> Piece:
    held = agent.held.get(name)
    plan = joined(known[name].begun, held.plan if held is not None else [])
    mine = known[name]
    return Piece(name, mine.user, mine.node, plan, _loss(agent, known, name), mine.weight)


def _beside(broken: Sequence[str], names: Sequence[str], before: Mapping[str, Piece]) -> list[Piece]:
    """What a complete search plans again: what would be broken, the largest first, and what else may move, first what
    holds something in the windows of those."""
    lost = sorted((before[name] for name in broken), key=lambda piece: (-piece.loss, piece.name))
    windows = [bounds(piece.node) for piece in lost]
    others = [before[name] for name in names if name not in broken]
    others.sort(key=lambda piece: not _overlaps(*extent(piece.old), windows))
    return [*lost, *others][:PROMISES_MAX]


def _break(agent: Agent, known: dict[str, Known], name: str) -> None:
    held = agent.held.pop(name, None)
    if held is not None:
        agent.book.give_back(held.user, held.plan)
    mine = known.pop(name)
    agent.book.give_back(mine.user, mine.begun)


def _attempt(
    agent: Agent,
    known: Mapping[str, Known],
    order: Sequence[PlanPiece],
    first: int,
    until: int,
    forms: Sequence[Form] = (),
) -> Search[list[PlanPiece]]:
    """Plans the pieces again, one after the other. Returns those that it broke: what runs and has no room any more, and
    what found none."""
    assert agent.book.journal is not None, "an attempt may have to be undone"
    for piece in order:
        held = agent.held.pop(piece.name, None)
        if held is not None:
            agent.book.give_back(held.user, held.plan)
        agent.book.give_back(piece.user, known[piece.name].begun)
        _take(agent, piece.user, piece.parts.begun)
    broken = yield from _without_room(agent, order, first, until)
    gone = {piece.name for piece in broken}
    for piece in order:
        rest = piece.parts.rest
        if rest is None or piece.name in gone:
            continue
        answer = yield from agent.finding(piece.user, inside(rest, first, agent.horizon), forms)
        if answer is None:
            agent.book.give_back(piece.user, piece.parts.begun)
            broken.append(piece)
        else:
            agent.held[piece.name] = AcceptedRequest(piece.user, rest, answer.plan)
    return broken


def _without_room(agent: Agent, order: Sequence[PlanPiece], first: int, until: int) -> Search[list[PlanPiece]]:
    """Breaks promises that run, those that lose least first, until the others have room; then takes those back that
    have room after all."""
    broken: list[PlanPiece] = []
    for piece in sorted(order, key=lambda piece: (piece.loss, piece.name)):
        if not (over := (yield from lacking(agent, first, until))):
            break
        if any(_overlaps(lease.begin, lease.end, over) for _, mine in piece.parts.begun for lease in mine):
            agent.book.give_back(piece.user, piece.parts.begun)
            broken.append(piece)
    for piece in reversed(list(broken)):
        _take(agent, piece.user, piece.parts.begun)
        if (yield from lacking(agent, first, until)):
            agent.book.give_back(piece.user, piece.parts.begun)
        else:
            broken.remove(piece)
    return broken


def _piece(agent: Agent, known: Mapping[str, Known], name: str, first: int, *, cut: bool) -> PlanPiece:
    mine = known[name]
    held = agent.held.get(name)
    plan = joined(mine.begun, held.plan if held is not None else [])
    parts = split(mine.node, plan, first, cut=cut)
    if held is None and not cut:
        parts = Split(plan, None, [])
    return PlanPiece(name, mine.user, parts, _loss(agent, known, name))


def _loss(agent: Agent, known: Mapping[str, Known], name: str) -> int:
    """What breaking a promise loses, by its weight."""
    return _lost(agent, known, name) * agent.factors.get(name, 1)


def _lost(agent: Agent, known: Mapping[str, Known], name: str) -> int:
    held = agent.held.get(name)
    total = 0
    for atom, leases in (*known[name].begun, *(held.plan if held is not None else [])):
        shares = (
            need * atom.gang * 10**6 // have for need, have in zip(atom.unit, agent.book.capacity, strict=True) if have
        )
        total += max(shares, default=0) * sum((each.end - each.begin) * each.gangs for each in leases)
    return total


def _meets(agent: Agent, known: Mapping[str, Known], name: str, over: Sequence[tuple[int, int]]) -> bool:
    held = agent.held.get(name)
    leases = [each for _, mine in (*known[name].begun, *(held.plan if held is not None else [])) for each in mine]
    return any(_overlaps(each.begin, each.end, over) for each in leases)


def _overlaps(begin: int, end: int, spans: Sequence[tuple[int, int]]) -> bool:
    return any(begin < last and first < end for first, last in spans)


def _take(agent: Agent, user: str, plan: Plan) -> None:
    for atom, leases in plan:
        agent.book.take(user, atom, leases)


def _keep(known: dict[str, Known], pieces: Sequence[PlanPiece]) -> None:
    for piece in pieces:
        mine = known[piece.name]
        known[piece.name] = replace(mine, begun=piece.parts.begun)
