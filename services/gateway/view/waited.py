"""What the time of jobs went to, in the gateway's view: at each moment a job runs, starts, or waits for one reason.

A job's account changes with the job; of tasks that wait as their class does, a clock of the class counts the time by
the reasons that are recorded, so that a change of a reason costs the same however many jobs wait for it.
"""

from typing import NamedTuple

from largesse.lifecycle.promises import serves
from largesse.lifecycle.queue_policy import ignored_of_max
from largesse.lifecycle.slots import counted_demand, slots_of
from schemas import Stage, Vector
from schemas.quantities import SLOTS
from schemas.queue_tree import upwards
from schemas.reasons import Reason
from services.gateway.view.jobs import Account, ClassClock, LiveJob, Mode, add_ms, held_in, waiting_of
from services.gateway.view.state import State, said_of, stage_class_key
from services.gateway.view.user_tasks import runs_of_user


class _Cause(NamedTuple):
    """Why tasks of a job wait: a reason, or that of a class: the key of its clock, `kind` and, where a queue's `max`
    counts for it, `leaf` and the `stage`. `until_ms`: the end of a back-off.
    """

    reason: Reason | None = None
    clock: str = ""
    until_ms: int = 0
    kind: str = ""
    leaf: str = ""
    stage: Stage | None = None


_NOTHING = _Cause()
_UNSAID: Reason = "next_round"


def settle_all(state: State, time_ms: int) -> None:
    """A record of the log has been folded: whatever it changed counts from now on."""
    if state.reasons_changed or state.limits_changed:
        for key in state.reasons_changed:
            clock = state.clocks.get(key)
            if clock is not None:
                clock.turn(said_of(state, key) or _UNSAID, time_ms)
        _turn_limited(state, time_ms)
        state.reasons_changed.clear()
        state.limits_changed = False
    if state.jobs_changed:
        for name in state.jobs_changed:
            job = state.jobs.get(name)
            if job is not None:
                settle(state, job, time_ms)
        state.jobs_changed.clear()


def settle(state: State, job: LiveJob, time_ms: int) -> None:
    """Looks what a job's time goes to from now on; adds what has passed to its account if that is something else."""
    account = job.account
    waiting = sum([waiting_of(job, at) for at in range(len(job.running))])
    state.tasks_waiting += waiting - account.tasks
    account.tasks = waiting
    mode: Mode = "running" if any(job.running) else "starting" if any(job.starting) else "waiting"
    cause = _cause_of(state, job)
    is_same = cause.reason == account.reason and cause.clock == account.clock and cause.until_ms == account.until_ms
    if is_same and mode == account.mode:
        if mode == "running":
            _count_run(job, time_ms)
        return
    _count(state, job, time_ms)
    account.mode, account.reason, account.until_ms = mode, cause.reason, cause.until_ms
    if cause.clock != account.clock:
        _leave(state, account)
        if cause.clock:
            clock = state.clocks.get(cause.clock)
            if clock is None:
                limits = _limits(state, cause)
                clock = state.clocks[cause.clock] = ClassClock(_UNSAID, time_ms, cause.kind, limits)
                clock.reason = _reason_of(state, clock, _held(state) if limits else {})
            clock.jobs += 1
        account.clock = cause.clock
    account.mark = state.clocks[cause.clock].at(time_ms) if cause.clock else {}


def close(state: State, job: LiveJob, time_ms: int) -> Account:
    """The job ends now: what its time went to in all."""
    _count(state, job, time_ms)
    account = job.account
    state.tasks_waiting -= account.tasks
    account.tasks = 0
    _leave(state, account)
    add_ms(account.waited, "running", account.unsure_ms)
    account.unsure_ms = 0
    return account


def waited_until(state: State, job: LiveJob, time_ms: int) -> tuple[dict[str, int], dict[str, int]]:
    """What a live job's time has gone to so far, and what others of its tasks waited for while some ran. Changes
    nothing.
    """
    account = job.account
    waited, beside = dict(account.waited), dict(account.beside)
    unsure_ms = account.unsure_ms
    if account.mode == "running":
        unsure_ms += time_ms - account.ran_ms
    _spread(state, job, time_ms, waited, beside)
    add_ms(waited, "running", unsure_ms)
    return waited, beside


def _leave(state: State, account: Account) -> None:
    if account.clock:
        clock = state.clocks[account.clock]
        clock.jobs -= 1
        if not clock.jobs:
            del state.clocks[account.clock]
        account.clock = ""


def _count(state: State, job: LiveJob, time_ms: int) -> None:
    """What has passed since the account was settled last."""
    account = job.account
    _spread(state, job, time_ms, account.waited, account.beside)
    account.since_ms = time_ms
    _count_run(job, time_ms)


def _count_run(job: LiveJob, time_ms: int) -> None:
    """How long the job has run, and whether anything came of it."""
    account, left = job.account, sum(job.progress.left)
    if account.mode == "running":
        if left == account.left and any(job.running):
            return
        account.unsure_ms += time_ms - account.ran_ms
        # It has come further: what ran was of use. Or nothing of it runs any more, and nothing came of it.
        add_ms(account.waited, "running" if left != account.left else "lost_attempts", account.unsure_ms)
        account.unsure_ms = 0
    account.left, account.ran_ms = left, time_ms


