"""Watchers of jobs: each change of a job is encoded once, as one event for all its watchers.

One task encodes the events and wakes the watchers. It uses at most 1/TELLING_SHARE of the event loop's time, however
many watch and however often jobs change; under load each watcher gets events less often. A watcher that falls behind
gets the latest state instead of what it missed, and always gets the last one. Nothing is buffered for a single watcher.
"""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event

from services.gateway.documents.jobs import job_document
from services.gateway.follow import Follower
from services.gateway.http.problems import dumped

WATCHERS_MAX = 1_000
EVENT_GAP_S = 0.25
"""Least time between two events of one job."""
BEAT_S = 15.0
"""After so long without an event a comment is sent, so that clients see that the stream is alive."""

TELLING_SHARE = 4
WOKEN_AT_ONCE = 16
"""Watchers that are woken before other tasks get a turn."""
WORK_S = 0.002
"""Seconds of work after which other tasks get a turn."""
REST_S_MAX = 0.05


def was_sent(document: Any, event_id: str) -> bool:
    """Whether the event with this id contained this document of a job."""
    return event_id.rpartition("-")[2] == _digest(dumped(document))


def _digest(document: bytes) -> str:
    return blake2b(document, digest_size=8).hexdigest()


class Watcher:
    """A client that watches a job. `seen`: the number of the last event that it was sent."""

    def __init__(self) -> None:
        self.seen = 0
        self._woken: asyncio.Future[bool] | None = None

    async def sleep(self, seconds: float) -> bool:
        """Waits until it is woken; False after `seconds`."""
        loop = asyncio.get_running_loop()
        self._woken = loop.create_future()
        alarm = loop.call_later(seconds, self.wake, False)
        try:
            return await self._woken
        finally:
            alarm.cancel()
            self._woken = None

    def wake(self, changed: bool = True) -> None:
        """Ends its sleep. `changed`: the job has; otherwise its time is over."""
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(changed)


@dataclass(slots=True)
class Watched:
    """A job that is watched. `event`: the latest one, with its `number`, and the `digest` of the document in it.
    `over`: no other will follow."""

    job: str
    document: Any = None
    event: bytes = b""
    digest: str = ""
    number: int = 0
    over: bool = False
    watchers: dict[Watcher, None] = field(default_factory=dict)


class Watching:
    """All watched jobs. Belongs to one event loop. `encodings`: events encoded so far."""

    def __init__(self, follower: Follower, gap_s: float = EVENT_GAP_S) -> None:
        self.encodings = 0
        self._follower = follower
        self._gap_s = gap_s
        self._watched: dict[str, Watched] = {}
        self._telling: asyncio.Task[None] | None = None

    async def events(self, job: str, last: str = "") -> AsyncGenerator[bytes, None]:
        """Server-sent events of type `job`: the job's document now, and whenever it changes, until the job ends.

        An event's id is the position in the log at which it was encoded, and a digest of the document. `last`: the id
        of the last event that the client received; if the document is still the same, it is not sent again.
        """
        watched = self._watched.get(job)
        if watched is None:
            watched = Watched(job)
            self._look(watched)
            if not watched.over:
                self._watched[job] = watched
        watcher = Watcher()
        if last.rpartition("-")[2] == watched.digest:
            watcher.seen = watched.number
        watched.watchers[watcher] = None
        if self._telling is None and self._watched:
            self._telling = asyncio.create_task(self._tell())
        try:
            while True:
                if watcher.seen < watched.number:
                    watcher.seen = watched.number
                    yield watched.event
                elif watched.over or self._follower.stop.is_set():
                    return
                elif not await watcher.sleep(BEAT_S):
                    yield KEEPALIVE_COMMENT
        finally:
            del watched.watchers[watcher]
            if not watched.watchers:
                self._forget(watched)

    def _forget(self, watched: Watched) -> None:
        """It has no watchers, or has ended: another job may get the name."""
        if self._watched.get(watched.job) is watched:
            del self._watched[watched.job]

    def _look(self, watched: Watched) -> bool:
        """Encodes the job's document as an event if it has changed; returns whether it has."""
        state = self._follower.state
        document = job_document(state, watched.job)
        if document is None:
            watched.over = True
            return True
        if document == watched.document:
            return False
        watched.document, watched.over = document, document["ended_ms"] is not None
        text = dumped(document)
        watched.digest = _digest(text)
        watched.event = format_sse_event(data_str=text.decode(), event="job", id=f"{state.seq}-{watched.digest}")
        watched.number += 1
        self.encodings += 1
        return True

    async def _tell(self) -> None:
        """Encodes events and wakes watchers, as long as there are any."""
        follower, pace = self._follower, _Pace()
        seen = -1
        try:
            while self._watched and not follower.stop.is_set():
                if follower.state.seq == seen:
                    await follower.changed(BEAT_S)
                seen = follower.state.seq
                for watched in list(self._watched.values()):
                    if not self._look(watched):
                        await pace.rest()
                        continue
                    if watched.over:
                        self._forget(watched)
                    await _wake(list(watched.watchers), pace)
                await follower.pause(self._gap_s)
                pace.begin()
        finally:
            self._telling = None
            for watched in self._watched.values():
                watched.over = True
                for watcher in watched.watchers:
                    watcher.wake()
            self._watched = {}


async def _wake(watchers: list[Watcher], pace: "_Pace") -> None:
    for at in range(0, len(watchers), WOKEN_AT_ONCE):
        for watcher in watchers[at : at + WOKEN_AT_ONCE]:
            watcher.wake()
        await pace.rest(woken=True)


class _Pace:
    """Pauses for a multiple of the time worked, so that other tasks get their part of the loop."""

    def __init__(self) -> None:
        self._clock = asyncio.get_running_loop().time
        self.begin()

    def begin(self) -> None:
        """Starts to measure work."""
        self._begun = self._clock()

    async def rest(self, *, woken: bool = False) -> None:
        """Pauses if enough was worked. `woken`: watchers were woken, whose work counts too."""
        if woken:
            await asyncio.sleep(0)
        worked_s = self._clock() - self._begun
        if woken or worked_s >= WORK_S:
            await asyncio.sleep(min((TELLING_SHARE - 1) * worked_s, REST_S_MAX))
            self.begin()
