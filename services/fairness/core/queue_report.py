"""What is published of every queue, and broken guarantees: a guarantee that stays broken for longer than the
longest-running task is reported.

A queue is below its guarantee if tasks of it wait (other than for a back-off) and it would still be below with one more
task for each of its leaves that wait. The reference is its guarantee in the tree or what its own configured guarantee
covers, whichever is more. The guarantee counts as broken once every running task of the cell has started since then:
all room that came free in the meantime went to others.
"""

from collections.abc import Mapping, Sequence

from largesse.lifecycle.queue_policy import sharing_of
from schemas import Breach, Queue, QueueShare, Shares
from schemas.queue_tree import below, upwards, walk
from schemas.queues import LIST_POLICIES, Sharing
from services.fairness.accounts.queue_account import NOTHING, Published, QueueAccount
from services.fairness.accounts.standing import base_of
from services.fairness.accounts.tree_accounts import TreeAccounts
from services.fairness.core.demand import kinds_of
from services.fairness.core.fill_tree import HELD
from services.fairness.core.refill import CellLevels
from services.fairness.core.state import State


# ---------------------------------------------------------------- accounts
def accounts_of(state: State) -> TreeAccounts | None:
    """The accounts of all queues, brought up to date; None without a tree."""
    if state.queues is None or not state.queues.children:
        return None
    accounts: TreeAccounts | None = state.accounts
    if accounts is None:
        kinds = kinds_of(state)
        account = _account(state.queues, "", sharing_of(state.policy.preset), kinds)
        state.accounts = accounts = TreeAccounts(account, [state.capacity[kind] for kind in kinds])
        accounts.kinds = kinds  # Another capacity makes new accounts.
        for said in state.shares.values():
            _tell(accounts, said)
        accounts.moved = dict.fromkeys(state.demands.leaves, True)
    if accounts.moved:
        for leaf in accounts.moved:
            _put(state, accounts, leaf)
        accounts.moved = {}
    return accounts


def _put(state: State, accounts: TreeAccounts, leaf: str) -> None:
    account, kinds = accounts.queues.get(leaf), accounts.kinds
    if account is None or account.children:
        return  # Tasks of ended jobs still run there, and a new tree has removed the leaf.
    demand = state.demands.of(leaf)
    tasks, waiting = demand.could_start()
    asked = [demand.asked.get(kind, 0) for kind in kinds]
    if account.most:
        account.base = base_of(asked, [demand.waiting.get(kind, 0) for kind in kinds], accounts.capacity)
    accounts.put(
        account,
        asked,
        [demand.used.get(kind, 0) for kind in kinds],
        [waiting.get(kind, 0) for kind in kinds],
        tasks,
        mixed=len(demand.sets) > 1,
    )


def _account(
    queue: Queue, path: str, above: Sharing, kinds: list[str], *, listed: bool = False, by_holdings: bool = False
) -> QueueAccount:
    policy = queue.policy or above
    limits = ([limit.get(kind) for kind in kinds] if limit else () for limit in (queue.guaranteed, queue.max))
    account = QueueAccount(path, queue.weight, *limits, listed=listed, by_holdings=by_holdings)
    listed, by_holdings = listed or policy in LIST_POLICIES, by_holdings or policy in HELD
    for child in queue.children:
        path_below = below(path, child.name)
        account.grow(_account(child, path_below, policy, kinds, listed=listed, by_holdings=by_holdings))
    return account


# ---------------------------------------------------------------- published values
def share_out(accounts: TreeAccounts, filled: CellLevels | None) -> None:
    """The levels that are in force from now on."""
    before = accounts.source
    if before is filled and not accounts.keeps_levels:
        return
    accounts.source = filled
    if filled is None or filled.all_fits:
        accounts.share_out(None)
        return
    kept = filled.kept
    if kept is not None and isinstance(before, CellLevels) and before.levels is filled.levels:
        accounts.share_moved({name: filled.levels.get(name, filled.nodes.get(name, 0)) for name in kept.unshared})
    else:
        accounts.share_out({**filled.nodes, **filled.levels})
    if kept is not None:
        kept.unshared = {}


def queue_shares(accounts: TreeAccounts, *, full: bool) -> list[QueueShare]:
    """Queues with a value that has moved by a permille; with `full` all that have one."""
    accounts.settle()
    kinds = accounts.kinds
    if full:
        accounts.look_at(accounts.queues)
    names = [name for name in accounts.queues if name] if full else accounts.changed
    said = [(name, accounts.to_publish(accounts.queues[name])) for name in sorted(names)]
    return [_said(name, values, kinds) for name, values in said if not full or values != NOTHING]


