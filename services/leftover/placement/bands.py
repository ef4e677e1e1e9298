"""The jobs of a queue that wait, by priority, where all queues are one list of jobs (one_list.py)."""

from typing import Final

from services.leftover.placement.entries import JobEntry
from services.leftover.placement.indexed_heap import IndexedHeap
from services.leftover.placement.job_keys import rank_of
from services.leftover.placement.keys import POSITION_BITS, RANK_SHIFT

_NOBODY: Final = 1 << 60
"""Below any priority."""


class Bands:
    """By whether their tasks are optional and by priority, the place in the list of each job that waits.

    `shift`: above how many bits of a rank is the priority. The least number of a band is the highest priority.
    """

    def __init__(self, shift: int) -> None:
        self._shift = shift
        self._places: tuple[dict[int, IndexedHeap[int]], dict[int, IndexedHeap[int]]] = {}, {}
        self._band_of: tuple[dict[int, int], dict[int, int]] = {}, {}  # By job; as those above, required first.

    def note(self, job: JobEntry) -> None:
        """A job waits for other tasks than before, or has another rank."""
        rank, admitted = rank_of(job), job.admitted
        band, own = rank >> self._shift, rank & (1 << self._shift) - 1
        waits = [False, False]
        for span in job.spans:
            waits[span.optional] = True
        for half in (0, 1):
            places, before = self._places[half], self._band_of[half].pop(admitted, None)
            if before is not None and (before != band or not waits[half]):
                places[before].drop(admitted)
                if not places[before].key:
                    del places[before]
            if waits[half]:
                self._band_of[half][admitted] = band
                if band not in places:
                    places[band] = IndexedHeap()
                places[band].set(admitted, -(own << RANK_SHIFT | admitted << POSITION_BITS))

    def last_before(self, half: int, band: int) -> int:
        """The last place in the list of those that have a higher priority than a band; 0 where nobody has."""
        last = 0
        for other, heap in self._places[half].items():
            if other < band and (least := heap.least()) is not None:
                last = max(last, -least)
        return last

    def first(self, half: int) -> int:
        """The band of the highest priority."""
        return min(self._places[half], default=_NOBODY)
