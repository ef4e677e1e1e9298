"""The planner as a filter, asked for a better plan of what a running cell has promised.

One question as JSON on stdin, `{"plans": [...]}` or `{"why": why there is none}` on stdout; exit 2 where the question
is malformed. `shell.py` asks, in a process of its own, so that no service waits for it.

The solver plans what will not have begun by the time its answer is there. What it finds is put to the same test as in
the planner's core, so that nothing is proposed that would be refused now.
"""

import json
import sys

from schemas.edge.base import Malformed
from schemas.edge.config import knobs_of
from schemas.edge.reservations import PROPOSED_LEASES_MAX, PROPOSED_PLANS_MAX
from schemas.edge.validated import validated
from schemas.knobs import with_knobs
from schemas.policy import Policy
from services.planner.core.cell_plan import CellPlan
from services.planner.core.decide import plan_of
from services.planner.lifeline import end_with_parent
from services.planner.offline.dry_run import Cell, state_of
from services.planner.offline.reorganise import asked
from services.planner.planning.adoption import adopting
from services.planner.planning.request import Lease, Node, Plan, atoms, inside, shifted
from services.planner.planning.residual import joined
from services.planner.planning.search import finished

VARIABLES_MAX = 40_000
"""About this many whole numbers are solved for at most; what is promised beyond stays as it is."""

ANSWER_MS = 5_000
"""Between the solver's end and the adoption of what it found."""

GAP = 1e-6
"""Nearer to the best than where requests are still to be accepted: a step of use less is a gain too."""

Document = dict[str, object]


def better_plans(question: Cell) -> Document:
    """A proposal as the topic `reservations` takes it, without `after`; or why there is none."""
    policy = with_knobs(Policy(), knobs_of(question.policy, "policy"))
    state = state_of(question, policy)
    plan = plan_of(state)
    limit_ms = policy.reservation_solver_limit_ms
    first = (question.now_ms + limit_ms + ANSWER_MS) // plan.step_ms + 1
    plan.move_to(first)
    agent = plan.agent
    movable = _movable(plan)
    if not movable:
        return {"why": "nothing that is promised can still move"}
    old = {name: agent.held[name] for name in movable}
    for name in movable:
        agent.drop(name)
    nodes: list[Node] = [shifted(inside(held.node, first, agent.horizon), -first) for held in old.values()]
    used = [[a - first, b - first, amounts] for a, b, amounts in agent.book.used.runs(first, agent.horizon)]
    requests = [(node, True, plan.known[name].weight) for name, node in zip(old, nodes, strict=True)]
    answer, why = asked(agent.book.capacity, agent.horizon - first, used, requests, limit_ms // 1_000, GAP)
    for name, held in old.items():
        agent.hold(name, held)
    if not answer:
        return {"why": why}
    found: dict[str, Plan] = {}
    for (name, held), leases in zip(old.items(), answer, strict=True):
        by_path = {atom.path: atom for atom in atoms(held.node)}
        coming = [
            (by_path[path], [Lease(begin + first, end + first, gangs) for begin, end, gangs in each])
            for path, each in leases.items()
        ]
        if _sorted(coming) != _sorted(held.plan):
            found[name] = joined(plan.known[name].begun, coming)
    return _proposal(plan, found)


def _sorted(plan: Plan) -> list[tuple[str, list[Lease]]]:
    return sorted((atom.path, sorted(leases)) for atom, leases in plan)


def _movable(plan: CellPlan) -> list[str]:
    """Promises to plan again: those that begin soonest, as many as the solver has time for."""
    agent = plan.agent
    names = sorted(
        agent.held, key=lambda name: (min(lease.begin for _, each in agent.held[name].plan for lease in each), name)
    )
    found: list[str] = []
    left = VARIABLES_MAX
    for name in names[:PROPOSED_PLANS_MAX]:
        node = inside(agent.held[name].node, agent.first, agent.horizon)
        left -= sum(2 * max(0, atom.end - atom.begin) for atom in atoms(node))
        if left < 0 and found:
            break
        found.append(name)
    return found


def _proposal(plan: CellPlan, found: dict[str, Plan]) -> Document:
    if not found:
        return {"why": "the solver found the plan that there is"}
    if sum(len(leases) for each in found.values() for _, leases in each) > PROPOSED_LEASES_MAX:
        return {"why": "the solver's plan has too many leases"}
    by_path = {name: {atom.path: leases for atom, leases in each} for name, each in found.items()}
    code, reason = finished(adopting(plan.agent, plan.known, by_path))
    if code:
        return {"why": f"{code}: {reason}"}
    plans = []
    for name, each in found.items():
        leases = [
            {
                "atom": atom.path,
                "from_ms": lease.begin * plan.step_ms,
                "to_ms": lease.end * plan.step_ms,
                "units": lease.gangs * atom.gang,
            }
            for atom, mine in each
            for lease in mine
        ]
        plans.append({"reservation": name, "leases": leases})
    return {"plans": plans}


def main() -> int:
    """Read stdin, write stdout. Returns the exit code."""
    end_with_parent()
    try:
        question = validated(Cell, json.load(sys.stdin))
        answer = better_plans(question)
    except (Malformed, ValueError) as fault:
        print(fault, file=sys.stderr)
        return 2
    print(json.dumps(answer))
    return 0
