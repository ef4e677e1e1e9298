"""Who may run in a queue with `running_jobs_max`: a job that may, and holds nothing, gives way to one held back.

It does to one of higher priority, and, where no node that takes tasks now could run any task that it waits for, where
it waits for its lease, or where a user holds it, to one that could start. A job whose lease has begun is let run
whatever the limits say: its room was promised. What comes of it is a record, JobTurns, which all cores fold.
"""

from largesse.lifecycle.empty_nodes import room_on
from largesse.lifecycle.running_limit import limited, queue_at_limit, rank
from largesse.lifecycle.state import Parked, RunningLimits
from schemas import HeldBack, JobTurns, Stage
from schemas.placement_rules import class_key
from services.admission.core.state import JobState, State

LOOKED_AT_MAX = 100
"""Jobs held back that one round looks at, in each queue, for one that could start."""


def turns_now(state: State, time: int) -> JobTurns | None:
    """Who may run from now on, and instead of whom; None: all stays as it is. Called where jobs are held back. One job
    gives way at a time, since that changes what the limits leave to the others: ask again.
    """
    look = _Look(state, time)
    if leased := [name for name in _reserved(state) if look.is_leased(state.jobs[name])]:
        return JobTurns([], leased)
    idle = [name for name in state.through if not state.jobs[name].held and not state.jobs[name].over]
    for name in sorted(idle, key=lambda name: (state.jobs[name].spec.priority, -state.jobs[name].seq)):
        job = state.jobs[name]
        if not look.is_leased(job) and (instead := _instead(state, look, job)) is not None:
            return JobTurns([HeldBack(name, job.spec.priority, job.seq)], [instead])
    return None


def _reserved(state: State) -> list[str]:
    """Jobs held back that name a reservation."""
    parked = state.running_limits.parked if state.reservations else {}
    return [each.job for waiting in parked.values() for each in waiting if state.jobs[each.job].spec.reservation]


def _instead(state: State, look: "_Look", job: JobState) -> str | None:
    """The job held back that is to run instead of one that holds nothing, if any."""
    running, priority, on_hold = state.running_limits, job.spec.priority, state.on_hold
    stuck = not look.can_start(job)
    best: Parked | None = None
    for queue, waiting in running.parked.items():
        if not _gives_room(running, job.spec.queue, queue):
            continue
        able = [parked for parked in waiting if parked.job not in on_hold] if on_hold else waiting
        for parked in able[:LOOKED_AT_MAX]:
            if best is not None and rank(best) <= rank(parked):
                break  # They are in this order.
            if parked.priority <= priority and not stuck:
                break
            if look.can_start(state.jobs[parked.job]):
                best = parked
                break
    return best.job if best is not None else None


def _gives_room(running: RunningLimits, gone: str, queue: str) -> bool:
    """Whether a job of a queue may run once one of another queue, `gone`, may no more."""
    freed = dict.fromkeys(limited(running, gone), True)
    if queue_at_limit(running, queue) is None:
        return False  # It is not held back by a limit that the other counts in.
    return all(running.through[path] - (path in freed) < running.limits[path] for path in limited(running, queue))


class _Look:
    """Answers about jobs at one moment, each class of tasks looked at once."""

    def __init__(self, state: State, time: int) -> None:
        self._state = state
        self._time = time
        self._nodes = [n for n in state.nodes.values() if not (n.lost or n.draining or n.unschedulable)]
        self._fits: dict[str, bool] = {}

    def is_leased(self, job: JobState) -> bool:
        """Whether a lease of the job's reservation holds now."""
        return any(from_ms <= self._time < to_ms for from_ms, to_ms in self._leases(job))

    def can_start(self, job: JobState) -> bool:
        """Whether any node that takes tasks could run something that the job waits for, were it empty."""
        if job.spec.job in self._state.on_hold or self._waits_for_lease(job):
            return False
        for at, left in enumerate(job.progress.left):
            if left and not job.progress.parents[at] and self._fits_somewhere(job.graph.stages[at]):
                return True
        return False

    def _leases(self, job: JobState) -> list[list[int]]:
        if job.spec.reservation is None or self._state.policy.reservations != "on":
            return []
        known = self._state.reservations.get(job.spec.reservation)
        return known.leases if known is not None and known.accepted else []

    def _waits_for_lease(self, job: JobState) -> bool:
        leases = self._leases(job)
        return not self.is_leased(job) and any(self._time < from_ms for from_ms, _ in leases)

    def _fits_somewhere(self, stage: Stage) -> bool:
        wanted = stage.tasks if stage.gang else 1
        key = class_key(stage.demand, stage.labels, {}, wanted)
        found = self._fits.get(key)
        if found is None:
            room = 0
            for node in self._nodes:
                room += room_on(node, stage)
                if room >= wanted:
                    break
            found = self._fits[key] = room >= wanted
        return found
