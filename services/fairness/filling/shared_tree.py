"""What is shared out: a tree of queues, by which policy, and what its queues ask for and hold."""

from schemas.queues import Queue
from schemas.sharing import Sharing
from services.fairness.accounts.tree_accounts import TreeAccounts


class SharedTree:
    """A tree of queues with its accounts, which are up to date. `policy`: of the root, unless it names another."""

    def __init__(self, queues: Queue, policy: Sharing, accounts: TreeAccounts) -> None:
        self.queues = queues
        self.policy = policy
        self.accounts = accounts
