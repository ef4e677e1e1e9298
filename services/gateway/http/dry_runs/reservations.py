"""What the planner would answer to a request now, by its own code in a separate process. Nothing is sent."""

import sys
from dataclasses import asdict

from largesse.lifecycle import reservation_limits
from schemas import ReservationRequested, ReservationUpdated
from schemas.queue_tree import walk
from services.gateway.documents import Document
from services.gateway.documents.nodes import state_of_node
from services.gateway.http.dry_runs.config import asked
from services.gateway.http.dry_runs.queue_rules import check_queue
from services.gateway.http.problems import Problem
from services.gateway.view.state import ReservationRow, State

PLAN = (sys.executable, "-m", "services.planner", "ask")


async def would_answer(state: State, body: ReservationRequested | ReservationUpdated, now_ms: int) -> Document:
    """The answer, and the plan if it is yes. Raises Problem where admission would refuse the request."""
    known = state.reservations.get(body.reservation)
    promised = known is not None and known.state == "accepted"
    update = isinstance(body, ReservationUpdated)
    if not update and body.reservation in state.series:
        detail = f'"{body.reservation}" names a series; choose a new name'
        raise Problem(409, "refused:input", detail, "request.reservation", reason=detail)
    if not update and known is not None and is_held(known):
        detail = reservation_limits.other_terms(body.reservation)
        raise Problem(409, "refused:input", detail, "reservation", reason=detail)
    if update and (known is None or not is_held(known) or known.user != body.user):
        detail = f'reservation "{body.reservation}" is not accepted, or belongs to another user'
        raise Problem(409, "refused:input", detail, "reservation", reason=detail)
    form = "update" if update else "request"
    if detail := reservation_limits.policy_problem(state.policy):
        raise Problem(409, "refused:input", detail, form, reason=detail)
    live = sum(is_live(row) for row in state.reservations.values())
    if not update and (detail := reservation_limits.reservation_problem(live)):
        raise Problem(409, "refused:input", detail, "request.reservation", reason=detail)
    others = [
        row for row in state.reservations.values() if row.user == body.user and row.reservation != body.reservation
    ]
    held = sum(max(len(row.rdl), len(row.asked_rdl)) for row in others if is_live(row))
    if detail := reservation_limits.size_problem(body.user, held, len(body.rdl)):
        raise Problem(409, "refused:input", detail, f"{form}.rdl", reason=detail)
    queue = body.queue or (known.queue if known is not None else "")
    check_queue(state, queue, body.user, form)
    question = {
        "now_ms": max(now_ms, state.time),
        "policy": asdict(state.policy),
        "nodes": _nodes(state),
        "ceilings": {path: queue.max for path, queue in walk(state.queues) if queue.max} if state.queues else {},
        "promises": [
            {"reservation": row.reservation, "user": row.user, "queue": row.queue, "rdl": row.rdl}
            | {"leases": [[step.atom, step.from_ms, step.to_ms, step.units // step.gang] for step in row.steps]}
            | {"works": _works(row), "weight": row.weight}
            for row in state.reservations.values()
            if row.state == "accepted"
        ],
        "ask": {"update": update and promised, "reservation": body.reservation, "user": body.user, "rdl": body.rdl}
        | {"queue": queue, "weight": body.weight},
    }
    return await asked(question, PLAN, "the plans")


def is_live(row: ReservationRow) -> bool:
    """Whether a reservation counts for the sequencer: it is promised, or something that was asked is not answered."""
    return is_held(row) or row.unanswered > 0


def is_held(row: ReservationRow) -> bool:
    """Whether a name is taken by a reservation that is promised, that is not answered, or whose promise is broken and
    tried again."""
    return row.state in ("requested", "accepted") or row.retry_until_ms is not None


def _works(row: ReservationRow) -> dict[str, int]:
    """By atom, gang-milliseconds that its plan has where that is another amount than it asked for."""
    gangs = {step.atom: step.gang for step in row.steps}
    return {atom: work // gangs.get(atom, 1) for atom, work in row.works.items()}


def _nodes(state: State) -> list[Document]:
    """Nodes that take tasks, those alike together."""
    counts: dict[str, Document] = {}
    for node in state.nodes.values():
        if state_of_node(node) == "ready":
            alike = counts.setdefault(str(sorted(node.capacity.items())), {"count": 0, "capacity": node.capacity})
            alike["count"] += 1
    return list(counts.values())
