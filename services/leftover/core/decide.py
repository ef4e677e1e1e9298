"""Answers an open round: brings the board up to date with shares and asks, places tasks, gathers room for those that
find none, and says what was granted, held and revoked, and why classes of tasks wait.
"""

from largesse.core import OpenRound
from schemas import Asks, ClassWait, DeviceShare, Grant, Grants, LocalityWait, Revocation, Shortfall, StageAsk
from services.leftover.core.asks import asks_of, does_ask, in_shard
from services.leftover.core.board import build, estimate_of, leaf_of, spans_of, stage_of
from services.leftover.core.foresight import Foresight
from services.leftover.core.gather import hold, hold_for_gangs, turn_after
from services.leftover.core.levels import said_levels
from services.leftover.core.locality import are_over, waits_of
from services.leftover.core.pool_breaches import pool_breaches
from services.leftover.core.promised import finish, keep_promises, vacated_of, wake_of
from services.leftover.core.serving import set_floors
from services.leftover.core.speculation import speculate
from services.leftover.core.state import Decided, State
from services.leftover.placement.board import Board, Placement
from services.leftover.placement.headroom import still_short
from services.leftover.placement.lending import serve_owed
from services.leftover.placement.pending_reasons import reasons


def decide(state: State, opened: OpenRound) -> list[Grants]:
    """Places what the round asks for. Only the caches change; the closing says what binds.

    A step that has nothing to do in this round, since nobody has pools, promises, preferred nodes or copies, is not
    entered: that is checked here.
    """
    if state.decided is not None:
        state.board = None  # An answer that was never folded: begin again from what binds.
    board = state.board if state.board is not None else build(state)
    now_ms = opened.record.time
    state.board = board
    board.kinds_levels.begin()
    shares, asks = opened.upstream["shares"][0], opened.upstream["asks"]
    if state.pools_ppm:
        board.pools.set(state.pools_ppm)
    if shares.body.levels or shares.body.gone:
        board.set_levels(said_levels(shares.body))
    if board.over_ms:
        _let_go_anywhere(state, board, now_ms)
    asked: dict[str, list[StageAsk]] = {}
    for record in asks:
        _show_asks(state, board, record.body, asked)
    if state.policy.isolation_permille:
        set_floors(state, board)
    has_promises = (state.promises.on and state.promises.profiles) or state.vacated or board.barred or state.promised
    kept = keep_promises(state, board, asked, now_ms) if has_promises else None
    foresight = Foresight(state, board, kept, asked, now_ms) if kept is not None else None
    if state.short:
        board.begin(now_ms, state.policy.ageing_ms)
        hold_for_gangs(state, board, now_ms)
        if board.room.kept_nodes and state.policy.preset == "drf":  # Elsewhere levels know of what is guaranteed.
            serve_owed(board, list(state.short))
    placements = _place(state, board, foresight, now_ms)
    gathered = hold(state, board, placements, now_ms) if foresight is None else foresight.hold(placements)
    held, wakes_ms = gathered.held, [gathered.wake_ms]
    revoked: list[Revocation] = []
    delayed: list[LocalityWait] = []
    if board.bounded or state.delays or state.awaited:
        waits = waits_of(state, board, placements, now_ms)
        held, delayed = held + waits.held, waits.begun
        wakes_ms.append(waits.wake_ms)
    if kept is not None:
        placements = finish(state, board, kept, placements, now_ms)
        held, revoked = held + vacated_of(state, board, kept), kept.revoked
        wakes_ms.append(wake_of(state, kept, now_ms))
    if state.copied or state.runs:
        copies = speculate(state, board, revoked, now_ms, may_start=kept is None)
        placements, revoked = placements + copies.placements, revoked + copies.revoked
        wakes_ms.append(copies.wake_ms)
    grants = [_grant(board, p) for p in placements]
    state.decided = Decided([record.id for record in asks], shares.id, placements, grants, held)
    wake_ms = min([at_ms for at_ms in wakes_ms if at_ms is not None], default=None)
    said = Grants(grants, held, revoked, _waits(state, board), wake_ms=wake_ms)
    said.shortfalls = _shortfalls(state, board, placements, now_ms)
    if board.pools.beyond or state.pool_breaches:
        said.pool_breaches = pool_breaches(state, board)
    said.locality_waits = delayed
    if foresight is not None:
        said.promised = foresight.said()
    return [said]


