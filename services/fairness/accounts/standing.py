"""What a leaf holds and does not wait for: the base from which it goes on.

A leaf that holds what its waiting tasks do not ask for (tasks with much memory, say, while some with much CPU wait)
cannot come to any multiple of all that it asks for. What it can come to lies on the line from what it holds in the
direction of what waits. The base is the point of that line that is nearest to nothing: what is left of what its tasks
hold once the largest multiple of what waits is taken off. So it is the same however many of the waiting kind run.
"""

from collections.abc import Sequence
from typing import Final

from services.fairness.tree import ONE_BITS

_LEAST: Final = 1 << ONE_BITS - 20
"""A base of less than 2^-20 of the cell in every kind is none: tasks that are nearly alike leave such rests."""


def base_of(asked: Sequence[int], waiting: Sequence[int], capacity: Sequence[int]) -> list[int]:
    """The base of tasks that ask for so much in all, running or waiting, as shares of the cell by kind; empty where
    there is none. In whole base units it would be up to one of them more than can be reached.
    """
    running = [max(0, all_ - waits) for all_, waits in zip(asked, waiting, strict=True)]
    part, whole = 0, 0
    for runs, waits in zip(running, waiting, strict=True):
        if waits and (not whole or runs * whole < part * waits):
            part, whole = runs, waits
    amounts = zip(running, waiting, capacity, strict=True)
    base = [(runs * (whole or 1) - waits * part << ONE_BITS) // (have * (whole or 1)) for runs, waits, have in amounts]
    return base if any(share >= _LEAST for share in base) else []
