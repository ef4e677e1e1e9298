"""Answers reservations one after the other: accepted with a plan, or rejected with a reason and what would be accepted.

The agents `gree`, `gree-l` and `early` use one form each (`greedy.py`). The default tries the flat form, then the
others. If none finds room, it moves accepted reservations inside their own windows to make room: one, two, and at last
those that hold most in the windows of the request, all together.
It never breaks a promise: what it moves still meets its request.

What moving one or two does not solve is often a matter of order. So the request and those that hold most are planned
one after the other, in several orders and forms; what found no room goes first the next time (squeaky wheel
optimisation: Joslin and Clements, 1999). Only where all of them find room is anything moved.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from services.planner.planning.answers import AcceptedRequest, Answer, Fixed, GridRequest, Offer
from services.planner.planning.book import Book
from services.planner.planning.greedy import planning
from services.planner.planning.limits import UserLimits, average_above, queue_of
from services.planner.planning.narrowing import sizes_text, widths
from services.planner.planning.placing import Form
from services.planner.planning.request import Atom, Node, Plan, atoms, bounds, extent, fastest, inside, scaled
from services.planner.planning.search import Search, finished

FORMS: dict[str, tuple[Form, ...]] = {"gree": ("late",), "gree-l": ("flat",), "early": ("early",)}
DEFAULT_FORMS: tuple[Form, ...] = ("flat", "early", "late")

MOVED_ALONE_MAX = 12
"""Accepted reservations that are tried, one at a time, to make room by moving."""

MOVED_IN_PAIRS_MAX = 6
"""Of those, how many are tried two at a time."""

TOGETHER_MAX = 8
"""Accepted reservations that are planned again with a request."""

ORDERS_MAX = 6
"""Orders that are tried with the same forms."""

TOGETHER_FORMS: tuple[tuple[Form, ...], ...] = (("early", "late", "flat"), ("late", "early", "flat"))
"""Tried in this order. To begin with the flat form, too, takes half as long again and accepted nothing more."""

REACH = 4
"""Windows to offer are sought as far away as the window is long, then so many times farther, up to the horizon."""

SIZE_STEPS = 6
"""Halvings in the search for a size that would be accepted."""


class Agent:
    """Plans requests into a book, and knows what it has accepted."""

    def __init__(self, name: str, book: Book, limits: UserLimits, horizon: int, first: int = 0) -> None:
        """An unknown name is the default agent. Steps `[first, horizon)` can be planned."""
        self.forms = FORMS.get(name, DEFAULT_FORMS)
        self.moves = name not in FORMS
        self.book = book
        self.limits = limits
        self.horizon = horizon
        self.first = first
        self.held: dict[str, AcceptedRequest] = {}
        self.fixed: dict[str, Fixed] = {}
        self.factors: dict[str, int] = {}  # Of a repair: by promise, by what its loss counts; 1 where it is not there.
        self.stuck: Atom | None = None  # That last found no room; None if a plan was above the user's average.

    def owner(self, name: str) -> str | None:
        """The user that a promise is made to; None if there is no such promise."""
        promise = self.held.get(name) or self.fixed.get(name)
        return None if promise is None else promise.user

    def submit(self, request: GridRequest) -> Answer:
        """Accepts a new request, or rejects it."""
        return finished(self.submitting(request))

    def submitting(self, request: GridRequest) -> Search[Answer]:
        """The same, step by step. While it goes on, nobody else may change the book."""
        node = inside(request.body, request.begin, request.end)
        answer = yield from self.finding_room(request.user, node)
        if answer.code:
            answer.offer = yield from self._offer(request)
        else:
            self.held[request.name] = AcceptedRequest(request.user, node, answer.plan)
        return answer

    def finding_room(self, user: str, node: Node) -> Search[Answer]:
        """A plan, also by moving what is accepted; or why there is none. Takes it in the book, but does not hold it."""
        answer = yield from self.finding(user, node)
        stuck = self.stuck
        if answer is None and self.moves:
            answer = yield from self._find_by_moving(user, node)
        return answer or Answer("no_room" if stuck is not None else "limit", self._reason(user, stuck))

    def update(self, request: GridRequest) -> Answer:
        """New terms for an accepted request: it keeps the old ones if the new ones are rejected."""
        return finished(self.updating(request))

    def updating(self, request: GridRequest) -> Search[Answer]:
        """The same, step by step."""
        old = self._put_aside(request.name)
        answer = yield from self.submitting(request)
        if answer.code:
            self._put_back(request.name, old)
        return answer

    def offer(self, request: GridRequest) -> Offer | None:
        """What would be accepted instead of a request that is not, in place of what it has by now."""
        return finished(self.offering(request))

    def offering(self, request: GridRequest) -> Search[Offer | None]:
        """The same, step by step."""
        old = self._put_aside(request.name)
        found = yield from self._offer(request)
        self._put_back(request.name, old)
        return found

    def _put_aside(self, name: str) -> AcceptedRequest | Fixed | None:
        old = self.held.get(name) or self.fixed.get(name)
        if old is not None:
            self.drop(name)
        return old

    def _put_back(self, name: str, old: AcceptedRequest | Fixed | None) -> None:
        if isinstance(old, AcceptedRequest):
            self.hold(name, old)
        elif old is not None:
            self.fix(name, old)

    def hold(self, name: str, held: AcceptedRequest) -> None:
        """Promises a plan."""
        for atom, leases in held.plan:
            self.book.take(held.user, atom, leases)
        self.held[name] = held

    def fix(self, name: str, fixed: Fixed) -> None:
        """Promises a profile."""
        for begin, end, amounts in fixed.runs:
            self.book.add(fixed.user, begin, end, amounts)
        self.fixed[name] = fixed

    def drop(self, name: str) -> None:
        """Gives a promise back."""
        if name in self.held:
            held = self.held.pop(name)
            self.book.give_back(held.user, held.plan)
        else:
            fixed = self.fixed.pop(name)
            for begin, end, amounts in fixed.runs:
                self.book.add(fixed.user, begin, end, amounts, -1)

    def finding(self, user: str, node: Node, forms: Sequence[Form] = ()) -> Search[Answer | None]:
        """A plan in one of the forms, the agent's own where none are named, without moving anything. Takes it in the
        book."""
        for form in forms or self.forms:
            for wide in widths(node, self.book.nodes):
                found = yield from planning(self.book, user, wide, form)
                if isinstance(found, Atom):
                    self.stuck = found
                    break
                if self.within_average(user, found):
                    if not self.book.nodes or not (yield from self.book.lacks_nodes(*extent(found))):
                        by_path = {atom.path: atom for atom in atoms(node)} if wide is not node else {}
                        return Answer(form=form, plan=[(by_path.get(a.path, a), leases) for a, leases in found])
                    self.stuck = found[0][0]
                    self.book.give_back(user, found)
                else:
                    self.stuck = None
                    self.book.give_back(user, found)
                    break
        return None

    def within_average(self, user: str, found: Plan) -> bool:
        """Whether a user holds no more on average than its limit where a plan lies, which is in the book."""
        if self.limits.average is None:
            return True
        profile = self.book.of_user(user)
        return average_above(profile, self.book.capacity, self.limits, *extent(found)) is None

    def _find_by_moving(self, user: str, node: Node) -> Search[Answer | None]:
        ranked = self._ranked(node)
        for names in _movable(ranked):
            old = {name: self.held[name] for name in names}
            for name in names:
                self.drop(name)
            answer = yield from self.finding(user, node)
            if answer is not None:
                if (yield from self._placed_again(old)):
                    answer.moved = [name for name in names if self.held[name].plan != old[name].plan]
                    return answer
                self.book.give_back(user, answer.plan)
            for name, held in old.items():
                self.hold(name, held)
        return (yield from _planned_together(self, user, node, ranked[:TOGETHER_MAX]))

    def _placed_again(self, old: dict[str, AcceptedRequest]) -> Search[bool]:
        """Plans old promises again. If they do not all fit, none of them is held."""
        done: list[str] = []
        for name, held in old.items():
            again = yield from self.finding(held.user, inside(held.node, self.first, self.horizon))
            if again is None:
                for each in done:
                    self.drop(each)
                return False
            self.held[name] = AcceptedRequest(held.user, held.node, again.plan)
            done.append(name)
        return True

    def _ranked(self, node: Node) -> list[str]:
        """Accepted requests that hold something in the windows of a request, those that hold most first."""
        windows = list(dict.fromkeys((atom.begin, atom.end) for atom in atoms(node)))
        shares = {name: _held_inside(held.plan, windows, self.book.capacity) for name, held in self.held.items()}
        return sorted((name for name, share in shares.items() if share), key=lambda name: (-shares[name], name))

    def _reason(self, user: str, stuck: Atom | None) -> str:
        """Why there is no room. `stuck`: the atom that found none."""
        if stuck is None:
            return f"in every plan user {queue_of(user)} holds more on average than its limit allows"
        moved = "; moving what is accepted makes none" if self.moves else ""
        limited = f" or the limit of user {queue_of(user)}" if self.limits.instant is not None else ""
        return f"atom {stuck.path} finds no room in its window beside what is promised{limited}{moved}"

    def _offer(self, request: GridRequest) -> Search[Offer | None]:
        """The nearest window that would be accepted: with a later end, or an earlier start. Else a smaller size."""
        length = max(1, request.end - request.begin)
        more, whole = length, False
        while not whole:
            first, last = max(self.first, request.begin - more), min(self.horizon, request.end + more)
            windows = []
            later = yield from self._fits(request.user, inside(request.body, request.begin, last), "early")
            if later:
                windows.append((later[1] - request.end, request.begin, later[1]))
            earlier = yield from self._fits(request.user, inside(request.body, first, request.end), "late")
            if earlier:
                windows.append((request.begin - earlier[0], earlier[0], request.end))
            for _, begin, end in sorted(windows):
                if (yield from self._would_fit(request.user, inside(request.body, begin, end))):
                    return Offer(window=(begin, end))
            whole = first == self.first and last == self.horizon
            more *= REACH
        return (yield from self._smaller(request))

    def _fits(self, user: str, node: Node, form: Form) -> Search[tuple[int, int] | None]:
        """The steps that a form would use."""
        found = yield from planning(self.book, user, node, form)
        if isinstance(found, Atom):
            return None
        within = self.within_average(user, found)
        self.book.give_back(user, found)
        return extent(found) if within else None

    def _would_fit(self, user: str, node: Node) -> Search[bool]:
        found = yield from self.finding(user, node)
        if found is not None:
            self.book.give_back(user, found.plan)
        return found is not None

    def _smaller(self, request: GridRequest) -> Search[Offer | None]:
        node = inside(request.body, request.begin, request.end)
        low, high = 0, 1000  # `low` is accepted, or nothing; `high` is not.
        for _ in range(SIZE_STEPS):
            middle = (low + high) // 2
            if (yield from self._would_fit(request.user, scaled(node, middle))):
                low = middle
            else:
                high = middle
        return Offer(size_permille=low, sizes=sizes_text(node, low)) if low else None


def _movable(ranked: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Accepted requests whose moving may make room for another, in the order in which it is tried."""
    for name in ranked[:MOVED_ALONE_MAX]:
        yield (name,)
    pairs = ranked[:MOVED_IN_PAIRS_MAX]
    for i, name in enumerate(pairs):
        for other in pairs[i + 1 :]:
            yield name, other


