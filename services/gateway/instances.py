"""Which instances of each service take part in a cell, and which of them stand by, as the bus tells it.

No record says so: standbys only read. The bus is asked when somebody wants to know, and not again for a while.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic, time

from largesse.bus.groups import Group, Member, ToldGroups
from largesse.bus.kafka.rights import group_of
from largesse.bus.port import Bus, BusError
from schemas.topics import SHARDED
from services.gateway.documents import Document

GROUPED = {"fairness": "shares", "altruism": "asks", "leftover": "grants", "estimator": "releases", "planner": "plans"}
"""Services whose instances are a group of the bus, with what each decides."""
KEPT_S = 5.0
"""What the bus has told counts for so long."""
LOST_S = 24 * 3_600.0
"""For so long it is told that there are fewer instances than there were."""


@dataclass(slots=True)
class _Seen:
    """How many instances a service had. `fewer_s`: since when there are fewer."""

    most: int = 0
    fewer_s: float | None = None

    def take(self, count: int, now_s: float) -> tuple[int, float | None]:
        """How many fewer there are than there were, and since when."""
        if self.fewer_s is not None and now_s - self.fewer_s > LOST_S:
            self.most = count
        if count >= self.most:
            self.most, self.fewer_s = count, None
        elif self.fewer_s is None:
            self.fewer_s = now_s
        return self.most - count, self.fewer_s


@dataclass(slots=True)
class Instances:
    """Of one cell. `shards`: how many shards of a service with shards are in use. Belongs to one event loop."""

    bus: Bus
    cell: str
    shards: Callable[[], int]
    clock: Callable[[], float] = monotonic
    wall: Callable[[], float] = time
    _seen: dict[str, _Seen] = field(default_factory=dict)
    _told: Document | None = None
    _told_s: float = 0.0
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def document(self) -> Document:
        """What GET /v1/services answers."""
        async with self._turn:  # Who comes meanwhile gets the same answer.
            if self._told is None or self.clock() - self._told_s >= KEPT_S:
                self._told = await self._ask()
                self._told_s = self.clock()
            return self._told

    async def _ask(self) -> Document:
        bus, services, is_settled, refused = self.bus, list[Document](), True, ""
        if isinstance(bus, ToldGroups):
            try:
                told = await bus.told(group_of(service, self.cell) for service in GROUPED)
                services = [self._service(service, told[group_of(service, self.cell)]) for service in GROUPED]
                is_settled = all(group.is_settled for group in told.values())
            except BusError as error:
                refused = str(error)
        return {
            "cell": self.cell,
            "alone": not isinstance(bus, ToldGroups),
            "settled": is_settled,
            "looked_ms": int(self.wall() * 1_000),
            "services": services,
            "refused": refused,
        }

    def _service(self, service: str, group: Group) -> Document:
        of = self.shards() if GROUPED[service] in SHARDED else 1
        now_s = self.wall()
        lost, since_s = self._seen.setdefault(service, _Seen()).take(len(group.members), now_s)
        return {
            "service": service,
            "instances": [_instance(member, of) for member in sorted(group.members, key=lambda each: each.name)],
            "lost": lost,
            "lost_since_ms": None if since_s is None else int(since_s * 1_000),
        }


def _instance(member: Member, of: int) -> Document:
    shards = [shard for shard in member.shards if shard < of]
    return {"name": member.name, "host": member.host, "serves": bool(shards), "shards": shards}
