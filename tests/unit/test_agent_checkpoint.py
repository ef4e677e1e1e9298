"""A checkpoint comes back as it was, or not at all."""

import asyncio

import orjson
import pytest

from largesse.bus.memory import MemoryBus
from largesse.bus.port import Outgoing
from largesse.lifecycle import node_work as core
from largesse.log.fencing import LogOrder
from schemas import JobAdmitted, JobSpec, Record, Stage
from schemas.topics import LOG
from services.agent import checkpoint
from services.agent.checkpoint import CHECKPOINT, restore, save


async def log_of(*values: bytes) -> MemoryBus:
    bus = MemoryBus()
    await bus.writer().send([Outgoing(LOG, 0, value) for value in values])
    return bus


def learnt():
    """A state that has something to lose, and where the log was."""
    state = core.start("n", "e1")
    body = JobAdmitted(JobSpec("j", "default", [Stage("map", 3, {"cpu": 1_000}, gang=True)]), 0)
    core.fold(state, Record("JobAdmitted", 1, "default", 7, 0, 7, "default/7", "", body))
    state.nodes["n"].epochs["e1"] = core.Registration("registered")
    return state, LogOrder(offset=2, seq=7, positions={"jobs/0": 3})


def test_a_checkpoint_comes_back_for_the_next_epoch(tmp_path):
    async def story():
        bus = await log_of(b"a", b"b", b"c")
        state, order = learnt()
        await save(bus, 0, tmp_path, "n", state, order)

        found = await restore(bus, 0, tmp_path, "n", "e2")

        assert found is not None
        back, back_order = found
        assert back_order == order
        assert (back.nodes["n"].epoch, back.nodes["n"].standing) == ("e2", "new")
        assert back.jobs == state.jobs

    asyncio.run(story())


def test_without_one_there_is_none(tmp_path):
    async def story():
        assert await restore(await log_of(), 0, tmp_path, "n", "e2") is None

    asyncio.run(story())


@pytest.mark.parametrize(
    ("log", "node", "harm"),
    [
        pytest.param((b"a", b"x", b"c"), "n", None, id="the log is another"),
        pytest.param((b"a",), "n", None, id="the log has lost its tail"),
        pytest.param((b"a", b"b", b"c"), "m", None, id="the node is another"),
        pytest.param((b"a", b"b", b"c"), "n", {"state": "{}"}, id="the state was changed"),
        pytest.param((b"a", b"b", b"c"), "n", {"order": {"offset": 1}}, id="the place was changed"),
        pytest.param((b"a", b"b", b"c"), "n", {"layout": 0}, id="the layout was changed"),
        pytest.param((b"a", b"b", b"c"), "n", b"{", id="it is half a file"),
    ],
)
def test_one_that_cannot_be_trusted_is_not_used(tmp_path, log, node, harm):
    async def story():
        state, order = learnt()
        await save(await log_of(b"a", b"b", b"c"), 0, tmp_path, "n", state, order)
        path = tmp_path / CHECKPOINT
        if isinstance(harm, bytes):
            path.write_bytes(harm)
        elif harm:
            path.write_bytes(orjson.dumps({**orjson.loads(path.read_bytes()), **harm}))

        assert await restore(await log_of(*log), 0, tmp_path, node, "e2") is None

    asyncio.run(story())


def test_one_of_an_older_layout_is_not_used(tmp_path, monkeypatch):
    async def story():
        bus = await log_of(b"a", b"b", b"c")
        await save(bus, 0, tmp_path, "n", *learnt())
        monkeypatch.setattr(checkpoint, "LAYOUT", core.LAYOUT + 1)

        assert await restore(bus, 0, tmp_path, "n", "e2") is None

    asyncio.run(story())
