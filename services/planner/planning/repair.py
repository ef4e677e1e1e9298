"""After a loss of capacity: moves promises until what is left holds them all, and breaks as little as it can if none
of its plans does.

Only what is not yet due moves. First the promises that hold room where there is too little; then, where they may,
leases that run are cut short and go on later; then all promises are planned anew. Each is tried in several orders. If
none keeps every promise, the order that loses least decides, and what it leaves out is broken.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise, permutations

import numpy as np

from services.planner.planning.agents import Agent, Held
from services.planner.planning.node_fit import moments
from services.planner.planning.placing import Form
from services.planner.planning.request import Atom, Lease, Node, Plan, bounds, fastest, inside
from services.planner.planning.residual import Split, split
from services.planner.planning.search import Search

ALL_MAX = 64
"""With more promises than these, not all are planned anew: only those that hold room where there is too little, and as
many of the others as there are up to here, the largest first."""

SQUEAKY_MAX = 8
PERMUTED_MAX = 5
WORK_MAX = 200_000
"""A repair is ended by the try with which it comes to so much, as planning/book.py counts: about 0.2 s in all, over as
many rounds as that takes."""

NODE_MOMENTS_MAX = 16
"""Whether units fit on nodes is looked at again after a loss of capacity, at so many changes of the plan from now on:
later ones follow as time goes on."""


@dataclass(slots=True, frozen=True)
class Known:
    """An accepted request as it was accepted, and its leases that began: they do not move."""

    user: str
    node: Node
    begun: Plan = field(default_factory=list)


_FORMS: tuple[tuple[Form, ...], ...] = (("early", "late", "flat"), ("late", "early", "flat"), ("flat", "early", "late"))


@dataclass(slots=True)
class _Piece:
    """A promise as it can be planned anew."""

    name: str
    user: str
    parts: Split
    loss: int  # What breaking it loses: dominant share x steps, in 10^-6.


_Try = tuple[Sequence[_Piece], Sequence[Form]]
"""An order to plan in, and the forms, the agent's own if empty."""


def over_from(agent: Agent, first: int, until: int) -> list[tuple[int, int]]:
    """The steps in `[first, until)` at which more is promised than there is."""
    edges, used = agent.book.used.span(first, max(first + 1, until))
    most = np.array(agent.book.capacity, np.int64)[:, np.newaxis]
    over = np.flatnonzero((used > most).any(axis=0)).tolist()
    return [(int(edges[i]), int(edges[i + 1])) for i in over]


def lacking(agent: Agent, first: int, until: int) -> Search[list[tuple[int, int]]]:
    """The same, and where what is promised does not fit on the nodes, as far as the first NODE_MOMENTS_MAX changes."""
    found = over_from(agent, first, until)
    shapes = agent.book.large_units() if agent.book.nodes is not None else {}
    steps = moments(shapes, first, until, NODE_MOMENTS_MAX) if shapes else []
    for step, then in pairwise([*steps, until]):
        yield
        if agent.book.lacks_nodes_at(shapes, step):
            found.append((step, then))
    return sorted(found)


def repairing(agent: Agent, known: dict[str, Known], first: int, until: int) -> Search[list[str]]:
    """Mends the plan, of which steps from `first` on can move, up to step `until`. Changes what the agent holds, and
    what is `known` of leases that are cut. Returns the names of promises that are broken: they hold nothing any more.
    """
    over = yield from lacking(agent, first, until)
    hit = [name for name in known if _meets(agent, known, name, over)]
    others = sorted((n for n in agent.held if n not in hit), key=lambda name: (-_loss(agent, known, name), name))
    every = hit + others[: max(0, ALL_MAX - len(hit))]
    best: tuple[int, Sequence[_Piece], Sequence[Form]] | None = None
    stages = ((hit, False), (hit, True), (every, True))
    pieces = [[_piece(agent, known, name, first, cut=cut) for name in names] for names, cut in stages]
    tries: Iterator[_Try] = chain.from_iterable(((order, ()) for order in _orders(each)) for each in pieces)
    harder = _Harder(pieces[-1])
    begun = agent.book.work
    for order, forms in chain(tries, harder):
        mark, before = len(agent.book.journal or []), dict(agent.held)
        broken = yield from _attempt(agent, known, order, first, until, forms)
        lost = sum(piece.loss for piece in broken)
        if not broken and not (yield from lacking(agent, first, until)):
            _keep(known, order)
            return []
        if best is None or lost < best[0]:
            best = lost, order, forms
        agent.book.undo(mark)
        agent.held = before
        harder.failed = broken
        if agent.book.work - begun > WORK_MAX:
            break
    assert best is not None, "nothing holds room where there is too little"
    broken = yield from _attempt(agent, known, best[1], first, until, best[2])
    _keep(known, best[1])
    names = [piece.name for piece in broken]
    for name in names:
        del known[name]
    # Packing on nodes is no exact science: with other units gone, those that stay may be packed in another way.
    while over := (yield from lacking(agent, first, until)):
        for name in [name for name in known if _meets(agent, known, name, over)]:
            _break(agent, known, name)
            names.append(name)
    return names


def _break(agent: Agent, known: dict[str, Known], name: str) -> None:
    held = agent.held.pop(name, None)
    if held is not None:
        agent.book.give_back(held.user, held.plan)
    mine = known.pop(name)
    agent.book.give_back(mine.user, mine.begun)


def _attempt(
    agent: Agent,
    known: Mapping[str, Known],
    order: Sequence[_Piece],
    first: int,
    until: int,
    forms: Sequence[Form] = (),
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
            agent.held[piece.name] = Held(piece.user, rest, answer.plan)
    return broken


def _without_room(agent: Agent, order: Sequence[_Piece], first: int, until: int) -> Search[list[_Piece]]:
    """Breaks promises that run, those that lose least first, until the others have room; then takes those back that
    have room after all."""
    broken: list[_Piece] = []
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


class _Harder:
    """Further orders and forms: what found no room last goes first (squeaky wheel optimisation: Joslin and Clements,
    1999); then, where few can move, every order. `failed`: what the last try broke."""

    def __init__(self, pieces: Sequence[_Piece]) -> None:
        self.fixed = [piece for piece in pieces if piece.parts.rest is None]
        self.moving = [piece for piece in pieces if piece.parts.rest is not None]
        self.failed: list[_Piece] = []

    def __iter__(self) -> Iterator[_Try]:
        for forms in _FORMS:
            order = list(self.moving)
            for _ in range(SQUEAKY_MAX):
                yield self.fixed + order, forms
                failed = {piece.name: True for piece in self.failed}
                order.sort(key=lambda piece: piece.name not in failed)
        if len(self.moving) <= PERMUTED_MAX:
            for permuted in permutations(self.moving):
                for forms in _FORMS:
                    yield [*self.fixed, *permuted], forms


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
