"""What a solver proposed, as the planner reads it."""

from services.planner.core.waiting import Proposal
from services.planner.planning.adoption import adopting
from services.planner.planning.agents import Agent
from services.planner.planning.answers import Answer
from services.planner.planning.request import Lease, atoms
from services.planner.planning.residual import Known
from services.planner.planning.search import Search


def weighing(agent: Agent, known: dict[str, Known], asked: Proposal, step_ms: int) -> Search[Answer]:
    """Adopts what a solver proposed, or says why not."""
    plans: dict[str, dict[str, list[Lease]]] = {}
    for plan in asked.proposed:
        promise = known.get(plan.reservation)
        gangs = {atom.path: atom.gang for atom in atoms(promise.node)} if promise is not None else {}
        mine = plans[plan.reservation] = {}
        for lease in plan.leases:
            gang = gangs.get(lease.atom, 1)
            if lease.from_ms % step_ms or lease.to_ms % step_ms or lease.units % gang:
                text = f"{plan.reservation}: a lease of atom {lease.atom} is off the grid of steps or gangs"
                return Answer("infeasible", text)
            begin, end = lease.from_ms // step_ms, lease.to_ms // step_ms
            mine.setdefault(lease.atom, []).append(Lease(begin, end, lease.units // gang))
    code, reason = yield from adopting(agent, known, plans)
    return Answer(code, reason)
