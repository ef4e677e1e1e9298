"""Answers that last: a limited number of places, each given back when its answer is through or its client gone."""

from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from services.gateway.problems import Problem


class EventStream(Response):
    """Tells FastAPI the media type of a route. Its own class for this has each event encoded for each client again, and
    leaves no way to refuse a client first."""

    media_type = "text/event-stream"


@dataclass(slots=True)
class Places:
    """`most` places for answers of one kind; `what`: their name, in the plural."""

    most: int
    what: str
    taken: int = 0

    @contextmanager
    def place(self) -> Iterator["Place"]:
        """One place, while a request prepares its answer, and as long as `Place.streaming` takes. Raises Problem where
        there is none."""
        if self.taken >= self.most:
            raise Problem(503, "busy", f"{self.most} {self.what} are under way, and there may be no more: try again")
        place = Place(self)
        try:
            yield place
        finally:
            if not place.streams:
                place.leave()


class Place:
    """One of the places."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self.streams = False
        places.taken += 1

    def streaming(self, parts: AsyncGenerator[bytes, None], **response: Any) -> StreamingResponse:
        """The answer that keeps the place until it is through. `response`: as StreamingResponse takes it."""
        self.streams = True
        return _Streaming(self, parts, **response)

    def leave(self) -> None:
        """Gives the place back."""
        self._places.taken -= 1


class _Streaming(StreamingResponse):
    def __init__(self, place: Place, parts: AsyncGenerator[bytes, None], **response: Any) -> None:
        super().__init__(parts, **response)
        self._parts = parts
        self._place = place

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._place.leave()
            await self._parts.aclose()
