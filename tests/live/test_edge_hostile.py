"""A node that means no good on the broker of infra/mosquitto, with a password of its own: others go on working."""

import asyncio
import json
import shutil
import subprocess
import threading
import time
from contextlib import asynccontextmanager, suppress
from itertools import count

import pytest

from largesse.mqtt.topics import down_topic, up_topic
from largesse.telemetry import BRIDGE_REFUSED, BRIDGE_SHUT_OUT
from schemas import NodeLost, NodeRegistered
from services.bridge import allowance, floods
from tests.live.agent_cell import GUARD_SECONDS, end_tasks, eventually, outcome_of, scripted_cell, settings
from tests.live.edge_cell import bridge_on, edge_agent_on
from tests.mqtt_site import Site

UP, DOWN = up_topic("default", "n2"), down_topic("default", "n2")
BIG_BYTES = 10 << 20
FLOOD_S = 0.001
"""Between two reports: a bridge reads several thousand a second, on a machine that does nothing else."""


@pytest.fixture(autouse=True)
def _nothing_stays(tmp_path):
    yield
    end_tasks(tmp_path)


def told(folder, story):
    """Runs a story of a cell with a bridge and the node n1, and of the password of n2."""

    @asynccontextmanager
    async def running():
        site = Site(folder)
        for user in ("n1", "n2", "n3", "bridge"):
            site.password(user)
        site.mosquitto.start()
        try:
            async with scripted_cell() as cell:
                far = site.broker("n1")
                async with (
                    bridge_on(cell, site.broker("bridge")),
                    edge_agent_on(far, settings(folder / "d", name="n1")),
                ):
                    await cell.until(lambda: cell.bodies(NodeRegistered))
                    yield site, cell
        finally:
            site.mosquitto.kill()

    async def guarded():
        async with asyncio.timeout(GUARD_SECONDS), running() as parts:
            await story(*parts)

    asyncio.run(guarded())


def report(number):
    document = {"report": {"node": "n2", "epoch": "e", "capacity": {"cpu": "1"}}}
    fields = {"cell": "default", "node": "n2", "epoch": "e", "number": number, "seq": -1}
    return json.dumps({**fields, "messages": [{"topic": "nodes", "document": document}]})


