"""What admission learns of rounds: what was opened, closed, given up or forecast."""

from largesse.lifecycle.task_keys import task_key
from schemas import (
    Plans,
    Record,
    Releases,
    RoundAbandoned,
    RoundClosed,
    RoundOpened,
    TimeReached,
)
from schemas.quantities import add_amounts
from services.admission.core.copies import begin_copy
from services.admission.core.demand import note_held, note_job, pools_of
from services.admission.core.granted import mark_of, put_in
from services.admission.core.ports import hold_ports
from services.admission.core.reservations import fold_answers
from services.admission.core.state import Allocation, JobState, Opening, State


def use_room(state: State, job: JobState, at: int, tasks: int) -> None:
    """Tasks of a stage hold room from now on; negative: no longer."""
    demand = job.graph.stages[at].demand
    add_amounts(state.used, demand, tasks)
    note_held(state, job.job_class, demand, tasks)


def fold_opening(state: State, record: Record[RoundOpened]) -> None:
    state.open = Opening(record.id, record.seq, record.round, record.time, record.body)
    state.round, state.opened_ms, state.needs_round = record.round, record.time, False
    state.pools_ppm = record.body.pools_ppm
    for judged in record.body.judged:
        state.jobs[judged.job].job_class = judged.job_class
        state.demand = None
    if state.unjudged and any(state.capacity.values()):
        state.unjudged = {}


def fold_closing(state: State, record: Record[RoundClosed]) -> None:
    body = record.body
    for grant in body.grants:
        name, stage, first, count, attempt = grant.job, grant.stage, grant.first, grant.count, grant.attempt
        epoch, devices = grant.epoch, grant.devices
        job = state.jobs[name]
        at = job.graph.position[stage]
        demand, node = job.graph.stages[at].demand, state.nodes[grant.node]
        holds = node.holds
        for task in range(count):
            hold = Allocation(attempt, epoch, demand)
            if devices:
                hold.devices = {str(share.index): share.milli for share in devices[task]}
                for device, milli in hold.devices.items():
                    node.devices_free[device] -= milli
            holds[task_key(name, stage, first + task)] = hold
        job.granted = put_in(job.granted, at, first, first + count, mark_of(attempt, True), job.graph.tasks[at])
        job.held += count
        if grant.why == "speculative":
            begin_copy(state, job, grant)
        use_room(state, job, at, count)
        note_job(state, name)
        add_amounts(node.free, demand, -count)
    if body.ports:
        hold_ports(state, body.ports, body.grants)
    state.open = None
    state.wake_ms = body.wake_ms
    if body.struck:
        state.needs_round = True


def fold_abandoned(state: State, record: Record[RoundAbandoned]) -> None:
    state.open = None
    state.needs_round = True


def fold_forecast(state: State, record: Record[Releases | Plans]) -> None:
    body = record.body
    kind = record.type
    state.forecast_seq[kind] = record.seq
    state.wake_forecast_ms.pop(kind, None)
    if body.wake_ms is not None:
        state.wake_forecast_ms[kind] = body.wake_ms
    if isinstance(body, Plans):
        fold_answers(state, body)
        state.needs_round |= not body.pauses
    else:
        state.curves, state.curves_ms = body.curves, body.at_ms
        state.needs_round = state.needs_round or pools_of(state, record.time) != state.pools_ppm


def fold_time(state: State, record: Record[TimeReached]) -> None:
    reached: TimeReached = record.body
    if state.wake_ms is not None and state.wake_ms <= reached.wake_ms:
        state.wake_ms = None
    for kind in [k for k, at in state.wake_forecast_ms.items() if at <= reached.wake_ms]:
        del state.wake_forecast_ms[kind]
    state.needs_round = True
