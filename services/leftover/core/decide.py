"""Answers an open round: brings the board up to date with shares and asks, places tasks, gathers room for those that
find none, and says what was granted, held and revoked, and why classes of tasks wait.
"""

from largesse.core import OpenRound
from schemas import Asks, ClassWait, DeviceShare, Grant, Grants, Shortfall, StageAsk
from schemas.presets import PRESETS
from services.leftover.core.asks import asks_of, does_ask, in_shard
from services.leftover.core.backfill.gather import gather_room, hold_for_gangs, turn_after
from services.leftover.core.board import build, estimate_of, leaf_of, spans_of, stage_of
from services.leftover.core.copies.speculation import speculate
from services.leftover.core.levels import said_levels
from services.leftover.core.locality import note_delays
from services.leftover.core.pool_breaches import pool_breaches
from services.leftover.core.preemption.claims import begin_claims, end_claims, is_on, note_owed
from services.leftover.core.reservations.foresight import Foresight
from services.leftover.core.reservations.promises import finish_promises, keep_promises
from services.leftover.core.round import Round
from services.leftover.core.shadow_order import set_floors
from services.leftover.core.state import Decided, State
from services.leftover.placement.backfill.headroom import still_short
from services.leftover.placement.backfill.lending import serve_owed
from services.leftover.placement.board import Board
from services.leftover.placement.pending_reasons import reasons
from services.leftover.placement.placements import Placement


def decide(state: State, opened: OpenRound) -> list[Grants]:
    """Places what the round asks for, in steps that each add to the `Round`. Only the caches change; the closing says
    what binds.

    A step that has nothing to do, since nobody has pools, promises, preferred nodes or copies, is not entered: that is
    checked here.
    """
    round_ = Round(state, _current_board(state), opened.record.time)
    board, shares, asks = round_.board, opened.upstream["shares"][0], opened.upstream["asks"]

    # Bring the board up to date.
    board.open_round(state.pools_ppm)
    if shares.body.levels or shares.body.gone:
        board.set_levels(said_levels(shares.body))
    if board.delays.over_ms:
        _end_delays(round_)
    for record in asks:
        _show_asks(round_, record.body)
    if state.policy.isolation_permille:
        set_floors(state, board)

    # Promises to reservations come first, and gangs before single tasks could take their room.
    foresight = Foresight(round_, keep_promises(round_)) if _has_promises(state, board) else None
    claims = None
    if is_on(state):
        if foresight is not None:
            foresight.bar()
        claims = begin_claims(round_, foresight)
    if state.short:
        _keep_room_for_short(round_)

    # Everybody else, best claim first. Then room is gathered for what has found none.
    if foresight is None:
        round_.placements += board.place(round_.now_ms, state.policy.ageing_ms)
        gather_room(round_)
    else:
        foresight.place()
        foresight.gather_room()
    if claims is not None:
        end_claims(round_, claims, foresight)
    if board.classes.bounded or state.delays or state.awaited:
        note_delays(round_)

    # What nobody else can use goes to reserved jobs beyond their promises, and to copies of stragglers.
    if foresight is not None:
        finish_promises(round_, foresight.kept)
    if state.copied or state.runs:
        speculate(round_, may_start=foresight is None)

    answer = _answer(round_)
    if foresight is not None:
        answer.promised = foresight.said()
    state.decided = Decided([record.id for record in asks], shares.id, round_.placements, answer.grants, answer.held)
    return [answer]


def _current_board(state: State) -> Board:
    """The board as of all that is folded."""
    if state.decided is not None:
        state.board = None  # An answer that was never folded: begin again from what binds.
    if state.board is None:
        state.board = build(state)
    return state.board


def _has_promises(state: State, board: Board) -> bool:
    """Whether anything is promised to reservations, or was when the last round was decided."""
    if state.promises.on and state.promises.profiles:
        return True
    return bool(state.vacated or state.promised or board.barred.by_job)


def _keep_room_for_short(round_: Round) -> None:
    """Keeps room for gangs of leaves that are short of what they are due, and serves what is owed from kept room."""
    state, board = round_.state, round_.board
    board.begin(round_.now_ms, state.policy.ageing_ms)
    hold_for_gangs(round_)
    if round_.table.has_holds() and not PRESETS[state.policy.preset].has_levels_for_claims:
        serve_owed(board, list(state.short))


# ---------------------------------------------------------------- what jobs ask for
def _end_delays(round_: Round) -> None:
    """Tasks that have waited long enough for nodes that they prefer may go anywhere."""
    state, board = round_.state, round_.board
    for name in board.delays.take_ended(round_.now_ms):
        if board.has_job(name):
            board.wait(name, spans_of(state, board, name, state.jobs[name], asks_of(state.jobs[name])))


def _show_asks(round_: Round, asks: Asks) -> None:
    """Updates the board with what jobs ask for, and notes whose asks have changed."""
    state, board, asked = round_.state, round_.board, round_.asked
    if asks.full:
        named = {ask.job: True for ask in asks.jobs}
        for name, job in state.jobs.items():
            if does_ask(job) and name not in named and in_shard(name, asks):
                asked[name] = []
                if board.has_job(name):
                    board.wait(name, [])
    for ask in asks.jobs:
        asking = state.jobs.get(ask.job)
        if asking is None:
            continue
        asked[ask.job] = ask.asks
        if board.has_job(ask.job) and not _alike(asks_of(asking), ask.asks):  # Else the board has it as it is.
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


# ---------------------------------------------------------------- the answer
def _answer(round_: Round) -> Grants:
    """The round as a record, without what is said of promises."""
    state, board = round_.state, round_.board
    grants = [_grant(round_, placement) for placement in round_.placements]
    answer = Grants(grants, round_.held, round_.revoked, _waits(state, board))
    answer.shortfalls = _shortfalls(round_)
    answer.wake_ms = min([at_ms for at_ms in round_.wakes_ms if at_ms is not None], default=None)
    if board.pools.beyond or state.pool_breaches:
        answer.pool_breaches = pool_breaches(state, board, board.pools.take_breaches())
    answer.locality_waits = round_.delayed
    return answer


def _grant(round_: Round, placement: Placement) -> Grant:
    board, node = round_.board, round_.table.node(placement.node)
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
        grant.why = "optional" if board.jobs.order_of(placement.job) == "giving" else "packed"
    if placement.devices:
        grant.devices = [[DeviceShare(index, milli) for index, milli in shares] for shares in placement.devices]
    return grant


def _shortfalls(round_: Round) -> list[Shortfall]:
    """Leaves that began to be short, or are so no longer, and those that are in which gangs have started; by path."""
    state, board = round_.state, round_.board
    are_short = still_short(board, board.take_changed_leaves(), state.short)
    said = {
        name: Shortfall(name, not is_short) for name, is_short in are_short.items() if is_short != (name in state.short)
    }
    work: dict[str, int] = {}
    for placed in round_.placements:
        task, job = placed.task, state.jobs[placed.job]
        if task.gang and are_short.get(leaf_of(state, job), False):
            lasts_ms = estimate_of(job, stage_of(job, placed.stage))
            name = leaf_of(state, job)
            work[name] = work.get(name, 0) + task.size // task.gang * placed.count * lasts_ms
    for name, amount in work.items():
        said.setdefault(name, Shortfall(name)).turn_ms = turn_after(state, board.leaf(name), amount, round_.now_ms)
    if is_on(state):
        note_owed(round_, are_short)
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
