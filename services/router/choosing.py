"""Which cell has the least load: what is ahead of a job there, against what the cell has, or its queue may have.

A cell is shared by queues, so a job waits neither for more than all that is ahead of it, nor for more than what is
ahead of it in its queue at the queue's part of the cell: the smaller of the two counts. How long tasks run is left out,
since too few jobs say so.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from schemas.quantities import MILLIONTHS, Vector

FULL_PPM = MILLIONTHS
"""A cell of this load, or less, has room for all that it has to run."""
NEVER_PPM = 1 << 62
"""Of a cell that lacks a kind of resource now."""
THOUSANDTHS = 1_000


@dataclass(frozen=True, slots=True)
class Load:
    """How full a cell would be, in millionths: against its capacity, and against the part of the job's queue."""

    cell: str
    cell_ppm: int
    queue_ppm: int

    @property
    def ppm(self) -> int:
        """The one that counts."""
        return min(self.cell_ppm, self.queue_ppm)

    @property
    def starts(self) -> bool:
        """Whether, by the amounts alone, the job would start at once."""
        return self.ppm <= FULL_PPM


@dataclass(frozen=True, slots=True)
class Demand:
    """What has to be run in a cell, by kind: by all its jobs, by those of one queue, by what is still on its way
    there, and by the job in question (nothing, if it is among them)."""

    ahead: Vector
    queue_ahead: Vector
    coming: Vector
    wanted: Vector


def load_of(cell: str, capacity: Vector, queue_permille: int, demand: Demand) -> Load:
    """The load of a cell by the kinds of its `capacity`, which are those that the job asks for."""
    cell_ppm = queue_ppm = 0
    for kind, amount in capacity.items():
        more = demand.coming.get(kind, 0) + demand.wanted.get(kind, 0)
        part = amount * queue_permille
        cell_ppm = max(cell_ppm, _ppm(demand.ahead.get(kind, 0) + more, amount))
        queue_ppm = max(queue_ppm, _ppm((demand.queue_ahead.get(kind, 0) + more) * THOUSANDTHS, part))
    return Load(cell, cell_ppm, queue_ppm)


def _ppm(amount: int, of: int) -> int:
    if not amount:
        return 0
    return amount * MILLIONTHS // of if of > 0 else NEVER_PPM


def least(loads: Sequence[Load], draw: Callable[[str], int]) -> Load:
    """The cell to choose of these, one at least; of several with the same load the one with the smallest draw."""
    return min(loads, key=lambda load: (load.ppm, load.cell_ppm, draw(load.cell), load.cell))


def is_clearly_better(there: Load, here: Load, gain_permille: int) -> bool:
    """Whether it is worth moving: the job starts there at once, and the load is smaller by so much."""
    return there.starts and there.ppm * THOUSANDTHS <= here.ppm * (THOUSANDTHS - gain_permille)
