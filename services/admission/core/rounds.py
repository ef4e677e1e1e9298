"""When a round opens, what else is due without an input, and the closing of a round once all answers are in. All of it
is a pure function of the fold and of log time, so that after a change of sequencers nothing is missed or done twice.
"""

from largesse.core import RULES
from largesse.lifecycle.slots import counted_demand, slots_of
from schemas import (
    Asks,
    DecisionHash,
    Grant,
    Grants,
    JobChanged,
    JobEnded,
    JobTurns,
    NodeForgotten,
    Plans,
    Record,
    Releases,
    RoundAbandoned,
    RoundClosed,
    RoundOpened,
    Shares,
    Struck,
    TimeReached,
)
from schemas.quantities import SLOTS, add_amounts
from schemas.rounds import Strike
from services.admission.core.after_jobs import release_due
from services.admission.core.classes import judged_again
from services.admission.core.copies import can_copy
from services.admission.core.demand import pools_of
from services.admission.core.ports import ports_of
from services.admission.core.state import JobState, NodeState, State
from services.admission.core.turns import turns_now

Due = JobEnded | JobChanged | JobTurns | RoundAbandoned | TimeReached | NodeForgotten | RoundOpened
"""What the sequencer appends of its own accord."""


def due(state: State, time: int, prefix: bytes) -> Due | None:
    """The next body that the sequencer appends of its own accord at log time `time`, or None. Ask again after folding
    it.
    """
    if state.over:
        return JobEnded(list(state.over))
    if (released := release_due(state)) is not None:
        return released
    if state.open is not None:
        return RoundAbandoned("rules", "sequencer") if state.open.body.rules != RULES else None
    wake_ms = wake_of(state)
    if wake_ms is not None and wake_ms <= time:
        return TimeReached(wake_ms)
    if state.removed:
        return NodeForgotten(next(iter(state.removed)))
    if state.needs_round and time >= earliest_opening_ms(state):
        if state.running_limits.parked and (turns := turns_now(state, time)) is not None:
            return turns
        return RoundOpened(
            RULES, prefix.hex(), state.policy.altruism_shards, pools_of(state, time), judged_again(state)
        )
    gone = _gone_longest(state)
    return NodeForgotten(gone[1]) if gone is not None and gone[0] <= time else None


def cause_of_due(state: State) -> str:
    """The record that led to what is due: for job ends, the fact that ended the last of them."""
    return state.over_cause if state.over else ""


def next_due_ms(state: State) -> int | None:
    """The earliest log time at which `due` may say something without a new fact; None: not before one comes."""
    if state.over or state.released:
        return 0
    if state.open is not None:
        return None
    if state.removed:
        return 0
    next_ms = wake_of(state)
    if state.needs_round:
        opening_ms = earliest_opening_ms(state)
        next_ms = opening_ms if next_ms is None else min(opening_ms, next_ms)
    if (gone := _gone_longest(state)) is not None:
        next_ms = gone[0] if next_ms is None else min(gone[0], next_ms)
    return next_ms


def _gone_longest(state: State) -> tuple[int, str] | None:
    """The node that is to be forgotten next, and when. A drain is an operator's word, so that node is remembered."""
    for name, at_ms in state.lost_ms.items():
        if not state.nodes[name].draining:
            return at_ms + state.policy.node_kept_ms, name
    return None


def wake_of(state: State) -> int | None:
    """The least wake-up in force."""
    if not state.wake_forecast_ms:
        return state.wake_ms
    moments = [*state.wake_forecast_ms.values()]
    if state.wake_ms is not None:
        moments.append(state.wake_ms)
    return min(moments)


def earliest_opening_ms(state: State) -> int:
    """`round_gap_ms` after the last opening."""
    return 0 if state.opened_ms is None else state.opened_ms + state.policy.round_gap_ms


def accepts_forecast(state: State, body: Releases | Plans) -> bool:
    """Whether a forecast or plan was made with the last one of its kind in view; a stale one or a repeat is none."""
    return body.after == state.forecast_seq.get(type(body).__name__, 0)


