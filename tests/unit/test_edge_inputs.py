"""Results of one stage for tasks of the next on other nodes, neither of which can be reached: by bridges, and only to
whom they were handed on."""

import asyncio
import json
import os
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from largesse.agents_http import NoAnswer
from largesse.lifecycle.node_work import start
from largesse.mqtt import work
from largesse.mqtt.topics import ask_topic, fetch_filter, fetch_topic, fetched_topic, reply_topic
from largesse.mqtt.work import Work, take_in
from largesse.process.health import served
from largesse.settings import Settings
from largesse.task_results import WantedResults, path_of
from largesse.telemetry import BRIDGE_FETCHED, BRIDGE_REFUSED
from schemas import JobAdmitted, NodeRegistered, TaskFinished, TaskStarted
from services.agent import fetches, inputs, peers
from services.agent.replies import PIECE_BYTES
from services.agent.task_output import pages_of
from services.agent.task_results import results_beside
from services.bridge import asking as bridge_asking
from services.bridge import shell
from services.bridge.fetching import BY_NODE_MAX
from tests.live.agent_cell import GUARD_SECONDS, agent_on, end_tasks, eventually, outcome_of, settings
from tests.live.cuttable import CuttableBus
from tests.live.edge_cell import bridge_on, edge_agent_on, edge_cell, ended

SIZE = 3 * PIECE_BYTES + 17
MAKES = 'cp "$SOURCE" "$LARGESSE_RESULTS/big"; mkdir "$LARGESSE_RESULTS/d"; echo small > "$LARGESSE_RESULTS/d/f"'
READS = (
    'for i in 0 1; do cmp "$LARGESSE_INPUTS/make/$i/big" "$SOURCE" && cat "$LARGESSE_INPUTS/make/$i/d/f"; done > "$OUT"'
)


@pytest.fixture(autouse=True)
def _nothing_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "PAUSE_MS", 10)
    (tmp_path / "source").write_bytes(os.urandom(SIZE))
    yield
    end_tasks(tmp_path)


def told(story):
    async def guarded():
        async with asyncio.timeout(GUARD_SECONDS), edge_cell() as (cell, broker):
            await story(cell, broker)

    asyncio.run(guarded())


def node(tmp_path, name):
    return settings(tmp_path / name, name=name, labels={"zone": name})


async def submit(cell, tmp_path, makes=MAKES):
    env = {"SOURCE": str(tmp_path / "source"), "OUT": str(tmp_path / "out")}
    await cell.submit(
        "j",
        {"stage": "make", "tasks": 2, "command": ["sh", "-c", makes], "labels": {"zone": "m"}, "env": env},
        {"stage": "use", "command": ["sh", "-c", READS], "labels": {"zone": "n"}, "env": env}
        | {"after": ["make"], "inputs": ["make"]},
    )


def run_of(cell):
    return next(record.seq for record in cell.records if isinstance(record.body, JobAdmitted))


def counted(metric, word):
    return metric.labels(word)._value.get()


@pytest.mark.parametrize("over", [("mqtt", "mqtt"), ("bus", "mqtt"), ("mqtt", "bus")], ids="-".join)
def test_what_a_stage_left_on_one_node_is_there_for_the_next_on_another(tmp_path, monkeypatch, over):
    """`over`: how the node that has it and the one that needs it are reached."""
    if over[1] == "mqtt":
        monkeypatch.setattr(peers, "asked", out_of_reach)

    async def story(cell, broker):
        before = counted(BRIDGE_FETCHED, "answered")
        asking = bridge_asking.Asking("default", "b1")
        async with AsyncExitStack() as stack:
            enter = stack.enter_async_context
            await enter(bridge_on(cell, broker, asking=asking))
            port = await enter(served_pages(asking.pages))
            for name, way in zip("mn", over, strict=True):
                own = node(tmp_path, name)
                if way == "mqtt":
                    await enter(edge_agent_on(broker, own))
                    continue
                shown = await enter(served_agent(own))
                own = replace(own, address=f"127.0.0.1:{shown}", bridges=(f"127.0.0.1:{port}",))
                await enter(agent_on(cell, own))
            await cell.until(lambda: len(cell.bodies(NodeRegistered)) == 2)
            await submit(cell, tmp_path)
            assert await outcome_of(cell) == "succeeded"
            if over[1] == "mqtt":
                pieces = 2 * (1 + 4 + 1)
                assert counted(BRIDGE_FETCHED, "answered") - before == pieces, "a list, four pieces, and one"
        assert (tmp_path / "out").read_text() == "small\nsmall\n"

    told(story)


