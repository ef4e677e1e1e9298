"""Long-running answers: a limited number of places, each freed when its answer is complete or its client gone."""

from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from services.gateway.http.problems import Problem


class EventStream(Response):
    """Tells FastAPI the media type of a route. FastAPI's own class for event streams would encode each event for each
    client, and could not refuse a client before the stream begins."""

    media_type = "text/event-stream"


@dataclass(slots=True)
class StreamLimit:
    """At most `most` answers of one kind at a time; `what`: their name in messages, in the plural."""

    most: int
    what: str
    taken: int = 0

    @contextmanager
    def place(self) -> Iterator["StreamPermit"]:
        """Takes a place while a request prepares its answer, and until the stream of `StreamPermit.streaming` ends.
        Raises Problem where all are taken."""
        if self.taken >= self.most:
            raise Problem(503, "busy", f"there are {self.most} {self.what} already, as many as are allowed: try again")
        place = StreamPermit(self)
        try:
            yield place
        finally:
            if not place.streams:
                place.leave()


class StreamPermit:
    """One of the places."""

    def __init__(self, places: StreamLimit) -> None:
        self._places = places
        self.streams = False
        places.taken += 1

    def streaming(self, parts: AsyncGenerator[bytes, None], **response: Any) -> StreamingResponse:
        """A streaming answer that keeps the place until it ends. `response`: arguments of StreamingResponse."""
        self.streams = True
        return _Streaming(self, parts, **response)

    def leave(self) -> None:
        """Frees the place."""
        self._places.taken -= 1


class _Streaming(StreamingResponse):
    def __init__(self, place: StreamPermit, parts: AsyncGenerator[bytes, None], **response: Any) -> None:
        super().__init__(parts, **response)
        self._parts = parts
        self._place = place

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._place.leave()
            await self._parts.aclose()
