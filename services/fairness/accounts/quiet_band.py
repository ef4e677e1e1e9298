"""How far a queue's sums and guarantee may move before something has to be published of it again (tree_accounts.py)."""

from typing import Final

from schemas.quantities import SHARE_UNITS
from services.fairness.accounts.intervals import QuietBand
from services.fairness.accounts.queue_account import Published, QueueAccount
from services.fairness.tree import NEAR, ONE, ONE_BITS

PUBLISH_STEP: Final = 1_000_000
"""A value that has moved by less than this (a permille of the cell, in billionths) is not published again."""


def find_quiet_band(account: QueueAccount, new: Published, asked: int, *, fits: bool) -> tuple[int, int]:
    """Computes the band in which the sums of a queue with demand `asked` may move without anything to publish (`new` is
    what would be published now), and stores it with the queue. Returns the corresponding interval of the guarantee.
    `fits`: all queues get all they ask for. What is published depends on both sums and guarantee, so each gets half of
    the distance to the next change.
    """
    published, step = account.published, PUBLISH_STEP - 1
    held = new.allocated
    held_least, held_most = published.allocated - step, published.allocated + step
    if account.listed:
        account.quiet_band = QuietBand(held_least, held_most + 1, 0, None, 0, None)
        return 0, ONE
    asked_least = 0
    asked_end: int | None = None
    account.far = not fits and abs(asked - published.fair) > step
    if not account.far:
        asked_least, asked_end = published.fair - step, published.fair + step + 1
    least, most = published.guaranteed - step, published.guaranteed + step
    lends = new.guaranteed - max(held, asked)  # Nothing, where negative.
    half = (published.lent + step - lends) // 2
    most = min(most, new.guaranteed + half)
    if held < asked:
        asked_least = max(asked_least, asked - half)
    else:
        held_least = max(held_least, held - half)
    if published.lent > step:
        half = (lends - published.lent + step) // 2
        least = max(least, new.guaranteed - half)
        held_most = min(held_most, max(held, asked) + half)
        end = max(held, asked) + half + 1
        asked_end = end if asked_end is None else min(asked_end, end)
    borrows = held - new.guaranteed
    half = (published.borrowed + step - borrows) // 2
    least, held_most = max(least, new.guaranteed - half), min(held_most, held + half)
    if published.borrowed > step:
        half = (borrows - published.borrowed + step) // 2
        most, held_least = min(most, new.guaranteed + half), max(held_least, held - half)
    slack_least = 0
    slack_end: int | None = None
    if account.waiting:
        edge = held + account.slack
        part = max(0, (new.guaranteed - edge - 1 if account.low else edge - new.guaranteed) // 3)
        if account.low:
            least, held_most = max(least, new.guaranteed - part), min(held_most, held + part)
            slack_end = account.slack + part + 1
        else:
            most, held_least = min(most, new.guaranteed + part), max(held_least, held - part)
            slack_least = account.slack - part
    account.quiet_band = QuietBand(held_least, held_most + 1, asked_least, asked_end, slack_least, slack_end)
    return first_with(least), first_with(most + 1) - 1


def first_with(units: int) -> int:
    """The least share that is published as so many billionths."""
    return -(-(units << ONE_BITS) // SHARE_UNITS) - NEAR