def _said(name: str, values: Published, kinds: Sequence[str]) -> QueueShare:
    return QueueShare(name, *values[:5], kinds[values.kind] if values.kind >= 0 else "")


def _tell(accounts: TreeAccounts, said: QueueShare) -> None:
    values = Published(said.guaranteed, said.fair, said.allocated, said.lent, said.borrowed)
    accounts.publish(said.queue, values)


def fold_said(state: State, body: Shares) -> None:
    """Values that were published. Queues that another tree has removed since are ignored."""
    accounts = accounts_of(state)
    if accounts is None:
        return
    if body.full:
        for name in state.shares:
            accounts.publish(name, NOTHING)
        state.shares = {}
    for said in body.queues:
        if said.queue not in accounts.queues:
            continue
        _tell(accounts, said)
        if accounts.queues[said.queue].published == NOTHING:
            state.shares.pop(said.queue, None)
        else:
            state.shares[said.queue] = said
    for breach in body.breaches:
        if breach.placeable:
            state.unplaced.pop(breach.queue, None)
        else:
            state.unplaced[breach.queue] = True
        if breach.over:
            state.mended.pop(breach.queue, None)
        elif breach.queue in state.below:
            state.broken[breach.queue] = state.below.pop(breach.queue)


def forget_queues(state: State) -> None:
    """Another tree is in force: forgets queues that are not in it."""
    tree = dict(walk(state.queues)) if state.queues is not None else {}
    for kept in (state.shares, state.below, state.broken, state.mended, state.unplaced):
        for name in [name for name in kept if name not in tree]:
            del kept[name]
    state.accounts = None


# ---------------------------------------------------------------- broken guarantees
def watch(state: State, time: int) -> None:
    """A round is closed: records which queues are below their guarantee now, and which no longer are."""
    accounts = accounts_of(state)
    state.oldest_ms = None
    for since_ms in state.running:
        state.oldest_ms = since_ms
        break
    if accounts is None:
        return
    accounts.settle()
    recheck, accounts.recheck = accounts.recheck, {}
    for name in sorted(recheck):
        if not recheck[name].low:
            state.below.pop(name, None)
            if name in state.broken:
                state.mended[name] = state.broken.pop(name)
        elif name not in state.below and name not in state.broken:
            state.below[name] = time


def breaches(
    state: State, accounts: TreeAccounts, said: Sequence[QueueShare], dues: Mapping[str, int], time: int
) -> list[Breach]:
    """Guarantees that have broken, those that hold again, and those of which it has changed whether what waits finds
    room, since that was last published. `said`: what is said of queues this time; `dues`: of the units that cannot
    place what they are due.
    """
    limit = time if state.oldest_ms is None else state.oldest_ms
    reports: list[tuple[str, int, bool]] = []
    for name, since_ms in state.below.items():
        if since_ms >= limit:
            break  # They are in order of time.
        reports.append((name, since_ms, _is_placeable(accounts.queues[name], dues)))
    around = {path: True for unit in dues for path in upwards(unit)}
    for name in sorted({**state.unplaced, **around}):
        if name in state.broken:
            placeable = _is_placeable(accounts.queues[name], dues)
            if placeable == (name in state.unplaced):
                reports.append((name, state.broken[name], placeable))
    if not reports and not state.mended:
        return []
    accounts.look_at([name for name, _, _ in reports] + list(state.mended))
    found = [Breach(name, *_shares_of(accounts, name), since_ms, placeable=can) for name, since_ms, can in reports]
    richest = accounts.richest({each.queue: (each.borrowed, each.allocated) for each in said}) if found else []
    for breach in found:
        breach.winner = next((each for each in richest if not f"{each}/".startswith(f"{breach.queue}/")), "")
    for name, since_ms in state.mended.items():
        found.append(Breach(name, *_shares_of(accounts, name), since_ms, over=True))
    return sorted(found, key=lambda breach: (breach.queue, not breach.over))


def _is_placeable(account: QueueAccount, dues: Mapping[str, int]) -> bool:
    """False where tasks wait below a queue and none of them fits on a node. Visits all queues below."""
    if not account.waiting:
        return True
    if account.is_group:
        return account.name not in dues
    return any(child.waiting and _is_placeable(child, dues) for child in account.children)


def _shares_of(accounts: TreeAccounts, name: str) -> tuple[int, int]:
    """What a queue is guaranteed and holds; the accounts are up to date for it."""
    account = accounts.queues[name]
    values = accounts.to_publish(account)
    return max(values.guaranteed, accounts.promised(account)), values.allocated
