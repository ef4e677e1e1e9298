"""A heap whose entries can change their key: the least key is on top, ties go to the least id."""

from heapq import heapify, heappop, heappush, heapreplace
from typing import Generic, TypeVar

from services.leftover.placement.keys import ADMITTED_MASK, POSITION_BITS

Id = TypeVar("Id", int, str)


class IndexedHeap(Generic[Id]):
    """id -> key with the least on top. What `top` says depends on ids and keys alone, not on the order of calls."""

    __slots__ = ("_heap", "key")

    def __init__(self) -> None:
        self.key: dict[Id, int] = {}
        self._heap: list[tuple[int, Id]] = []

    def set(self, id_: Id, key: int) -> None:
        """Adds an id, or moves it to another key. O(log n)."""
        before = self.key.get(id_)
        if before == key:
            return
        self.key[id_] = key
        heap = self._heap
        if before is not None and heap[0][1] == id_:  # Most moves are of what is on top: no entry is left behind.
            heapreplace(heap, (key, id_))
            return
        heappush(heap, (key, id_))
        if len(heap) > 2 * len(self.key) + 64:  # Entries left behind by moves: more of them than ids.
            heap[:] = [(key, id_) for id_, key in self.key.items()]
            heapify(heap)

    def fill(self, keys: dict[Id, int]) -> None:
        """Replaces everything. O(n)."""
        self.key = keys
        self._heap = [(key, id_) for id_, key in keys.items()]
        heapify(self._heap)

    def drop(self, id_: Id) -> None:
        """Removes an id, if it is there."""
        self.key.pop(id_, None)

    def top(self) -> Id | None:
        """The id with the least key, or None."""
        heap, key = self._heap, self.key
        while heap:
            least, id_ = heap[0]
            if key.get(id_) == least:
                return id_
            heappop(heap)
        return None

    def least(self) -> int | None:
        """The key of what is on top, or None."""
        return None if self.top() is None else self._heap[0][0]

    def drop_top(self) -> Id:
        """Removes the id that `top` has just returned."""
        _, id_ = heappop(self._heap)
        del self.key[id_]
        return id_

    def __len__(self) -> int:
        return len(self.key)


class JobHeap:
    """The same for jobs, by their keys (keys.py). The number of a job is part of its key, so the heap needs no pairs.
    Of a million jobs that wait nearly all are in such heaps.

    Most keys are above all that came before: jobs come in the order of admission, and one that was served goes behind
    the others. These stand in a list in order, of which the first `_gone` have been passed; the others are in a heap.
    The least key is asked for several times between two changes, so it is remembered: `_least`, where `_is_known`.
    """

    __slots__ = ("_gone", "_heap", "_in_order", "_is_known", "_least", "key")

    def __init__(self) -> None:
        self.key: dict[int, int] = {}
        self._in_order: list[int] = []
        self._gone = 0
        self._heap: list[int] = []
        self._least = 0
        self._is_known = False

    def set(self, admitted: int, key: int) -> None:
        """Adds a job, or moves it to another key. O(log n)."""
        before = self.key.get(admitted)
        if before == key:
            return
        assert key >> POSITION_BITS & ADMITTED_MASK == admitted, f"{key} is no key of job {admitted}"
        self.key[admitted] = key
        if self._is_known and (before == self._least or key < self._least):
            self._least, self._is_known = key, key < self._least
        heap, in_order = self._heap, self._in_order
        if not in_order or key > in_order[-1]:
            in_order.append(key)
        elif before is not None and heap and heap[0] == before:  # No entry is left behind.
            heapreplace(heap, key)
        else:
            heappush(heap, key)
        if len(heap) + len(in_order) > 2 * len(self.key) + 64:  # Entries left behind: more of them than jobs.
            self._in_order, self._gone, self._heap = sorted(self.key.values()), 0, []

    def drop(self, admitted: int) -> None:
        """Removes a job, if it is there."""
        before = self.key.pop(admitted, None)
        if self._is_known and before == self._least:
            self._is_known = False
            if self._gone < len(self._in_order) and self._in_order[self._gone] == before:
                self._gone += 1

    def top(self) -> int | None:
        """The job with the least key, or None."""
        least = self.least()
        return None if least is None else least >> POSITION_BITS & ADMITTED_MASK

    def least(self) -> int | None:
        """The least key, or None."""
        if self._is_known:
            return self._least
        in_order, heap = self._in_order, self._heap
        at = self._gone
        while at < len(in_order) and not self._holds(in_order[at]):
            at += 1
        self._gone = at
        while heap and not self._holds(heap[0]):
            heappop(heap)
        if at < len(in_order):
            least = in_order[at]
            if heap and heap[0] < least:
                least = heap[0]
        elif heap:
            least = heap[0]
        else:
            return None
        self._least, self._is_known = least, True
        return least

    def _holds(self, key: int) -> bool:
        """Whether an entry still is the key of its job."""
        return self.key.get(key >> POSITION_BITS & ADMITTED_MASK) == key

    def __len__(self) -> int:
        return len(self.key)
