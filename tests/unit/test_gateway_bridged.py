"""What tasks print and leave on a node that only an MQTT broker reaches: the gateway asks a bridge, that the node."""

import asyncio
import json
import time
from contextlib import asynccontextmanager

import pytest

from largesse.mqtt.memory import MemoryBroker
from largesse.mqtt.topics import ask_topic, reply_topic
from largesse.process.health import served
from largesse.settings import Settings
from largesse.task_output import Wanted
from largesse.telemetry import BRIDGE_ASKED, BRIDGE_REFUSED
from schemas.edge.mqtt import read_reply
from services.agent import edge
from services.agent.edge import EdgeBus
from services.agent.replies import PIECE_BYTES
from services.agent.shell import run
from services.bridge import allowance
from services.bridge import asking as bridge_asking
from services.bridge import shell as bridge
from services.bridge.asking import Asking
from services.bridge.intake import Refusal
from services.gateway.http.agents.output import printed
from tests.gateway_cell import GUARD_S, a_cell
from tests.live.agent_cell import end_tasks, eventually, settings

LOGS = "/v1/tasks/j/s/0/logs"
ASK = ask_topic("default", "n1")


@pytest.fixture(autouse=True)
def _nothing_stays(tmp_path):
    yield
    end_tasks(tmp_path)


class Behind:
    """A cell whose one node is reached over `broker`, where every question and reply is written down."""

    def __init__(self, cell, broker, asking):
        self.cell, self.broker, self.asking = cell, broker, asking
        self.get = cell.get

    async def runs(self, command):
        """Runs job j to its end."""
        stage = {"stage": "s", "tasks": 1, "demand": {"cpu": "100m"}, "command": ["sh", "-c", command]}
        await self.cell.post({"job": "j", "stages": [stage]})
        assert await self.cell.follower.until(lambda view: "j" in view.ended, GUARD_S)
        assert self.cell.follower.state.ended["j"].outcome == "succeeded"


async def ready():
    return ""


@asynccontextmanager
async def behind(data, *, bridges=None):
    """`bridges`: addresses that the gateway knows in place of the one bridge's."""
    broker, stop, asking = MemoryBroker(), asyncio.Event(), Asking("default", "b1")
    async with (
        served("127.0.0.1", 0, ready, asking.pages) as port,
        a_cell(bridges=(f"127.0.0.1:{port}",) if bridges is None else bridges(port)) as cell,
    ):
        bus = EdgeBus(broker, "default")
        parts = [
            asyncio.create_task(bridge.run(cell.bus, Settings(), broker, stop, asking)),
            asyncio.create_task(run(bus, settings(data, name="n1"), stop)),
        ]
        try:
            assert await cell.follower.until(lambda view: view.nodes["n1"].epoch != "e1", GUARD_S)
            yield Behind(cell, broker, asking)
        finally:
            stop.set()
            await asyncio.gather(*parts)
            await bus.close()


def told(story, data, **how):
    async def guarded():
        async with asyncio.timeout(GUARD_S), behind(data, **how) as site:
            return await story(site)

    return asyncio.run(guarded())


def counted(metric, word):
    return metric.labels(word)._value.get()


def test_long_output_and_files_of_a_node_behind_a_broker_come_whole_piece_by_piece(tmp_path):
    size = 3 * PIECE_BYTES + 17

    async def story(site):
        before = counted(BRIDGE_ASKED, "answered")
        await site.runs(f"head -c {size} /dev/zero | tr '\\0' x; head -c {size} /dev/zero > $LARGESSE_RESULTS/left")
        printed, tail = await site.get(LOGS), await site.get(LOGS, offset=size - 3)
        asked = counted(BRIDGE_ASKED, "answered") - before
        listed = await site.get("/v1/jobs/j/results")
        left = await site.get("/v1/tasks/j/s/0/results", file="left")
        return printed, tail, asked, listed, left

    printed, tail, asked, listed, left = told(story, tmp_path)
    assert (printed.status_code, printed.content) == (200, b"x" * size)
    assert tail.content == b"xxx"
    assert asked == 5, "four pieces, and one"
    assert '"left"' in listed.text
    assert (left.status_code, left.content) == (200, bytes(size))


def test_a_node_whose_long_output_is_read_is_not_taken_for_one_that_floods(tmp_path, monkeypatch):
    def slow(payload):
        time.sleep(0.005)
        return read_reply(payload)

    monkeypatch.setattr(edge, "PIECE_BYTES", 1_000)
    monkeypatch.setattr(bridge_asking, "read_reply", slow)
    monkeypatch.setattr(allowance, "MS_MAX", 300)
    monkeypatch.setattr(allowance, "MS_A_SECOND", 0)

    async def story(site):
        await site.runs("head -c 100000 /dev/zero | tr '\\0' x")
        return await site.get(LOGS)

    before = counted(BRIDGE_REFUSED, "flood")
    assert told(story, tmp_path).content == b"x" * 100_000
    assert counted(BRIDGE_REFUSED, "flood") == before, "a hundred answers, of 5 ms each"


def test_a_job_whose_output_is_asked_for_as_a_whole_is_read_over_the_bridge(tmp_path):
    async def story(site):
        await site.runs("echo printed")
        return await site.get("/v1/jobs/j/logs")

    (row,) = map(json.loads, told(story, tmp_path).text.splitlines())
    assert row["output"] == "printed\n"


