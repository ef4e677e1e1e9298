"""A cell's promises as the planners work on them, and the search for the next answers. Rebuilt from the state at need.

What a search has found stays tentative until the log says it: then it is confirmed, and otherwise undone. So a search
may go on over many rounds, and a planner that starts over finds the same in as many.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from schemas import Policy, Vector
from schemas.edge.strict_json import loads
from services.planner.core.follow_answer import follow
from services.planner.core.found import Asked, Found, Lack, Promises, reservation_of
from services.planner.core.nodes import Node, counted
from services.planner.core.promisable import limits_of, maxima_of, owner_most, positions, promisable
from services.planner.core.promises import Promise
from services.planner.core.proposals import weighing
from services.planner.core.refusals import FAR, GIVEN_BACK, PAST, check_nodes, is_spent, named, too_hard
from services.planner.core.restoring import restoring
from services.planner.core.waiting import Follow, Proposal, Request, Restore, given_back
from services.planner.planning.agents import Agent
from services.planner.planning.answers import AcceptedRequest, Answer, GridRequest
from services.planner.planning.book import Book
from services.planner.planning.following import adjusted
from services.planner.planning.limits import account, first_above
from services.planner.planning.node_fit import NodeClass, moments
from services.planner.planning.read_rdl import BadRdl, Grid, Windowed, check, read_rdl
from services.planner.planning.repair import repairing
from services.planner.planning.request import Lease, atoms, bounds, fastest
from services.planner.planning.residual import FOR_EVER, Known, joined, remainder, split
from services.planner.planning.search import Search
from services.planner.planning.shortfall import NODE_MOMENTS_MAX, over_from


@dataclass(slots=True)
class _Running:
    asked: Asked | None
    search: Search[Answer]
    broken: list[str]
    lack: Lack | None = None
    work: int = 0
    before: int = 0


class CellPlan:
    """`found`: what was found since the last plan in the log, in the order of the requests. `promised`: what holds."""

    def __init__(
        self,
        policy: Policy,
        step_ms: int,
        nodes: Mapping[str, Node],
        capacity: Vector,
        ceilings: Mapping[str, Vector],
        promises: Mapping[str, Promise],
    ) -> None:
        """All promises, in the order in which they were accepted. `capacity`: of the nodes that count; `ceilings`: what
        queues may hold together."""
        self.policy = policy
        self.step_ms = step_ms
        self.horizon = max(1, policy.reservation_horizon_ms // step_ms)
        self.check = max(1, policy.reservation_check_ms // step_ms)
        self.open = policy.reservations == "on"
        most = promisable(policy, capacity)
        step_s = Fraction(step_ms, 1000)
        self.grid = Grid(step_s, FOR_EVER, positions(most), list(most.values()), [1] * len(most), as_quantities=True)
        self.limits = limits_of(policy, step_ms)
        by_queue = self.limits.average is not None
        self.book = Book(self.grid.capacity, self.limits.instant_most(self.grid.capacity), by_queue)
        self.agent = Agent(policy.reservation_agent, self.book, self.limits, 0)
        self.book.set_nodes(self._classes(nodes))
        self.book.set_owner_most(owner_most(self.policy, self.grid.capacity))
        self.by_owner = self.book.owner_most is not None
        self.book.set_maxima(maxima_of(ceilings, self.grid.resources))
        self.known: dict[str, Known] = {}
        self.edges: dict[str, int] = {}  # By promise, as of `edges_of` and of step `edges_at`.
        self.edges_of = Promises({}, {})
        self.edges_at = -1
        self.fits = False
        self.lacks_nodes: tuple[int, int, int | None] | None = None
        self.found: list[Found] = []
        self.given_back: dict[str, bool] = {}
        self.running: _Running | None = None
        self.said: object = None
        self.published = 0
        for name, promise in promises.items():
            self._hold(name, promise)
        self._settle()

    # ---------------------------------------------------------------- what changes under a search
    def resize(self, nodes: Mapping[str, Node], capacity: Vector) -> bool:
        """The capacity has changed. False: so have the kinds of resource, and this plan is of no use any more."""
        self.undo()
        promised_most = promisable(self.policy, capacity)
        if positions(promised_most) != self.grid.resources:
            return False
        self.grid.capacity = list(promised_most.values())
        self.book.capacity = tuple(self.grid.capacity)
        self.fits = False
        most = self.limits.instant_most(self.grid.capacity)
        self.book.instant_most = None if most is None else tuple(most)
        self.book.set_nodes(self._classes(nodes))
        self.book.set_owner_most(owner_most(self.policy, self.grid.capacity))
        return True

    def _classes(self, nodes: Mapping[str, Node]) -> list[NodeClass]:
        """Nodes that are alike, and how many there are."""
        counts: dict[tuple[int, ...], int] = {}
        for node in nodes.values():
            capacity = counted(node)
            if capacity:
                alike = tuple(capacity.get(resource, 0) for resource in self.grid.resources)
                counts[alike] = counts.get(alike, 0) + 1
        return sorted((count, capacity) for capacity, count in counts.items())

    def end(self, name: str) -> None:
        """A promise is over."""
        self.undo()
        self._drop(name)
        self._settle()

    def undo(self) -> None:
        """Forgets what was found since the last plan in the log."""
        if self.running is not None:
            self.running.search.close()
        self.running, self.found, self.said, self.published = None, [], None, 0
        self.book.undo()
        self.agent.held, self.known = dict(self.promised.held), dict(self.promised.known)

    def confirm(self, said: object) -> bool:
        """The log says a plan: whether it is what was said here last. Then what it tells holds from now on."""
        if said != self.said:
            return False
        if self.published:
            last = self.found[self.published - 1]
            del self.found[: self.published]
            self.promised = last.after
            assert self.book.journal is not None
            del self.book.journal[: last.entries]
            for each in self.found:
                each.entries -= last.entries
        self.said, self.published = None, 0
        return True

    def move_to(self, first: int) -> None:
        """Steps before `first` cannot be planned any more: leases have begun, and what was found is out of date."""
        if first == self.agent.first:
            return
        self.undo()
        self.agent.first, self.agent.horizon = first, first + self.horizon
        for name, held in list(self.agent.held.items()):
            if any(lease.begin < first for _, leases in held.plan for lease in leases):
                mine = self.known[name]
                parts = split(mine.node, joined(mine.begun, held.plan), first)
                self.known[name] = replace(mine, begun=parts.begun)
                if parts.rest is None:
                    del self.agent.held[name]
                else:
                    self.agent.held[name] = AcceptedRequest(held.user, parts.rest, parts.coming)
        self._settle()

    def _settle(self) -> None:
        self.promised = Promises(dict(self.agent.held), dict(self.known))
        self.book.journal = []

    # ---------------------------------------------------------------- the search
    def search(self, waiting: Sequence[Asked], allowed: int, most: int) -> list[Found]:
        """Goes on until `most` answers are there, or it has come to `allowed` work. Returns those that a search which
        began now would have found by that.
        """
        self.given_back = given_back([each for each in waiting if isinstance(each, Request)])
        work = sum(each.work for each in self.found)
        work += self.running.work if self.running is not None else 0
        while work < allowed:
            if self.running is None:
                self.running = self._next(waiting, most)
                if self.running is None:
                    break
            work += self._step(self.running)
        found, before = [], 0
        for each in self.found[:most]:
            if before + each.before >= allowed:
                break
            found.append(each)
            before += each.work
        self.published = len(found)
        return found

    def _next(self, waiting: Sequence[Asked], most: int) -> _Running | None:
        """What is to be searched next: a repair before any answer."""
        over = not self.found and self.is_over()
        if over:
            broken: list[str] = []
            return _Running(None, self._repairing(broken), broken, self._lack())
        answered = sum(each.asked is not None for each in self.found)
        if answered >= len(waiting) or len(self.found) >= most:
            return None
        asked = waiting[answered]
        match asked:
            case Proposal():
                search = weighing(self.agent, self.known, asked, self.step_ms)
            case Restore():
                terms = self.read(asked.rdl).node()
                search = restoring(self.agent, self.known, asked, terms, self.account(asked))
            case Follow():
                search = follow(self.agent, self.known, asked, self.step_ms)
            case _:
                search = self._answering(asked)
        return _Running(asked, search, [])

    def _lack(self) -> Lack:
        """What is missing first, where more is promised than there is."""
        first = self.agent.first
        above = first_above(self.book.used, self.book.capacity, first, first + self.check)
        return Lack(self._lacks_nodes_from() or first, None) if above is None else Lack(*above)

    def is_over(self) -> bool:
        """Whether more is promised than there is, at a step that has to be looked at."""
        first, until = self.agent.first, self.agent.first + self.check
        if self._over(first, until):
            return True
        step = self._lacks_nodes_from()
        return step is not None and step < until

    def _over(self, first: int, until: int) -> list[tuple[int, int]]:
        """Where more is promised than there is. Nothing that is planned makes that: so once there is nothing such from
        the first step on, none has to be looked for before the capacity changes."""
        if self.fits:
            return []
        self.fits = not over_from(self.agent, self.agent.first, FOR_EVER)
        return [] if self.fits else over_from(self.agent, first, until)

    def _lacks_nodes_from(self) -> int | None:
        """The first step at which units do not fit on the nodes, of the next changes of the plan."""
        first, version = self.agent.first, self.book.version
        if self.lacks_nodes is None or self.lacks_nodes[:2] != (first, version):
            shapes = self.book.large_units()
            steps = moments(shapes, first, max(first + 1, self.agent.horizon), NODE_MOMENTS_MAX) if shapes else []
            work = self.book.work
            step = next((step for step in steps if self.book.lacks_nodes_at(shapes, step)), None)
            self.book.work = work  # Not a search's: how often this is asked depends on when the plan was built.
            self.lacks_nodes = first, version, step
        return self.lacks_nodes[2]

    def next_edge(self, promises: Promises, now: int, found: Sequence[Found]) -> int | None:
        """The next step after `now` at which a lease begins or ends. `found`: what made these promises of those that
        hold. Costs what changed since it was last asked, but for the first time in a step.
        """
        if now != self.edges_at:
            self.edges_at, self.edges, self.edges_of = now, {}, Promises({}, {})
        follows = self.edges_of is self.promised and not any(each.touched is None for each in found)
        touched = [name for each in found for name in each.touched or ()] if follows else None
        for name in promises.changed_since(self.edges_of) if touched is None else touched:
            self.edges.pop(name, None)
            if name in promises.known:
                leases = [lease for _, mine in promises.plan(name) for lease in mine]
                later = [edge for lease in leases for edge in (lease.begin, lease.end) if edge > now]
                if later:
                    self.edges[name] = min(later)
        self.edges_of = promises
        return min(self.edges.values(), default=None)

    def over_later(self) -> int | None:
        """The first step behind those at which more is promised than there is."""
        later = self.agent.first + self.check
        over = self._over(later, max(self.agent.horizon, later))
        step = self._lacks_nodes_from()
        steps = [over[0][0]] if over else []
        if step is not None and step >= self.agent.first + self.check:
            steps.append(step)
        return min(steps, default=None)

    def _step(self, running: _Running) -> int:
        """One step of a search. Returns what it took, at least 1."""
        begun = self.book.work
        try:
            next(running.search)
            answer = None
        except StopIteration as end:
            answer = end.value
        work = max(1, self.book.work - begun)
        running.before = running.work
        running.work += work
        if answer is None and is_spent(running.asked, running.work):
            answer = self._ended(running)
        if answer is not None:
            assert self.book.journal is not None
            after = Promises(dict(self.agent.held), dict(self.known))
            entries = len(self.book.journal)
            asked = running.asked
            name = reservation_of(asked)
            touched = None if name is None else [name, *answer.moved]
            work_done = running.work, running.before
            self.found.append(Found(asked, answer, running.broken, *work_done, after, entries, touched, running.lack))
            self.running = None
        return work

    def _ended(self, running: _Running) -> Answer:
        """A search has taken what it may: everything is again as it was before it."""
        running.search.close()
        before = self.found[-1].after if self.found else self.promised
        self.book.undo(self.found[-1].entries if self.found else 0)
        self.agent.held, self.known = dict(before.held), dict(before.known)
        return Answer("no_room", too_hard())

    def _repairing(self, broken: list[str]) -> Search[Answer]:
        first = self.agent.first
        with self.book.without_owner_limit():
            broken += yield from repairing(self.agent, self.known, first, first + self.check)
        return Answer()

    def _answering(self, asked: Request) -> Search[Answer]:
        name = asked.reservation
        if asked.kind == "delete":
            self._drop(name)
            return Answer("deleted")
        if name in self.given_back:
            return Answer("unknown", GIVEN_BACK)
        if asked.kind == "update" and name not in self.known:
            return Answer("unknown", "it has ended, or its promise is broken: ask for a new one")
        if not self.open:
            return Answer("off", "reservations are switched off (knob reservations)")
        try:
            windowed = self.read(asked.rdl)
        except BadRdl as fault:
            return Answer("invalid", str(fault))
        request = self._request(asked, windowed)
        first, last = self.agent.first, self.agent.horizon
        if windowed.end <= first:
            return Answer("too_late", PAST)
        if windowed.begin >= last:
            return Answer("horizon", FAR)
        before = self._put_aside(name) if asked.kind == "update" else None
        try:
            check(Windowed(windowed.body, request.begin, request.end), self.grid, self.grid.seconds(first))
            check_nodes(windowed.body, self.book.nodes or ())
        except BadRdl as fault:
            answer = Answer("invalid", str(fault), offer=(yield from self.agent.offering(request)))
        else:
            answer = yield from self.agent.submitting(request)
            if answer.code:
                answer = yield from named(self.agent, self.grid.resources, request, answer)
        if not answer.code:
            node = windowed.node()
            self.known[name] = Known(request.user, node, weight=asked.weight)
            self.agent.held[name] = AcceptedRequest(request.user, node, answer.plan)
        elif before is not None:
            self._put_back(name, before)
        return answer

    def _request(self, asked: Request, windowed: Windowed) -> GridRequest:
        begin, end = max(windowed.begin, self.agent.first), min(windowed.end, self.agent.horizon)
        return GridRequest(asked.reservation, self.account(asked), windowed.body, begin, end)

    def account(self, of: Request | Restore | Promise) -> str:
        """Under what a promise is booked."""
        return account(of.queue, of.user) if self.by_owner else of.queue

    def read(self, rdl: str) -> Windowed:
        """A request on the grid. Raises BadRdl."""
        return read_rdl(loads(rdl.encode()), self.grid)

    # ---------------------------------------------------------------- promises
    def retry_until_ms(self, name: str, before: Promises) -> int | None:
        """Until when a promise that breaks is tried again; None: nothing could restore it."""
        first = self.agent.first
        rest = remainder(before.known[name].node, before.plan(name), first).rest
        if rest is None:
            return None
        begin, end = bounds(rest)
        end = min(end, self.agent.horizon)
        return end * self.step_ms if end - max(begin, first) >= fastest(rest) else None

    def _hold(self, name: str, promise: Promise) -> None:
        asked = self.read(promise.rdl).node()
        by_path = {atom.path: atom for atom in atoms(asked)}
        leases: dict[str, list[Lease]] = {}
        for each in promise.leases:
            leases.setdefault(each.atom, []).append(Lease(each.begin, each.end, each.gangs))
        node = adjusted(asked, promise.works, [(by_path[path], mine) for path, mine in leases.items()])
        assert node is not None, f"{name}: nothing is promised to it"
        by_path = {atom.path: atom for atom in atoms(node)}
        plan = [(by_path[path], mine) for path, mine in leases.items()]
        user = self.account(promise)
        self.known[name] = Known(user, node, weight=promise.weight)
        self.agent.hold(name, AcceptedRequest(user, node, plan))

    def _drop(self, name: str) -> None:
        mine = self.known.pop(name, None)
        if mine is not None:
            self.book.give_back(mine.user, mine.begun)
        held = self.agent.held.pop(name, None)
        if held is not None:
            self.book.give_back(held.user, held.plan)

    def _put_aside(self, name: str) -> tuple[Known, AcceptedRequest | None]:
        before = self.known[name], self.agent.held.get(name)
        self._drop(name)
        return before

    def _put_back(self, name: str, before: tuple[Known, AcceptedRequest | None]) -> None:
        known, held = before
        self.known[name] = known
        for atom, leases in known.begun:
            self.book.take(known.user, atom, leases)
        if held is not None:
            self.agent.hold(name, held)
