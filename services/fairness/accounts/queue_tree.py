"""The accounts of a tree of queues, made again; and what a leaf of it asks for, as its account keeps that."""

from collections.abc import Sequence

from schemas.quantities import Vector
from schemas.queue_tree import below, walk
from schemas.queues import Queue
from schemas.sharing import LIST_POLICIES, Sharing
from services.fairness.accounts.leaf_demand import LeafDemand
from services.fairness.accounts.queue_account import QueueAccount
from services.fairness.accounts.standing import base_of
from services.fairness.accounts.tree_accounts import TreeAccounts

HELD = ("naive-hdrf",)
"""Policies that depend on current holdings, not on a filling of an empty cell."""


def kinds_of(capacity: Vector) -> list[str]:
    """The kinds that a cell has something of, in the order of every vector of its accounts."""
    return sorted(kind for kind, amount in capacity.items() if amount > 0)


def accounts_for(tree: Queue, policy: Sharing, capacity: Vector) -> TreeAccounts:
    """The accounts of all queues of a tree in which nothing is asked for yet; `policy`: of the root, unless it names
    another.
    """
    kinds = kinds_of(capacity)
    accounts = TreeAccounts(_account(tree, "", policy, kinds), [capacity[kind] for kind in kinds], kinds)
    accounts.by_holdings = policy in HELD or any(queue.policy in HELD for _, queue in walk(tree))
    return accounts


def put_leaf(accounts: TreeAccounts, leaf: str, demand: LeafDemand) -> None:
    """What a leaf asks for and holds now."""
    account = accounts.queues.get(leaf)
    if account is None or account.children:
        return  # Tasks of ended jobs still run there, and a new tree has removed the leaf.
    kinds = accounts.kinds
    asked = _amounts(demand.asked, kinds)
    account.asked = bool(demand.asked)
    account.sets = {key: _amounts(of_set, kinds) for key, of_set in demand.sets.items()} if len(demand.sets) > 1 else {}
    _list(accounts.demanding, leaf, account.asked)
    _list(accounts.occupied, leaf, account.asked or bool(demand.used))
    if account.most:
        account.base = base_of(asked, _amounts(demand.waiting, kinds), accounts.capacity)
    tasks, startable = demand.could_start()
    accounts.put(account, asked, _amounts(demand.used, kinds), _amounts(startable, kinds), tasks)


def _amounts(vector: Vector, kinds: Sequence[str]) -> list[int]:
    return [vector.get(kind, 0) for kind in kinds]


def _list(leaves: dict[str, bool], leaf: str, is_in: bool) -> None:
    if is_in:
        leaves[leaf] = True
    else:
        leaves.pop(leaf, None)


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
