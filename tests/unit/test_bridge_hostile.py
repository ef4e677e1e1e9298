"""Nodes that are broken or mean no good: refused by name, told why, and no reason for others to wait."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest

from largesse.bus.port import BusError
from largesse.mqtt.port import PAYLOAD_BYTES_MAX
from largesse.mqtt.topics import down_topic, fetch_filter, hello_filter, hello_topic, node_topics, up_filter, up_topic
from largesse.telemetry import BRIDGE_REFUSED, BRIDGE_REPORTS, BRIDGE_SHUT_OUT
from schemas import NodeRegistered
from services.agent import line as line_module
from services.agent.fetches import Fetches
from services.agent.line import HELLO, Line
from services.agent.replies import Replies
from services.bridge import allowance, floods, shell
from services.bridge.floods import Strangers
from tests.live.agent_cell import GUARD_SECONDS, end_tasks, eventually, outcome_of, settings
from tests.live.edge_cell import bridge_on, edge_agent_on, edge_cell

UP, DOWN = up_topic("default", "evil"), down_topic("default", "evil")
REPORT = {"report": {"node": "evil", "epoch": "e", "capacity": {"cpu": "1"}}}


@pytest.fixture(autouse=True)
def _nothing_stays(tmp_path):
    yield
    end_tasks(tmp_path)


def told(story):
    async def guarded():
        async with asyncio.timeout(GUARD_SECONDS), edge_cell() as (cell, broker), bridge_on(cell, broker):
            await eventually(lambda: "b1" in broker.clients and up_filter("default") in broker._links["b1"].filters)
            await story(cell, broker)

    asyncio.run(guarded())


def up(number=1, *, epoch="e", node="evil", messages=({"topic": "nodes", "document": REPORT},), **more):
    fields = {
        "cell": "default",
        "node": node,
        "epoch": epoch,
        "number": number,
        "seq": 5,
        "messages": messages and list(messages),
    }
    return json.dumps(fields | more).encode()


def refused(reason):
    return BRIDGE_REFUSED.labels(reason)._value.get()


async def told_on(session):
    """What the node is told next."""
    while True:
        for arrived in await session.next():
            if arrived.payload:
                return json.loads(arrived.payload)


BOMB = b"{" + b",".join(b'"%d":1' % number for number in range(20_000)) + b"}"


@pytest.mark.parametrize(
    ("payload", "reason", "says"),
    [
        pytest.param(BOMB, "malformed", "unknown field", id="a bomb of fields"),
        pytest.param(b"[" * PAYLOAD_BYTES_MAX, "malformed", "too deep", id="a bomb of brackets"),
        pytest.param(b"9" * PAYLOAD_BYTES_MAX, "malformed", "too large", id="an endless number"),
        pytest.param(up(node="n"), "name", "names node n", id="the name of another"),
        pytest.param(
            up(messages=[{"topic": "nodes", "document": {"drain": {"node": "evil"}}}]), "form", "drain", id="an order"
        ),
        pytest.param(up(epoch=""), "malformed", "epoch", id="no epoch"),
    ],
)
def test_a_node_is_told_why_its_report_was_refused_until_one_is_taken(payload, reason, says):
    async def story(cell, broker):
        before = refused(reason)
        async with broker.session("evil") as evil:
            await evil.subscribe(DOWN)
            await evil.publish(UP, payload)
            document = await told_on(evil)
            assert document["refused"].startswith(f"{reason}: ")
            assert says in document["refused"]
            assert DOWN not in broker.retained, "nothing is kept for whom the cell does not know"
            await evil.publish(UP, up())
            while (document := await told_on(evil))["answered"] is None:
                pass
            assert (document["answered"], document["refused"]) == ({"epoch": "e", "number": 1}, None)
        assert refused(reason) == before + 1

    told(story)


def test_numbers_that_go_back_are_refused_and_the_next_one_is_taken():
    async def story(cell, broker):
        before = refused("number")
        async with broker.session("evil") as evil:
            await evil.subscribe(DOWN)
            await evil.publish(UP, up(7))
            while (await told_on(evil))["answered"] is None:
                pass
            await evil.publish(UP, up(3))
            assert "is number 3 behind 7" in (await told_on(evil))["refused"]
            await evil.publish(UP, up(8))
            while (document := await told_on(evil))["answered"]["number"] != 8:
                pass
            assert document["refused"] is None
        assert refused("number") == before + 1

    told(story)


def test_a_node_that_floods_is_dropped_unread_and_others_are_served_meanwhile(tmp_path, monkeypatch):
    monkeypatch.setattr(allowance, "MS_MAX", 50)
    monkeypatch.setattr(allowance, "MS_A_SECOND", 0)

    async def story(cell, broker):
        before, reports = refused("flood"), BRIDGE_REPORTS._value.get()

        async def flood():
            number = 0
            async with broker.session("evil") as evil:
                while True:
                    number += 1
                    await evil.publish(UP, up(number))

        async with edge_agent_on(broker, settings(tmp_path / "data")):
            await cell.until(lambda: cell.bodies(NodeRegistered))
            flooding = asyncio.ensure_future(flood())
            try:
                await eventually(lambda: refused("flood") >= before + 500)
                for number in range(3):
                    await cell.submit(f"j{number}", {"tasks": 3, "command": ["true"]})
                    assert await outcome_of(cell, f"j{number}") == "succeeded"
                assert not flooding.done()
            finally:
                flooding.cancel()
                await asyncio.wait((flooding,))
        of_it = [body for body in cell.inputs["nodes"] if body == REPORT]
        assert len(of_it) <= 50, "each report that was taken has cost a millisecond"
        assert BRIDGE_REPORTS._value.get() > reports

    told(story)


def shut_out_soon(monkeypatch, *, for_ms, look_ms):
    """Some hundred messages at once are a flood."""
    monkeypatch.setattr(allowance, "MS_MAX", 20)
    monkeypatch.setattr(allowance, "MS_A_SECOND", 0)
    monkeypatch.setattr(floods, "DROPPED_A_SECOND_MAX", 20)
    monkeypatch.setattr(floods, "SHUT_OUT_MS", for_ms)
    monkeypatch.setattr(shell, "LOOK_MS", look_ms)


def test_a_node_that_floods_on_is_shut_out_for_a_while_and_a_new_one_is_heard_meanwhile(tmp_path, monkeypatch):
    shut_out_soon(monkeypatch, for_ms=600_000, look_ms=50)

    def topics(broker):
        return list(broker._links["b1"].filters)

    async def story(cell, broker):
        async with edge_agent_on(broker, settings(tmp_path / "data", name="good")):
            await cell.until(lambda: cell.bodies(NodeRegistered))
            async with broker.session("evil") as evil:
                number = 0
                while up_filter("default") in topics(broker):
                    number += 1
                    await evil.publish(UP, up(number))
                assert number < 1_000
                assert topics(broker)[1:] == list(node_topics("default", "good", "b1")), "of all but evil"
                assert BRIDGE_SHUT_OUT._value.get() == 1

                dropped = refused("flood")
                for number in range(200):
                    await evil.publish(UP, up(number))
                await cell.submit("j", {"tasks": 3, "command": ["true"]})
                assert await outcome_of(cell, "j") == "succeeded"
                assert refused("flood") <= dropped + 1, "the broker does not even pass them on"

            async with edge_agent_on(broker, settings(tmp_path / "other", name="late")):
                await cell.until(lambda: len(cell.bodies(NodeRegistered)) == 2)
                await eventually(lambda: hello_topic("default", "late") not in broker.retained)
            assert up_filter("default") not in topics(broker), "the cell heard of it by name"
            assert BRIDGE_SHUT_OUT._value.get() == 1

    told(story)


@asynccontextmanager
async def line_of(broker, node):
    """An agent's line to the bridges, without the agent."""
    line = Line(
        broker, "default", node, lambda *_: None, Replies("default", node, lambda _: None), Fetches("default", node)
    )
    line.epoch = "e"
    running = asyncio.ensure_future(line.run())
    try:
        yield line
    finally:
        running.cancel()
        await asyncio.wait((running,))


