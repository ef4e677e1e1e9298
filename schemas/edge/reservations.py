"""The reservations topic: requests for capacity in time, in RDL as JSON (docs/reservations.md).

An atom asks for units of `b`: from `g` (least in parallel) to `h` (most), each lease at least `l` seconds, `w`
unit-seconds in all. A window `[s, e)` bounds what it holds, in seconds. Whether it can be met is the planner's to say.
"""

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from schemas.edge.base import (
    Amounts,
    Input,
    Malformed,
    Name,
    Whole,
    asked_for,
    author_of,
    check_one_form,
    validated,
)
from schemas.edge.jobs import QueuePath, queue_path
from schemas.plans import PlanProposed, ProposedLease, ProposedPlan
from schemas.quantities import QUANTITY_MAX, quantity_texts
from schemas.queue_tree import QUEUE_DEFAULT
from schemas.reservations import ReservationDeleted, ReservationRequested, ReservationUpdated

RDL_ATOMS_MAX = 1_000
RDL_DEPTH_MAX = 12
RDL_BRANCHES_MAX = 1_000
RDL_TEXT_MAX = 256 * 1024  # Characters of a request in canonical form.
UNITS_MAX = 10_000_000
RDL_PATH_MAX = 64  # Characters of an atom's path: twelve levels of up to four digits.
PROPOSED_PLANS_MAX = 256
PROPOSED_LEASES_MAX = 4_096  # Of all plans of a proposal together.

Positive = Annotated[int, Field(ge=1, le=QUANTITY_MAX)]
Units = Annotated[int, Field(ge=1, le=UNITS_MAX)]


class Atom(Input):
    """Units of one shape, `g` to `h` in parallel, in leases of at least `l` seconds, `w` unit-seconds in all."""

    op: Literal["atom"]
    b: Amounts
    g: Units
    h: Units
    l: Positive  # noqa: E741  The letter is RDL's.
    w: Positive


class Window(Input):
    """What it holds lies in `[s, e)`, in seconds."""

    op: Literal["window"]
    s: Whole
    e: Whole
    of: "Rdl"


class Several(Input):
    """All of the branches, or exactly one (`any`). `order`: each ends before the next starts; `order_no_gap`: and the
    next starts at once."""

    op: Literal["all", "any", "order", "order_no_gap"]
    of: Annotated[list["Rdl"], Field(min_length=1, max_length=RDL_BRANCHES_MAX)]


Rdl = Annotated[Atom | Window | Several, Field(discriminator="op")]
"""A request; which form it has is said by its `op`."""

Window.model_rebuild()
Several.model_rebuild()


class ReservationTerms(Input):
    """What is asked for, and by whom. `queue`: the path of the queue that it serves; left out, it is `default`, and
    that of the promise where terms change. Times are seconds of log time, which live is Unix time.
    """

    user: Name
    queue: QueuePath | None = None
    rdl: Rdl


class ReservationRequest(ReservationTerms):
    """A request, or other terms for one, by its owner."""

    reservation: Name


class ReservationDeletion(Input):
    """Its owner gives a reservation back."""

    reservation: Name
    user: Name


class LeaseProposal(Input):
    """As `schemas.plans.ProposedLease`."""

    atom: Annotated[str, Field(max_length=RDL_PATH_MAX)]
    from_ms: Whole
    to_ms: Whole
    units: Units


class PlanProposal(Input):
    """Other leases for a reservation: all of them."""

    reservation: Name
    leases: Annotated[list[LeaseProposal], Field(min_length=1, max_length=PROPOSED_LEASES_MAX)]


class Proposal(Input):
    """Other plans for promises, from the planner's solver. `after`: seq of the plan that they start from."""

    after: Whole
    plans: Annotated[list[PlanProposal], Field(min_length=1, max_length=PROPOSED_PLANS_MAX)]


class ReservationInput(Input):
    """A message of the reservations topic: exactly one of its fields."""

    request: ReservationRequest | None = None
    update: ReservationRequest | None = None
    delete: ReservationDeletion | None = None
    propose: Proposal | None = None


