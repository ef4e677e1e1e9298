"""Answers reservations one after the other: accepted with a plan, or rejected with a reason and what would be accepted.

The agents `gree`, `gree-l` and `early` use one form each (`greedy.py`). The default tries the flat form, then the
others. If none finds room, it moves accepted reservations inside their own windows to make room: one, two, and at last
those that hold most in the windows of the request, all together (together.py).
It never breaks a promise: what it moves still meets its request.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from services.planner.planning.book import Book
from services.planner.planning.greedy import planning
from services.planner.planning.limits import UserLimits, average_above
from services.planner.planning.node_fit import NodeClass, is_small, units_in
from services.planner.planning.placing import Form
from services.planner.planning.request import Atom, Group, Node, Plan, atoms, extent, inside, scaled
from services.planner.planning.search import Search, finished
from services.planner.planning.together import TOGETHER_MAX, planned_together

FORMS: dict[str, tuple[Form, ...]] = {"gree": ("late",), "gree-l": ("flat",), "early": ("early",)}
DEFAULT_FORMS: tuple[Form, ...] = ("flat", "early", "late")

MOVED_ALONE_MAX = 12
"""Accepted reservations that are tried, one at a time, to make room by moving."""

MOVED_IN_PAIRS_MAX = 6
"""Of those, how many are tried two at a time."""

NARROWER_MAX = 3
"""Times that the width of large units is halved, where a plan does not fit on the nodes."""

REACH = 4
"""Windows to offer are sought as far away as the window is long, then so many times farther, up to the horizon."""

SIZE_STEPS = 6
"""Halvings in the search for a size that would be accepted."""

SIZES_TOLD_MAX = 3
"""Atoms of which an offer says the size."""


@dataclass(slots=True)
class Request:
    """`body`: the request without its outermost window, which is steps `[begin, end)`."""

    name: str
    user: str
    body: Node
    begin: int
    end: int


@dataclass(slots=True)
class Held:
    """An accepted request, and its plan."""

    user: str
    node: Node
    plan: Plan


@dataclass(slots=True)
class Fixed:
    """A promise of which only the profile is known, so that it cannot be moved: first step, step after the last,
    amounts."""

    user: str
    runs: list[tuple[int, int, list[int]]]


@dataclass(slots=True, frozen=True)
class Offer:
    """What would be accepted: the request in another window, or so much of its width and work in its own, which
    `sizes` says by atom as it is written in a request.
    """

    window: tuple[int, int] | None = None
    size_permille: int | None = None
    sizes: str = ""


@dataclass(slots=True)
class Followed:
    """What a plan has for an atom in all, in unit-steps, and what that is less than needed, in unit-milliseconds."""

    atom: str
    units: int
    missing: int


@dataclass(slots=True)
class Answer:
    """To one request. `code` is empty if it is accepted. `followed`: where a plan follows its jobs, what its atoms
    have."""

    code: str = ""
    reason: str = ""
    form: Form | None = None
    plan: Plan = field(default_factory=list)
    moved: list[str] = field(default_factory=list)
    offer: Offer | None = None
    followed: list[Followed] = field(default_factory=list)


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
        self.held: dict[str, Held] = {}
        self.fixed: dict[str, Fixed] = {}
        self.stuck: Atom | None = None  # That last found no room; None if a plan was above the user's average.

    def owner(self, name: str) -> str | None:
        """The user that a promise is made to; None if there is no such promise."""
        promise = self.held.get(name) or self.fixed.get(name)
        return None if promise is None else promise.user

    def submit(self, request: Request) -> Answer:
        """Accepts a new request, or rejects it."""
        return finished(self.submitting(request))

    def submitting(self, request: Request) -> Search[Answer]:
        """The same, step by step. While it goes on, nobody else may change the book."""
        node = inside(request.body, request.begin, request.end)
        answer = yield from self.finding(request.user, node)
        stuck = self.stuck
        if answer is None and self.moves:
            answer = yield from self._find_by_moving(request.user, node)
        if answer is not None:
            self.held[request.name] = Held(request.user, node, answer.plan)
            return answer
        offer = yield from self._offer(request)
        code = "no_room" if stuck is not None else "limit"
        return Answer(code, self._reason(request.user, stuck), offer=offer)

    def update(self, request: Request) -> Answer:
        """New terms for an accepted request: it keeps the old ones if the new ones are rejected."""
        return finished(self.updating(request))

    def updating(self, request: Request) -> Search[Answer]:
        """The same, step by step."""
        old = self._put_aside(request.name)
        answer = yield from self.submitting(request)
        if answer.code:
            self._put_back(request.name, old)
        return answer

    def offer(self, request: Request) -> Offer | None:
        """What would be accepted instead of a request that is not, in place of what it has by now."""
        return finished(self.offering(request))

    def offering(self, request: Request) -> Search[Offer | None]:
        """The same, step by step."""
        old = self._put_aside(request.name)
        found = yield from self._offer(request)
        self._put_back(request.name, old)
        return found

    def _put_aside(self, name: str) -> Held | Fixed | None:
        old = self.held.get(name) or self.fixed.get(name)
        if old is not None:
            self.drop(name)
        return old

    def _put_back(self, name: str, old: Held | Fixed | None) -> None:
        if isinstance(old, Held):
            self.hold(name, old)
        elif old is not None:
            self.fix(name, old)

    def hold(self, name: str, held: Held) -> None:
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
            for wide in _widths(node, self.book.nodes):
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
        return (yield from planned_together(self, user, node, ranked[:TOGETHER_MAX]))

    def _placed_again(self, old: dict[str, Held]) -> Search[bool]:
        """Plans old promises anew. If they do not all fit, none of them is held."""
        done: list[str] = []
        for name, held in old.items():
            again = yield from self.finding(held.user, inside(held.node, self.first, self.horizon))
            if again is None:
                for each in done:
                    self.drop(each)
                return False
            self.held[name] = Held(held.user, held.node, again.plan)
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
            return f"in every plan user {user} holds more on average than its limit allows"
        moved = "; moving what is accepted makes none" if self.moves else ""
        limited = f" or the limit of user {user}" if self.limits.instant is not None else ""
        return f"atom {stuck.path} finds no room in its window beside what is promised{limited}{moved}"

    def _offer(self, request: Request) -> Search[Offer | None]:
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

    def _smaller(self, request: Request) -> Search[Offer | None]:
        node = inside(request.body, request.begin, request.end)
        low, high = 0, 1000  # `low` is accepted, or nothing; `high` is not.
        for _ in range(SIZE_STEPS):
            middle = (low + high) // 2
            if (yield from self._would_fit(request.user, scaled(node, middle))):
                low = middle
            else:
                high = middle
        return Offer(size_permille=low, sizes=_sizes(node, low)) if low else None


def _sizes(node: Node, permille: int) -> str:
    """The sizes of the atoms of a request that is scaled, as it would be written: SIZES_TOLD_MAX of them."""
    texts = []
    for atom, small in zip(atoms(node), atoms(scaled(node, permille)), strict=True):
        width, work = f"h={small.gangs_most * small.gang}", permille
        if atom.gangs_most == 1:
            width, work = f"g={small.gang}, {width}", small.gang * 1000 // atom.gang
        texts.append(f"{width} and {work // 10}.{work % 10} % of w for atom {atom.path}")
    more = len(texts) - SIZES_TOLD_MAX
    return "; ".join(texts[:SIZES_TOLD_MAX]) + (f"; and the same part of {more} more" if more > 0 else "")


def _movable(ranked: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Accepted requests whose moving may make room for another, in the order in which it is tried."""
    for name in ranked[:MOVED_ALONE_MAX]:
        yield (name,)
    pairs = ranked[:MOVED_IN_PAIRS_MAX]
    for i, name in enumerate(pairs):
        for other in pairs[i + 1 :]:
            yield name, other


def _widths(node: Node, nodes: Sequence[NodeClass] | None) -> Iterator[Node]:
    """A request, its large units no wider than the nodes hold at all; then with half of that, NARROWER_MAX times: on
    nodes fewer at a time may fit where the sum has room for more."""
    if not nodes:
        yield node
        return
    before: Node | None = None
    for halvings in range(1 + NARROWER_MAX):
        narrow = _narrowed(node, nodes, halvings)
        if before is not None and narrow == before:
            return
        yield narrow
        before = narrow


def _narrowed(node: Node, nodes: Sequence[NodeClass], halvings: int) -> Node:
    if isinstance(node, Group):
        return Group(node.kind, [_narrowed(branch, nodes, halvings) for branch in node.of])
    if is_small(node.unit, nodes):
        return node
    most = min(node.gangs_most, units_in(node.unit, nodes) // node.gang) >> halvings
    return node if most >= node.gangs_most else replace(node, gangs_most=max(1, most))


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
