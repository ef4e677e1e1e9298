"""Amounts of resources as parts of the cell and of limits."""

from collections.abc import Sequence

from schemas.quantities import SHARE_UNITS
from services.fairness.accounts.queue_account import Limits
from services.fairness.tree import ONE_BITS, share_units


def part_units(amount: int, have: int) -> int:
    """`share_units` of the share that `amount` is of `have`, computed with small integers where the result is the same:
    the rounding that is put back is less than 2^-29 of a billionth, so it matters only just below the next billionth.
    """
    whole = amount * SHARE_UNITS
    units = whole // have
    if have - (whole - units * have) > have >> 29:
        return units
    return share_units((amount << ONE_BITS) // have)


def factor_of(demand: Sequence[int], limits: Limits) -> tuple[int, int] | None:
    """How much of a demand, all kinds in proportion, lies within the limits, as a fraction; more than 1 if all of it.

    None where it asks for no kind that a limit names.
    """
    part, whole = 0, 0
    for asked, limit in zip(demand, limits, strict=False):
        if asked and limit is not None and (not whole or limit * whole < part * asked):
            part, whole = limit, asked
    return (part, whole) if whole else None
