"""Reservations as the API shows them."""

from dataclasses import asdict

from schemas import ReservationRequested, ReservationUpdated
from schemas.edge.strict_json import loads
from schemas.plans import PlanAnswer, PlanStep
from schemas.quantities import quantity_texts
from services.gateway.documents import Document
from services.gateway.view.state import ReservationRow, SeriesRow, State


def reservation_document(row: ReservationRow) -> Document:
    """One reservation: its terms, its state, the last answer, and the plan."""
    return {
        "reservation": row.reservation,
        "user": row.user,
        "queue": row.queue,
        "state": row.state,
        "requested_ms": row.at_ms,
        "answered_ms": row.answered_ms,
        "answer": None if row.answer is None else _answer(row.answer),
        "update_refused": is_update_refused(row),
        "unanswered": row.unanswered,
        "moved": row.moved,
        "moved_why": row.moved_why,
        "ahead": row.ahead,
        "behind": row.behind,
        "progress": row.progress,
        "retry_until_ms": row.retry_until_ms,
        "restored": row.restored,
        "series": row.series,
        "weight": row.weight,
        "rdl": loads(row.rdl.encode()),
        "steps": [_step(step) for step in row.steps],
    }


def series_document(row: SeriesRow) -> Document:
    """A reservation that recurs: its terms, and how far its occurrences were requested."""
    return {
        "series": row.series,
        "user": row.user,
        "queue": row.queue,
        "every": row.every,
        "zone": row.zone,
        "start_s": row.start_s,
        "requested_ms": row.at_ms,
        "occurrences": row.occurrences,
        "asked_s": row.asked_s,
        "weight": row.weight,
        "rdl": loads(row.rdl.encode()),
    }


def is_update_refused(row: ReservationRow) -> bool:
    """Whether the last answer is a no to other terms: then those before stay in force."""
    return row.state == "accepted" and row.answer is not None and not row.answer.accepted


def reservation_documents(state: State) -> list[Document]:
    """Reservations in the order in which they came; of those that are over, the latest."""
    return [reservation_document(row) for row in state.reservations.values()]


def dry_document(body: ReservationRequested | ReservationUpdated, found: Document, now_ms: int) -> Document:
    """What a dry run found, as a reservation that it would be."""
    answer = {key: value for key, value in found["answer"].items() if key != "reservation"}
    steps = [step | {name: quantity_texts(step[name]) for name in ("usage", "unit")} for step in found["steps"]]
    return {
        "reservation": body.reservation,
        "user": body.user,
        "queue": body.queue,
        "state": "accepted" if answer["accepted"] else "rejected",
        "requested_ms": now_ms,
        "answered_ms": now_ms,
        "answer": answer,
        "update_refused": False,
        "unanswered": 0,
        "moved": 0,
        "moved_why": f"would move {', '.join(found['moved'])}" if found["moved"] else "",
        "ahead": 0,
        "behind": 0,
        "progress": "",
        "retry_until_ms": None,
        "restored": 0,
        "series": "",
        "weight": body.weight,
        "rdl": loads(body.rdl.encode()),
        "steps": steps,
    }


def _answer(answer: PlanAnswer) -> Document:
    return {key: value for key, value in asdict(answer).items() if key != "reservation"}


def _step(step: PlanStep) -> Document:
    return {**asdict(step), "usage": quantity_texts(step.usage), "unit": quantity_texts(step.unit)}
