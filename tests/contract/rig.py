"""What an adapter brings to the contract suite of the Bus port."""

import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from largesse.bus.port import Bus

_numbers = itertools.count()


def local_topic(partitions: int) -> str:
    """A new topic name, for a bus that makes topics as they are written to."""
    return f"topic-{next(_numbers)}"


async def _topic_on_the_fly(partitions: int) -> str:
    return local_topic(partitions)


@dataclass(frozen=True, slots=True)
class Rig:
    """A bus under test. `topic(partitions)` names a new, empty topic; `retire(topic, partition, before)` ages it.

    `transaction(topic, partition, values)` appends messages in a transaction that is committed: behind them lies its
    marker, an offset that no message has.
    """

    bus: Bus
    topic: Callable[[int], Awaitable[str]] = _topic_on_the_fly
    retire: Callable[[str, int, int], Awaitable[None]] | None = None
    transaction: Callable[[str, int, list[bytes]], Awaitable[None]] | None = None
