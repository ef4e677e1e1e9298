"""A heap whose entries can change their key: the least key is on top, ties go to the least id."""

from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

Id = TypeVar("Id", int, str)


class Keyed(Generic[Id]):
    """id -> key with the least on top. What `top` says depends on ids and keys alone, not on the order of calls."""

    __slots__ = ("_heap", "key")

    def __init__(self) -> None:
        self.key: dict[Id, int] = {}
        self._heap: list[tuple[int, Id]] = []

    def set(self, id_: Id, key: int) -> None:
        """Adds an id, or moves it to another key. O(log n)."""
        if self.key.get(id_) == key:
            return
        self.key[id_] = key
        heap = self._heap
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
            entry = heap[0]
            if key.get(entry[1]) == entry[0]:
                return entry[1]
            heappop(heap)
        return None

    def __len__(self) -> int:
        return len(self.key)
