"""Levels that depend on current holdings: naive hierarchical DRF.

From an empty cell it gives what H-DRF gives; what it is known for (a leaf starves beside a sibling that nobody
competes with) comes of tasks that end and start. So a walk begins at what units hold now and hands out what is free,
one task of the mean size of those that could start at a time; a unit's level is what it then holds. Leftover serves who
has least of its level first: those to whom the walk gave tasks. Costs the whole subtree in every round.

A queue that may not have all that its units ask for is walked first as if the rest of the cell were taken, those
further down before those above; more tasks than that its units cannot have.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from services.fairness.accounts.queue_account import Limits, QueueAccount
from services.fairness.accounts.tree_accounts import TreeAccounts
from services.fairness.filling.fill_tree import TOP
from services.fairness.hdrf.whole_tasks import held_at_last
from services.fairness.tree import TreeNode, leaves, walk

_REST = "//"  # Not a valid path of a queue.


def handed_out(accounts: TreeAccounts, top: TreeNode, cell: Sequence[int]) -> Mapping[str, Sequence[int]]:
    """What the units below `top` hold, in base units, once nothing is left of `cell` that one of them could use."""
    root = _standing(accounts, top)
    nodes = {node.name: node for node in walk(root)}
    for account in _limited(accounts, "" if top.name == TOP else top.name):
        units = [leaf for leaf in leaves(root) if not account.name or leaf.name.startswith(f"{account.name}/")]
        if not _is_within(units, account.most):
            # Queues whose children were moved up, beside others, are not in the tree.
            inside = nodes.get(account.name or TOP) or TreeNode(account.name, children=units)
            _keep_within(inside, account.most, accounts.capacity)
    return held_at_last(root, cell)


def _standing(accounts: TreeAccounts, node: TreeNode) -> TreeNode:
    """A copy whose units hold what they hold now, and wait for tasks of one size."""
    if node.children:
        return replace(node, children=[_standing(accounts, child) for child in node.children])
    account = accounts.queues[node.name]
    tasks, waiting = _could_start(account)
    each = [max(1, amount // tasks) if amount > 0 else 0 for amount in waiting] if tasks else waiting
    return replace(node, demand=each, tasks=tasks if any(each) else 0, held=list(account.used))


def _could_start(account: QueueAccount) -> tuple[int, list[int]]:
    """How many tasks of a unit, or of a queue inside, could start within its maximum, and what they ask for together,
    as if they were of one size.
    """
    if account.children:
        found = [_could_start(child) for child in account.children]
        tasks = sum([each for each, _ in found])
        waiting = [sum(column) for column in zip(*[vector for _, vector in found], strict=True)]
    else:
        tasks, waiting = account.tasks, account.startable
    room = [
        max(0, most - held) * tasks // asked
        for most, held, asked in zip(account.most, account.used, waiting, strict=False)
        if most is not None and asked
    ]
    most_tasks = min([tasks, *room])
    return (tasks, waiting) if most_tasks == tasks else (most_tasks, [each * most_tasks // tasks for each in waiting])


def _limited(accounts: TreeAccounts, top: str) -> list[QueueAccount]:
    """Queues with a maximum that are no units, those further down first."""
    those = [account for name, account in accounts.queues.items() if not top or f"{name}/".startswith(f"{top}/")]
    found = [
        account
        for account in those
        if account.children and not (account.listed or account.is_group) and _any_limit(account.most)
    ]
    return sorted(found, key=lambda account: (-len(account.name.split("/")), account.name == "", account.name))


def _any_limit(limits: Limits) -> bool:
    """Whether a kind is named."""
    return any(limit is not None for limit in limits)


def _is_within(units: Iterable[TreeNode], most: Limits) -> bool:
    """Whether all that units hold and wait for is within a maximum."""
    total = [0] * len(most)
    for unit in units:
        parts = zip(total, unit.held, unit.demand, strict=True)
        total = [has + held + need * (unit.tasks or 0) for has, held, need in parts]
    return all(limit is None or has <= limit for has, limit in zip(total, most, strict=True))


def _keep_within(inside: TreeNode, most: Limits, capacity: Sequence[int]) -> None:
    """Takes off what units would wait for beyond a maximum."""
    taken = [0 if limit is None else max(0, have - limit) for have, limit in zip(capacity, most, strict=True)]
    rest = TreeNode(_REST, demand=[0] * len(capacity), tasks=0, held=taken)
    held = held_at_last(TreeNode(TOP, children=[_copy(inside), rest], order="naive"), capacity)
    for unit in leaves(inside):
        given = [
            (after - before) // need
            for after, before, need in zip(held[unit.name], unit.held, unit.demand, strict=True)
            if need
        ]
        unit.tasks = min(given, default=0)


def _copy(node: TreeNode) -> TreeNode:
    return replace(node, children=[_copy(child) for child in node.children])
