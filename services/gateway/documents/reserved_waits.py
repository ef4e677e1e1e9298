"""Why tasks of a reserved job wait: their lease has not begun, what is promised is in use, or it finds no room yet.

`leftover` says why classes of tasks of ordinary jobs wait; tasks of jobs whose reservation is accepted stand on no
board there. What holds them back follows from the promise and from what the reservation's jobs hold.
"""

from collections.abc import Mapping

from largesse.lifecycle.promises import active, earlier_parts, serves
from schemas import PlanStep, Stage, Vector
from services.gateway.documents import Document
from services.gateway.documents.counting import added
from services.gateway.documents.promised_waits import moment
from services.gateway.view.jobs import LiveJob
from services.gateway.view.state import ReservationRow, State


class ReservedWaits:
    """Answers about one view. What it adds up for a reservation holds until the view folds another record."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._seq = state.seq
        self._held: dict[str, dict[str, Vector]] = {}

    def why(self, job: LiveJob, at: int) -> tuple[str, str] | None:
        """Why tasks of a stage wait, as reason and text; None where the job is one like any other."""
        state, spec = self._state, job.spec
        row = None if spec.reservation is None else state.reservations.get(spec.reservation)
        if row is None or row.state != "accepted" or state.policy.reservations != "on":
            return None
        if job.began > state.answered:  # No round that saw it has closed.
            return "next_round", "is considered in the next round"
        part, stage = spec.reservation_atom, spec.stages[at]
        steps = [step for step in row.steps if serves(step.atom, part)]
        if not any(active(steps, state.time)):
            begins = min([step.from_ms for step in steps if step.from_ms > state.time], default=None)
            if begins is not None:
                return "lease", f"waits for its lease, which begins at {moment(begins)}"
            what = f"part {part} of reservation {row.reservation}" if part else f"reservation {row.reservation}"
            return "promise_used", f"all leases of {what} are over; it has what nobody else can use"
        if before := self._before(job, row):
            return "lease", f"waits for job {before}, which an earlier part of its reservation is for"
        if missing := unpromised(row, part, stage.demand):
            return "promise_used", f"{unpromised_text(row, part, missing)}; it may have what is free"
        if not self._is_inside(row, part, stage):
            return "promise_used", (
                f"what reservation {row.reservation} promises now is in use; it may have what else is free"
            )
        return "no_room", f"there is no room yet for what reservation {row.reservation} promises"

    def held(self, reservation: str) -> Vector:
        """What tasks of a reservation's jobs hold."""
        return self._holds(reservation).get("", {})

    def _before(self, job: LiveJob, row: ReservationRow) -> str:
        """A live job that the reservation's order puts before this one, which has not begun; empty: there is none."""
        part = job.spec.reservation_atom
        if not part or job.started_ms is not None:
            return ""
        after = earlier_parts(row.order, part)
        for name in self._state.reserving.get(row.reservation, {}) if after else ():
            other = self._state.jobs[name].spec.reservation_atom
            if other and name != job.spec.job and any(serves(other, early) for early in after):
                return name
        return ""

    def _is_inside(self, row: ReservationRow, part: str, stage: Stage) -> bool:
        """Whether the promise of now covers one task more of a stage (of a gang: all), in all and for the part."""
        tasks = stage.tasks if stage.gang else 1
        steps, held = list(active(row.steps, self._state.time)), self._holds(row.reservation)
        for name in {part: True, "": True}:
            promised = _usage([step for step in steps if serves(step.atom, name)])
            of_part = held.get(name, {})
            for kind, amount in stage.demand.items():
                if amount and promised.get(kind, 0) - of_part.get(kind, 0) < amount * tasks:
                    return False
        return True

    def _holds(self, reservation: str) -> dict[str, Vector]:
        """What tasks of a reservation hold: by the part that their jobs are bound to, and in all ("")."""
        if self._state.seq != self._seq:
            self._seq, self._held = self._state.seq, {}
        if reservation not in self._held:
            held = self._held[reservation] = {}
            for name in self._state.reserving.get(reservation, {}):
                job = self._state.jobs[name]
                for at, stage in enumerate(job.spec.stages):
                    if tasks := job.running[at] + job.starting[at]:
                        amounts = {kind: amount * tasks for kind, amount in stage.demand.items()}
                        for part in {job.spec.reservation_atom: True, "": True}:
                            added(held.setdefault(part, {}), amounts)
        return self._held[reservation]


def unpromised(row: ReservationRow, part: str, demand: Vector) -> list[str]:
    """The resources that a task asks for and that no lease of a reservation (of a part of it) has: no task that asks
    for them is ever inside the promise. None where nothing is planned yet.
    """
    leases = [step for step in row.steps if serves(step.atom, part)]
    return [kind for kind, amount in demand.items() if amount and leases and not _usage(leases).get(kind)]


def unpromised_text(row: ReservationRow, part: str, missing: list[str]) -> str:
    """What is wrong with a demand for resources that are `unpromised`."""
    what = f"part {part} of reservation {row.reservation}" if part else f"reservation {row.reservation}"
    return f"asks for {' and '.join(missing)}, which {what} does not promise (its atoms do not name it in b)"


def unpromised_warnings(reservations: Mapping[str, ReservationRow], document: Document) -> list[str]:
    """What a submitter should know of a job that was read without a fault: its stages that can never run inside the
    promise that the job names.
    """
    row = reservations.get(document.get("reservation") or "")
    if row is None or row.state != "accepted":
        return []
    part = document.get("reservation_atom") or ""
    found = []
    for i, stage in enumerate(document["stages"]):
        if missing := unpromised(
            row, part, {kind: 1 for kind, amount in stage["demand"].items() if amount not in (0, "0")}
        ):
            text = unpromised_text(row, part, missing)
            found.append(f"stages[{i}].demand: {text}: its tasks will not run inside the promise")
    return found


def _usage(steps: list[PlanStep]) -> Vector:
    found: Vector = {}
    for step in steps:
        added(found, step.usage)
    return found
