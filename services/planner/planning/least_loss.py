"""What a complete search makes of a repair that breaks promises: the plans that lose least, of a few promises at once.

The promises that are to be broken, and those beside them, are taken out of the book. Then sets of promises to give up
are tried, those that lose least first, with every choice of branches of an `any`; for each of them the search of
sweep.py looks for plans of all the others. Leases that run last as long as they have to, and may end any time after
that. Where the searches end, nothing loses less; where the budget ends them, the repair stands as it was.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from heapq import heappop, heappush
from itertools import islice, product

from services.planner.planning.agents import Agent
from services.planner.planning.answers import AcceptedRequest
from services.planner.planning.node_fit import fit, is_small
from services.planner.planning.request import Atom, Group, Lease, Node, Plan, atoms, least_work
from services.planner.planning.residual import Known, split
from services.planner.planning.search import Search
from services.planner.planning.shortfall import lacking
from services.planner.planning.sweep import Activity, Choice, Problem, Sweep
from services.planner.planning.verify import fault

PROMISES_MAX = 12
"""Promises that are planned again together at most."""

STEPS_MAX = 1_000
"""Windows that end more steps from now than this are not searched: the search would not come to their end."""

DROPS_MAX = 256
"""Sets of promises to give up that are tried at most."""

VARIANTS_MAX = 256
"""Choices of branches that are tried at most with the same promises."""

WORK_MAX = (5_000, 40_000, 320_000)
"""What a search for one set of promises may come to, as planning/book.py counts: all sets are tried with little before
any is tried with more."""

TOTAL_WORK_MAX = 400_000
"""What all of them may come to: about half a second, over as many rounds as that takes."""


class Outcome(Enum):
    """`LESS`: plans were found that lose less. `LEAST`: there are none. `OPEN`: the budget ended the search."""

    LESS = "less"
    LEAST = "least"
    OPEN = "open"


@dataclass(slots=True)
class Piece:
    """A promise: its plan before the repair (`old`), and what breaking it loses, by its `weight`."""

    name: str
    user: str
    node: Node
    old: Plan
    loss: int
    weight: int = 1


@dataclass(slots=True)
class _Drop:
    """Positions of pieces that are given up. `ruled_out`: there is no plan for the others."""

    pieces: tuple[int, ...]
    ruled_out: bool = False


def losing_less(
    agent: Agent, known: dict[str, Known], pieces: Sequence[Piece], most: int, first: int, until: int
) -> Search[Outcome]:
    """Looks for plans of the pieces that lose less than `most`. Where it finds some the agent holds them, and what is
    `known` of the promises is as they are; a piece that is not known then is given up. Else nothing has changed.
    """
    assert agent.book.journal is not None, "an attempt may have to be undone"
    mark, held_before, known_before = len(agent.book.journal), dict(agent.held), dict(known)
    for piece in pieces:
        _release(agent, known, piece.name)
    found = yield from _Search(agent, known, pieces, first, until).run(most)
    if found is not Outcome.LESS:
        _restore(agent, known, mark, held_before, known_before)
    return found


def _release(agent: Agent, known: dict[str, Known], name: str) -> None:
    mine = known.pop(name, None)
    if mine is not None:
        agent.book.give_back(mine.user, mine.begun)
    held = agent.held.pop(name, None)
    if held is not None:
        agent.book.give_back(held.user, held.plan)


def _restore(
    agent: Agent,
    known: dict[str, Known],
    mark: int,
    held_before: dict[str, AcceptedRequest],
    known_before: dict[str, Known],
) -> None:
    """All promises as they were when the book's journal was `mark` entries long."""
    agent.book.undo(mark)
    agent.held = held_before
    known.clear()
    known.update(known_before)


