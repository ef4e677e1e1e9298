"""After a loss of capacity: moves promises until what is left holds them all, and breaks as little as it can if none
of its plans does.

Only what is not yet due moves. First the promises that hold room where there is too little; then, where they may,
leases that run are cut short and go on later; then all promises are planned anew. Each is tried in several orders. If
none keeps every promise, the order that loses least decides, and what it leaves out is broken.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from services.planner.planning.agents import Agent, Held
from services.planner.planning.request import Atom, Lease, Node, Plan, bounds, fastest, inside
from services.planner.planning.residual import Split, split
from services.planner.planning.search import Search

ALL_MAX = 64
"""With more promises than these, not all are planned anew: only those that hold room where there is too little, and as
many of the others as there are up to here, the largest first."""


@dataclass(slots=True, frozen=True)
class Known:
    """An accepted request as it was accepted, and its leases that began: they do not move."""

    user: str
    node: Node
    begun: Plan = field(default_factory=list)


@dataclass(slots=True)
class _Piece:
    """A promise as it can be planned anew."""

    name: str
    user: str
    parts: Split
    loss: int  # What breaking it loses: dominant share x steps, in 10^-6.


def over_from(agent: Agent, first: int, until: int) -> list[tuple[int, int]]:
    """The steps in `[first, until)` at which more is promised than there is."""
    edges, used = agent.book.used.span(first, max(first + 1, until))
    most = np.array(agent.book.capacity, np.int64)[:, np.newaxis]
    over = np.flatnonzero((used > most).any(axis=0)).tolist()
    return [(int(edges[i]), int(edges[i + 1])) for i in over]


def repairing(agent: Agent, known: dict[str, Known], first: int, until: int) -> Search[list[str]]:
    """Mends the plan, of which steps from `first` on can move, up to step `until`. Changes what the agent holds, and
    what is `known` of leases that are cut. Returns the names of promises that are broken: they hold nothing any more.
    """
    over = over_from(agent, first, until)
    hit = [name for name in known if _meets(agent, known, name, over)]
    others = sorted((n for n in agent.held if n not in hit), key=lambda name: (-_loss(agent, known, name), name))
    every = hit + others[: max(0, ALL_MAX - len(hit))]
    best: tuple[int, list[_Piece]] | None = None
    for names, cut in ((hit, False), (hit, True), (every, True)):
        for order in _orders([_piece(agent, known, name, first, cut=cut) for name in names]):
            mark, before = len(agent.book.journal or []), dict(agent.held)
            broken = yield from _attempt(agent, known, order, first, until)
            lost = sum(piece.loss for piece in broken)
            if not broken:
                _keep(known, order)
                return []
            if best is None or lost < best[0]:
                best = lost, order
            agent.book.undo(mark)
            agent.held = before
    assert best is not None, "nothing holds room where there is too little"
    broken = yield from _attempt(agent, known, best[1], first, until)
    _keep(known, best[1])
    for piece in broken:
        del known[piece.name]
    return [piece.name for piece in broken]


def _attempt(
    agent: Agent, known: Mapping[str, Known], order: Sequence[_Piece], first: int, until: int
) -> Search[list[_Piece]]:
    """Plans the pieces anew, one after the other. Returns those that it broke: what runs and has no room any more, and
    what found none."""
    assert agent.book.journal is not None, "an attempt may have to be undone"
    for piece in order:
        held = agent.held.pop(piece.name, None)
        if held is not None:
            agent.book.give_back(held.user, held.plan)
        agent.book.give_back(piece.user, known[piece.name].begun)
        _take(agent, piece.user, piece.parts.begun)
    broken = _without_room(agent, order, first, until)
    gone = {piece.name for piece in broken}
    for piece in order:
        rest = piece.parts.rest
        if rest is None or piece.name in gone:
            continue
        answer = yield from agent.finding(piece.user, inside(rest, first, agent.horizon))
        if answer is None:
            agent.book.give_back(piece.user, piece.parts.begun)
            broken.append(piece)
        else:
            agent.held[piece.name] = Held(piece.user, rest, answer.plan)
    return broken


def _without_room(agent: Agent, order: Sequence[_Piece], first: int, until: int) -> list[_Piece]:
    """Breaks promises that run, those that lose least first, until the others have room; then takes those back that
    have room after all."""
    broken: list[_Piece] = []
    for piece in sorted(order, key=lambda piece: (piece.loss, piece.name)):
        if not (over := over_from(agent, first, until)):
            break
        if any(_overlaps(lease.begin, lease.end, over) for _, mine in piece.parts.begun for lease in mine):
            agent.book.give_back(piece.user, piece.parts.begun)
            broken.append(piece)
    for piece in reversed(list(broken)):
        _take(agent, piece.user, piece.parts.begun)
        if over_from(agent, first, until):
            agent.book.give_back(piece.user, piece.parts.begun)
        else:
            broken.remove(piece)
    return broken


def _piece(agent: Agent, known: Mapping[str, Known], name: str, first: int, *, cut: bool) -> _Piece:
    mine = known[name]
    held = agent.held.get(name)
    plan = joined(mine.begun, held.plan if held is not None else [])
    parts = split(mine.node, plan, first, cut=cut)
    if held is None and not cut:
        parts = Split(plan, None, [])
    return _Piece(name, mine.user, parts, _loss(agent, known, name))


def joined(begun: Plan, coming: Plan) -> Plan:
    """One plan of two parts: each atom once."""
    leases: dict[str, list[Lease]] = {}
    found: dict[str, Atom] = {}
    for atom, mine in (*begun, *coming):
        found.setdefault(atom.path, atom)
        leases.setdefault(atom.path, []).extend(mine)
    return [(found[path], sorted(mine)) for path, mine in leases.items()]


def _loss(agent: Agent, known: Mapping[str, Known], name: str) -> int:
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


def _orders(pieces: Sequence[_Piece]) -> list[list[_Piece]]:
    """Orders to plan in: by deadline, by slack, the largest first."""
    moving = [piece for piece in pieces if piece.parts.rest is not None]
    fixed = [piece for piece in pieces if piece.parts.rest is None]

    def deadline(piece: _Piece) -> tuple[int, str]:
        return (bounds(piece.parts.rest)[1] if piece.parts.rest is not None else 0), piece.name

    def slack(piece: _Piece) -> tuple[int, str]:
        if piece.parts.rest is None:
            return 0, piece.name
        begin, end = bounds(piece.parts.rest)
        return end - begin - fastest(piece.parts.rest), piece.name

    return [
        fixed + sorted(moving, key=lambda piece: (-piece.loss, piece.name)),
        fixed + sorted(moving, key=slack),
        fixed + sorted(moving, key=deadline),
    ]


def _take(agent: Agent, user: str, plan: Plan) -> None:
    for atom, leases in plan:
        agent.book.take(user, atom, leases)


def _keep(known: dict[str, Known], pieces: Sequence[_Piece]) -> None:
    for piece in pieces:
        mine = known[piece.name]
        known[piece.name] = Known(mine.user, mine.node, piece.parts.begun)
