"""The accounts of all queues, and the levels that follow from them."""

from schemas import QueueShare
from schemas.presets import PRESETS
from schemas.sharing import LIST_POLICIES
from services.fairness.accounts.queue_account import Published
from services.fairness.accounts.queue_tree import accounts_for, put_leaf
from services.fairness.accounts.tree_accounts import TreeAccounts
from services.fairness.core.placeable import cap_of
from services.fairness.core.state import State
from services.fairness.core.tolerance import fits
from services.fairness.filling.levels import Division, levels_in
from services.fairness.filling.shared_tree import SharedTree


def accounts_of(state: State) -> TreeAccounts | None:
    """The accounts of all queues, brought up to date; None without a tree."""
    if state.queues is None or not state.queues.children:
        return None
    accounts: TreeAccounts | None = state.accounts
    if accounts is None:  # Another capacity makes new ones, too.
        state.accounts = accounts = accounts_for(
            state.queues, PRESETS[state.policy.preset].sharing, state.capacity.divided
        )
        for said in state.shares.values():
            tell(accounts, said)
        accounts.moved = dict.fromkeys(state.demands.leaves, True)
    if accounts.moved:
        for leaf in accounts.moved:
            put_leaf(accounts, leaf, state.demands.of(leaf))
        accounts.moved = {}
    return accounts


def tell(accounts: TreeAccounts, said: QueueShare) -> None:
    """What is published of a queue."""
    values = Published(said.guaranteed, said.fair, said.allocated, said.lent, said.borrowed)
    accounts.publish(said.queue, values)


def levels_of(state: State, accounts: TreeAccounts | None) -> Division | None:
    """What the units are due by what is asked for now; None where the cell is not shared out."""
    if accounts is None or state.queues is None or not PRESETS[state.policy.preset].has_queues:
        return None
    sharing = PRESETS[state.policy.preset].sharing
    if (state.queues.policy or sharing) in LIST_POLICIES:
        return None
    placeable = {unit: cap_of(cap, accounts) for unit, cap in state.caps.by_unit.items()}
    fit = fits(accounts, state.demands.total, state.capacity.divided)
    division = levels_in(SharedTree(state.queues, sharing, accounts), state.filled, placeable, fits=fit)
    state.filled = division.plain
    return division
