"""What the gateway's view learns of rounds: winning Shares, Asks and Grants, and what a closing grants."""

from largesse.ids import shard_of
from largesse.lifecycle.failing_nodes import expire
from schemas import Asks, ClassWait, Grants, Record, RoundClosed, RoundOpened, Shares, Struck, Vector
from schemas.placement_rules import class_key
from schemas.shares import QueueShare
from services.gateway.view.classes import fold_pools
from services.gateway.view.copies import begin_copy
from services.gateway.view.jobs import STRIKES_KEPT, StruckRow
from services.gateway.view.ledger import fold_ledger
from services.gateway.view.places import move, place
from services.gateway.view.preempted import note_taken
from services.gateway.view.revocable import begin_lent, take_back
from services.gateway.view.state import SHORT_LEAST, Allocation, ShortRow, State, note, touch
from services.gateway.view.user_tasks import count_user


def fold_opened(state: State, record: Record) -> None:
    """A round begins; jobs may be of other classes."""
    body: RoundOpened = record.body
    state.round, state.open, state.opened, state.opened_ms = record.round, True, record.seq, record.time
    if state.failures:
        expire(state.failures, record.time)
    fold_pools(state, record)
    for judged in body.judged:
        state.jobs[judged.job].job_class = judged.job_class
        touch(state, judged.job)


def fold_closed(state: State, record: Record) -> None:
    """What was granted holds room from now on."""
    body: RoundClosed = record.body
    state.open, state.answered = False, state.opened
    state.limits_changed = bool(state.ceilings)
    for grant in body.grants:
        job = state.jobs[grant.job]
        at = job.graph.position[grant.stage]
        demand, queue = job.graph.stages[at].demand, job.spec.queue
        said = (grant.why, record.seq, record.time)
        devices = grant.devices[0] if grant.devices else None
        hold = Allocation(grant.attempt, grant.node, queue, demand, job.spec.user, False, *said, devices=devices)
        is_copy = grant.why == "speculative"
        if is_copy:
            begin_copy(state, grant, hold)
        else:
            place(job.places[at], grant.first, grant.count, grant.node)
            for at_grant, index in enumerate(range(grant.first, grant.first + grant.count)):
                devices = grant.devices[at_grant] if grant.devices else None
                state.holds[f"{grant.job}/{grant.stage}/{index}"] = Allocation(
                    grant.attempt, grant.node, queue, demand, hold.user, False, *said, devices=devices
                )
            job.starting[at] += grant.count
            job.asked[at] = max(0, job.asked[at] - grant.count)
            if grant.revocable:
                begin_lent(state, grant)
        node = state.nodes[grant.node]
        node.holds += grant.count
        add_amounts(node.used, demand, grant.count)
        add_amounts(state.used.setdefault(queue, {}), demand, grant.count)
        state.tasks[queue] = state.tasks.get(queue, 0) + grant.count
        count_user(state, hold, grant.count)
        move(job.nodes[at], grant.node, grant.count)
        touch(state, grant.job, grant.node)
    for item in body.revoked:
        take_back(state, item)
        note_taken(state, record, item)
    for struck in body.struck:
        _note_struck(state, record, struck)


def _note_struck(state: State, record: Record, struck: Struck) -> None:
    grant, job = struck.grant, state.jobs.get(struck.grant.job)
    if job is not None:
        row = StruckRow(record.seq, record.time, grant.stage, grant.first, grant.count, grant.node, struck.reason)
        job.strikes = [*job.strikes, row][-STRIKES_KEPT:]
        note(state, "jobs", struck.grant.job)


def fold_abandoned(state: State, record: Record) -> None:
    """The round is given up."""
    state.open = False