def _spread(state: State, job: LiveJob, time_ms: int, waited: dict[str, int], beside: dict[str, int]) -> None:
    account = job.account
    passed_ms = time_ms - account.since_ms
    if passed_ms <= 0:
        return
    if account.mode == "starting":
        add_ms(waited, "starting", passed_ms)
    to = waited if account.mode == "waiting" else beside
    if account.clock:
        for reason, ms in state.clocks[account.clock].at(time_ms).items():
            if more_ms := ms - account.mark.get(reason, 0):
                said = account.reason if account.reason is not None and reason == _UNSAID else reason
                add_ms(to, said, more_ms)
    elif account.reason == "back_off":
        back_ms = max(0, min(time_ms, account.until_ms) - account.since_ms)
        add_ms(to, "back_off", back_ms)
        add_ms(to, _UNSAID, passed_ms - back_ms)
    elif account.reason == "lease":
        leased_ms = _leased_ms(state, job, account.since_ms, time_ms)
        add_ms(to, "lease", passed_ms - leased_ms)
        add_ms(to, "no_room", leased_ms)
    elif account.reason is not None:
        add_ms(to, account.reason, passed_ms)
    elif account.mode == "waiting":
        add_ms(waited, "running", passed_ms)  # All of it has ended, and the record of that follows.


def _leased_ms(state: State, job: LiveJob, from_ms: int, to_ms: int) -> int:
    """How much of a span the leases of a job's reservation cover, as they are planned now."""
    row = state.reservations.get(job.spec.reservation or "")
    covered_ms, at_ms = 0, from_ms
    steps = [step for step in row.steps if serves(step.atom, job.spec.reservation_atom)] if row is not None else []
    for step in sorted(steps, key=lambda step: (step.from_ms, step.to_ms)):
        begin_ms, end_ms = max(at_ms, step.from_ms), min(to_ms, step.to_ms)
        if begin_ms < end_ms:
            covered_ms += end_ms - begin_ms
            at_ms = end_ms
    return covered_ms


def _cause_of(state: State, job: LiveJob) -> _Cause:
    """Why tasks of a job wait that could run; if there are none, why others do."""
    found = _NOTHING
    for at, stage in enumerate(job.graph.stages):
        waiting = waiting_of(job, at)
        if not waiting:
            continue
        if not job.progress.parents[at]:
            return _cause_in(state, job, at, stage, waiting)
        found = _AFTER
    return found


_AFTER = _Cause("after")
_HELD = _Cause("held")
_LIMITED = _Cause("running_limit")
_STAGE_LIMITED = _Cause("running_max")
_LEASE = _Cause("lease")
_PROMISED = _Cause("promised")
_UNCONSIDERED = _Cause(_UNSAID)


def _cause_in(state: State, job: LiveJob, at: int, stage: Stage, waiting: int) -> _Cause:
    spec = job.spec
    if job.hold is not None:
        return _HELD
    if not job.began:
        return _LIMITED
    if min(waiting, job.asked[at]):
        row = state.reservations.get(spec.reservation) if spec.reservation is not None else None
        if row is not None and row.state == "accepted" and state.policy.reservations == "on":
            return _LEASE
        if f"{spec.job}/{stage.stage}" in state.promised:
            return _PROMISED
        unsaid: Reason | None = "user_running_max" if row is None and _is_user_full(state, job) else None
        kind = job.account.kinds.get(at)
        if kind is None:
            kind = job.account.kinds[at] = stage_class_key(spec, stage)
        if not state.ceilings or not any(path in state.ceilings for path in upwards(spec.queue)):
            return _Cause(unsaid, kind, kind=kind)
        return _Cause(unsaid, f"{spec.queue} {kind}", kind=kind, leaf=spec.queue, stage=stage)
    if job.retry_ms[at] > state.time:
        return _Cause("back_off", until_ms=job.retry_ms[at])
    return _STAGE_LIMITED if held_in(job, at, waiting) else _UNCONSIDERED


def _turn_limited(state: State, time_ms: int) -> None:
    """Classes below a queue with a `max`: they wait for that, or for what is said of the class."""
    held: dict[str, Vector] | None = None
    for clock in state.clocks.values():
        if clock.limits:
            held = _held(state) if held is None else held
            clock.turn(_reason_of(state, clock, held), time_ms)


def _limits(state: State, cause: _Cause) -> list[tuple[str, str, int]]:
    """By queue with a `max` and resource, how much a class asks for at once."""
    stage = cause.stage
    if stage is None:
        return []
    demand, tasks = counted_demand(state.policy, stage.demand), stage.tasks if stage.gang else 1
    found = []
    for path in upwards(cause.leaf):
        ceiling = state.ceilings.get(path, {})
        ignored = ignored_of_max(state.policy.preset, ceiling)
        for resource in ceiling:
            if resource not in ignored and (asked := demand.get(resource, 0) * tasks):
                found.append((path, resource, asked))
    return found


def _reason_of(state: State, clock: ClassClock, held: dict[str, Vector]) -> str:
    for path, resource, asked in clock.limits:
        most = state.ceilings.get(path, {}).get(resource)
        if most is not None and held[path].get(resource, 0) + asked > most:
            return "queue_max"
    return said_of(state, clock.kind) or _UNSAID


def _held(state: State) -> dict[str, Vector]:
    """What all leaves below each queue with a `max` hold."""
    held: dict[str, Vector] = {path: {} for path in state.ceilings}
    slots = slots_of(state.policy)
    for leaf, used in state.used.items():
        for path in upwards(leaf):
            if path in held:
                for kind, amount in {SLOTS: state.tasks.get(leaf, 0)}.items() if slots else used.items():
                    held[path][kind] = held[path].get(kind, 0) + amount
    return held


def _is_user_full(state: State, job: LiveJob) -> bool:
    """Whether as many tasks of the job's user run as may, in its queue or one above it."""
    limits = state.user_running_max
    return (
        any(
            path in limits and runs_of_user(state, path, job.spec.user) >= limits[path]
            for path in upwards(job.spec.queue)
        )
        if limits
        else False
    )