def test_a_node_is_heard_that_was_answered_before_another_flooded_and_is_not_registered_yet(monkeypatch):
    shut_out_soon(monkeypatch, for_ms=600_000, look_ms=50)
    monkeypatch.setattr(line_module, "ANSWER_MS", 300)

    async def story(cell, broker):
        hello = hello_topic("default", "late")
        async with line_of(broker, "late") as line:
            await line.say([])
            assert hello not in broker.retained, "a bridge has answered"
            assert cell.bodies(NodeRegistered) == []
            async with broker.session("evil") as evil:
                number = 0
                while up_filter("default") in broker._links["b1"].filters:
                    number += 1
                    await evil.publish(UP, up(number))
                with pytest.raises(BusError, match="no answer from a bridge"):
                    await line.say([])
                assert broker.retained[hello] == HELLO
                await eventually(lambda: up_topic("default", "late") in broker._links["b1"].filters)
                await line.say([])
                assert hello not in broker.retained
            assert up_filter("default") not in broker._links["b1"].filters

    told(story)


def test_everybody_is_heard_again_once_nobody_is_shut_out(tmp_path, monkeypatch):
    shut_out_soon(monkeypatch, for_ms=500, look_ms=60_000)

    async def story(cell, broker):
        filters = broker._links["b1"].filters
        async with broker.session("evil") as evil:
            number = 0
            while up_filter("default") in filters:
                number += 1
                await evil.publish(UP, up(number))
            await eventually(lambda: up_filter("default") in filters)
            assert BRIDGE_SHUT_OUT._value.get() == 0
            assert fetch_filter("default") in filters

    told(story)


def test_hellos_that_nobody_kept_are_heard_by_nobody_and_those_of_strangers_are_bounded(tmp_path, monkeypatch):
    known = Strangers()
    monkeypatch.setattr(floods, "STRANGERS_MAX", 3)
    for name in ("a", "b", "c", "a", "d"):
        known.note(name)
    assert list(known.names) == ["c", "a", "d"], "the last ones"

    async def story(cell, broker):
        async with edge_agent_on(broker, settings(tmp_path / "data", name="good")):
            await cell.until(lambda: cell.bodies(NodeRegistered))
            await eventually(lambda: hello_topic("default", "good") not in broker.retained)
        assert not any(hello_filter("default") in link.filters for link in broker._links.values())

    told(story)


def test_a_silent_half_of_a_report_and_endless_parts_cost_no_more_than_their_place():
    async def story(cell, broker):
        half = {"messages": None, "part": 0, "parts": 64, "text": "[" * 10_000, "digest": "0" * 64}
        before = refused("malformed")
        async with broker.session("evil") as evil:
            await evil.subscribe(DOWN)
            for number in range(1, 200):
                await evil.publish(UP, up(number, **half))
            await evil.publish(UP, up(300))
            while (await told_on(evil))["answered"] != {"epoch": "e", "number": 300}:
                pass
        assert refused("malformed") == before

    told(story)