def _place(state: State, board: Board, foresight: Foresight | None, now_ms: int) -> list[Placement]:
    """Places what may start: until nothing that is placed would be taken back for a promise."""
    if foresight is None:
        return board.place(now_ms, state.policy.ageing_ms)
    placements: list[Placement] = []
    foresight.bar()
    while more := board.place(now_ms, state.policy.ageing_ms):
        placements += foresight.judge(more)
        if not foresight.undone:
            break
        foresight.bar()
    return placements


def _let_go_anywhere(state: State, board: Board, now_ms: int) -> None:
    """Tasks that have waited long enough for nodes that they prefer may go anywhere."""
    for name in are_over(board, now_ms):
        del board.over_ms[name]
        if name in board.jobs:
            board.wait(name, spans_of(state, board, name, state.jobs[name], asks_of(state.jobs[name])))


def _show_asks(state: State, board: Board, asks: Asks, asked: dict[str, list[StageAsk]]) -> None:
    """Updates the board with what jobs ask for. What they ask for goes to `asked`, too, where it is something else than
    before.
    """
    if asks.full:
        named = {ask.job: True for ask in asks.jobs}
        for name, job in state.jobs.items():
            if does_ask(job) and name not in named and in_shard(name, asks):
                asked[name] = []
                if name in board.jobs:
                    board.wait(name, [])
    for ask in asks.jobs:
        asking = state.jobs.get(ask.job)
        if asking is None:
            continue
        asked[ask.job] = ask.asks
        if ask.job in board.jobs and not _alike(asks_of(asking), ask.asks):  # Else the board has it as it is.
            board.wait(ask.job, spans_of(state, board, ask.job, asking, ask.asks))


def _alike(asks: list[StageAsk], others: list[StageAsk]) -> bool:
    """Whether both lists ask for the same tasks in the same way."""
    if len(asks) != len(others):
        return False
    for a, b in zip(asks, others, strict=True):
        if a.first != b.first or a.count != b.count or a.attempt != b.attempt or a.since_ms != b.since_ms:
            return False
        if a.stage != b.stage or a.kind != b.kind:
            return False
    return True


def _grant(board: Board, placement: Placement) -> Grant:
    node = board.room.nodes[placement.node]
    grant = Grant(
        placement.job, placement.stage, placement.first, placement.count, placement.attempt, node.name, node.epoch
    )
    grant.revocable = placement.revocable
    if (lease := placement.lease) is not None:
        grant.revocable_by, grant.revocable_from_ms, grant.revocable_until_ms = (
            lease.reservation, lease.from_ms, lease.to_ms,
        )  # fmt: skip
    if placement.copy:
        grant.why = "speculative"
    elif placement.reserved:
        grant.why = "reserved"
    elif placement.beyond:
        job = board.jobs.get(placement.job)  # None: it has a reservation, and more than that promises.
        grant.why = "optional" if job is not None and job.leaf.order == "giving" else "packed"
    if placement.devices:
        grant.devices = [[DeviceShare(index, milli) for index, milli in shares] for shares in placement.devices]
    return grant


def _shortfalls(state: State, board: Board, placements: list[Placement], now_ms: int) -> list[Shortfall]:
    """Leaves that began to be short, or are so no longer, and those that are in which gangs have started; by path."""
    changed, board.leaf_queue.changed = board.leaf_queue.changed, {}
    are_short = still_short(board, list(changed), state.short)
    said = {
        name: Shortfall(name, not is_short) for name, is_short in are_short.items() if is_short != (name in state.short)
    }
    work: dict[str, int] = {}
    for placed in placements:
        task, job = placed.task, state.jobs[placed.job]
        if task.gang and are_short.get(leaf_of(state, job), False):
            lasts_ms = estimate_of(job, stage_of(job, placed.stage))
            name = leaf_of(state, job)
            work[name] = work.get(name, 0) + task.size // task.gang * placed.count * lasts_ms
    for name, amount in work.items():
        said.setdefault(name, Shortfall(name)).turn_ms = turn_after(state, board.leaves[name], amount, now_ms)
    return [said[name] for name in sorted(said)]


def _waits(state: State, board: Board) -> list[ClassWait]:
    """Task classes whose reason to wait differs from the one published last, sorted by key."""
    changed: dict[str, ClassWait] = {}
    for task, reason in reasons(board):
        key = task.key
        said = state.reasons.get(key)
        if reason != (said.reason if said is not None else "none"):
            changed[key] = ClassWait(task.demand, task.labels, task.prefer, task.gang, reason)
            if task.bounds is not None:
                changed[key].rules, changed[key].near = task.bounds.said, task.bounds.is_near
    return [changed[key] for key in sorted(changed)]
