"""Adopts other plans for promises that a solver proposes, if they hold at this moment and are better.

The solver began some time ago: meanwhile leases have begun, promises were changed, given up or made, and capacity was
lost. So everything is checked again: every plan against the terms of its request, what it says of begun leases against
what is so, and all plans together against capacity, nodes and limits. All of them are adopted or none.

Better is measured as `cost` says. It has to be better by GAIN_PERMILLE, so that promises do not move back and forth for
nothing.
"""

from collections.abc import Mapping

from services.planner.planning.agents import Agent
from services.planner.planning.answers import AcceptedRequest
from services.planner.planning.limits import average_above, queue_of
from services.planner.planning.request import Lease, Plan, atoms, extent
from services.planner.planning.residual import Known, Split, joined, split
from services.planner.planning.search import Search
from services.planner.planning.shortfall import over_from
from services.planner.planning.verify import changes, fault, use

GAIN_PERMILLE = 10
"""A proposal has to save this part of what the plans that it changes start and end, or of what they use, and may add to
neither."""

Proposed = Mapping[str, Mapping[str, list[Lease]]]
"""By reservation and path of an atom, all its leases."""


def adopting(agent: Agent, known: dict[str, Known], proposed: Proposed) -> Search[tuple[str, str]]:
    """Changes what the agent holds to what is proposed, if it may; else everything stays as it was. Returns a code,
    empty if adopted (`stale`, `infeasible` or `no_better`), and the reason."""
    assert agent.book.journal is not None, "an attempt may have to be undone"
    parts: dict[str, Split] = {}
    old: dict[str, Plan] = {}
    new: dict[str, Plan] = {}
    for name, leases in proposed.items():
        yield
        mine = known.get(name)
        if mine is None:
            return "stale", f"{name} is promised nothing any more"
        by_path = {atom.path: atom for atom in atoms(mine.node)}
        if strange := [path for path in leases if path not in by_path]:
            return "stale", f"{name} has no atom {strange[0]}"
        plan: Plan = [(by_path[path], sorted(each)) for path, each in leases.items()]
        if broken := fault(mine.node, plan):
            return "infeasible", f"{name}: {broken}"
        parts[name] = split(mine.node, plan, agent.first)
        if _by_path(parts[name].begun) != _by_path(mine.begun):
            return "stale", f"{name}: leases have begun that the proposal does not have, or has otherwise"
        held = agent.held.get(name)
        old[name], new[name] = joined(mine.begun, held.plan if held is not None else []), plan
    weights = {name: known[name].weight for name in new}
    if not _is_better(cost(new, agent, weights), cost(old, agent, weights)):
        return "no_better", "it starts and ends as much, or more, and uses as much, or more"
    mark, before = len(agent.book.journal), dict(agent.held)
    for name, part in parts.items():
        held = agent.held.pop(name, None)
        if held is not None:
            agent.book.give_back(held.user, held.plan)
        if part.rest is not None:
            agent.hold(name, AcceptedRequest(known[name].user, part.rest, part.coming))
    reason = yield from _without_room(agent, known, parts)
    if reason:
        agent.book.undo(mark)
        agent.held = before
        return "infeasible", reason
    # In the order of before: others count on it.
    agent.held = {name: agent.held[name] for name in [*before, *parts] if name in agent.held}
    return "", ""


def cost(plans: Mapping[str, Plan], agent: Agent, weights: Mapping[str, int]) -> tuple[int, int]:
    """What plans start and end (the paper's preemption term, section 4.3), then what they use: both by dominant share,
    in 10^-6, the second times steps, and by the weights of their reservations."""
    capacity = agent.book.capacity
    each = [(weights[name], {name: plan}) for name, plan in plans.items()]
    return sum(n * changes(plan, capacity) for n, plan in each), sum(n * use(plan, capacity) for n, plan in each)


def _is_better(new: tuple[int, int], old: tuple[int, int]) -> bool:
    if new[0] > old[0] or new[1] > old[1]:
        return False
    return any(after * 1_000 <= before * (1_000 - GAIN_PERMILLE) for after, before in zip(new, old, strict=True))


def _by_path(plan: Plan) -> dict[str, list[Lease]]:
    return {atom.path: sorted(leases) for atom, leases in plan if leases}


def _without_room(agent: Agent, known: Mapping[str, Known], parts: Mapping[str, Split]) -> Search[str]:
    """Why plans that are held now may not be; empty if they may."""
    for name, part in parts.items():
        yield
        if not part.coming:
            continue
        user, (begin, end) = known[name].user, extent(part.coming)
        if begin < agent.first or end > agent.horizon:
            return f"{name} would lie outside the steps that can be planned"
        over = over_from(agent, begin, end)
        spans = [(lease.begin, lease.end) for _, leases in part.coming for lease in leases]
        if any(at < last and first < stop for at, stop in over for first, last in spans):
            return f"{name} would take more than there is"
        book = agent.book
        if book.is_limited(user, begin, end):
            return f"{name}: {queue_of(user)} would hold more at once than its limit"
        if average_above(book.of_user(user), book.capacity, agent.limits, begin, end) is not None:
            return f"{name}: {queue_of(user)} would hold more on average than its limit"
        if book.nodes and (yield from book.lacks_nodes(begin, end)):
            return f"the nodes would have no room for the units of {name}"
    return ""