class _Search:
    """`pieces` are out of the book. Steps of problems count from `first`."""

    def __init__(self, agent: Agent, known: dict[str, Known], pieces: Sequence[Piece], first: int, until: int) -> None:
        self.agent = agent
        self.known = known
        self.pieces = pieces
        self.first = first
        self.until = until
        ends = [atom.end for piece in pieces for atom in atoms(piece.node)]
        ends += [each.end for piece in pieces for _, leases in piece.old for each in leases]
        self.steps = max(min(max(ends), agent.horizon) - first, 1)
        self.rows: dict[str, list[int]] = {}  # Where rows that count for a user begin; those of the cell begin at 0.
        self.room: list[list[int]] = []
        self.packed: dict[tuple[int, ...], bool] = {}

    def run(self, most: int) -> Search[Outcome]:
        """Promises the plans that lose least, if that is less than `most`."""
        if self.steps > STEPS_MAX or (yield from lacking(self.agent, self.first, self.until)):
            return Outcome.OPEN
        self._measure()
        begun = self.agent.book.work
        drops = list(islice(_drops([piece.loss for piece in self.pieces], most), DROPS_MAX + 1))
        is_whole = len(drops) <= DROPS_MAX
        best: _Found | None = None
        for work_max in WORK_MAX:
            for at, drop in enumerate(drops[:DROPS_MAX]):
                left = TOTAL_WORK_MAX - (self.agent.book.work - begun)
                if drop.ruled_out or left <= 0:
                    continue
                found = yield from self._without(drop, min(work_max, left))
                if found is not None:
                    best = found
                    del drops[at:]  # What loses less may need more work.
                    break
        if best is not None:
            holds = yield from best.built.accept(best.path)
            assert holds, "what held a moment ago does not hold"
            return Outcome.LESS
        return Outcome.LEAST if is_whole and all(drop.ruled_out for drop in drops) else Outcome.OPEN

    def _without(self, drop: _Drop, work_max: int) -> "Search[_Found | None]":
        """Looks for plans of all other pieces."""
        kept = [piece for at, piece in enumerate(self.pieces) if at not in drop.pieces]
        variants = list(islice(product(*(_variants(piece, self) for piece in kept)), VARIANTS_MAX))
        every, work = True, 0
        for chosen in variants:
            built = _Built(self, kept, chosen)
            sweep = Sweep(built.problem)
            search = sweep.run(max(1, work_max - work), built.accepts)
            while True:
                before = sweep.work
                try:
                    next(search)
                except StopIteration as end:
                    self.agent.book.work += sweep.work - before
                    if end.value is not None:
                        return _Found(built, end.value)
                    break
                self.agent.book.work += sweep.work - before
                yield
            every = every and sweep.done
            work += sweep.work
            if work >= work_max:
                return None
        drop.ruled_out = every and len(variants) < VARIANTS_MAX
        return None

    def _measure(self) -> None:
        """What is left beside what is fixed."""
        book, first, last = self.agent.book, self.first, self.first + self.steps
        profiles = [(book.used, book.capacity)]
        rows: dict[tuple[str, str], int] = {}  # Queues below the same maximum share its rows.
        for user in dict.fromkeys(piece.user for piece in self.pieces):
            for key, limit in book.named_limits_of(user):
                if key not in rows:
                    rows[key] = len(profiles) * len(book.capacity)
                    profiles.append(limit)
                self.rows.setdefault(user, []).append(rows[key])
        for profile, most in profiles:
            edges, used = profile.span(first, last)
            lasts = (edges[1:] - edges[:-1]).tolist()
            for have, amounts in zip(most, used.tolist(), strict=True):
                self.room.append([have - amount for amount, n in zip(amounts, lasts, strict=True) for _ in range(n)])
        book.work += len(self.room) * self.steps // 10

    def needs(self, user: str, atom: Atom) -> list[tuple[int, int]]:
        """Rows and amounts of a gang."""
        found = [(row, need * atom.gang) for row, need in enumerate(atom.unit) if need]
        return found + [(mine + row, need) for mine in self.rows.get(user, ()) for row, need in found]