def _held_inside(found: Plan, windows: Sequence[tuple[int, int]], capacity: Sequence[int]) -> int:
    """Dominant share x steps of a plan inside the best of the windows, in 10^-6."""
    first, last = min(begin for begin, _ in windows), max(end for _, end in windows)
    total = 0
    for atom, leases in found:
        inner = [each for each in leases if each.begin < last and each.end > first]
        if not inner:
            continue
        shares = (need * atom.gang * 10**6 // have for need, have in zip(atom.unit, capacity, strict=True) if have)
        share = max(shares, default=0)
        for each in inner:
            steps = max(min(each.end, end) - max(each.begin, begin) for begin, end in windows)
            total += share * each.gangs * max(0, steps)
    return total


# ---------------------------------------------------------------- several orders
@dataclass(slots=True)
class _Piece:
    """A promise, or the request: then `name` is empty."""

    name: str
    user: str
    node: Node

    @property
    def slack(self) -> int:
        begin, end = bounds(self.node)
        return end - begin - fastest(self.node)


def _planned_together(agent: Agent, user: str, node: Node, names: Sequence[str]) -> Search[Answer | None]:
    """A plan of the request, if the promises `names` can be planned again beside it; the agent holds their new plans
    then, and the book has all of them. Else everything is as it was, and None."""
    old = {name: agent.held[name] for name in names}
    pieces = [_Piece(name, held.user, inside(held.node, agent.first, agent.horizon)) for name, held in old.items()]
    pieces.append(_Piece("", user, node))
    pieces.sort(key=lambda piece: (piece.slack, piece.name))
    for name in names:
        agent.drop(name)
    for forms in TOGETHER_FORMS:
        order = list(pieces)
        for _ in range(ORDERS_MAX):
            found, failed = yield from _attempt(agent, order, forms)
            if found is not None:
                _hold(agent, old, found)
                answer = found[""]
                answer.moved = [name for name in names if agent.held[name].plan != old[name].plan]
                return answer
            if order.index(failed) == 0:
                break
            order.remove(failed)
            order.insert(0, failed)
    for name, held in old.items():
        agent.hold(name, held)
    return None


def _hold(agent: Agent, old: dict[str, AcceptedRequest], found: dict[str, Answer]) -> None:
    for name, held in old.items():
        agent.held[name] = AcceptedRequest(held.user, held.node, found[name].plan)


def _attempt(
    agent: Agent, order: Sequence[_Piece], forms: Sequence[Form]
) -> Search[tuple[dict[str, Answer] | None, _Piece]]:
    """Plans one after the other. None, and what found no room, where one does not."""
    done: dict[str, Answer] = {}
    for piece in order:
        answer = yield from agent.finding(piece.user, piece.node, forms)
        if answer is None:
            for each in order:
                if each.name in done:
                    agent.book.give_back(each.user, done[each.name].plan)
            return None, piece
        done[piece.name] = answer
    return done, order[-1]
