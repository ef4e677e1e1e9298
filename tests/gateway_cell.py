"""The gateway's HTTP over a bus in memory, with every service beside it but agents: what is granted never starts."""

import asyncio
from contextlib import asynccontextmanager

import httpx
import pytest

from largesse import shell
from largesse.bus.memory import MemoryBus
from largesse.log.reader import publish_input
from largesse.settings import Settings
from schemas.policy import LEASE_MS_MAX
from services.admission import sequencer as admission
from services.altruism import core as altruism
from services.estimator import core as estimator
from services.fairness import core as fairness
from services.gateway.follow import Follower
from services.gateway.http import api
from services.gateway.http.app import make_app
from services.gateway.http.dry_runs import config as dry_run
from services.leftover import core as leftover
from services.planner import core as planner

GUARD_S = 240
STAGE = {"stage": "s", "tasks": 2, "command": ["true"], "demand": {"cpu": "1"}}
JOB = {"job": "j", "stages": [STAGE]}
NODE = {"register": {"node": "n1", "epoch": "e1", "capacity": {"cpu": "4", "memory": "8Gi"}}}
YAML = {"content-type": "application/yaml"}


class Cell:
    """A client of the gateway, and the bus behind it."""

    def __init__(self, http, bus, follower, leading, halt):
        self.http, self.bus, self.follower = http, bus, follower
        self._leading, self._halt = leading, halt

    async def stop_sequencer(self):
        """From here on nothing is answered by the log."""
        self._halt.set()
        await self._leading

    async def post(self, document, **more):
        return await self.http.post("/v1/jobs", json=document, **more)

    async def get(self, path, **params):
        return await self.http.get(path, params=params)


@asynccontextmanager
async def a_cell(
    *,
    answering=True,
    following=True,
    read_output=None,
    read_results=None,
    hosts=None,
    address="",
    without=None,
    answer_wait_s=GUARD_S,
    configured=True,
    bridges=(),
    issued=None,
):
    """`answer_wait_s`: how long a request waits for the log. The gateway's own limits are wall-clock time, which a busy
    machine may use up. `configured`: the node, from which no agent reports, is never lost, however long a story takes.
    """
    bus, stop, halt = MemoryBus(), asyncio.Event(), asyncio.Event()
    settings = Settings(bus="file:memory")
    follower = Follower(bus, settings, stop=stop)
    running = [follower.run()] if following else []
    leading = asyncio.ensure_future(admission.run(bus, settings, stop=halt)) if answering else None
    if answering:
        cores = (fairness, altruism, leftover, estimator, planner)
        running += [shell.run(core, bus, settings, stop=stop) for core in cores if core is not without]
        if configured:
            await publish_input(bus.writer(), "config", {"set": {"node_lease_ms": LEASE_MS_MAX}}, "tester")
        await publish_input(bus.writer(), "nodes", {"register": {**NODE["register"], "address": address}}, "n1")
    tasks = [asyncio.ensure_future(each) for each in running]
    app = make_app(
        follower,
        read_output,
        read_results=read_results,
        author="tester",
        hosts=hosts,
        bridges=bridges,
        issued=issued,
    )
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8642") as http:
        patch = pytest.MonkeyPatch()
        patch.setattr(api, "ANSWER_WAIT_S", answer_wait_s)
        patch.setattr(dry_run, "EFFECT_WAIT_S", GUARD_S)
        try:
            if answering:
                assert await follower.until(lambda view: "n1" in view.nodes, GUARD_S)
            yield Cell(http, bus, follower, leading, halt)
        finally:
            patch.undo()
            stop.set()
            halt.set()
            await asyncio.gather(*tasks, *filter(None, [leading]))


def run_in_memory(story, **cell):
    """Runs a story and returns what it returns."""

    async def run():
        async with asyncio.timeout(GUARD_S), a_cell(**cell) as each:
            return await story(each)

    return asyncio.run(run())


async def until_ready(cell):
    while not cell.follower.ready:
        await cell.follower.changed(0.01)