def out_of_reach(address, *_):
    raise NoAnswer(f"{address}: no route to host")


async def ready():
    return ""


def served_pages(pages):
    return served("127.0.0.1", 0, ready, pages, seconds=GUARD_SECONDS)


def served_agent(own):
    return served_pages(results_beside(pages_of(own.name, own.data), own.name, own.data))


def test_what_is_lost_repeated_and_late_on_the_way_is_asked_for_again(tmp_path, monkeypatch):
    monkeypatch.setattr(fetches, "ANSWER_MS", 200)

    async def story(cell, broker):
        async with (
            bridge_on(cell, broker) as first,
            bridge_on(cell, broker, "b2"),
            edge_agent_on(broker, node(tmp_path, "m")),
            edge_agent_on(broker, node(tmp_path, "n")),
        ):
            await cell.until(lambda: len(cell.bodies(NodeRegistered)) == 2)
            for number, kind in enumerate(["lost", "late", "repeated", "cut", "unknown", "lost", "late", "repeated"]):
                for topic in (fetch_topic("default", "n"), fetched_topic("default", "n"), ask_topic("default", "m")):
                    broker.inject(kind, topic=topic, skip=number, after=2 if kind == "late" else None)
            await submit(cell, tmp_path)
            await eventually(lambda: list((tmp_path / "n").glob("jobs/*/*/#inputs/make/0*/big")))
            await ended(first)
            assert await outcome_of(cell) == "succeeded"
        assert (tmp_path / "out").read_text() == "small\nsmall\n"
        assert len(cell.items(TaskStarted)) == 3

    told(story)


def more_than(before):
    return {reason: counted(BRIDGE_REFUSED, reason) - was for reason, was in before.items()}


def fetch(number, *, node="evil", of="m", path, cell="default"):
    fields = {"cell": cell, "node": node, "id": f"{number:032x}", "of": of, "path": path, "within_ms": 5_000}
    return json.dumps(fields).encode()


async def answers(session, count):
    found = []
    while len(found) < count:
        found += [json.loads(arrived.payload) for arrived in await session.next()]
    return found


def test_a_node_gets_nothing_that_was_not_handed_on_to_it(tmp_path):
    async def story(cell, broker):
        async with (
            bridge_on(cell, broker),
            edge_agent_on(broker, node(tmp_path, "m")),
            edge_agent_on(broker, node(tmp_path, "n")),
            broker.session("evil") as evil,
        ):
            await cell.until(lambda: len(cell.bodies(NodeRegistered)) == 2)
            await submit(cell, tmp_path)
            assert await outcome_of(cell) == "succeeded"
            own = path_of(WantedResults("j", "make", 0, 1, run_of(cell)))
            await evil.subscribe(fetched_topic("default", "evil"), fetched_topic("default", "n"))
            await evil.subscribe(ask_topic("default", "m"))
            topic = fetch_topic("default", "evil")
            before = {reason: counted(BRIDGE_REFUSED, reason) for reason in ("handed", "name", "malformed")}
            asked = [
                fetch(1, path=own),
                fetch(2, path="/v1/output/j/make/0?stream=stdout&offset=0"),
                fetch(3, path="/livez"),
                fetch(4, node="n", path=own),
                fetch(5, cell="other", path=own),
                fetch(6, path="/v1/results/j/make/x"),
                b"{}",
                b"[" * 1_000,
            ]
            for payload in asked:
                await evil.publish(topic, payload)
            await eventually(lambda: sum(more_than(before).values()) >= len(asked))
            assert more_than(before) == {"handed": 3, "name": 2, "malformed": 3}
            await evil.publish(fetched_topic("default", "evil"), json.dumps({"over": True}).encode())
            assert await answers(evil, 1) == [{"over": True}], "nobody was asked, and nothing said"

    told(story)


