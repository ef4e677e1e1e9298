"""Which queues hold less than they are guaranteed, and what has been published of that."""

from collections.abc import Container
from dataclasses import dataclass, field
from enum import Enum

from schemas import Breach


class Standing(Enum):
    """What is known of a broken guarantee that was published."""

    BROKEN = "broken"
    UNPLACED = "unplaced"  # Broken, and none of what waits there finds room.
    MENDED = "mended"  # It holds again, which has not been published.


@dataclass(slots=True)
class Broken:
    """A broken guarantee that was published."""

    since_ms: int
    standing: Standing


@dataclass(slots=True)
class GuaranteeWatch:
    """`below`: queues below their guarantee of which nothing was published since, and since when, in order of that
    time. `broken`: guarantees that were published as broken, and not yet as whole again; `noted`: those of them whose
    standing is not simply BROKEN. A queue whose guarantee is mended may be below it again.
    """

    below: dict[str, int] = field(default_factory=dict)
    broken: dict[str, Broken] = field(default_factory=dict)
    noted: dict[str, bool] = field(default_factory=dict)

    def fall(self, queue: str, time: int) -> None:
        """A queue is below its guarantee."""
        broken = self.broken.get(queue)
        if queue not in self.below and (broken is None or broken.standing is Standing.MENDED):
            self.below[queue] = time

    def rise(self, queue: str) -> None:
        """A queue is not below its guarantee."""
        self.below.pop(queue, None)
        if queue in self.broken:
            self._set(queue, Standing.MENDED)

    def fold(self, breach: Breach) -> None:
        """A guarantee has been published as broken, or as whole again."""
        queue = breach.queue
        if breach.over:
            self._forget_broken(queue)
            return
        if queue in self.below:
            self.broken[queue] = Broken(self.below.pop(queue), Standing.BROKEN)
        if queue in self.broken:
            self._set(queue, Standing.BROKEN if breach.placeable else Standing.UNPLACED)

    def forget_others(self, tree: Container[str]) -> None:
        """Only queues of this tree are there any more."""
        for queue in [queue for queue in self.below if queue not in tree]:
            del self.below[queue]
        for queue in [queue for queue in self.broken if queue not in tree]:
            self._forget_broken(queue)

    def mended(self) -> dict[str, int]:
        """Queues whose guarantee holds again, and since when it did not."""
        noted = [(queue, self.broken[queue]) for queue in self.noted]
        return {queue: broken.since_ms for queue, broken in noted if broken.standing is Standing.MENDED}

    def _set(self, queue: str, standing: Standing) -> None:
        self.broken[queue].standing = standing
        if standing is Standing.BROKEN:
            self.noted.pop(queue, None)
        else:
            self.noted[queue] = True

    def _forget_broken(self, queue: str) -> None:
        self.broken.pop(queue, None)
        self.noted.pop(queue, None)