class _Built:
    """A problem of the search: pieces with the branches that were chosen for them."""

    def __init__(self, search: _Search, kept: Sequence[Piece], chosen: Sequence[Node]) -> None:
        self.search = search
        self.kept = kept
        self.atoms: list[tuple[int, Atom]] = []  # By activity, the position of its piece.
        self.activities: list[Activity] = []
        self.touching: list[tuple[list[int], list[int]]] = []
        for at, node in enumerate(chosen):
            past = {atom.path: leases for atom, leases in kept[at].old}
            self._add(at, node, past, [], gapless=False)
        position = {(at, atom.path): i for i, (at, atom) in enumerate(self.atoms)}
        for at, node in enumerate(chosen):
            mine = {atom.path: self.activities[position[at, atom.path]] for atom in atoms(node)}
            _begin_late(node, mine, 0)
            _end_soon(node, mine, search.steps)
        shifts = search.agent.limits.average is None
        self.problem = Problem(self.activities, search.room, self.touching, self._fits_of(), shifts)

    def _add(self, at: int, node: Node, past: dict[str, list[Lease]], before: list[int], *, gapless: bool) -> list[int]:
        """Activities of a part of a request; `before`: what has to end before they begin."""
        if isinstance(node, Atom):
            self.atoms.append((at, node))
            needs = self.search.needs(self.kept[at].user, node)
            self.activities.append(_activity(node, needs, past.get(node.path, []), self.search.first, before, gapless))
            return [len(self.atoms) - 1]
        if node.kind == "all":
            return [i for branch in node.of for i in self._add(at, branch, past, before, gapless=gapless)]
        found: list[int] = []
        link: list[int] = []
        for branch in node.of:
            last, link = link, self._add(at, branch, past, before + link, gapless=gapless or node.kind != "order")
            found += link
            if last and node.kind == "order_no_gap":
                self.touching.append((last, link))
        return found

    def _fits_of(self) -> Callable[[int, Sequence[int]], bool]:
        """Whether units fit on nodes at a step."""
        book, nodes = self.search.agent.book, self.search.agent.book.nodes
        large = [
            (i, atom) for i, (_, atom) in enumerate(self.atoms) if nodes is not None and not is_small(atom.unit, nodes)
        ]
        if not large:
            return _always
        assert nodes is not None, "units are large beside nodes"
        fixed = book.large_units()
        shapes = sorted({**fixed, **{atom.unit: fixed.get(atom.unit) for _, atom in large}})
        position = {shape: k for k, shape in enumerate(shapes)}
        packed, first = self.search.packed, self.search.first

        def fits(step: int, gangs: Sequence[int]) -> bool:
            counts = [fixed[shape].at(first + step)[0] if shape in fixed else 0 for shape in shapes]
            for i, atom in large:
                counts[position[atom.unit]] += gangs[i] * atom.gang
            key = tuple(counts)
            if key not in packed:
                book.work += 20 * len(shapes) * (1 + len(nodes))
                held = [(shape, count) for shape, count in zip(shapes, counts, strict=True) if count > 0]
                packed[key] = bool(nodes) and (not held or fit(held, nodes))
            return packed[key]

        return fits

    def accepts(self, path: list[list[Choice]]) -> Search[bool]:
        """Whether the plans of a path hold: promises them for a moment."""
        agent, known = self.search.agent, self.search.known
        mark, held_before, known_before = len(agent.book.journal or []), dict(agent.held), dict(known)
        holds = yield from self.accept(path)
        if holds:
            _restore(agent, known, mark, held_before, known_before)
        return holds

    def accept(self, path: list[list[Choice]]) -> Search[bool]:
        """Promises the plans of a path, unless they do not hold after all."""
        agent, known, first = self.search.agent, self.search.known, self.search.first
        assert agent.book.journal is not None, "an attempt may have to be undone"
        mark, held_before, known_before = len(agent.book.journal), dict(agent.held), dict(known)
        for piece, plan in zip(self.kept, self._plans(path), strict=True):
            if fault(piece.node, plan):
                break
            parts = split(piece.node, plan, first)
            known[piece.name] = Known(piece.user, piece.node, parts.begun, piece.weight)
            for atom, leases in parts.begun:
                agent.book.take(piece.user, atom, leases)
            if parts.rest is not None:
                agent.hold(piece.name, AcceptedRequest(piece.user, parts.rest, parts.coming))
            if not agent.within_average(piece.user, plan):
                break
        else:
            if not (yield from lacking(agent, first, self.search.until)):
                return True
        _restore(agent, known, mark, held_before, known_before)
        return False

    def _plans(self, path: list[list[Choice]]) -> list[Plan]:
        """By piece, all leases, those that are over included."""
        plans: list[Plan] = [[] for _ in self.kept]
        going_on: list[list[int]] = [[0] * (len(path) + 1) for _ in self.atoms]
        starting: list[list[int]] = [[0] * (len(path) + 1) for _ in self.atoms]
        for step, chosen in enumerate(path):
            for i, loose, starts in chosen:
                going_on[i][step], starting[i][step] = loose, starts
        for i, (at, atom) in enumerate(self.atoms):
            old = next((leases for each, leases in self.kept[at].old if each.path == atom.path), [])
            leases = _leases(atom, old, self.search.first, going_on[i], starting[i])
            if leases:
                plans[at].append((atom, leases))
        return plans


@dataclass(slots=True)
class _Found:
    """The choices of each step that solve a problem."""

    built: _Built
    path: list[list[Choice]]


def _always(step: int, gangs: Sequence[int]) -> bool:
    return True


def _drops(losses: Sequence[int], most: int) -> Iterator[_Drop]:
    """Sets of pieces that lose less than `most`, those that lose least first."""
    order = sorted(range(len(losses)), key=lambda at: (losses[at], at))
    heap: list[tuple[int, tuple[int, ...]]] = [(0, ())]
    while heap:
        loss, chosen = heappop(heap)  # Positions in `order`.
        yield _Drop(tuple(sorted(order[at] for at in chosen)))
        for at in range(chosen[-1] + 1 if chosen else 0, len(order)):
            more = loss + losses[order[at]]
            if more >= most:
                break
            heappush(heap, (more, (*chosen, at)))


