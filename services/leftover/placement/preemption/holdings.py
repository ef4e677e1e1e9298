"""What queues hold and are guaranteed while capacity is taken back: who may take from whom."""

from collections.abc import Iterable
from typing import Final

from schemas.quantities import largest_share
from services.leftover.placement.leaf_queue import LeafEntry

ROUNDED: Final = 16
"""Billionths by which a guarantee, or what is held in many tasks, may be off."""

Takings = dict[str, dict[str, bool]]
"""By queue, those that it has taken capacity from since weights, submissions or capacity last changed."""


class Holdings:
    """What leaves hold, by resource position, and are guaranteed (share units); of an inner queue, what those below it
    do together. Under a flat preset inner queues are guaranteed nothing. Only leaves with a known level lose
    anything.
    """

    def __init__(self, total: list[int], leaves: Iterable[LeafEntry], takings: Takings, *, flat: bool) -> None:
        self._total, self._flat = total, flat
        self._held: dict[str, list[int]] = {}
        self._guaranteed: dict[str, int] = {}
        self._known: dict[str, bool] = {}
        self._takings: Takings = {name: dict(losers) for name, losers in takings.items()}
        for leaf in leaves:
            self._known[leaf.name] = leaf.own_level is not None
            for path in self._paths(leaf.name):
                held = self._held.setdefault(path, [0] * len(total))
                for p, amount in enumerate(leaf.held):
                    held[p] += amount
                self._guaranteed[path] = self._guaranteed.get(path, 0) + leaf.guaranteed

    def copy(self) -> "Holdings":
        """A copy that can be changed independently."""
        other = Holdings(self._total, [], self._takings, flat=self._flat)
        other._held = {path: list(held) for path, held in self._held.items()}
        other._guaranteed, other._known = self._guaranteed, self._known
        return other

    def change(self, leaf: str, pairs: list[tuple[int, int]], count: int) -> None:
        """A leaf holds `count` tasks more (fewer, where negative)."""
        for path in self._paths(leaf):
            held = self._held.get(path)
            if held is not None:
                for p, amount in pairs:
                    if p >= 0:
                        held[p] += amount * count

    def note(self, claimant: str, loser: str) -> None:
        """A leaf takes capacity from another."""
        self._takings.setdefault(claimant, {})[loser] = True

    def gives(self, leaf: str) -> bool:
        """Whether a leaf holds more than it is guaranteed."""
        return self._known.get(leaf, False) and self._share(leaf) > self._guaranteed[leaf]

    def may_claim(self, claimant: str, leaf: str, pairs: list[tuple[int, int]], width: int) -> bool:
        """Whether a leaf may take something from another for `width` tasks: it has not lost capacity to the other,
        itself or by others in between, and no queue between it and the one where their paths meet would then hold more
        than it is guaranteed.
        """
        if leaf == claimant or not self._known.get(leaf, False) or self._reaches(leaf, claimant):
            return False
        for path in self._below(claimant, meeting(claimant, leaf))[1:]:
            held = list(self._held[path])
            for p, amount in pairs:
                if p >= 0:
                    held[p] += amount * width
            if largest_share(held, self._total) > self._guaranteed[path] + ROUNDED:
                return False
        return True

    def keeps(self, claimant: str, leaf: str) -> bool:
        """Whether a leaf, and every queue between it and the one where its path and the claimant's meet, holds at least
        what it is guaranteed.
        """
        return all(self._share(path) >= self._guaranteed[path] for path in self._below(leaf, meeting(claimant, leaf)))

    def _share(self, path: str) -> int:
        return largest_share(self._held[path], self._total)

    def _paths(self, leaf: str) -> list[str]:
        return [leaf] if self._flat else upwards(leaf)

    def _below(self, leaf: str, at: str) -> list[str]:
        """The queues from a leaf upwards that lie below another one; the leaf itself in any case."""
        if self._flat:
            return [leaf]
        found: list[str] = [leaf]
        for path in self._paths(leaf)[1:]:
            if path == at:
                break
            found.append(path)
        return found

    def _reaches(self, taker: str, loser: str) -> bool:
        """Whether one leaf has taken capacity from another, or from one that has, and so on."""
        seen, waiting = {taker: True}, [taker]
        while waiting:
            for name in self._takings.get(waiting.pop(), ()):
                if name == loser:
                    return True
                if name not in seen:
                    seen[name] = True
                    waiting.append(name)
        return False


def upwards(path: str) -> list[str]:
    """The path, and those of all queues above it up to the root's."""
    found: list[str] = []
    while path:
        found.append(path)
        path = path.rpartition("/")[0]
    return [*found, ""]


def meeting(one: str, other: str) -> str:
    """The queue where the paths of two others meet: the lowest that lies above both, or is one of them."""
    above = dict.fromkeys(upwards(one), True)
    return next(path for path in upwards(other) if path in above)
