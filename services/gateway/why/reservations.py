"""Why a reservation is as it is: the planner's answer, and what became of the promise."""

from largesse.lifecycle.promises import active
from schemas.quantities import quantity_texts
from schemas.reasons import REASONS, Reason
from schemas.wording import plural
from services.gateway.documents import Document
from services.gateway.documents.counting import added
from services.gateway.documents.promised_waits import moment
from services.gateway.documents.reserved_waits import ReservedWaits
from services.gateway.view.state import ReservationRow, State

STATES = {
    "requested": "is asked for",
    "accepted": "is accepted",
    "rejected": "was rejected",
    "broken": "is broken",
    "ended": "is over",
    "deleted": "was given back",
}


def reservation_why(state: State, row: ReservationRow) -> Document:
    """Of one reservation: the answer first, then what its leases have now, then how the promise moved."""
    word: Reason = "answered" if row.answer is not None else "unanswered"
    text = f"{row.reservation} {STATES[row.state]}"
    numbers: Document = {"requested_ms": row.at_ms, "answered_ms": row.answered_ms}
    unblocks: list[str] = []
    if row.answer is not None:
        numbers["answer"] = row.answer.reason
        text += f" ({row.answer.reason})" if row.answer.reason else ""
        text += f": {row.answer.detail}" if row.answer.detail else ""
    if row.state in ("rejected", "broken"):
        unblocks = [f"largesse reserve why {row.reservation} shows the plan", "ask for less, or for a wider window"]
    elif word == "unanswered":
        unblocks = [REASONS["unanswered"].action]
    reasons: list[Document] = [{"reason": word, "text": text, "numbers": numbers, "unblocks": unblocks}]
    if row.state == "accepted":
        reasons.append(_lease(state, row))
    if row.moved:
        text = f"its promise was moved {plural(row.moved, 'time')}: {row.moved_why}"
        reasons.append({"reason": "moved", "text": text, "numbers": {"moved": row.moved}, "unblocks": []})
    return {"kind": "reservation", "state": row.state, "reasons": reasons, "start": _start(state, row), "waited": None}


def _lease(state: State, row: ReservationRow) -> Document:
    held = ReservedWaits(state).held(row.reservation)
    steps = list(active(row.steps, state.time))
    jobs = list(state.reserving.get(row.reservation, {}))
    promised: dict[str, int] = {}
    for step in steps:
        added(promised, step.usage)
    numbers = {"promised": quantity_texts(promised), "held": quantity_texts(dict(sorted(held.items()))), "jobs": jobs}
    coming = [step.from_ms for step in row.steps if step.from_ms > state.time]
    if not steps:
        text = f"its next lease begins at {moment(min(coming))}" if coming else "all its leases are over"
        return {"reason": "lease", "text": text, "numbers": numbers, "unblocks": []}
    until = moment(max(step.to_ms for step in steps))
    if not jobs:
        text, word = f"a lease goes on until {until}, and no job uses it", "demand"
        help_text = [f'submit a job with reservation: "{row.reservation}"']
        return {"reason": word, "text": text, "numbers": numbers, "unblocks": help_text}
    text = f"a lease goes on until {until}; {plural(len(jobs), 'job')} {'uses' if len(jobs) == 1 else 'use'} it"
    return {"reason": "lease", "text": text, "numbers": numbers, "unblocks": []}


def _start(state: State, row: ReservationRow) -> Document | None:
    coming = [step.from_ms for step in row.steps if step.to_ms > state.time]
    if row.state != "accepted" or not coming:
        return None
    first_ms = max(state.time, min(coming))
    return {"earliest_ms": first_ms, "likely_ms": first_ms, "latest_ms": first_ms, "accuracy": None}
