"""The online planners (Rayon, section 4): one request against what is promised already.

late   GREE: every atom as tall and as late as it fits; `order` from the last to the first.
flat   GREE-L: every atom at the lowest level of use that holds it; the links of an `order` share its window by need.
early  every atom as soon as it fits; `order` from the first to the last.

Each placed atom is subtracted before the next is placed. `any` takes the lightest branch that fits. `all` places what
has the least slack first and, if a branch finds no room, begins again with that one. Second tries are limited for each
request, so the time grows with the number of atoms, not with the combinations of branches.

A search is a generator that yields after every atom that it placed or found no room for: who runs it may stop it there
and go on later, as long as nobody else changes the book meanwhile.
"""

from collections.abc import Sequence

from services.planner.planning.book import Book
from services.planner.planning.gapless import chain
from services.planner.planning.placing import Form, place
from services.planner.planning.request import (
    Atom,
    Group,
    Node,
    Plan,
    atoms,
    bounds,
    extent,
    fastest,
    gapless,
    least_work,
)
from services.planner.planning.search import Search, finished

RETRIES_MAX = 32
"""Second tries of an `all` or an `order` for one request."""

ANCHORS_MAX = 64
"""Starts that are tried for an `order_no_gap` of groups."""


def plan(book: Book, user: str, request: Node, form: Form) -> Plan | Atom:
    """Takes leases for a request in the book. If this form finds no room, the book is as it was, and the answer is the
    atom that last found none.
    """
    return finished(planning(book, user, request, form))


def planning(book: Book, user: str, request: Node, form: Form) -> Search[Plan | Atom]:
    """The same, step by step."""
    begin, end = bounds(request)
    search = _Search(book, user, next(atoms(request)))
    found = yield from search.find(request, begin, end, form)
    return search.stuck if found is None else found


