"""Broken promises that are tried again when there is more room, until their windows end.

What is asked for anew is what was promised less the leases that were over when it broke: in what is left of its window,
as any other request, and never at the cost of another promise. They are tried in turn, RETRIES_MAX at a time, the
heaviest of those first, once there is more capacity, or room that was promised has been given back.
"""

from typing import TYPE_CHECKING

from schemas import Plans
from schemas.plans import UNASKED
from services.planner.core.state import Broken, Lease, Promise, State, Waiting
from services.planner.core.turns import given_back

if TYPE_CHECKING:
    from services.planner.core.cell_plan import CellPlan, Promises
    from services.planner.planning.answers import Answer
    from services.planner.planning.search import Search

AGAIN = "after it was broken, now that there is room for it again"


RETRIES_MAX = 64
"""So many are tried at a time at most, so that what else waits for an answer does not wait long."""


# ---------------------------------------------------------------- the state
def keep_broken(state: State, name: str, until_ms: int, why: str) -> None:
    """A promise is broken from now on, and may be restored."""
    promise = state.promises[name]
    first = state.first
    leases = [each for each in promise.leases if each.begin < first]
    planned = {each.atom: True for each in promise.leases}
    # What has no lease any more is served.
    works = {atom: work if atom in planned else 0 for atom, work in promise.works.items()}
    over = [Lease(each.atom, each.begin, min(each.end, first), each.gangs) for each in leases]
    kept = Promise(promise.user, promise.queue, promise.rdl, promise.seq, over, promise.series, works)
    kept.weight = promise.weight
    kept.missing, kept.done = promise.missing, promise.done
    state.broken[name] = Broken(kept, until_ms, why)
    state.returned = False


def restored(state: State, name: str) -> Promise:
    """A broken promise holds again."""
    promise = state.promises[name] = state.broken.pop(name).promise
    if name in state.reserving:
        state.active[name] = True
    return promise


def forget_broken(state: State, name: str) -> None:
    """A broken promise is tried again no more."""
    state.broken.pop(name, None)
    state.retries = [each for each in state.retries if each.reservation != name]


def list_retries(state: State) -> bool:
    """A round opens: lists what is tried again in it. Returns whether that is something else than before."""
    if not state.broken or not state.returned or state.policy.reservations != "on":
        return False
    deleted = given_back(state.waiting)
    state.returned = False
    names = [name for name in state.broken if name not in deleted][:RETRIES_MAX]
    names.sort(key=lambda name: -state.broken[name].promise.weight)
    of = [state.broken[name].promise for name in names]
    state.retries = [
        Waiting("restore", name, each.user, each.queue, each.rdl, 0, leases=each.leases, works=each.works)
        for name, each in zip(names, of, strict=True)
    ]
    for asked, each in zip(state.retries, of, strict=True):
        asked.weight = each.weight
    return bool(state.retries)


def fold_retries(state: State, body: Plans) -> None:
    """What became of those that were tried: the others have their turn before them next time."""
    told = {each.reservation: True for each in body.answers if each.reason in UNASKED}
    for name in [each.reservation for each in state.retries if each.reservation in told]:
        if name in state.broken:
            state.broken[name] = state.broken.pop(name)
    state.retries = [
        each for each in state.retries if each.reservation in state.broken and each.reservation not in told
    ]


# ---------------------------------------------------------------- the plan
def retry_until_ms(plan: "CellPlan", name: str, before: "Promises") -> int | None:
    """Until when a promise that breaks is tried again; None: nothing could restore it."""
    from services.planner.planning.request import bounds, fastest
    from services.planner.planning.residual import remainder

    first = plan.agent.first
    rest = remainder(before.known[name].node, before.plan(name), first).rest
    if rest is None:
        return None
    begin, end = bounds(rest)
    end = min(end, plan.agent.horizon)
    return end * plan.step_ms if end - max(begin, first) >= fastest(rest) else None


def restoring(plan: "CellPlan", asked: Waiting) -> "Search[Answer]":
    """Promises what is left of a broken promise anew, if there is room."""
    from services.planner.planning import request
    from services.planner.planning.answers import AcceptedRequest, Answer
    from services.planner.planning.following import adjusted
    from services.planner.planning.residual import Known, remainder

    agent, name = plan.agent, asked.reservation
    terms = plan.read(asked.rdl).node()
    served = [atom.path for atom in request.atoms(terms) if not asked.works.get(atom.path, 1)]
    whole = [(atom, [request.Lease(0, atom.lease, 1)]) for atom in request.atoms(terms) if atom.path not in served]
    node = adjusted(terms, asked.works, whole)
    if node is None:
        return Answer("no_room", "no part of it is left to be promised")
    leases: dict[str, list[request.Lease]] = {}
    for each in asked.leases:
        leases.setdefault(each.atom, []).append(request.Lease(each.begin, each.end, each.gangs))
    over = [(atom, leases[atom.path]) for atom in request.atoms(node) if atom.path in leases]
    parts = remainder(node, over, agent.first)
    if parts.rest is None:
        return Answer("no_room", "what is left of it cannot be planned by itself")
    user = plan.account(asked)
    for atom, mine in parts.begun:
        agent.book.take(user, atom, mine)
    with agent.book.without_owner_limit():
        answer = yield from agent.finding_room(user, request.inside(parts.rest, agent.first, agent.horizon))
    if answer.code:
        agent.book.give_back(user, parts.begun)
        return answer
    plan.known[name] = Known(user, node, parts.begun, asked.weight)
    agent.held[name] = AcceptedRequest(user, parts.rest, answer.plan)
    return answer
