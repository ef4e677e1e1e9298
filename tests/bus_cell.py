"""A whole cell on one bus and one event loop: sequencer, every service, and agents that end what they are granted."""

import asyncio
from typing import Any

from largesse.bus.port import Bus
from largesse.log.reader import LogReader, publish_input
from largesse.settings import Settings
from largesse.shell import run
from schemas import JobEnded, NodeRegistered, RoundClosed
from services.admission import sequencer as admission
from services.altruism import core as altruism
from services.estimator import core as estimator
from services.fairness import core as fairness
from services.leftover import core as leftover
from services.planner import shell as planner

GUARD_S = 240
LEASE_MS = 86_400_000


class BusCell:
    """`async with BusCell(bus, nodes=3, shards=2) as cell`: it runs inside, and is stopped at the end. `way`: by which
    the sequencer alone comes to the bus."""

    def __init__(self, bus: Bus, *, nodes: int = 1, shards: int = 1, way: Bus | None = None, **settings: Any) -> None:
        self.bus, self._way = bus, way or bus
        self.settings = Settings(bus="file:", **settings)
        self.stop = asyncio.Event()
        self.reader = LogReader(bus)
        self.ended: dict[str, str] = {}
        self._nodes, self._shards = nodes, shards
        self._writer = bus.writer()
        self._running: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "BusCell":
        # The agents send no heartbeats.
        knobs = {"node_lease_ms": LEASE_MS} | ({"altruism_shards": self._shards} if self._shards > 1 else {})
        await publish_input(self._writer, "config", {"set": knobs}, "operator")
        self.start(admission.run(self._way, self.settings, stop=self.stop))
        for core in (fairness, leftover, estimator):
            self.start(run(core, self.bus, self.settings, stop=self.stop))
        self.start(planner.run(self.bus, self.settings, stop=self.stop))
        for shard in range(self._shards):
            self.start(run(altruism, self.bus, self.settings, shard=shard, stop=self.stop))
        for number in range(self._nodes):
            self.start(self._agent(f"n{number}"))
        return self

    async def __aexit__(self, *error: object) -> None:
        self.stop.set()
        await asyncio.gather(*self._running)

    def start(self, service: Any) -> asyncio.Task[None]:
        """Another service of the cell."""
        task: asyncio.Task[None] = asyncio.ensure_future(service)
        self._running.append(task)
        return task

    async def submit(self, count: int, **more: Any) -> None:
        """Jobs of two stages."""
        stages = [
            {"stage": "s", "tasks": 3, "demand": {"cpu": "1"}, "duration_ms": 1},
            {"stage": "t", "after": ["s"], "tasks": 2, "gang": True, "demand": {"cpu": "500m"}, "duration_ms": 1},
        ]
        for _ in range(count):
            await publish_input(self._writer, "jobs", {"stages": stages, **more}, "client")

    async def until_ended(self, count: int) -> None:
        """Until so many jobs have ended. Raises what a service raised."""
        async with asyncio.timeout(GUARD_S):
            while len(self.ended) < count:
                for accepted in await self.reader.read(100):
                    if isinstance(accepted.record.body, JobEnded):
                        self.ended |= {end.job: end.outcome for end in accepted.record.body.jobs}
                self.check()

    async def until_registered(self, node: str) -> None:
        """Until the log has that node. Raises what a service raised."""
        reader, found = LogReader(self.bus), False
        async with asyncio.timeout(GUARD_S):
            while not found:
                bodies = [accepted.record.body for accepted in await reader.read(100)]
                found = any(isinstance(body, NodeRegistered) and body.node == node for body in bodies)
                self.check()

    def check(self) -> None:
        """Raises what a service raised."""
        for task in self._running:
            if task.done():
                task.result()

    async def _agent(self, node: str) -> None:
        """Starts and ends at once what its node is granted."""
        reader, writer = LogReader(self.bus), self.bus.writer()
        registration = {"node": node, "epoch": "e", "capacity": {"cpu": "4"}}
        await publish_input(writer, "nodes", {"register": registration}, node)
        while not self.stop.is_set():
            for accepted in await reader.read(50):
                if not isinstance(accepted.record.body, RoundClosed):
                    continue
                items = [
                    {
                        "job": grant.job,
                        "stage": grant.stage,
                        "first": grant.first,
                        "count": grant.count,
                        "attempt": grant.attempt,
                        "node": node,
                        "epoch": "e",
                    }
                    for grant in accepted.record.body.grants
                    if grant.node == node
                ]
                if items:
                    await publish_input(writer, "tasks", {"started": {"items": items}}, node)
                    ends = [{**item, "run_ms": [1]} for item in items]
                    await publish_input(writer, "tasks", {"finished": {"items": ends}}, node)
