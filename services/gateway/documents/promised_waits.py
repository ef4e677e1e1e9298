"""Tasks and promises to others: which lease keeps tasks from starting, and which running tasks may be taken back."""

from datetime import UTC, datetime

from largesse.lifecycle.promises import active
from schemas import PromisedWait, Stage, Vector
from schemas.quantities import tasks_on_devices
from schemas.wording import plural
from services.gateway.documents import Document
from services.gateway.view.jobs import LiveJob
from services.gateway.view.state import LentRow, NodeRow, State

NEED_ROOM = ("no_room", "gang_no_room")
"""Reasons of classes of tasks that would start if there were more room."""
OVER = ("ended", "deleted")
"""States of a reservation that takes nothing back any more."""


def revocable_document(state: State, job: LiveJob, at: int) -> Document | None:
    """Which running tasks of a stage may be taken back: how many, and for the first lease that needs their room."""
    prefix = f"{job.spec.stages[at].stage}/"
    rows = [
        row
        for key, row in state.lent.get(job.spec.job, {}).items()
        if key.rpartition("/")[0] + "/" == prefix and _is_due(state, row)
    ]
    if not rows:
        return None
    first = min(rows, key=lambda row: (row.from_ms, row.until_ms, row.reservation))
    return {
        "tasks": len(rows),
        "reservation": first.reservation,
        "from_ms": first.from_ms,
        "until_ms": first.until_ms,
        "text": f"revocable until {moment(first.until_ms)} by {first.reservation}",
    }


def _is_due(state: State, row: LentRow) -> bool:
    """Whether the lease that a task may be taken back for is still to come, or goes on."""
    reservation = state.reservations.get(row.reservation)
    return row.until_ms > state.time and (reservation is None or reservation.state not in OVER)


def promised_text(state: State, wait: PromisedWait) -> str:
    """Why a stage does not start before a lease, in words."""
    if wait.from_ms <= state.time:
        text = f"room is promised to {wait.reservation} until {moment(wait.until_ms)}"
    else:
        text = f"room is promised to {wait.reservation} from {moment(wait.from_ms)} until {moment(wait.until_ms)}"
    if wait.needs_ms is None:
        text += ", and it may not be taken back"
    elif wait.taken_back:
        text += f", and tasks were taken back {plural(wait.taken_back, 'time')}: the next needs {span(wait.needs_ms)}"
    else:
        text += f", and a task takes {span(wait.needs_ms)}"
    if wait.fits_ms is None:
        return f"{text}; no gap in what is promised by now is long enough"
    if wait.fits_ms <= max(state.time, wait.until_ms):
        return text
    return f"{text}; the first gap that is long enough begins at {moment(wait.fits_ms)}"


class PromisedRoom:
    """Answers about one state of the view: who would have room if it were not promised. Nodes are added up once."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._by_node: dict[str, tuple[str, Vector]] | None = None

    def text(self, stage: Stage) -> str | None:
        """To whom room is promised now that tasks of a stage would have else, in words; None: it is not for that."""
        state = self._state
        if state.policy.reservations != "on" or not state.reservations:
            return None
        if self._by_node is None:
            self._by_node = dict(self._promised())
        needed, room, to = stage.tasks if stage.gang else 1, 0, ""
        for name, node in state.nodes.items():
            promised = self._by_node.get(name, ("", {}))
            have = _tasks_beside(node, stage, promised[1])
            to = to or (promised[0] if have > _tasks_beside(node, stage, {}) else "")
            room += have
            if room >= needed and to:
                return f"room is promised to {to}"
        return None

    def _promised(self) -> list[tuple[str, tuple[str, Vector]]]:
        """By node: the first reservation with a lease now that holds room there or waits for it (with the end of the
        lease), and how much.
        """
        state, waiting = self._state, ""
        found: dict[str, tuple[str, Vector]] = {}
        for name, jobs in state.reserving.items():
            row = state.reservations.get(name)
            leases = list(active(row.steps, state.time)) if row is not None and row.state == "accepted" else []
            if not leases:
                continue
            said = f"{name} until {moment(max(step.to_ms for step in leases))}"
            waiting = waiting or said
            for job in (state.jobs[each] for each in jobs):
                for at, stage in enumerate(job.graph.stages):
                    for node, tasks in job.nodes[at].items():
                        _, amounts = found.setdefault(node, (said, {}))
                        _add(amounts, stage.demand, tasks)
        for node, held in state.vacated.items() if waiting else ():
            _add(found.setdefault(node, (waiting, {}))[1], held.demand, 1)
        return list(found.items())


def _add(amounts: Vector, demand: Vector, tasks: int) -> None:
    for kind, amount in demand.items():
        amounts[kind] = amounts.get(kind, 0) + amount * tasks


def _tasks_beside(node: NodeRow, stage: Stage, promised: Vector) -> int:
    """How many tasks of a stage would have room on a node if this were not promised; at most that for GPUs."""
    closed = node.lost or node.draining or node.unschedulable
    if closed or any(node.labels.get(key) != value for key, value in stage.labels.items()):
        return 0
    demand = {kind: amount for kind, amount in stage.demand.items() if amount}
    free = {kind: node.capacity.get(kind, 0) - node.used.get(kind, 0) + promised.get(kind, 0) for kind in demand}
    room = min([stage.tasks, *(max(0, free[kind]) // amount for kind, amount in demand.items())])
    return tasks_on_devices(demand.get("gpu", 0), [device.milli for device in node.devices], room)


def moment(at_ms: int) -> str:
    """A time as texts of the gateway say it, in UTC."""
    return datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def span(ms: int) -> str:
    """A length of time: its two largest parts."""
    seconds = max(1, -(-ms // 1_000))
    parts = [(seconds // 86_400, "d"), (seconds // 3_600 % 24, "h"), (seconds // 60 % 60, "min"), (seconds % 60, "s")]
    return " ".join([f"{count} {unit}" for count, unit in parts if count][:2])
