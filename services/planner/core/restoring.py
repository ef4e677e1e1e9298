"""Plans what is left of a broken promise again, as any other request."""

from services.planner.core.waiting import Restore
from services.planner.planning import request
from services.planner.planning.agents import Agent
from services.planner.planning.answers import AcceptedRequest, Answer
from services.planner.planning.following import adjusted
from services.planner.planning.request import Node
from services.planner.planning.residual import Known, remainder
from services.planner.planning.search import Search


def restoring(agent: Agent, known: dict[str, Known], asked: Restore, terms: Node, user: str) -> Search[Answer]:
    """Promises what is left of it, if there is room. `terms`: what was asked for; `user`: under what it is booked."""
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
    for atom, mine in parts.begun:
        agent.book.take(user, atom, mine)
    with agent.book.without_owner_limit():
        answer = yield from agent.finding_room(user, request.inside(parts.rest, agent.first, agent.horizon))
    if answer.code:
        agent.book.give_back(user, parts.begun)
        return answer
    known[asked.reservation] = Known(user, node, parts.begun, asked.weight)
    agent.held[asked.reservation] = AcceptedRequest(user, parts.rest, answer.plan)
    return answer
