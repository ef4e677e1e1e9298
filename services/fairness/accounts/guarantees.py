"""What queues are guaranteed by now, also where that has moved by too little for their accounts to have followed."""

from collections.abc import Iterable

from services.fairness.accounts.queue_account import QueueAccount
from services.fairness.accounts.tree_accounts import TreeAccounts
from services.fairness.tree import ONE, share_units

Rates = dict[str, tuple[int, int, dict[str, int]]]
"""By queue, how what it is guaranteed is divided below it: the part by weight, as a fraction, and own guarantees."""


def guarantees_of(accounts: TreeAccounts, names: Iterable[str]) -> list[int]:
    """What these queues are guaranteed, in billionths. One that is served in a list with others has nothing."""
    accounts.settle()
    rates: Rates = {}
    return [share_units(_guaranteed(accounts, accounts.queues[name], rates)) for name in names]


def _guaranteed(accounts: TreeAccounts, account: QueueAccount, rates: Rates) -> int:
    above = account.parent
    if above is None:
        return ONE
    if account.listed or not account.asks:
        return 0
    if above.name not in rates:
        rates[above.name] = _rate_below(accounts, above, _guaranteed(accounts, above, rates))
    part, whole, own = rates[above.name]
    by_weight = part * account.weight // whole if whole else 0
    return min(max(by_weight, own.get(account.name, 0)), accounts.most_of(account))


def _rate_below(accounts: TreeAccounts, account: QueueAccount, guaranteed: int) -> tuple[int, int, dict[str, int]]:
    own: dict[str, int] = {}
    if any(account.claims):
        own = {child.name: accounts.own_of(child) for child in account.children if child.asks and any(child.claim)}
    part, whole = accounts.rate_of(guaranteed, account.weights, own)
    return part, whole if whole or not own else 1, own