_CANONICAL: TypeAdapter[object] = TypeAdapter(object)


def read_reservation(
    document: object, author: str
) -> ReservationRequested | ReservationUpdated | ReservationDeleted | PlanProposed:
    """A message of the reservations topic. Raises Malformed."""
    message = validated(ReservationInput, document)
    check_one_form(message)
    author = author_of(author)
    if message.request is not None:
        asked = message.request
        queue = QUEUE_DEFAULT if asked.queue is None else queue_path(asked.queue, "request.queue")
        return ReservationRequested(asked.reservation, asked.user, rdl_text(asked.rdl, "request.rdl"), author, queue)
    if message.update is not None:
        asked = message.update
        queue = "" if asked.queue is None else queue_path(asked.queue, "update.queue")
        return ReservationUpdated(asked.reservation, asked.user, rdl_text(asked.rdl, "update.rdl"), author, queue)
    if message.propose is not None:
        return _proposal(message.propose, author)
    assert message.delete is not None
    return ReservationDeleted(message.delete.reservation, message.delete.user, author)


def _proposal(asked: Proposal, author: str) -> PlanProposed:
    plans: list[ProposedPlan] = []
    names: dict[str, bool] = {}
    for i, plan in enumerate(asked.plans):
        path = f"propose.plans[{i}]"
        if plan.reservation in names:
            raise Malformed(f"{path}.reservation", f'"{plan.reservation}" stands there twice: one plan each')
        names[plan.reservation] = True
        for k, lease in enumerate(plan.leases):
            if lease.from_ms >= lease.to_ms:
                told = f"is {lease.to_ms}: a lease has to end after its start ({lease.from_ms})"
                raise Malformed(f"{path}.leases[{k}].to_ms", told)
        leases = [ProposedLease(each.atom, each.from_ms, each.to_ms, each.units) for each in plan.leases]
        plans.append(ProposedPlan(plan.reservation, leases))
    total = sum(len(plan.leases) for plan in plans)
    if total > PROPOSED_LEASES_MAX:
        raise Malformed("propose.plans", f"have {total} leases together: at most {PROPOSED_LEASES_MAX}")
    return PlanProposed(asked.after, plans, author)


def rdl_text(rdl: Atom | Window | Several, parent: str) -> str:
    """Canonical JSON: exact quantities, resources and keys in order. Raises Malformed under `parent`."""
    text: str = _CANONICAL.dump_json(_plain(rdl, parent, 1, [RDL_ATOMS_MAX])).decode()
    if len(text) > RDL_TEXT_MAX:
        raise Malformed(parent, f"is too long: at most {RDL_TEXT_MAX} characters, has {len(text)}")
    return text


def _plain(rdl: Atom | Window | Several, path: str, depth: int, atoms_left: list[int]) -> dict[str, object]:
    if depth > RDL_DEPTH_MAX:
        raise Malformed(path, f"is nested too deep: at most {RDL_DEPTH_MAX} levels")
    match rdl:
        case Atom():
            atoms_left[0] -= 1
            if atoms_left[0] < 0:
                raise Malformed(path, f"is one atom too many: a request has at most {RDL_ATOMS_MAX}")
            if rdl.g > rdl.h:
                raise Malformed(f"{path}.g", f"is {rdl.g}, more than h, the most units in parallel ({rdl.h})")
            return {
                "op": "atom",
                "b": quantity_texts(asked_for(rdl.b, f"{path}.b", "a unit")),
                "g": rdl.g,
                "h": rdl.h,
                "l": rdl.l,
                "w": rdl.w,
            }
        case Window():
            if rdl.s >= rdl.e:
                raise Malformed(f"{path}.e", f"is {rdl.e}: a window has to end after its start ({rdl.s})")
            return {"op": "window", "s": rdl.s, "e": rdl.e, "of": _plain(rdl.of, f"{path}.of", depth + 1, atoms_left)}
        case Several():
            branches = [_plain(branch, f"{path}.of[{i}]", depth + 1, atoms_left) for i, branch in enumerate(rdl.of)]
            return {"op": rdl.op, "of": branches}
