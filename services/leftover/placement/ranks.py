"""A sorted sequence of what waits, with a fast search for the first entry that may find room.

Entries are kept in sorted blocks. Each block has a bit set of the task classes in it, so that a search skips blocks
none of whose classes has room. A set may still contain classes that have left the block; a search that finds none of
them corrects it.
"""

from bisect import bisect_left, insort
from typing import Generic, TypeVar

_BLOCK = 48
"""The most entries of a block; one more splits it."""

Id = TypeVar("Id", int, str)


class Block(Generic[Id]):
    """Some entries in order, as (key, id). `classes`: bit set of their classes, possibly with some that are gone."""

    __slots__ = ("classes", "entries")

    def __init__(self, entries: list[tuple[int, Id]], classes: int) -> None:
        self.entries: list[tuple[int, Id]] = entries
        self.classes = classes


class Ranks(Generic[Id]):
    """id -> key, in ascending order of key, then id; each entry with a set of classes."""

    __slots__ = ("_last", "blocks", "key")

    def __init__(self) -> None:
        self.key: dict[Id, int] = {}
        self.blocks: list[Block[Id]] = []
        self._last: list[tuple[int, Id]] = []  # By block, its last entry or one that was there before.

    def set(self, id_: Id, key: int, classes: int) -> None:
        """Adds an entry, or moves it to another key. O(log n + length of a block)."""
        before = self.key.get(id_)
        if before == key:
            return
        entry, last = (key, id_), self._last
        if before is not None:
            if len(self.key) == 1:  # Most leaves serve tasks of one class alone.
                self.key[id_] = key
                block = self.blocks[0]
                block.entries[0] = last[0] = entry
                block.classes = classes
                return
            self._remove(id_, before)
        self.key[id_] = key
        at = bisect_left(last, entry)
        if at == len(last):
            if not last:
                self.blocks.append(Block([entry], classes))
                last.append(entry)
                return
            at -= 1
            last[at] = entry
        block = self.blocks[at]
        insort(block.entries, entry)
        block.classes |= classes
        if len(block.entries) > _BLOCK:
            half = _BLOCK // 2
            self.blocks.insert(at, Block(block.entries[:half], block.classes))
            last.insert(at, block.entries[half - 1])
            del block.entries[:half]

    def add_classes(self, id_: Id, classes: int) -> None:
        """Adds classes to those of an entry."""
        self.blocks[bisect_left(self._last, (self.key[id_], id_))].classes |= classes

    def drop(self, id_: Id) -> None:
        """Removes an entry, if it is there."""
        key = self.key.pop(id_, None)
        if key is not None:
            self._remove(id_, key)

    def _remove(self, id_: Id, key: int) -> None:
        entry = (key, id_)
        at = bisect_left(self._last, entry)
        entries = self.blocks[at].entries
        if len(entries) == 1:
            del self.blocks[at], self._last[at]
        else:
            del entries[bisect_left(entries, entry)]

    def place_of(self, key: int) -> tuple[int, int]:
        """Where entries with this key, or a later one, begin: the position of the block, and that in the block."""
        low, high = 0, len(self._last)
        while low < high:
            middle = (low + high) >> 1
            if self._last[middle][0] < key:
                low = middle + 1
            else:
                high = middle
        if low == len(self.blocks):
            return low, 0
        entries, at, high = self.blocks[low].entries, 0, len(self.blocks[low].entries)
        while at < high:
            middle = (at + high) >> 1
            if entries[middle][0] < key:
                at = middle + 1
            else:
                high = middle
        return low, at

    def first(self) -> Id | None:
        """The entry with the least key, or None."""
        return self.blocks[0].entries[0][1] if self.blocks else None

    def __len__(self) -> int:
        return len(self.key)
