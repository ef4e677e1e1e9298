"""Lets the plan of a promise follow the progress of its jobs: gives back what they will not use, and looks for what
they lack inside the same windows.

Less is taken from the leases that end last: they end sooner, and what begins late gets narrower or goes. What runs ends
at the next step at the earliest, and not before it has lasted as long as a lease has to, unless nothing is left to do
for its atom. More comes from lengthening the leases that end last, as far as there is room for them; if that is too
little, what has not begun is planned again with as much of the missing work as there is room for, early before flat
before late. Other promises stay as they are, and neither capacity, nodes nor limits are exceeded. The links of an
`order` without gaps follow as one: what is behind a link moves with its end.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from services.planner.planning.agents import Agent
from services.planner.planning.answers import AcceptedRequest
from services.planner.planning.limits import first_above
from services.planner.planning.placing import Form
from services.planner.planning.request import Atom, Group, Lease, Node, Plan, atoms, extent, inside
from services.planner.planning.residual import Known, joined, split
from services.planner.planning.search import Search
from services.planner.planning.verify import fault

FORMS: tuple[Form, ...] = ("early", "flat", "late")
"""What a job that is behind gets: a plan that is early leaves time for being late again."""


PARTS_MAX = 7
"""Where there is no room for all that is missing, halves of it are tried, so that all are tried up to 127
gang-steps."""


@dataclass(slots=True)
class Wanted:
    """The atom at a path is to have so many gang-steps from the first step on that can be planned; `grow`: that is more
    than it has, else less. `done`: it needs nothing any more, not even before that step."""

    path: str
    steps: int
    grow: bool
    done: bool = False


def following(agent: Agent, known: dict[str, Known], name: str, wanted: Sequence[Wanted]) -> Search[bool]:
    """Changes the plan of a promise as far as it may. Returns False if nothing of it is left to do: then it is gone."""
    assert agent.book.journal is not None, "what follows may have to be undone"
    mine, first = known[name], agent.first
    plan = _plan_of(agent, known, name)
    less = {each.path: each for each in wanted if not each.grow}
    if all(each.done for each in wanted) and all(
        atom.path in less and less[atom.path].done for atom, leases in plan if steps_from(leases, first)
    ):
        release(agent, known, name)
        del known[name]
        return False
    chained = dict.fromkeys(chained_atoms(mine.node), True)
    shorter = [
        (
            atom,
            _less(atom, leases, first, less[atom.path]) if atom.path in less and atom.path not in chained else leases,
        )
        for atom, leases in plan
    ]
    if shorter != plan:
        _install(agent, known, name, shorter, [path for path in less if path not in chained])
    for each in wanted:
        yield
        if each.path in chained:
            yield from _chain_follows(agent, known, name, each)
        elif each.grow:
            yield from _grow(agent, known, name, each)
    return True


def steps_from(leases: Sequence[Lease], first: int) -> int:
    """Gang-steps of leases from a step on."""
    return sum(max(0, each.end - max(each.begin, first)) * each.gangs for each in leases)


def adjusted(node: Node, works: Mapping[str, int], plan: Plan) -> Node | None:
    """A request with so many gang-steps of work for some of its atoms, by path, that has this plan by now. An atom that
    has no lease any more is served; None: all of them are. Where a lease was cut because nothing was left to do, an
    atom takes leases as short as that."""
    leases = {atom.path: mine for atom, mine in plan}
    return _adjusted(node, works, leases) if works else node


def _adjusted(node: Node, works: Mapping[str, int], leases: Mapping[str, Sequence[Lease]]) -> Node | None:
    if isinstance(node, Atom):
        if node.path not in works:
            return node
        mine = leases.get(node.path)
        if not mine:
            return None
        return replace(node, work=works[node.path], lease=min(node.lease, *(each.end - each.begin for each in mine)))
    branches = [_adjusted(branch, works, leases) for branch in node.of]
    left = [branch for branch in branches if branch is not None]
    if not left or (node.kind == "any" and len(left) < len(branches)):
        return None
    return Group(node.kind, left)


# ---------------------------------------------------------------- less
def _less(atom: Atom, leases: Sequence[Lease], first: int, wanted: Wanted) -> list[Lease]:
    """Leases of an atom with as few gang-steps from `first` on as they may have, but no fewer than wanted."""
    over = steps_from(leases, first) - wanted.steps
    lasts = 1 if wanted.done else atom.lease
    found: list[Lease] = []
    for each in sorted(leases, key=lambda each: (-each.end, -each.begin, each.gangs)):
        if over > 0:
            kept = _cut(each, first, lasts, over)
            over -= steps_from([each], first) - steps_from(kept, first)
            found += kept
        else:
            found.append(each)
    return sorted(found)


def _cut(lease: Lease, first: int, lasts: int, over: int) -> list[Lease]:
    """A lease with at most `over` gang-steps less: as wide as before where it may end sooner."""
    least = max(first, lease.begin + lasts)
    steps = lease.end - lease.begin
    if lease.begin >= first and over >= steps * lease.gangs:
        return []
    end = max(min(lease.end, least), lease.end - over // lease.gangs)
    over -= (lease.end - end) * lease.gangs
    if lease.begin >= first:
        gangs, sooner = over // (end - lease.begin), lease.begin
    else:
        gangs, sooner = over, end - 1
    gangs = min(gangs, lease.gangs)
    if gangs <= 0 or (lease.begin < first and sooner < least):
        return [Lease(lease.begin, end, lease.gangs)]
    cut = [Lease(lease.begin, sooner, gangs)] if sooner > lease.begin else []
    return cut + ([Lease(lease.begin, end, lease.gangs - gangs)] if gangs < lease.gangs else [])


# ---------------------------------------------------------------- more
def _grow(agent: Agent, known: dict[str, Known], name: str, wanted: Wanted) -> Search[None]:
    """Adds work to an atom that is served still."""
    leases = _leases_of(agent, known, name, wanted.path)
    lacks = wanted.steps - steps_from(leases, agent.first)
    if lacks <= 0 or not leases:
        return
    lacks -= yield from _lengthened(agent, known, name, wanted.path, lacks)
    part = lacks
    for _ in range(PARTS_MAX):
        if part <= 0 or ((yield from _planned_anew(agent, known, name, wanted.path, part)) and part == lacks):
            return
        part //= 2


def _lengthened(agent: Agent, known: dict[str, Known], name: str, path: str, lacks: int) -> Search[int]:
    """Lengthens the leases of an atom that end last. Returns the gang-steps that it has gained."""
    mine, book = known[name], agent.book
    plan = _plan_of(agent, known, name)
    atom, leases = next((atom, leases) for atom, leases in plan if atom.path == path)
    last = max(each.end for each in leases)
    if last < agent.first:
        return 0
    most = sum(each.gangs for each in leases if each.end == last)
    gangs = -(-lacks // -(-lacks // most))  # No more than it takes to gain as much in as few steps.
    until = min([last + -(-lacks // gangs), atom.end, agent.horizon, *_begins_after(mine.node, path, plan)])
    if until <= last:
        return 0
    free = book.free(mine.user, atom, last, until)
    stop = last
    for end, room in zip(free.edges[1:].tolist(), free.room().tolist(), strict=True):
        if room < gangs:
            break
        stop = end
    if stop <= last:
        return 0
    longer = _longer(leases, last, stop, gangs)
    mark, before = len(book.journal or []), dict(agent.held)
    changed = [(a, longer if a.path == path else old) for a, old in plan]
    _install(agent, known, name, changed, [path])
    lacks_nodes = bool(book.nodes) and (yield from book.lacks_nodes(last, stop))
    if lacks_nodes or not agent.within_average(mine.user, [(atom, longer)]):
        book.undo(mark)
        agent.held, known[name] = before, mine
        return 0
    return (stop - last) * gangs


def _longer(leases: Sequence[Lease], last: int, stop: int, gangs: int) -> list[Lease]:
    """So many gangs of the leases that end at step `last` go on until `stop`."""
    found: list[Lease] = []
    for each in leases:
        more = min(gangs, each.gangs) if each.end == last else 0
        gangs -= more
        found += [Lease(each.begin, stop, more)] if more else []
        found += [Lease(each.begin, each.end, each.gangs - more)] if more < each.gangs else []
    return sorted(found)


def _planned_anew(agent: Agent, known: dict[str, Known], name: str, path: str, lacks: int) -> Search[bool]:
    """Plans what has not begun again, with more work for an atom; if there is no room for it, nothing is changed."""
    assert agent.book.journal is not None, "an attempt may have to be undone"
    mine = known[name]
    plan = _plan_of(agent, known, name)
    work = {path: lacks + sum(steps_from(leases, 0) for atom, leases in plan if atom.path == path)}
    node = adjusted(mine.node, work, plan)
    assert node is not None, f"{name}: {path} has leases"
    parts = split(node, plan, agent.first, more=True)
    if parts.rest is None or not any(atom.path == path for atom in atoms(parts.rest)):
        return False
    mark, before = len(agent.book.journal), dict(agent.held)
    release(agent, known, name)
    _take(agent, mine.user, parts.begun)
    answer = yield from agent.finding(mine.user, inside(parts.rest, agent.first, agent.horizon), FORMS)
    if answer is None:
        agent.book.undo(mark)
        agent.held, known[name] = before, mine
        return False
    known[name] = replace(mine, begun=parts.begun)
    agent.held[name] = AcceptedRequest(mine.user, parts.rest, answer.plan)
    _install(agent, known, name, _plan_of(agent, known, name), [path])
    return True


def _begins_after(node: Node, path: str, plan: Plan) -> list[int]:
    """When atoms begin that an `order` puts behind one."""
    begins = {atom.path: min(each.begin for each in leases) for atom, leases in plan if leases}
    found: list[int] = []
    while isinstance(node, Group):
        at = next(i for i, branch in enumerate(node.of) if any(atom.path == path for atom in atoms(branch)))
        if node.kind == "order":
            later = [atom.path for branch in node.of[at + 1 :] for atom in atoms(branch)]
            found += [begins[each] for each in later if each in begins]
        node = node.of[at]
    return found


# ---------------------------------------------------------------- the book
def _plan_of(agent: Agent, known: Mapping[str, Known], name: str) -> Plan:
    held = agent.held.get(name)
    return joined(known[name].begun, held.plan if held is not None else [])


def _leases_of(agent: Agent, known: Mapping[str, Known], name: str, path: str) -> list[Lease]:
    return [each for atom, leases in _plan_of(agent, known, name) if atom.path == path for each in leases]


def _install(agent: Agent, known: dict[str, Known], name: str, plan: Plan, paths: Sequence[str]) -> None:
    """Promises another plan. What it has for the atoms at these paths is from now on what their terms ask for."""
    mine = known[name]
    works = {path: sum(steps_from(leases, 0) for atom, leases in plan if atom.path == path) for path in paths}
    plan = [(atom, leases) for atom, leases in plan if leases]
    node = adjusted(mine.node, works, plan)
    assert node is not None, f"{name}: something is left to do"
    by_path = {atom.path: atom for atom in atoms(node)}
    parts = split(node, [(by_path[atom.path], leases) for atom, leases in plan], agent.first)
    release(agent, known, name)
    known[name] = replace(mine, node=node, begun=parts.begun)
    _take(agent, mine.user, parts.begun)
    if parts.rest is not None:
        agent.hold(name, AcceptedRequest(mine.user, parts.rest, parts.coming))
    # In the order of before: others count on it.
    agent.held = {each: agent.held[each] for each in known if each in agent.held}


def release(agent: Agent, known: Mapping[str, Known], name: str) -> None:
    """Takes a promise out of the book."""
    mine = known[name]
    agent.book.give_back(mine.user, mine.begun)
    held = agent.held.pop(name, None)
    if held is not None:
        agent.book.give_back(held.user, held.plan)


def _take(agent: Agent, user: str, plan: Plan) -> None:
    for atom, leases in plan:
        agent.book.take(user, atom, leases)


# ---------------------------------------------------------------- links without gaps
def chained_atoms(node: Node) -> list[str]:
    """The atoms in an `order` without gaps."""
    if isinstance(node, Atom):
        return []
    if node.kind == "order_no_gap":
        return [atom.path for atom in atoms(node)]
    return [path for branch in node.of for path in chained_atoms(branch)]


def _chain_follows(agent: Agent, known: dict[str, Known], name: str, wanted: Wanted) -> Search[None]:
    """Makes leases of an atom in an `order` without gaps longer or shorter, and moves the links behind it by as much:
    by as much of it as there is room for, or not at all."""
    atom, leases = next(each for each in _plan_of(agent, known, name) if each[0].path == wanted.path)
    off = wanted.steps - steps_from(leases, agent.first)
    part = off if wanted.grow else -off
    for _ in range(PARTS_MAX):
        if part <= 0:
            return
        if wanted.grow:
            other = _longer_by(leases, part)
        else:
            other = _less(atom, leases, agent.first, replace(wanted, steps=wanted.steps - off - part))
        if other and other != leases and (yield from _chain_moved(agent, known, name, wanted.path, other)):
            return
        part //= 2


def _longer_by(leases: Sequence[Lease], lacks: int) -> list[Lease]:
    """The leases that end last go on for `lacks` gang-steps."""
    last = max(each.end for each in leases)
    most = sum(each.gangs for each in leases if each.end == last)
    steps = -(-lacks // most)
    return _longer(leases, last, last + steps, -(-lacks // steps))


def _chain_moved(agent: Agent, known: dict[str, Known], name: str, path: str, leases: list[Lease]) -> Search[bool]:
    """Gives an atom other leases, and moves the links behind it so that no gap opens and none overlap; if that breaks
    the request, or finds no room, nothing is changed."""
    mine, old = known[name], _plan_of(agent, known, name)
    shifts = _shifts(mine.node, path, old, leases)
    new: Plan = []
    for atom, each in old:
        by = shifts.get(atom.path, 0)
        begins = min(lease.begin for lease in each)
        if by and min(begins, begins + by) < agent.first:
            return False  # It has begun, or would have.
        moved = [Lease(lease.begin + by, lease.end + by, lease.gangs) for lease in each]
        new.append((atom, leases if atom.path == path else moved))
    mark, held_before = len(agent.book.journal or []), dict(agent.held)
    _install(agent, known, name, new, [path])
    begin, end = max(agent.first, extent(new)[0]), extent(new)[1]
    is_good = end <= agent.horizon and not fault(known[name].node, _plan_of(agent, known, name))
    if is_good and begin < end:
        is_good = yield from _has_room(agent, mine.user, new, begin, end)
    if not is_good:
        agent.book.undo(mark)
        agent.held, known[name] = held_before, mine
    return is_good


def _has_room(agent: Agent, user: str, plan: Plan, begin: int, end: int) -> Search[bool]:
    """Whether a plan that is in the book is within capacity, nodes and limits in some steps."""
    book = agent.book
    if first_above(book.used, book.capacity, begin, end) is not None:
        return False
    if book.is_limited(user, begin, end):
        return False
    return agent.within_average(user, plan) and not (book.nodes and (yield from book.lacks_nodes(begin, end)))


def _shifts(node: Node, path: str, plan: Plan, leases: Sequence[Lease]) -> dict[str, int]:
    """By atom of the links behind the one that holds an atom, steps by which they move if it has other leases: as much
    as the end of that link does. First in the innermost `order` without gaps, then in those around it."""
    before = {atom.path: max(each.end for each in mine) for atom, mine in plan}
    ends = before | {path: max(each.end for each in leases)}
    chains: list[tuple[Group, int]] = []
    while isinstance(node, Group):
        at = next(i for i, branch in enumerate(node.of) if any(atom.path == path for atom in atoms(branch)))
        if node.kind == "order_no_gap":
            chains.append((node, at))
        node = node.of[at]
    found: dict[str, int] = {}
    for chain, at in reversed(chains):
        link = [atom.path for atom in atoms(chain.of[at]) if atom.path in before]
        by = max(ends[each] for each in link) - max(before[each] for each in link)
        for each in [atom.path for branch in chain.of[at + 1 :] for atom in atoms(branch) if atom.path in before]:
            found[each] = by
            ends[each] = before[each] + by
    return found
