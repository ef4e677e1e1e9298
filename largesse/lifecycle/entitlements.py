"""What jobs are entitled to, as `Shares` tells it: a share for each queue and set of kinds of resource."""

from largesse.lifecycle.remaining import KINDS
from schemas import Entitlement

_KEY = "//"
"""Separates a queue's path from a set of kinds; no path contains it."""


def key_of(queue: str, kinds: str) -> str:
    """Names the jobs of a queue whose work asks for this set of kinds (`set_of`): all are entitled to the same."""
    return f"{queue}{_KEY}{kinds}"


def queue_of(key: str) -> str:
    """The path of the queue that a key names."""
    return key.partition(_KEY)[0]


def entitlement(key: str, share: int) -> Entitlement:
    """What is said of such jobs; `share` in 10^-9 of the cell."""
    queue, _, kinds = key.partition(_KEY)
    return Entitlement(queue, kinds.split(KINDS), share)


def shares_said(said: list[Entitlement]) -> dict[str, int]:
    """By key, what has been said; 0: there is no such job any more."""
    return {key_of(each.queue, KINDS.join(each.kinds)): each.share for each in said}


def fold_entitlements(entitled: dict[str, int], said: list[Entitlement]) -> None:
    """Applies entitlements that were published."""
    for key, share in shares_said(said).items():
        if share:
            entitled[key] = share
        else:
            entitled.pop(key, None)
