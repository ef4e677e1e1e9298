"""When nodes were last heard and by which way, as the gateway says it."""

import asyncio

from largesse.bus.memory import MemoryBus
from largesse.bus.port import BusError, Outgoing
from services.cli.getting import heard_text
from services.gateway import heard
from services.gateway.heard import HeardNodes
from tests.gateway_cell import GUARD_S, run_in_memory


async def says(bus, author, **headers):
    await bus.writer().send([Outgoing("nodes", 0, b"{}", headers={"author": author, **headers})])


def following(story, bus=None):
    async def run():
        async with asyncio.timeout(GUARD_S):
            on = bus or MemoryBus()
            nodes = HeardNodes(on, 0)
            task = asyncio.ensure_future(nodes.follow())
            try:
                await story(on, nodes)
            finally:
                task.cancel()
                await asyncio.wait((task,))

    asyncio.run(run())


async def until(holds):
    while not holds():  # noqa: ASYNC110
        await asyncio.sleep(0)


def test_the_last_message_of_a_node_says_by_which_way_it_is_reached():
    async def story(bus, nodes):
        await until(lambda: nodes.is_reading)
        await says(bus, "agent:a")
        await says(bus, "agent:b", via="bridge")
        await says(bus, "ops")
        await until(lambda: nodes.of("b"))
        assert (nodes.of("a")[0], nodes.of("b")[0], nodes.of("ops")) == ("direct", "bridge", None)
        first_ms = nodes.of("a")[1]
        await says(bus, "agent:a", via="bridge")
        await until(lambda: nodes.of("a")[0] == "bridge")
        assert nodes.of("a")[1] >= first_ms

    following(story)


def test_a_bus_that_fails_for_a_while_is_waited_for_and_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(heard, "RETRY_S", 0)
    monkeypatch.setattr(heard, "NODES_MAX", 2)

    class Failing(MemoryBus):
        failures = 3

        async def bounds(self, topic, partition):
            if self.failures:
                self.failures -= 1
                raise BusError("away")
            return await super().bounds(topic, partition)

    async def story(bus, nodes):
        await until(lambda: nodes.is_reading)
        for number in range(4):
            await says(bus, f"agent:n{number}")
        await until(lambda: nodes.of("n3"))
        assert [nodes.of(f"n{number}") is not None for number in range(4)] == [False, False, True, True]

    following(story, Failing())


def test_the_document_of_a_node_says_it_and_null_where_it_is_not_known():
    async def story(cell):
        before = (await cell.get("/v1/nodes")).json()["nodes"][0]
        await until(lambda: cell.follower.heard.is_reading)
        await says(cell.bus, "agent:n1", via="bridge")
        await until(lambda: cell.follower.heard.of("n1"))
        return before, (await cell.get("/v1/nodes")).json()["nodes"][0]

    before, after = run_in_memory(story)
    assert (before["reached"], before["heard_ms"]) == (None, None)
    assert after["reached"] == "bridge"
    assert after["heard_ms"] > 1_500_000_000_000


def test_a_person_reads_how_long_ago_that_was():
    assert heard_text({"heard_ms": 97_500, "reached": "bridge"}, 100_000) == "2.5 s by bridge"
    assert heard_text({"heard_ms": 97_500, "reached": "direct"}, 100_000) == "2.5 s"
    assert heard_text({"heard_ms": 100_900, "reached": "direct"}, 100_000) == "0 ms", "by another clock"
    assert heard_text({"heard_ms": None, "reached": None}, 100_000) == ""
    assert heard_text({}, 100_000) == "", "a gateway of before"
