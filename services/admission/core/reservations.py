"""Reservations as the sequencer knows them: which requests count, and which jobs may run under which reservation."""

from dataclasses import replace

from largesse.ids import content_hash
from largesse.lifecycle import reservation_limits
from largesse.lifecycle.queue_rules import queue_problem
from schemas import (
    InputRefused,
    InputRepeated,
    JobSpec,
    PlanProposed,
    Plans,
    Queue,
    Record,
    ReservationDeleted,
    ReservationRequested,
    ReservationUpdated,
)
from schemas.jobs import Rejection
from schemas.plans import UNASKED
from schemas.queue_tree import leaf_paths
from services.admission.core.demand import note_reservation
from services.admission.core.series import judge_occurrence, note_occurrence
from services.admission.core.state import Reserved, State


# ---------------------------------------------------------------- inputs
def judge_request(
    state: State, body: ReservationRequested, author: str
) -> ReservationRequested | InputRepeated | InputRefused:
    """A new reservation; the same once more changes nothing."""
    name = body.reservation
    if body.series and (unfit := judge_occurrence(state, body, author)):
        return unfit
    if name in state.series:
        return _refused(f'"{name}" names a series; choose a new name', "request.reservation", author)
    known = state.reservations.get(name)
    if known is not None:
        if known.deleting:
            return _refused(f'reservation "{name}" is being deleted; send the request again', "request", author)
        if (known.user, known.queue, known.asked) == (body.user, body.queue, _digest(body)):
            return InputRepeated("", author, name)
        return _refused(reservation_limits.other_terms(name), "request.reservation", author)
    if detail := reservation_limits.policy_problem(state.policy):
        return _refused(detail, "request", author)
    if detail := reservation_limits.reservation_problem(len(state.reservations)):
        return _refused(detail, "request.reservation", author)
    if detail := _size_problem(state, body):
        return _refused(detail, "request.rdl", author)
    if problem := queue_problem(state.leaves, state.submitters, body.queue, body.user):
        return _refused(problem[2], f"request.{problem[1]}", author)
    return body


def judge_update(
    state: State, body: ReservationUpdated, author: str
) -> ReservationUpdated | InputRepeated | InputRefused:
    """Other terms, by the owner. Without a queue, it stays where it is."""
    if body.reservation in state.series:
        detail = reservation_limits.series_unchanged(body.reservation)
        return _refused(detail, "update.reservation", author)
    known = state.reservations.get(body.reservation)
    if known is None or known.user != body.user or known.deleting:
        return _refused(_not_theirs(body.reservation, known), "update.reservation", author)
    queue = body.queue or known.queue
    if (queue, _digest(body)) == (known.queue, known.asked):
        return InputRepeated("", author, body.reservation)
    if detail := reservation_limits.policy_problem(state.policy):
        return _refused(detail, "update", author)
    if detail := _size_problem(state, body):
        return _refused(detail, "update.rdl", author)
    if problem := queue_problem(state.leaves, state.submitters, queue, body.user):
        return _refused(problem[2], f"update.{problem[1]}", author)
    return replace(body, queue=queue)


def _size_problem(state: State, body: ReservationRequested | ReservationUpdated) -> str:
    """Why a user may not have terms of that size beside its others; empty if it may."""
    held = sum(
        each.size for name, each in state.reservations.items() if each.user == body.user and name != body.reservation
    )
    return reservation_limits.size_problem(body.user, held, len(body.rdl))


def judge_deletion(state: State, body: ReservationDeleted, author: str) -> ReservationDeleted | InputRefused | None:
    """Its owner gives a reservation back."""
    if body.reservation in state.series:
        detail = reservation_limits.series_undeleted(body.reservation)
        return _refused(detail, "delete.reservation", author)
    known = state.reservations.get(body.reservation)
    if known is None or known.user != body.user:
        return _refused(_not_theirs(body.reservation, known), "delete.reservation", author)
    return None if known.deleting else body


def judge_proposal(state: State, body: PlanProposed, author: str) -> PlanProposed | InputRefused | None:
    """What a solver proposes is the planner's to judge: one proposal at a time."""
    if body.after > state.forecast_seq.get("Plans", 0):
        detail = f"the log has no plan of seq {body.after}; name the plan that the proposal starts from"
        return _refused(detail, "propose.after", author)
    return None if state.proposed else body


def _not_theirs(name: str, known: Reserved | None) -> str:
    if known is None:
        return f'reservation "{name}" is not known here: it was never accepted, has ended, or was deleted'
    if known.deleting:
        return f'reservation "{name}" is being deleted'
    return f'reservation "{name}" belongs to another user'


