"""Division of a quantity by weights with a minimum and a maximum for each claimant: how limits change what siblings get
by weight.
"""

from collections.abc import Sequence
from typing import NamedTuple

_RATE_BITS = 40


class Claimant(NamedTuple):
    """One of those who divide; `least` is not more than `most`."""

    weight: int
    least: int
    most: int


def divided(whole: int, among: Sequence[Claimant]) -> list[int]:
    """What each claimant gets: the same for each unit of weight, but at least `least` and at most `most`. All of
    `whole` is handed out (up to rounding) unless everybody has reached `most`; more than `whole` if the minima add up
    to more.
    """
    given = sum([each.least for each in among])
    if given >= whole:
        return [each.least for each in among]
    weights = 0  # Of those that get more as the rate rises; `given` is what the others have.
    turns = [((each.least << _RATE_BITS) // each.weight, 0, at) for at, each in enumerate(among)]
    turns += [((each.most << _RATE_BITS) // each.weight, 1, at) for at, each in enumerate(among)]
    for rate, is_full, at in sorted(turns):
        if given + (rate * weights >> _RATE_BITS) >= whole:
            break
        each = among[at]
        given += each.most if is_full else -each.least
        weights += -each.weight if is_full else each.weight
    else:
        return [each.most for each in among]
    # Where nobody takes between two turns, some maxima and the others' minima are the whole.
    part, parts = (max(0, whole - given), weights) if weights else (rate, 1 << _RATE_BITS)
    return [min(each.most, max(each.least, part * each.weight // parts)) for each in among]