def test_what_was_asked_in_a_session_that_ends_is_asked_again_in_the_next_one(tmp_path, monkeypatch):
    monkeypatch.setattr(fetches, "ANSWER_MS", 60_000)

    async def story(cell, broker):
        async with (
            bridge_on(cell, broker),
            edge_agent_on(broker, node(tmp_path, "m")),
            edge_agent_on(broker, node(tmp_path, "n")),
        ):
            await cell.until(lambda: len(cell.bodies(NodeRegistered)) == 2)
            for _ in range(2):
                broker.inject("lost", topic=fetched_topic("default", "n"))
            answered = counted(BRIDGE_FETCHED, "answered")
            await submit(cell, tmp_path)
            await eventually(lambda: counted(BRIDGE_FETCHED, "answered") >= answered + 2)
            (own,) = (client for client in broker.clients if client.startswith("default/n/"))
            broker.cut(own)
            async with asyncio.timeout(55):
                assert await outcome_of(cell) == "succeeded"

    told(story)


def test_a_bridge_that_has_not_read_the_log_yet_refuses_nobody(tmp_path):
    async def story(cell, broker):
        bus, stop = CuttableBus(cell.bus), asyncio.Event()
        bus.cut = True
        running = asyncio.create_task(shell.run(bus, Settings(), broker, stop, bridge_asking.Asking("default", "b1")))
        before = counted(BRIDGE_REFUSED, "handed")
        async with broker.session("evil") as evil:
            await eventually(lambda: "b1" in broker.clients and fetch_filter("default") in broker._links["b1"].filters)
            asked = fetch(1, path=path_of(WantedResults("j", "make", 0, 1, 7)))
            await evil.publish(fetch_topic("default", "evil"), asked)
            await eventually(lambda: not broker._links["b1"].waiting)
            await asyncio.sleep(0.05)
            assert counted(BRIDGE_REFUSED, "handed") == before
            bus.cut = False
            while counted(BRIDGE_REFUSED, "handed") == before:
                await evil.publish(fetch_topic("default", "evil"), asked)
                await asyncio.sleep(0.01)
        stop.set()
        await running

    told(story)


def test_where_to_fetch_is_known_also_once_the_attempt_that_fetches_counts_as_begun(monkeypatch):
    """Seed 132: a node was registered again, with attempts whose inputs were still on the way."""
    monkeypatch.setattr(work, "ADDRESSES_MAX", 2)
    state = start("n", "e")
    take_in(state, "n", Work(3_000, addresses={"m": "", "k": "k:9464"}))
    take_in(state, "n", Work(3_000))
    assert state.addresses == {"m": "", "k": "k:9464"}

    take_in(state, "n", Work(3_000, addresses={"k": None}))
    assert state.addresses == {"m": ""}, "the cell has forgotten it"
    take_in(state, "n", Work(3_000, addresses={"a": "", "m": "m:1"}))
    take_in(state, "n", Work(3_000, addresses={"b": ""}))
    assert state.addresses == {"m": "m:1", "b": ""}, "those that were told of last"


def test_a_node_has_so_many_questions_open_and_one_that_is_silent_keeps_no_other_work_waiting(tmp_path, monkeypatch):
    monkeypatch.setattr(bridge_asking, "ANSWER_MS", 60_000)

    async def story(cell, broker):
        async with (
            bridge_on(cell, broker),
            edge_agent_on(broker, node(tmp_path, "m")),
            edge_agent_on(broker, node(tmp_path, "n")),
            broker.session("another of n") as other,
        ):
            await cell.until(lambda: len(cell.bodies(NodeRegistered)) == 2)
            for _ in range(100):
                broker.inject("lost", topic=reply_topic("default", "m", "b1"))
            await submit(cell, tmp_path)
            await cell.until(lambda: len(cell.items(TaskFinished)) == 2)
            before, own = counted(BRIDGE_REFUSED, "busy"), path_of(WantedResults("j", "make", 0, 1, run_of(cell)))
            number = 0
            while counted(BRIDGE_REFUSED, "busy") == before:
                number += 1
                await other.publish(fetch_topic("default", "n"), fetch(number, node="n", path=own))
                await asyncio.sleep(0.01)
            assert number <= BY_NODE_MAX + 20
            await cell.submit("k", {"command": ["true"], "labels": {"zone": "n"}})
            assert await outcome_of(cell, "k") == "succeeded"
            await cell.tell("jobs", {"cancel": "j"})
            assert await outcome_of(cell, "j") == "cancelled"

    told(story)