def fold_shares(state: State, record: Record) -> None:
    """Levels and guarantees of queues."""
    body: Shares = record.body
    before, levels = state.shares, state.levels
    moved = [*(levels if body.full else body.gone), *(level.queue for level in body.levels)]
    state.history.replaced = {queue: levels.get(queue) for queue in moved}
    told = [*(before if body.full else ()), *(share.queue for share in body.queues)]
    state.history.replaced_guaranteed = {
        queue: before[queue].guaranteed if queue in before else 0 for queue in told if "/" not in queue
    }
    if body.full:  # Names every queue of which there is something to tell.
        state.levels, state.shares = {}, {}
        named = {share.queue: True for share in body.queues}
        state.short = {queue: row for queue, row in state.short.items() if queue in named}
    for queue in body.gone:
        state.levels.pop(queue, None)
        state.short.pop(queue, None)
    for share in body.queues:
        _note_short(state, record, share, before.get(share.queue))
    state.levels.update({level.queue: level.target for level in body.levels})
    state.shares.update({share.queue: share for share in body.queues})
    for breach in body.breaches:
        if breach.over:
            state.breaches.pop(breach.queue, None)
        else:
            state.breaches[breach.queue] = breach


def _note_short(state: State, record: Record, share: QueueShare, before: QueueShare | None) -> None:
    """Whether a queue holds less than it is due, and since when."""
    if share.fair - share.allocated < SHORT_LEAST:
        state.short.pop(share.queue, None)
    elif share.queue not in state.short:
        row = ShortRow(record.seq, record.time, share.allocated, share.fair)
        if before is not None:
            row.held_before, row.due_before = before.allocated, before.fair
        state.short[share.queue] = row


def fold_asks(state: State, record: Record) -> None:
    """What jobs ask for, and their accounts."""
    body: Asks = record.body
    fold_ledger(state, body)
    if body.full:
        for name, job in state.jobs.items():
            if job.began < state.opened and shard_of(name, body.of) == body.shard:
                job.asked = [0] * len(job.asked)
                touch(state, name)
    for planned in body.jobs:
        found = state.jobs.get(planned.job)
        if found is None or found.admitted > state.opened:
            continue  # Another job had the name when it was asked for.
        if found.hold is None:  # Else it is held since.
            found.asked = [0] * len(found.asked)
            touch(state, planned.job)
            for ask in planned.asks:
                found.asked[found.graph.position[ask.stage]] += ask.count


def fold_grants(state: State, record: Record) -> None:
    """Room that is kept free, and why classes of tasks wait."""
    body: Grants = record.body
    if body.full:
        for node in (*state.kept, *state.vacated):
            note(state, "nodes", node)
        state.waits, state.retries, state.kept, state.vacated, state.promised = {}, {}, {}, {}, {}
        state.reasons_changed.update(dict.fromkeys(state.clocks, True))
        state.jobs_changed.update(dict.fromkeys(state.jobs, True))  # What was promised to others may be no more.
    for held in body.held:
        if held.why == "locality":
            continue  # Anybody may use it.
        note(state, "nodes", held.node)
        rooms = state.vacated if held.why == "promise" else state.kept
        if held.demand:
            rooms[held.node] = held
        else:
            rooms.pop(held.node, None)
    for promised in body.promised:
        touch(state, promised.job)
        if promised.reservation and promised.job in state.jobs:
            state.promised[f"{promised.job}/{promised.stage}"] = promised
        else:
            state.promised.pop(f"{promised.job}/{promised.stage}", None)
    for wait in body.waits:
        key = class_key(wait.demand, wait.labels, wait.prefer, wait.gang, wait.rules, wait.near)
        state.reasons_changed[_stage_key(wait)] = True
        if any(rule.nodes for rule in wait.rules):
            _note_retries(state, wait, key)
        elif wait.reason == "none":
            state.waits.pop(key, None)
        else:
            state.waits[key] = wait.reason


def _note_retries(state: State, wait: ClassWait, key: str) -> None:
    """Why tasks wait that have failed on some nodes."""
    stage_key = _stage_key(wait)
    waits = state.retries.setdefault(stage_key, {})
    if wait.reason == "none":
        waits.pop(key, None)
        if not waits:
            del state.retries[stage_key]
    else:
        waits[key] = wait.reason


def _stage_key(wait: ClassWait) -> str:
    """The class of the stage whose tasks these are."""
    rules = [rule for rule in wait.rules if not rule.nodes]
    return class_key(wait.demand, wait.labels, wait.prefer, wait.gang, rules)


def add_amounts(used: Vector, demand: Vector, tasks: int) -> None:
    """So many tasks more (fewer, where negative) hold `demand` each."""
    for resource, amount in demand.items():
        used[resource] = used.get(resource, 0) + amount * tasks
