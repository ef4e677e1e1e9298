"""When nodes were last heard and by which way, as the gateway says it."""

import asyncio
import json
from time import monotonic

from largesse.bus.memory import MemoryBus
from largesse.bus.port import BusError, Outgoing
from schemas.edge.beats import SequencerBeat, document_of
from schemas.topics import BEATS
from services.cli.getting import heard_text
from services.gateway import heard
from services.gateway.heard import HeardNodes
from tests.gateway_cell import GUARD_S, run_in_memory


async def says(bus, author, topic="nodes", value=b"{}", **headers):
    await bus.writer().send([Outgoing(topic, 0, value, headers={"author": author, **headers})])


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


def test_a_sign_of_life_of_a_node_is_word_of_it_and_one_of_the_sequencer_is_none():
    async def story(bus, nodes):
        await until(lambda: nodes.is_reading)
        await says(bus, "agent:a", BEATS)
        await says(bus, "agent:b", BEATS, via="bridge")
        await until(lambda: nodes.of("b"))
        assert (nodes.of("a")[0], nodes.of("b")[0]) == ("direct", "bridge")
        assert nodes.sequencer_s("t") == 0
        for value in (b"{no json", b"{}", json.dumps(document_of(SequencerBeat("t", 7, 9))).encode()):
            await says(bus, "sequencer", BEATS, value)
        await until(lambda: nodes.sequencer_s("t"))
        assert nodes.sequencer_s("t") <= monotonic()
        assert nodes.sequencer_s("of another claim") == 0

    following(story)


def test_signs_of_life_of_the_sequencer_end_its_silence():
    async def story(cell):
        await until(lambda: cell.follower.heard.is_reading)
        await cell.stop_sequencer()
        await asyncio.sleep(0.2)
        before_s = cell.follower.silent_s
        beat = SequencerBeat(cell.follower._shell.log.order.token, 0, 0)
        await says(cell.bus, "sequencer", BEATS, json.dumps(document_of(beat)).encode())
        await until(lambda: cell.follower.silent_s < before_s)
        return before_s

    assert run_in_memory(story) >= 0.1


def test_a_bus_that_fails_for_a_while_is_waited_for_and_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(heard, "RETRY_S", 0)
    monkeypatch.setattr(heard, "NODES_MAX", 2)

    class Failing(MemoryBus):
        failures = 6

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