class Flood:
    """Reports of n2, by a process of its own, each with a number of its own and for no answer: a thousand a second, or
    without pauses as many as the broker takes.
    """

    def __init__(self, site, pause_s=FLOOD_S):
        self._pause_s = pause_s
        program = shutil.which("mosquitto_pub")
        if program is None:
            pytest.skip("no mosquitto_pub is installed (Debian: apt-get install mosquitto-clients)")
        secret = (site.folder / "n2.secret").read_text().strip()
        where = ["-V", "5", "-h", "127.0.0.1", "-p", str(site.mosquitto.port), "-u", "n2", "-P", secret]
        command = [program, *where, "-q", "1", "-t", UP, "-l"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def _write(self):
        with suppress(OSError, ValueError):
            for number in count(1):
                self._process.stdin.write(report(number).encode() + b"\n")
                self._process.stdin.flush()
                if self._pause_s:
                    time.sleep(self._pause_s)

    @property
    def goes_on(self):
        return self._process.poll() is None

    def end(self):
        self._process.kill()
        self._process.wait(GUARD_SECONDS)
        self._thread.join(GUARD_SECONDS)


def refused(reason):
    return BRIDGE_REFUSED.labels(reason)._value.get()


def test_a_node_that_floods_the_broker_is_dropped_unread_and_the_others_work(tmp_path, monkeypatch):
    monkeypatch.setattr(allowance, "MS_MAX", 500)
    monkeypatch.setattr(allowance, "MS_A_SECOND", 10)

    async def story(site, cell):
        before = refused("flood")
        async with site.broker("n2").session("n2 that listens") as ear:
            await ear.subscribe(DOWN)
            flood = Flood(site)
            try:
                await eventually(lambda: refused("flood") >= before + 500)
                for number in range(3):
                    await cell.submit(f"j{number}", {"tasks": 3, "command": ["true"]})
                    assert await outcome_of(cell, f"j{number}") == "succeeded"
                assert flood.goes_on
                why = []
                while not why:
                    documents = [json.loads(each.payload) for each in await ear.next() if each.payload]
                    why = [each["refused"] for each in documents if each["refused"]]
                assert why[0].startswith("flood: ")
            finally:
                flood.end()
        assert cell.bodies(NodeLost) == []

    told(tmp_path, story)


def test_a_flood_as_fast_as_the_broker_takes_it_keeps_nobody_from_working(tmp_path):
    async def story(site, cell):
        flood = Flood(site, pause_s=0)
        try:
            await eventually(lambda: BRIDGE_SHUT_OUT._value.get() == 1)
            for number in range(3):
                await cell.submit(f"j{number}", {"tasks": 3, "command": ["true"]})
                assert await outcome_of(cell, f"j{number}") == "succeeded"
            assert flood.goes_on
        finally:
            flood.end()
        assert cell.bodies(NodeLost) == []

    told(tmp_path, story)


def test_a_node_that_the_cell_does_not_know_is_heard_while_another_floods(tmp_path, monkeypatch):
    monkeypatch.setattr(floods, "SHUT_OUT_MS", 1_000 * GUARD_SECONDS)

    async def story(site, cell):
        flood = Flood(site, pause_s=0)
        try:
            await eventually(lambda: BRIDGE_SHUT_OUT._value.get() == 1)
            async with edge_agent_on(site.broker("n3"), settings(tmp_path / "d3", name="n3", labels={"zone": "n3"})):
                await cell.until(lambda: [body for body in cell.bodies(NodeRegistered) if body.node == "n3"])
                await cell.submit("j", {"command": ["true"], "labels": {"zone": "n3"}})
                assert await outcome_of(cell, "j") == "succeeded"
            assert flood.goes_on
            assert BRIDGE_SHUT_OUT._value.get() == 1
        finally:
            flood.end()
        assert cell.bodies(NodeLost) == []

    told(tmp_path, story)


def varint(number):
    found = b""
    while number > 127:
        found, number = found + bytes([number & 127 | 128]), number >> 7
    return found + bytes([number])


def text(data):
    return len(data).to_bytes(2) + data


async def connected(site):
    """A connection of n2 with nothing but MQTT's bytes on it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", site.mosquitto.port)
    secret = (site.folder / "n2.secret").read_text().strip().encode()
    body = text(b"MQTT") + b"\x05\xc2\x00\x3c\x00" + text(b"n2-raw") + text(b"n2") + text(secret)
    writer.write(b"\x10" + varint(len(body)) + body)
    assert (await reader.readexactly(1)) == b"\x20"
    size = (await reader.readexactly(1))[0]
    assert (await reader.readexactly(size))[1] == 0, "it is let in"
    return reader, writer


@pytest.mark.parametrize(
    "packet",
    [
        pytest.param(b"\x30" + varint(BIG_BYTES) + text(UP.encode()) + b"\x00", id="a report of 10 MiB"),
        pytest.param(b"\x30\xff\xff\xff\xff\xff", id="a length that is none"),
        pytest.param(b"\xf7\x00" * 100, id="packets that there are not"),
    ],
)
def test_who_sends_what_is_too_large_or_no_mqtt_is_put_out_and_the_others_work(tmp_path, packet):
    async def story(site, cell):
        reader, writer = await connected(site)
        writer.write(packet)
        with suppress(ConnectionError):
            for _ in range(BIG_BYTES >> 16):
                if reader.at_eof():
                    break
                writer.write(bytes(1 << 16))
                await writer.drain()
            while await reader.read(1 << 16):
                pass
        writer.close()
        await cell.submit("j", {"tasks": 3, "command": ["true"]})
        assert await outcome_of(cell) == "succeeded"
        assert cell.bodies(NodeLost) == []

    told(tmp_path, story)
