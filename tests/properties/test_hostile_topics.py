"""Whatever is written to any topic, no service ends, and the next good job runs, also after a restart of all services.

A cell runs in virtual time on a bus on which somebody else writes before every message: to inputs what the published
schemas describe, with wrong types; to the log, decisions, dead letters and snapshots messages like the real ones, in
which something is wrong. In one run of the two, most records travel in parts.
"""

import asyncio
from random import Random

import pytest
from hypothesis import Phase, settings
from hypothesis import given as for_all
from hypothesis import strategies as st

from largesse.log import fencing
from largesse.log.reader import publish_input
from largesse.settings import Settings
from largesse.shell import Shell
from schemas.topics import INPUTS
from services.gateway import view
from tests.hostile import HostileBus, hostile_input
from tests.stepped_cell import SteppedCell, recorded

SETTINGS = Settings(bus="memory:", snapshot_rounds=2)
PATIENCE_MS = 120_000
"""Of virtual time: strangers' nodes, on which a good job's tasks may be placed, are lost after a lease."""


def job(name):
    stage = {"stage": "s", "tasks": 3, "demand": {"cpu": "1"}, "duration_ms": 500}
    return {"job": name, "stages": [stage, {**stage, "stage": "t", "after": ["s"]}]}


class Cell(SteppedCell):
    """A whole cell, the gateway's view included; `outcomes` follows what its log says of jobs that ended."""

    def __init__(self, bus, now_ms):
        super().__init__(bus, SETTINGS, 1, {"n1": "8"})
        self.now_ms = now_ms
        self.shells.append(Shell(view, bus, SETTINGS))
        self.agents["n1"].state.nodes["n1"].epoch = f"e-{now_ms}"

    async def restored(self):
        for shell in self.shells:
            await shell.restore()
        return self

    async def run(self, over_ms, name=None):
        """Lets virtual time pass up to `over_ms`, or until the job has ended; returns how."""
        while self.now_ms < over_ms:
            await self.settle()
            ended = self.shells[-1].state.ended.get(name)
            if ended is not None:
                return ended.outcome
            self.now_ms = max(self.now_ms + 1, self.next_ms())
        return None


async def story(bus, inputs):
    """Good jobs among whatever else; then all services are started anew on what lies there, and another good job."""
    for number in range(2):
        cell = await Cell(bus, number * 1_000_000).restored()
        for topic in inputs:
            await bus.writer().send([hostile_input(topic, bus.random)])
        await publish_input(bus.writer(), "jobs", job(f"good-{number}"), "client")
        assert await cell.run(cell.now_ms + PATIENCE_MS, f"good-{number}") == "succeeded"
        for shell in cell.shells:
            await shell.close()
    return (await recorded(bus, 1)).records()


WITHOUT_SHRINKING = settings(phases=[Phase.explicit, Phase.reuse, Phase.generate])
"""A seed near a failing one tells nothing."""


@pytest.mark.parametrize("record_bytes_max", [fencing.RECORD_BYTES_MAX, 300])
@WITHOUT_SHRINKING
@for_all(st.integers(0, 2**32), st.lists(st.sampled_from(INPUTS), max_size=20))
def test_no_service_ends_and_the_next_good_job_runs(record_bytes_max, seed, inputs):
    before, fencing.RECORD_BYTES_MAX = fencing.RECORD_BYTES_MAX, record_bytes_max
    try:
        asyncio.run(story(HostileBus(Random(seed), rate=0.5), inputs * 3))
    finally:
        fencing.RECORD_BYTES_MAX = before
