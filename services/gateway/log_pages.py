"""Records of the log by the page: those that are wanted from one on, forwards or backwards."""

from collections.abc import Callable
from dataclasses import dataclass, field

from largesse.log.fencing import Accepted
from largesse.log.record_lines import JobPlaces, WantedRecords
from services.gateway.log_places import PLACE_EVERY, LogPlaces, Place

LOOKED_AT_MAX = 20_000
"""Records that are looked at for one page: some tenths of a second."""

PAGE_BYTES_MAX = 4 << 20
"""A page ends once its records have so much together, in bytes as they were written."""


@dataclass(slots=True)
class LogPage:
    """Records in the order in which they were asked for. `following`: at which record the next page begins; None: there
    is none."""

    found: list[Accepted] = field(default_factory=list)
    following: int | None = None
    size: int = 0

    def takes(self, accepted: Accepted, limit: int) -> bool:
        """Adds a record; False once the page is full."""
        self.found.append(accepted)
        self.size += len(accepted.content)
        return len(self.found) < limit and self.size < PAGE_BYTES_MAX


@dataclass(slots=True)
class Looked:
    """Which records are wanted, from `first` to `last`, at most `limit` of them. `known`: queue and user of a job."""

    wanted: WantedRecords
    first: int
    last: int
    limit: int
    known: Callable[[str], tuple[str, str] | None]

    def names(self) -> tuple[str, ...]:
        """Jobs or nodes: a record that is wanted speaks of one of them. None: it may speak of any."""
        return tuple(self.wanted.jobs or self.wanted.nodes)

    def has(self, places: JobPlaces, accepted: Accepted) -> bool:
        """Whether a record is one of them."""
        names = places.names_in(accepted.record)
        return accepted.record.seq >= self.first and self.wanted.has(accepted.record, names)


async def forwards(places: LogPlaces, asked: Looked) -> LogPage:
    """The first ones. Raises BusError, Undecodable."""
    page, names = LogPage(), JobPlaces(asked.known)
    place = await places.before(lambda order: order.seq < asked.first)
    last = min(asked.last, asked.first + LOOKED_AT_MAX - 1)
    async for accepted in places.records(place, last, asked.names()):
        if asked.has(names, accepted) and not page.takes(accepted, asked.limit):
            last = accepted.record.seq
            break
    page.following = last + 1 if last < asked.last else None
    return page


async def backwards(places: LogPlaces, asked: Looked) -> LogPage:
    """The last ones, the last first. Raises BusError, Undecodable."""
    page, looked, last = LogPage(), 0, asked.last
    while last >= asked.first:
        place = await _place_before(places, last)
        names, chunk = JobPlaces(asked.known), []
        looked += last - place.seq
        async for accepted in places.records(place, last, asked.names()):
            if asked.has(names, accepted):
                chunk.append(accepted)
        for accepted in reversed(chunk):
            if not page.takes(accepted, asked.limit):
                seq = accepted.record.seq
                page.following = seq - 1 if seq > asked.first else None
                return page
        last = place.seq
        if looked >= LOOKED_AT_MAX and last >= asked.first:
            page.following = last
            return page
    return page


async def _place_before(places: LogPlaces, seq: int) -> Place:
    """The nearest place before a record; where there is none near it, reading up to there makes some."""
    place = await places.before(lambda order: order.seq < seq)
    if seq - place.seq > 2 * PLACE_EVERY:
        async for _ in places.records(place, seq - 1):
            pass
        place = await places.before(lambda order: order.seq < seq)
    return place
