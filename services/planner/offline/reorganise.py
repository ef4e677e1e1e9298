"""Asks the solver, in a process of its own, for better plans of all requests at once, and adopts them only if they are.

Better: more requests accepted, none of the accepted ones rejected; or as many, and less started and ended. What the
solver proposes is checked first; without a proposal, or with a worse one, everything stays as it was.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from services.planner.lifeline import lifeline
from services.planner.planning.agents import Agent
from services.planner.planning.answers import AcceptedRequest, GridRequest
from services.planner.planning.request import Lease, Node, Plan, atoms, inside
from services.planner.planning.verify import changes, fault, over_capacity

COMMAND = (sys.executable, "-m", "services.planner.milp")
TIME_LIMIT_S = 10
GAP = 1e-4  # Between what is found and the best that there may be, relative: then the solver stops.
GRACE_S = 120  # For building the model, and for a solver that looks at its clock late.


def reorganise(
    agent: Agent, rejected: list[GridRequest], time_limit_s: int, weights: Mapping[str, int]
) -> tuple[list[str], str]:
    """Plans all held and rejected requests again. Returns the names of those newly accepted, and what became of it:
    adopted, or why the plans stay as they were. `weights`: of requests by name, 1 where it is not there.
    """
    names = [*agent.held, *(request.name for request in rejected)]
    users = {**{name: held.user for name, held in agent.held.items()}, **{each.name: each.user for each in rejected}}
    nodes: dict[str, Node] = {name: held.node for name, held in agent.held.items()}
    nodes.update({each.name: inside(each.body, each.begin, each.end) for each in rejected})
    if not names:
        return [], "there is nothing to plan"
    if agent.limits.instant is not None or agent.limits.average is not None:
        return [], "limits by user are not part of the program"
    old = dict(agent.held)
    for name in old:
        agent.drop(name)
    proposal, said = _asked(agent, [(nodes[name], name in old, weights.get(name, 1)) for name in names], time_limit_s)
    plans = _plans(proposal, [nodes[name] for name in names])
    new = {
        name: AcceptedRequest(users[name], nodes[name], plan) for name, plan in zip(names, plans, strict=True) if plan
    }
    said = _worse(agent, old, new, weights) if proposal else said
    for name, held in (old if said else new).items():
        agent.hold(name, held)
    return ([], said) if said else ([name for name in new if name not in old], "adopted")


def _asked(agent: Agent, requests: list[tuple[Node, bool, int]], time_limit_s: int) -> tuple[list[Any], str]:
    used = [[begin, end, amounts] for begin, end, amounts in agent.book.used.runs(0, max(1, agent.horizon))]
    return asked(agent.book.capacity, agent.horizon, used, requests, time_limit_s)


def asked(
    capacity: Sequence[int],
    horizon: int,
    used: Sequence[Sequence[object]],
    requests: list[tuple[Node, bool, int]],
    time_limit_s: int,
    gap: float = GAP,
) -> tuple[list[Any], str]:
    """The solver's plans by request; or none, and why. `used`: runs of what is promised beside; requests come with
    whether they must be accepted, and their weights. `gap`: the solver stops so near to the best, relative to that."""
    problem = {
        "capacity": list(capacity),
        "horizon": horizon,
        "used": used,
        "requests": [{"node": asdict(node), "must": must, "weight": weight} for node, must, weight in requests],
        "time_limit_s": time_limit_s,
        "gap": gap,
    }
    try:
        with lifeline() as (inherited, environment):
            asked = subprocess.run(
                COMMAND,
                input=json.dumps(problem),
                capture_output=True,
                text=True,
                timeout=time_limit_s + GRACE_S,
                check=False,
                pass_fds=(inherited,),
                env=environment,
            )
    except subprocess.TimeoutExpired:
        return [], "the solver did not end"
    if asked.returncode:
        return [], (asked.stderr.strip().splitlines() or ["the solver failed"])[-1]
    answer = json.loads(asked.stdout)
    return answer["plans"] or [], "" if answer["plans"] else "the solver found no plan in its time"


def _plans(proposal: list[Any], nodes: list[Node]) -> list[Plan]:
    found: list[Plan] = []
    for leases, node in zip(proposal or [{}] * len(nodes), nodes, strict=True):
        by_path = {atom.path: atom for atom in atoms(node)}
        found.append([(by_path[path], [Lease(*each) for each in mine]) for path, mine in leases.items()])
    return found


def _worse(
    agent: Agent, old: dict[str, AcceptedRequest], new: dict[str, AcceptedRequest], weights: Mapping[str, int]
) -> str:
    """Why a proposal is not adopted; empty if it is. Nothing of it is held yet."""
    for name, held in new.items():
        if found := fault(held.node, held.plan):
            return f"the solver's plan for {name} is not valid: {found}"
    if missing := [name for name in old if name not in new]:
        return f"the solver's plan breaks the promise to {missing[0]}"
    if over_capacity([held.plan for held in new.values()], agent.book.used, agent.book.capacity, max(1, agent.horizon)):
        return "the solver's plan exceeds the capacity"
    if len(new) > len(old):
        return ""
    before, after = (
        sum(weights.get(name, 1) * changes({name: held.plan}, agent.book.capacity) for name, held in plans.items())
        for plans in (old, new)
    )
    return "" if after < before else "the solver's plan is no better"
