"""The planner as a filter, asked what it would answer to a request now.

One question as JSON on stdin, the answer as JSON on stdout; exit 2 with one line on stderr if it is malformed. The core
itself answers: it is given a cell with such capacity and promises, and decides rounds until it has answered.
"""

import json
import sys
from dataclasses import asdict

from largesse.core import RULES
from largesse.rounds import Hosted, ask
from schemas import PlanAnswer, Plans, Record, RoundOpened
from schemas.edge.base import Input, Malformed
from schemas.edge.config import knobs_of
from schemas.edge.validated import validated
from schemas.knobs import with_knobs
from schemas.plans import UNASKED
from schemas.policy import Policy
from services.planner import core
from services.planner.core.nodes import Node
from services.planner.core.promises import Lease, Promise
from services.planner.core.waiting import Request

ROUNDS_MAX = 2_000
UNANSWERED = (
    f"no answer within {ROUNDS_MAX:,} rounds of search: promises that lack room are mended first; ask again later"
)


class Promised(Input):
    """A promise. `leases`: path of the atom, from, to (ms), gangs. `works`: by path of the atom, gang-milliseconds that
    take the place of the work asked for."""

    reservation: str
    user: str
    queue: str
    rdl: str
    leases: list[list[str | int]]
    works: dict[str, int] = {}
    weight: int = 1


class Nodes(Input):
    """So many nodes alike."""

    count: int
    capacity: dict[str, int]


class Asked(Input):
    """The request; with `update`, other terms for a promise."""

    update: bool
    reservation: str
    user: str
    queue: str
    rdl: str
    weight: int = 1


class Cell(Input):
    """What somebody knows of a cell. `ceilings`: what queues may hold together, by path."""

    now_ms: int
    policy: dict[str, object]
    nodes: list[Nodes]
    promises: list[Promised]
    ceilings: dict[str, dict[str, int]] = {}


class Question(Cell):
    """What a gateway knows of a cell, and what it is asked."""

    ask: Asked


def would_answer(question: Question) -> dict[str, object]:
    """The core's answer to the request, with the plan where it is yes, and the names of those that would move."""
    state = state_of(question, with_knobs(Policy(), knobs_of(question.policy, "policy")))
    ask = question.ask
    state.waiting.append(
        Request(
            "update" if ask.update else "request", ask.reservation, ask.user, ask.queue, ask.rdl, 0, weight=ask.weight
        )
    )
    found = _answered(state, question.now_ms)
    if found is None:
        unanswered = PlanAnswer(ask.reservation, False, "no_room", UNANSWERED)
        return {"answer": asdict(unanswered), "steps": [], "moved": []}
    (answer,) = [each for each in found.answers if each.reservation == ask.reservation and each.reason not in UNASKED]
    plans = [profile for profile in found.profiles if profile.reservation == ask.reservation]
    return {
        "answer": asdict(answer),
        "steps": [asdict(step) for profile in plans for step in profile.steps],
        "moved": [each.reservation for each in found.answers if each.reason == "moved"],
    }


def state_of(cell: Cell, policy: Policy) -> core.State:
    """The planner's state in such a cell. The length of a step is the policy's."""
    state = core.start()
    state.policy = policy
    state.step_ms = policy.reservation_step_ms
    state.ceilings = cell.ceilings
    for i, alike in enumerate(cell.nodes):
        for k in range(alike.count):
            state.nodes[f"{i}-{k}"] = Node(dict(alike.capacity))
        for resource, amount in alike.capacity.items():
            state.capacity[resource] = state.capacity.get(resource, 0) + amount * alike.count
    for each in cell.promises:
        leases = [Lease(str(a), int(b) // state.step_ms, int(e) // state.step_ms, int(g)) for a, b, e, g in each.leases]
        works = {atom: work // state.step_ms for atom, work in each.works.items()}
        terms = (each.user, each.queue, each.rdl, 0)
        state.promises[each.reservation] = Promise(*terms, leases, works=works, weight=each.weight)
    return state


def _answered(state: core.State, now_ms: int) -> Plans | None:
    """The plan that answers; None if none does in ROUNDS_MAX rounds, which mending promises may take."""
    planner = Hosted(core, state)
    for number in range(1, ROUNDS_MAX):
        opened = Record("RoundOpened", 1, "dry-run", number, number, now_ms, "", "", RoundOpened(RULES, ""))
        core.fold(state, opened)
        for answer in ask(planner, opened, {}, 1):
            body: Plans = answer.record.body
            if any(each.reason not in UNASKED for each in body.answers):
                return body
            core.fold(state, answer.record)
    return None


def main() -> int:
    """Read stdin, write stdout. Returns the exit code: 2 where the question is malformed."""
    try:
        question = validated(Question, json.load(sys.stdin))
        answer = would_answer(question)
    except (Malformed, ValueError) as fault:
        print(fault, file=sys.stderr)
        return 2
    print(json.dumps(answer))
    return 0