class _Search:
    """One request. What `find` returns is taken in the book; where it returns None, the book is as it was."""

    def __init__(self, book: Book, user: str, stuck: Atom) -> None:
        self.book = book
        self.user = user
        self.stuck = stuck  # The atom that last found no room.
        self.retries = RETRIES_MAX
        self.soonest = False  # `any` takes the branch that leaves most time to the other links of an `order`.

    def find(self, node: Node, begin: int, end: int, form: Form) -> Search[Plan | None]:
        """A plan inside steps `[begin, end)`."""
        if isinstance(node, Atom):
            leases = place(self.book, self.user, node, begin, end, form)
            yield
            if leases is None:
                self.stuck = node
                return None
            self.book.take(self.user, node, leases)
            return [(node, leases)]
        match node.kind:
            case "any":
                return (yield from self._any(node, begin, end, form))
            case "all":
                return (yield from self._all(node, begin, end, form))
            case "order":
                return (yield from self._order(node, begin, end, form))
            case _:
                return (yield from self._no_gap(node, begin, end, form))

    def _any(self, node: Group, begin: int, end: int, form: Form) -> Search[Plan | None]:
        best: Plan | None = None
        for branch in sorted(node.of, key=lambda each: least_work(each, self.book.capacity)):
            found = yield from self.find(branch, begin, end, form)
            if found is not None and not self.soonest:
                return found
            if found is not None:
                self.book.give_back(self.user, found)
                if best is None or _time_taken(found, form) < _time_taken(best, form):
                    best = found
        if best is not None:
            self._take(best)
        return best

    def _all(self, node: Group, begin: int, end: int, form: Form) -> Search[Plan | None]:
        branches = sorted(node.of, key=_slack_permille)
        for _ in branches:
            failed, found = yield from self._each(branches, begin, end, form)
            if failed is None:
                return found
            if failed == 0 or not self._may_retry():
                return None
            branches.insert(0, branches.pop(failed))
        return None

    def _each(self, branches: Sequence[Node], begin: int, end: int, form: Form) -> Search[tuple[int | None, Plan]]:
        """A plan for all branches; or the position of the one that found no room."""
        found: Plan = []
        for position, branch in enumerate(branches):
            part = yield from self.find(branch, begin, end, form)
            if part is None:
                self.book.give_back(self.user, found)
                return position, []
            found += part
        return None, found

    def _order(self, node: Group, begin: int, end: int, form: Form) -> Search[Plan | None]:
        if form == "late":
            found = yield from self._from_last(node.of, begin, end)
        elif form == "early":
            found = yield from self._from_first(node.of, begin, end)
        else:
            found = yield from self._shared_out(node.of, begin, end)
            if found is None and self._may_retry():
                found = yield from self._from_first(node.of, begin, end)
            if found is None and self._may_retry():
                found = yield from self._from_last(node.of, begin, end)
        if found is None and not self.soonest and any(map(_has_choice, node.of)) and self._may_retry():
            self.soonest = True
            again = self._from_last if form == "late" else self._from_first
            found = yield from again(node.of, begin, end)
            self.soonest = False
        return found

    def _from_first(self, links: Sequence[Node], begin: int, end: int) -> Search[Plan | None]:
        found: Plan = []
        for link in links:
            part = yield from self.find(link, begin, end, "early")
            if part is None:
                self.book.give_back(self.user, found)
                return None
            found += part
            begin = extent(part)[1]
        return found

    def _from_last(self, links: Sequence[Node], begin: int, end: int) -> Search[Plan | None]:
        found: Plan = []
        for link in reversed(links):
            part = yield from self.find(link, begin, end, "late")
            if part is None:
                self.book.give_back(self.user, found)
                return None
            found += part
            end = extent(part)[0]
        return found

    def _shared_out(self, links: Sequence[Node], begin: int, end: int) -> Search[Plan | None]:
        """Every link gets its part of what is left of the window, by the time that it needs at least."""
        within = [bounds(link) for link in links]
        begin = max(begin, min(first for first, _ in within))
        end = min(end, max(last for _, last in within))
        needs = [fastest(link) for link in links]
        found: Plan = []
        for position, link in enumerate(links):
            need, needed = needs[position], sum(needs[position:])
            slack = end - begin - needed
            part = None
            if slack >= 0:
                part = yield from self.find(link, begin, begin + need + slack * need // needed, "flat")
            if part is None:
                self.book.give_back(self.user, found)
                return None
            found += part
            begin = extent(part)[1]
        return found

    def _no_gap(self, node: Group, begin: int, end: int, form: Form) -> Search[Plan | None]:
        links = [each for each in node.of if isinstance(each, Atom)]
        if len(links) == len(node.of):
            found = chain(self.book, self.user, links, begin, end, form)
            yield
            if found is not None:
                self._take(found)
                return found
            self.stuck = links[0]
        for anchor in self._anchors(node, begin, end, form):
            found = yield from self._from_anchor(node.of, anchor, end)
            if found is not None:
                return found
        return None

    def _anchors(self, node: Group, begin: int, end: int, form: Form) -> list[int]:
        """Steps to start at: where what is promised changes, and as long before that as the first links take."""
        within = bounds(node)
        begin, end = max(begin, within[0]), min(end, within[1])
        if begin >= end:
            return []
        edges = self.book.used.span(begin, end)[0].tolist()
        before, found = 0, {}
        for link in node.of:
            found.update(dict.fromkeys(edge - before for edge in edges))
            before += fastest(link)
        found.update(dict.fromkeys(edge - before for edge in edges))
        fitting = sorted((at for at in found if begin <= at <= end - before), reverse=form == "late")
        return fitting[:: max(1, -(-len(fitting) // ANCHORS_MAX))]

    def _from_anchor(self, links: Sequence[Node], at: int, end: int) -> Search[Plan | None]:
        found: Plan = []
        for link in links:
            part = yield from self.find(link, at, end, "early")
            if part is not None:
                found += part
                if extent(part)[0] == at and gapless(part):
                    at = extent(part)[1]
                    continue
            self.book.give_back(self.user, found)
            return None
        return found

    def _take(self, found: Plan) -> None:
        for atom, leases in found:
            self.book.take(self.user, atom, leases)

    def _may_retry(self) -> bool:
        self.retries -= 1
        return self.retries >= 0


def _slack_permille(node: Node) -> int:
    begin, end = bounds(node)
    return (end - begin) * 1000 // fastest(node)


def _time_taken(found: Plan, form: Form) -> int:
    """Less is better: where a branch ends, or, from the last, how far from the end it begins."""
    begin, end = extent(found)
    return -begin if form == "late" else end


def _has_choice(node: Node) -> bool:
    return isinstance(node, Group) and (node.kind == "any" or any(map(_has_choice, node.of)))
