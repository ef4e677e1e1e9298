"""Answers that many clients ask for at a time: made once, and sent to each who has not heard of anything later.

Pages that follow one cell are told of its changes at the same moments (change_streams.py), and read the same documents
then. Each says behind which record it is; an answer whose making began at that record, or later, will do for it.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

KEPT_MAX = 32


@dataclass(slots=True)
class _Answer:
    seq: int
    making: asyncio.Task[bytes]


class SharedAnswers:
    """Of one cell. `made`: answers made so far. Belongs to one event loop."""

    def __init__(self) -> None:
        self.made = 0
        self._kept: OrderedDict[str, _Answer] = OrderedDict()

    async def of(self, name: str, behind: int | None, seq: int, make: Callable[[], Awaitable[bytes]]) -> bytes:
        """The answer of this name, as of record `behind` or later; None: as of `seq`, where the view stands, or
        later.
        """
        found = self._kept.get(name)
        if found is None or found.seq < (seq if behind is None else min(behind, seq)):
            self.made += 1
            found = self._kept[name] = _Answer(seq, asyncio.ensure_future(_made(make)))
            found.making.add_done_callback(lambda making: self._forget_failed(name, making))
            while len(self._kept) > KEPT_MAX:
                self._kept.popitem(last=False)
        self._kept.move_to_end(name)
        # Who goes away ends it for nobody else.
        return await asyncio.shield(found.making)

    def _forget_failed(self, name: str, making: asyncio.Task[bytes]) -> None:
        failed = making.cancelled() or making.exception() is not None
        if failed and name in self._kept and self._kept[name].making is making:
            del self._kept[name]


async def _made(make: Callable[[], Awaitable[bytes]]) -> bytes:
    return await make()