def _refused(reason: str, field: str, author: str) -> InputRefused:
    return InputRefused("reservations", reason, field, 0, "", author)


def _digest(body: ReservationRequested | ReservationUpdated) -> str:
    terms = body.rdl if body.weight == 1 else f"{body.rdl}\n{body.weight}"
    return content_hash(terms.encode())[:32]


def reservation_problem(state: State, spec: JobSpec) -> tuple[Rejection, str, str] | None:
    """Why a job may not run under the reservation that it names. One that is not answered yet will do: until it is
    accepted the job runs as any other."""
    name = spec.reservation
    if name is None:
        return None
    known = state.reservations.get(name)
    if name in state.series:
        detail = f'"{name}" is a series: name one of its occurrences, like "{name}.20261124T060000Z"'
        return "unknown_reservation", "reservation", detail
    if known is None or known.deleting:
        detail = f'"{name}" is not known here: it was not asked for, was rejected, or has ended'
        return "unknown_reservation", "reservation", detail
    if known.user != spec.user:
        detail = f'"{name}" belongs to another user than "{spec.user}": only jobs with `user: {known.user}` may use it'
        return "not_allowed", "reservation", detail
    if state.leaves and known.queue != spec.queue:
        detail = f'reservation "{name}" serves queue "{known.queue}", the job is for queue "{spec.queue}"'
        return "wrong_queue", "queue", detail
    return None


def reserved_queues(state: State, tree: Queue) -> str:
    """Why a tree cannot come into force: it lacks a queue that a reservation serves. Empty if it lacks none."""
    leaves = dict.fromkeys(leaf_paths(tree), True)
    for name, known in state.reservations.items():
        if state.leaves and leaves and known.queue not in leaves:
            return f'reservation "{name}" serves queue "{known.queue}", which is not in the new tree: delete it first'
    for name, series in state.series.items():
        if state.leaves and leaves and series.queue not in leaves:
            return f'series "{name}" serves queue "{series.queue}", which is not in the new tree: delete it first'
    return ""


# ---------------------------------------------------------------- what the log says
def fold_requested(state: State, record: Record[ReservationRequested]) -> None:
    """A request waits for its answer."""
    body = record.body
    known = Reserved(body.user, body.queue, _digest(body), 1, series=body.series, size=len(body.rdl))
    state.reservations[body.reservation] = known
    if body.series:
        note_occurrence(state, body)
    state.needs_round = True


def fold_updated(state: State, record: Record[ReservationUpdated]) -> None:
    """Other terms wait for their answer."""
    body = record.body
    known = state.reservations[body.reservation]
    known.asked, known.queue_asked = _digest(body), body.queue
    known.size = max(known.size, len(body.rdl))
    known.unanswered += 1
    state.needs_round = True


def fold_deleted(state: State, record: Record[ReservationDeleted]) -> None:
    """The planner will say that it is gone."""
    known = state.reservations[record.body.reservation]
    known.deleting = True
    known.unanswered += 1
    state.needs_round = True


def fold_proposed(state: State, record: Record[PlanProposed]) -> None:
    """A proposal waits for its answer."""
    state.proposed = record.seq
    state.needs_round = True


def fold_answers(state: State, body: Plans) -> None:
    """Answers in the order of the requests."""
    if body.proposals:
        state.proposed = 0
    again: dict[str, bool] = {}  # Of those that are broken, which are tried again.
    for answer in body.answers:
        known = state.reservations.get(answer.reservation)
        if known is None:
            continue
        if answer.reason in UNASKED:
            if answer.reason == "broken" and answer.retry_until_ms is not None:
                again[answer.reservation] = True
            elif answer.reason == "moved" and known.broken:
                known.accepted, known.broken = True, False
                note_reservation(state, answer.reservation)
            continue
        known.unanswered -= 1
        note_reservation(state, answer.reservation)
        if answer.reason == "deleted":
            del state.reservations[answer.reservation]
        elif answer.accepted:
            known.accepted, known.broken = True, False
            known.queue = known.queue_asked or known.queue
        else:
            known.asked = ""  # The same terms may be asked for again.
            if not known.accepted and not known.unanswered and not known.broken:
                del state.reservations[answer.reservation]
    for profile in body.profiles:
        known = state.reservations.get(profile.reservation)
        if known is not None:
            known.leases = [[step.from_ms, step.to_ms] for step in profile.steps if step.units]
    for name in body.gone:
        known = state.reservations.get(name)
        if known is not None:
            known.accepted, known.leases, known.broken = False, [], name in again
            note_reservation(state, name)
            if not known.unanswered and not known.broken:
                del state.reservations[name]
