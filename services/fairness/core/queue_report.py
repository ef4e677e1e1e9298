"""What is published of every queue, and broken guarantees: a guarantee that stays broken for longer than the
longest-running task is reported.

A queue is below its guarantee if tasks of it wait (other than for a back-off) and it would still be below with one more
task for each of its leaves that wait. The reference is its guarantee in the tree or what its own configured guarantee
covers, whichever is more. The guarantee counts as broken once every running task of the cell has started since then:
all room that came free in the meantime went to others.
"""

from collections.abc import Mapping, Sequence

from schemas import Breach, QueueShare, Shares
from schemas.queue_tree import upwards, walk
from services.fairness.accounts.queue_account import NOTHING, Published, QueueAccount
from services.fairness.accounts.tree_accounts import TreeAccounts
from services.fairness.core.accounts import accounts_of, tell
from services.fairness.core.guarantees import Standing
from services.fairness.core.state import State


# ---------------------------------------------------------------- published values
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
        tell(accounts, said)
        if accounts.queues[said.queue].published == NOTHING:
            state.shares.pop(said.queue, None)
        else:
            state.shares[said.queue] = said
    for breach in body.breaches:
        state.watch.fold(breach)


def forget_queues(state: State) -> None:
    """Another tree is in force: forgets queues that are not in it."""
    tree = dict(walk(state.queues)) if state.queues is not None else {}
    for name in [name for name in state.shares if name not in tree]:
        del state.shares[name]
    state.watch.forget_others(tree)
    state.accounts = None


# ---------------------------------------------------------------- broken guarantees
def watch(state: State, time: int) -> None:
    """A round is closed: records which queues are below their guarantee now, and which no longer are."""
    accounts = accounts_of(state)
    state.runs.settle()
    if accounts is None:
        return
    accounts.settle()
    recheck, accounts.recheck = accounts.recheck, {}
    for name in sorted(recheck):
        if recheck[name].low:
            state.watch.fall(name, time)
        else:
            state.watch.rise(name)


def breaches(
    state: State, accounts: TreeAccounts, said: Sequence[QueueShare], dues: Mapping[str, int], time: int
) -> list[Breach]:
    """Guarantees that have broken, those that hold again, and those of which it has changed whether what waits finds
    room, since that was last published. `said`: what is said of queues this time; `dues`: of the units that cannot
    place what they are due.
    """
    limit = time if state.runs.oldest_ms is None else state.runs.oldest_ms
    reports: list[tuple[str, int, bool]] = []
    for name, since_ms in state.watch.below.items():
        if since_ms >= limit:
            break  # They are in order of time.
        reports.append((name, since_ms, _is_placeable(accounts.queues[name], dues)))
    around = {path: True for unit in dues for path in upwards(unit)}
    for name in sorted({**state.watch.noted, **around}):
        broken = state.watch.broken.get(name)
        if broken is not None and broken.standing is not Standing.MENDED:
            placeable = _is_placeable(accounts.queues[name], dues)
            if placeable == (broken.standing is Standing.UNPLACED):
                reports.append((name, broken.since_ms, placeable))
    mended = state.watch.mended()
    if not reports and not mended:
        return []
    accounts.look_at([name for name, _, _ in reports] + list(mended))
    found = [Breach(name, *_shares_of(accounts, name), since_ms, placeable=can) for name, since_ms, can in reports]
    richest = accounts.richest({each.queue: (each.borrowed, each.allocated) for each in said}) if found else []
    for breach in found:
        breach.winner = next((each for each in richest if not f"{each}/".startswith(f"{breach.queue}/")), "")
    for name, since_ms in mended.items():
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