def _variants(piece: Piece, search: _Search) -> list[Node]:
    """The request with one branch of every `any`: first as it is planned by now, then the lightest. What has begun
    stays."""
    begun = {atom.path: True for atom, leases in piece.old if any(each.begin < search.first for each in leases)}
    planned = {atom.path: True for atom, _ in piece.old}
    return _branches(piece.node, begun, planned, search.agent.book.capacity)


def _branches(node: Node, begun: dict[str, bool], planned: dict[str, bool], capacity: tuple[int, ...]) -> list[Node]:
    if isinstance(node, Atom):
        return [node]
    if node.kind == "any":
        mine = [branch for branch in node.of if any(atom.path in begun for atom in atoms(branch))] or node.of

        def rank(branch: Node) -> tuple[bool, int]:
            return not any(atom.path in planned for atom in atoms(branch)), least_work(branch, capacity)

        ranked = sorted(mine, key=rank)
        return [each for branch in ranked for each in _branches(branch, begun, planned, capacity)][:VARIANTS_MAX]
    parts = [_branches(branch, begun, planned, capacity) for branch in node.of]
    return [Group(node.kind, list(each)) for each in islice(product(*parts), VARIANTS_MAX)]


def _activity(
    atom: Atom, needs: list[tuple[int, int]], leases: Sequence[Lease], first: int, before: list[int], gapless: bool
) -> Activity:
    past = [each for each in leases if each.begin < first]
    done = sum((min(each.end, first) - each.begin) * each.gangs for each in past)
    running = [
        (max(0, min(each.begin + atom.lease, each.end) - first), each.gangs)
        for each in sorted(past)
        if each.end > first
    ]
    left = atom.work - done - sum(free_at * gangs for free_at, gangs in running)
    begin, end = max(0, atom.begin - first), atom.end - first
    return Activity(needs, atom.gangs_most, atom.lease, left, begin, end, running, before, bool(past), gapless)


def _lasts(each: Activity) -> int:
    """Steps that an activity takes at least from now on."""
    bound = max((free_at for free_at, _ in each.running), default=0)
    if each.left <= 0:
        return bound
    work = each.left + sum(free_at * gangs for free_at, gangs in each.running)
    return max(bound if each.running else each.lease, -(-work // each.width))


def _begin_late(node: Node, mine: dict[str, Activity], at: int) -> int:
    """Nothing begins before what comes before it can have ended. Returns the soonest end."""
    if isinstance(node, Atom):
        each = mine[node.path]
        each.begin = max(each.begin, at)
        return (0 if each.begun else each.begin) + _lasts(each) if _lasts(each) else at
    if node.kind == "all":
        return max(_begin_late(branch, mine, at) for branch in node.of)
    for branch in node.of:
        at = _begin_late(branch, mine, at)
    return at


def _end_soon(node: Node, mine: dict[str, Activity], at: int) -> int:
    """Everything ends in time for what comes after it. Returns the latest begin."""
    if isinstance(node, Atom):
        each = mine[node.path]
        each.end = min(each.end, at)
        return each.end - _lasts(each) if _lasts(each) else at
    if node.kind == "all":
        return min(_end_soon(branch, mine, at) for branch in node.of)
    for branch in reversed(node.of):
        at = _end_soon(branch, mine, at)
    return at


def _leases(
    atom: Atom, old: Sequence[Lease], first: int, going_on: Sequence[int], starting: Sequence[int]
) -> list[Lease]:
    """Leases of an atom from the gangs that go on beyond their least lease, and those that start, in each step. What
    began first ends first."""
    past = sorted(each for each in old if each.begin < first)
    found = [each for each in past if each.end <= first]
    running = [[each.begin, min(each.begin + atom.lease, each.end), each.gangs] for each in past if each.end > first]
    for at, (loose, starts) in enumerate(zip(going_on, starting, strict=True)):
        step = first + at
        ending = sum(gangs for _, free_at, gangs in running if free_at <= step) - loose
        for each in running:
            gangs = min(ending, each[2]) if each[1] <= step else 0
            if gangs > 0:
                found.append(Lease(each[0], step, gangs))
                each[2] -= gangs
                ending -= gangs
        running = [each for each in running if each[2]]
        if starts:
            running.append([step, step + atom.lease, starts])
    assert not running, f"a lease of atom {atom.path} without an end"
    return sorted(found)