def close(state: State, shares: Record, asks: list[Record], grants: Record, hashes: list[DecisionHash]) -> RoundClosed:
    """What binds: the grants, less those that facts since the opening have overtaken."""
    assert state.open is not None, "no round is open"
    answer: Grants = grants.body
    wakes: list[int | None] = [shares.body.wake_ms, answer.wake_ms]
    for record in asks:
        assert isinstance(record.body, Asks), f"{record.id}: asks that are none"
        wakes.append(record.body.wake_ms)
    wake_ms = None
    for wake in wakes:
        if wake is not None and (wake_ms is None or wake < wake_ms):
            wake_ms = wake
    assert wake_ms is None or wake_ms > state.open.time, (
        f"{state.open.id}: a wake-up at {wake_ms} is not after the opening"
    )
    assert isinstance(shares.body, Shares), f"{shares.id}: shares that are none"
    bound, struck = _strike(state, answer.grants)
    return RoundClosed(bound, struck, answer.revoked, wake_ms, hashes, ports_of(state, bound))


def _strike(state: State, grants: list[Grant]) -> tuple[list[Grant], list[Struck]]:
    """Splits grants into those that bind and those that are struck; a gang is struck as a whole."""
    taken: dict[str, dict[str, int]] = {}
    verdicts = [_judge(state, grant, taken) for grant in grants]
    if not any(verdicts):
        return grants, []
    broken = {
        (grant.job, grant.stage): True
        for grant, verdict in zip(grants, verdicts, strict=True)
        if verdict and verdict != "job_over" and _is_gang(state.jobs[grant.job], grant.stage)
    }
    bound, struck = [], []
    for grant, verdict in zip(grants, verdicts, strict=True):
        if verdict:
            struck.append(Struck(grant, verdict))
        elif (grant.job, grant.stage) in broken:
            struck.append(Struck(grant, "gang"))
        else:
            bound.append(grant)
    return bound, struck


def _is_gang(job: JobState, stage: str) -> bool:
    return job.graph.stages[job.graph.position[stage]].gang


def _judge(state: State, grant: Grant, taken: dict[str, dict[str, int]]) -> Strike | None:
    """Why a grant can no longer bind, or None; in that case its room is taken, so that later grants of the round do not
    get it.
    """
    assert state.open is not None, "no round is open"
    count = grant.count
    job = state.jobs.get(grant.job)
    if job is None or job.over or job.seq > state.open.seq:
        return "job_over"  # A job admitted since the opening has the name of the one that was meant.
    if state.changed and (changed := state.changed.get(grant.job)) is not None and changed.seq > state.open.seq:
        return "job_over"  # It is held since, or of another queue: not the job that was looked at.
    if grant.why == "speculative" and not can_copy(state, job, grant):
        return "task_over"
    name = grant.node
    node = state.nodes[name]
    if node.lost:
        return "node_lost"
    if node.epoch != grant.epoch:
        return "node_epoch"
    if node.draining or node.unschedulable:
        return "node_draining"
    here = taken.get(name)
    if here is None:
        here = taken[name] = {}
    demand = counted_demand(state.policy, job.graph.stages[job.graph.position[grant.stage]].demand)
    slots = slots_of(state.policy)
    free = {SLOTS: slots - len(node.holds)} if slots else node.free
    for resource, amount in demand.items():
        if here.get(resource, 0) + amount * count > free.get(resource, 0):
            return "no_room"
    if grant.devices and not _devices_free(node, grant, here):
        return "no_room"
    add_amounts(here, demand, count)
    return None


def _devices_free(node: NodeState, grant: Grant, here: dict[str, int]) -> bool:
    """Checks and takes a grant's device shares; keys in `here` are "device/<index>", which no resource is called."""
    wanted: dict[str, int] = {}
    for shares in grant.devices:
        for share in shares:
            key = f"device/{share.index}"
            wanted[key] = wanted.get(key, 0) + share.milli
    for key, milli in wanted.items():
        if here.get(key, 0) + milli > node.devices_free.get(key.removeprefix("device/"), 0):
            return False
    for key, milli in wanted.items():
        here[key] = here.get(key, 0) + milli
    return True