def test_a_node_that_does_not_answer_is_named_and_keeps_nobody_waiting_for_long(tmp_path, monkeypatch):
    monkeypatch.setattr(bridge_asking, "ANSWER_MS", 200)

    async def story(site):
        await site.runs("echo printed")
        for _ in range(2):
            site.broker.inject("lost", topic=ASK)
        silent, again, later = await site.get(LOGS), await site.get("/v1/jobs/j/logs"), await site.get(LOGS)
        return silent, again, later

    silent, of_job, later = told(story, tmp_path)
    assert (silent.status_code, silent.json()["type"]) == (503, "urn:largesse:node_unreachable")
    assert 'node "n1" has not answered over MQTT within 200 ms' in silent.json()["detail"]
    assert "has not answered" in json.loads(of_job.text)["problem"]["detail"]
    assert later.text == "printed\n"


def test_what_answers_in_place_of_the_node_does_not_count(tmp_path, monkeypatch):
    monkeypatch.setattr(bridge_asking, "ANSWER_MS", 500)

    async def story(site):
        await site.runs("echo printed")
        site.broker.inject("lost", topic=reply_topic("default", "n1", "b1"))
        names, malformed = counted(BRIDGE_REFUSED, "name"), counted(BRIDGE_REFUSED, "malformed")
        async with site.broker.session("m") as other:
            await other.subscribe(ASK)
            asked = asyncio.ensure_future(site.get(LOGS))
            (question,) = await other.next()
            said = {"cell": "default", "node": "n1", "status": 200, "id": json.loads(question.payload)["id"]}
            said["headers"] = {"Largesse-Output-Attempt": "1", "Largesse-Output-Start": "0", "Largesse-Output-End": "1"}
            own = reply_topic("default", "m", "b1")
            await other.publish(own, json.dumps(said | {"content": "eA=="}).encode())
            await other.publish(own, json.dumps(said | {"node": "m", "content": "eA=="}).encode())
            await other.publish(own, b"[" * 100_000)
            evil = said | {"headers": {"Largesse-Output-End": "1\r\nSet-Cookie: a"}}
            with pytest.raises(Refusal, match="headers"):
                site.asking.hear(reply_topic("default", "n1", "b1"), json.dumps(evil).encode())
            answer = await asked
        return answer, counted(BRIDGE_REFUSED, "name") - names, counted(BRIDGE_REFUSED, "malformed") - malformed

    answer, names, malformed = told(story, tmp_path)
    assert answer.status_code == 503
    assert (names, malformed) == (1, 1)


def test_who_stops_reading_has_nothing_more_asked_for(tmp_path):
    async def story(site):
        await site.runs(f"head -c {20 * PIECE_BYTES} /dev/zero")
        before = counted(BRIDGE_ASKED, "answered")
        pieces = site.cell.http._transport.app.state.api.read_output
        wanted = Wanted("j", "s", 0)
        reading = printed(pieces, wanted, await pieces(wanted))
        await anext(reading)
        await anext(reading)
        await reading.aclose()
        for _ in range(100):
            await asyncio.sleep(0)
        return counted(BRIDGE_ASKED, "answered") - before

    assert told(story, tmp_path) == 2


def test_any_bridge_that_is_there_is_asked_and_none_is_named_where_none_is_known(tmp_path):
    async def story(site):
        await site.runs("echo printed")
        return await site.get(LOGS)

    assert told(story, tmp_path / "a", bridges=lambda port: ("127.0.0.1:1", f"127.0.0.1:{port}")).text == "printed\n"
    unknown = told(story, tmp_path / "b", bridges=lambda port: ())
    assert (unknown.status_code, unknown.json()["type"]) == (404, "urn:largesse:no_output")
    assert "LARGESSE_BRIDGES" in unknown.json()["detail"]


def test_a_bridge_without_a_session_says_so(tmp_path):
    async def story(site):
        await site.runs("echo printed")
        site.broker.stop()
        await eventually(lambda: site.asking.session is None)
        return await site.get(LOGS)

    answer = told(story, tmp_path)
    assert answer.status_code == 503
    assert "no session with the MQTT broker" in answer.json()["detail"]


def test_questions_beyond_what_one_node_may_have_open_are_refused_and_others_go_through(tmp_path, monkeypatch):
    monkeypatch.setattr(bridge_asking, "OPEN_OF_NODE_MAX", 2)

    async def story(site):
        await site.runs("echo printed")
        site.broker.inject("lost", topic=ask_topic("default", "silent"))
        site.broker.inject("lost", topic=ask_topic("default", "silent"))
        monkeypatch.setattr(bridge_asking, "ANSWER_MS", 2_000)
        waiting = [asyncio.ensure_future(site.asking.pages("/v1/nodes/silent/output/j/s/0", {})) for _ in range(2)]
        await asyncio.sleep(0)
        refused = await site.asking.pages("/v1/nodes/silent/output/j/s/0", {})
        fine = await site.get(LOGS)
        return refused, fine, [(await each).status for each in waiting]

    refused, fine, waited = told(story, tmp_path)
    assert refused.status == "503 Service Unavailable"
    assert fine.text == "printed\n"
    assert waited == ["504 Gateway Timeout"] * 2


@pytest.mark.parametrize(
    "path", ["/v1/nodes/a%2Fb/output/j/s/0", "/v1/nodes/%2B/output/j/s/0", "/v1/nodes/%FF/output/j/s/0"]
)
def test_no_name_leads_to_another_topic(path):
    page = asyncio.run(Asking("default", "b1").pages(path, {}))

    assert page.status == "400 Bad Request"


@pytest.mark.parametrize("path", ["/v1/output/j/s/0", "/v1/nodes/n/metrics", "/v1/nodes/n", "/v1/nodes/n/outputs/j"])
def test_nothing_else_is_passed_on(path):
    assert asyncio.run(Asking("default", "b1").pages(path, {})) is None
