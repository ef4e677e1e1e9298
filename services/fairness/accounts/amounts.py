"""Amounts of resources as parts of the cell and of limits."""

from collections.abc import Iterable, Sequence

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


def factor_beside(demand: Sequence[int], base: Sequence[int], limits: Limits) -> tuple[int, int] | None:
    """The same for what is asked for beside a base, where the base counts in the limits, too."""
    if not base:
        return factor_of(demand, limits)
    rest = [asked - of_base for asked, of_base in zip(demand, base, strict=True)]
    left = [None if limit is None else max(0, limit - of_base) for limit, of_base in zip(limits, base, strict=True)]
    return factor_of(rest, left)


def most_beside(demand: Sequence[int], base: Sequence[int], limits: Limits, capacity: Sequence[int]) -> int | None:
    """The dominant share of a base (shares by kind; empty: none) and as much of the rest of what is asked for as lies
    within the limits. None where the rest asks for no kind that a limit names.
    """
    shares = shares_of(demand, capacity)
    base = base or [0] * len(shares)
    most = [
        None if limit is None else (limit << ONE_BITS) // have for limit, have in zip(limits, capacity, strict=True)
    ]
    factor = factor_beside(shares, base, most)
    if factor is None:
        return None
    part, whole = factor
    return max(of_base + (all_ - of_base) * part // whole for all_, of_base in zip(shares, base, strict=True))


def shares_of(amounts: Iterable[int], capacity: Sequence[int]) -> list[int]:
    """Of each kind the part of the cell."""
    return [(amount << ONE_BITS) // have for amount, have in zip(amounts, capacity, strict=True)]
