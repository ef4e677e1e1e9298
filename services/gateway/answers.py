"""Answers of the log to inputs of one topic, kept for requests that do not know the offset of their input yet.

The answer to an input is the log record with which the log has read past the input's offset; an input that changed
nothing has none. A request that is being sent can only get an offset beyond what the log had read when sending began.
So an answer is kept as long as it lies beyond that point for the oldest request being sent.
"""

import asyncio
from collections import deque
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush

from schemas import ConfigChanged, JobAdmitted, JobRejected, Record

ANSWERS_KEPT_MAX = 10_000
"""Answers kept for sends under way on one topic. Beyond it the oldest go, and a send that would have needed one of
them gets to know that there is no answer yet."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of an input. `record` None: it changed nothing. Not answered: the log has not come to it in time, or
    its answer is no longer kept. Of a job spec or a queue tree the record carries only the head: see `brief`."""

    offset: int
    answered: bool
    record: Record | None = None


Waiter = asyncio.Future[Record | None]


@dataclass(slots=True)
class Answers:
    """One input topic. `reached`: the offset up to which the log has read it. `kept_max`: answers kept at most."""

    reached: int = -1
    kept_max: int = ANSWERS_KEPT_MAX
    _begun: int = 0
    _sending: dict[int, int] = field(default_factory=dict)  # Sends under way, oldest first: `reached` at their start.
    _offsets: deque[int] = field(default_factory=deque)  # Of the answers kept, ascending.
    _records: dict[int, Record] = field(default_factory=dict)
    _dropped: int = -1  # The last offset whose answer was dropped although a request might still need it.
    _waiting: dict[int, Waiter] = field(default_factory=dict)
    _order: list[int] = field(default_factory=list)  # A heap of the offsets waited for.

    @property
    def kept(self) -> int:
        """How many answers are kept."""
        return len(self._offsets)

    @property
    def waiting(self) -> int:
        """How many senders wait for the log to come to their inputs."""
        return len(self._waiting)

    def begin(self) -> int:
        """A send begins; returns the number to end it with."""
        self._begun += 1
        self._sending[self._begun] = self.reached
        return self._begun

    def end(self, number: int) -> None:
        """The send has its offset, or never will. Look up its answer before this."""
        del self._sending[number]
        oldest = next(iter(self._sending.values()), self.reached)
        while self._offsets and self._offsets[0] <= oldest:
            del self._records[self._offsets.popleft()]

    def find(self, offset: int) -> Answer | None:
        """What became of the input at `offset`, for a send that has not ended; None where the log is not there yet."""
        if offset > self.reached:
            return None
        return Answer(offset, offset > self._dropped, self._records.get(offset))

    def wait(self, offset: int) -> Waiter:
        """A future for the answer to the input at `offset`, which the log has not reached yet."""
        assert offset > self.reached, f"offset {offset} has been reached: nothing would end this wait"
        assert offset not in self._waiting, f"offset {offset} is one input's, and one sender waits for it"
        waiter: Waiter = asyncio.get_running_loop().create_future()
        self._waiting[offset] = waiter
        heappush(self._order, offset)
        return waiter

    def forget(self, offset: int) -> None:
        """No request waits for the answer to the input at `offset` any more."""
        self._waiting.pop(offset, None)
        # Offsets without a waiting request leave the heap when the log gets there; they may not pile up until then.
        if len(self._order) > 2 * len(self._waiting) + 16:
            self._order = sorted(self._waiting)

    def move(self, reached: int, record: Record) -> None:
        """The log has read the topic up to `reached` by this record."""
        self.reached = reached
        while self._order and self._order[0] <= reached:
            offset = heappop(self._order)
            waiter = self._waiting.pop(offset, None)
            if waiter is not None and not waiter.done():
                waiter.set_result(record if offset == reached else None)
        if not self._sending:
            return
        self._offsets.append(reached)
        self._records[reached] = brief(record)
        if len(self._offsets) > self.kept_max:
            self._dropped = self._offsets.popleft()
            del self._records[self._dropped]


def brief(record: Record) -> Record:
    """The record without what is large and not needed: stages of a job spec, the queues of a config."""
    body = record.body
    match body:
        case JobAdmitted() | JobRejected():
            return replace(record, body=replace(body, spec=replace(body.spec, stages=[])))
        case ConfigChanged():
            return replace(record, body=replace(body, queues=None))
    return record
