"""A thousand nodes over MQTT on one bridge, beside nodes on the bus in the same run: a live cell on Kafka.

This process plays the clients and all agents. Nodes over MQTT speak as docs/mqtt.md says, over a mosquitto of its own,
fifty on a connection; a start is when the node is told of it, and for nodes on the bus when the closing is read. First
nodes report as they do by themselves, three times in a lease of ten seconds; then each as soon as it is answered.
`--quick` takes small sizes. Needs LARGESSE_TEST_KAFKA and mosquitto; nothing is asserted.
"""

import asyncio
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from typing import Any

import orjson
import psutil

from benchmarks.live_kafka import ROOT, START_S, Cluster, Size, cell_of
from largesse.mqtt.address import read_address
from largesse.mqtt.client import ClientBroker, MqttOptions
from largesse.mqtt.port import Session
from largesse.mqtt.topics import down_topic, up_topic
from schemas import Grant

FULL = Size(1_000, 8, 0, 1.0, 20, 100, 0)
QUICK = Size(100, 4, 0, 1.0, 5, 20, 0)
DIRECT = 50
"""Nodes on the bus."""
REPORT_S = 10 / 3
NODES_A_SESSION = 50
AGAIN_S = 2
PAUSE_S = 0.05


class _Direct(Cluster):
    """A cell whose nodes on the bus are few, and of which those over MQTT speak for themselves."""

    async def set_up(self) -> None:
        config = {"set": {"name_kept_ms": 0, "node_lease_ms": 600_000}}
        await self.clients.send([self.outgoing("config", config)])
        await self._say([{"register": _offer(f"d{i}", "direct", self.size.cores)} for i in range(DIRECT)], "nodes")
        await self.registered_all(DIRECT)

    async def _start(self, grants: list[Grant]) -> None:
        await super()._start([grant for grant in grants if grant.node.startswith("d")])


@dataclass
class _Told:
    """What all nodes over MQTT have seen. `hurry`: they report as soon as they are answered."""

    waiting: dict[str, asyncio.Future[float]]
    hold_s: float
    hurry: bool = False
    answered_ms: list[float] = field(default_factory=list)


class _EdgeNode:
    """One node, by the page."""

    def __init__(self, cell: str, name: str, cores: int, told: _Told) -> None:
        self.name, self.down = name, down_topic(cell, name)
        self._up, self._cell, self._told = up_topic(cell, name), cell, told
        self._offer = _offer(name, "edge", cores)
        self._number, self._seq = 0, -1
        self._started: dict[str, float] = {}
        self._unsaid: list[dict[str, Any]] = []
        self._answer = asyncio.Event()
        self._news = asyncio.Event()

    def hear(self, payload: bytes) -> None:
        """What it has to do."""
        if not payload:
            return
        document: dict[str, Any] = orjson.loads(payload)
        if document["seq"] < self._seq:
            return
        self._seq = document["seq"]
        if (document["answered"] or {}).get("number") == self._number:
            self._answer.set()
        for held in document["work"]["held"]:
            key = f"{held['job']}/{held['stage']}/{held['index']}/{held['attempt']}"
            if key not in self._started:
                self._start(key, held)

    def _start(self, key: str, held: dict[str, Any]) -> None:
        self._started[key] = now = time.perf_counter()
        if (waiter := self._told.waiting.pop(held["job"], None)) is not None:
            waiter.set_result(now)
        item = {name: held[name] for name in ("job", "stage", "attempt")} | {"first": held["index"], "count": 1}
        item |= {"node": self.name, "epoch": "1"}
        self._say_soon({"started": {"items": [item]}})
        ended = {**item, "run_ms": [int(self._told.hold_s * 1_000)]}
        asyncio.get_running_loop().call_later(self._told.hold_s, self._say_soon, {"finished": {"items": [ended]}})

    def _say_soon(self, document: dict[str, Any]) -> None:
        self._unsaid.append({"topic": "tasks", "document": document})
        self._news.set()

    async def live(self, session: Session, begin_s: float) -> None:
        """Registers, and reports from then on."""
        await asyncio.sleep(begin_s)
        await self._say(session, [])
        await self._say(session, [{"topic": "nodes", "document": {"register": self._offer}}])
        while True:
            if not self._told.hurry:
                try:
                    async with asyncio.timeout(REPORT_S):
                        await self._news.wait()
                except TimeoutError:
                    pass
            self._news.clear()
            unsaid, self._unsaid = self._unsaid, []
            await self._say(session, [{"topic": "nodes", "document": {"report": self._offer}}, *unsaid])

    async def _say(self, session: Session, messages: list[dict[str, Any]]) -> None:
        self._number += 1
        self._answer.clear()
        fields = {"cell": self._cell, "node": self.name, "epoch": "1", "number": self._number, "seq": self._seq}
        report = orjson.dumps({**fields, "messages": messages})
        begun = time.perf_counter()
        while not self._answer.is_set():
            await session.publish(self._up, report)
            try:
                async with asyncio.timeout(AGAIN_S):
                    await self._answer.wait()
            except TimeoutError:
                pass
        self._told.answered_ms.append((time.perf_counter() - begun) * 1_000)


def _offer(node: str, way: str, cores: int) -> dict[str, Any]:
    return {"node": node, "epoch": "1", "capacity": {"cpu": cores * 1_000}, "labels": {"way": way}}


# ---------------------------------------------------------------- broker, bridge, nodes
@asynccontextmanager
async def broker_at(folder: Path) -> AsyncIterator[tuple[int, int]]:
    """A mosquitto; yields its port and process id."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    lines = (f"listener {port} 127.0.0.1", "allow_anonymous true", "persistence false", "set_tcp_nodelay true")
    more = ("max_inflight_messages 100", "max_queued_messages 10000", "user root" if os.getuid() == 0 else "")
    (folder / "mosquitto.conf").write_text("\n".join((*lines, *more, "")))
    program = shutil.which("mosquitto", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin")
    assert program is not None
    with (folder / "mosquitto.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            program, "-c", str(folder / "mosquitto.conf"), stdout=log, stderr=log
        )
    try:
        await asyncio.sleep(1)
        yield port, process.pid
    finally:
        process.kill()
        await process.wait()


@asynccontextmanager
async def bridge_on(cluster: Cluster, address: str, port: int, folder: Path) -> AsyncIterator[int]:
    """One bridge of the cell; yields its process id."""
    said = {"LARGESSE_BUS": f"kafka://{address}", "LARGESSE_CELL": f"bench-{cluster.partition}"}
    said |= {"LARGESSE_PARTITION": str(cluster.partition), "LARGESSE_MQTT": f"mqtt://127.0.0.1:{port}"}
    with (folder / "bridge.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "services.bridge"),
            env={**os.environ, **said, "PYTHONPATH": os.environ.get("PYTHONPATH", str(ROOT))},
            stdout=log,
            stderr=log,
        )
    try:
        yield process.pid
    finally:
        process.terminate()
        await process.wait()


@asynccontextmanager
async def nodes_over(cluster: Cluster, port: int, told: _Told) -> AsyncIterator[None]:
    """All nodes over MQTT."""
    cell, size = f"bench-{cluster.partition}", cluster.size
    nodes = [_EdgeNode(cell, f"e{i}", size.cores, told) for i in range(size.nodes)]

    async def speak(part: list[_EdgeNode], number: int) -> None:
        options = MqttOptions(keep_alive_seconds=60, answer_seconds=60)
        broker = ClientBroker(read_address(f"mqtt://127.0.0.1:{port}"), options)
        by_topic = {node.down: node for node in part}
        async with broker.session(f"bench-{number}") as session, asyncio.TaskGroup() as group:
            await session.subscribe(*by_topic)
            for at, node in enumerate(part):
                group.create_task(node.live(session, REPORT_S * at / len(part)))
            while True:
                for arrived in await session.next():
                    by_topic[arrived.topic].hear(arrived.payload)

    parts = [nodes[at : at + NODES_A_SESSION] for at in range(0, len(nodes), NODES_A_SESSION)]
    running = [asyncio.ensure_future(speak(part, number)) for number, part in enumerate(parts)]
    try:
        yield
    finally:
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)


# ---------------------------------------------------------------- what is measured
async def watched(told: _Told, pids: dict[str, int], seconds: float) -> str:
    """Reports answered a second, how long that took, and what each process took meanwhile."""
    told.answered_ms.clear()
    before = {name: _cpu_s(pid) for name, pid in pids.items()}
    begun = time.perf_counter()
    await asyncio.sleep(seconds)
    spent = time.perf_counter() - begun
    took = {name: _cpu_s(pid) - before[name] for name, pid in pids.items()}
    count = len(told.answered_ms)
    each = ", ".join(f"{name} {1_000 * cpu_s / count:.2f}" for name, cpu_s in took.items())
    text = f"{count / spent:,.0f} reports/s answered in {_cut(told.answered_ms)}; the bridge takes "
    return f"{text}{took['bridge'] / spent:.2f} of a processor; ms of CPU a report: {each}"


async def starts(cluster: Cluster, probes: int) -> dict[str, list[float]]:
    """Milliseconds from submissions to their starts, on nodes on the bus and over MQTT in turn."""
    took: dict[str, list[float]] = {"direct": [], "edge": []}
    for number in range(2 * probes):
        way = ("direct", "edge")[number % 2]
        name = f"probe-{number}"
        waiter = cluster.waiting[name] = asyncio.get_running_loop().create_future()
        stage = {"stage": "s", "tasks": 1, "demand": {"cpu": "1"}, "labels": {"way": way}, "duration_ms": 1_000}
        begun = time.perf_counter()
        await cluster.clients.send([cluster.outgoing("jobs", {"job": name, "stages": [stage]})])
        async with asyncio.timeout(START_S):
            took[way].append((await waiter - begun) * 1_000)
        await asyncio.sleep(PAUSE_S)
    return took


def _cpu_s(pid: int) -> float:
    spent = psutil.Process(pid).cpu_times()
    return spent.user + spent.system


def _cut(took: list[float]) -> str:
    cut = quantiles(took, n=100, method="inclusive")
    return f"p50 {cut[49]:.1f} ms, p99 {cut[98]:.1f} ms"


async def measure(address: str, size: Size, folder: Path) -> None:
    """All of it, printed as it comes."""
    async with broker_at(folder) as (port, broker), cell_of(address, size, folder, _Direct) as cluster:
        told = _Told(cluster.waiting, size.hold_s)
        async with bridge_on(cluster, address, port, folder) as bridge, nodes_over(cluster, port, told):
            await cluster.registered_all(DIRECT + size.nodes)
            pids = {"bridge": bridge, "mosquitto": broker, **cluster.pids}
            await asyncio.sleep(2 * REPORT_S)
            print(f"{size.nodes} nodes over MQTT, {DIRECT} on the bus; as they report by themselves: ", end="")
            print(await watched(told, pids, size.measured_s), flush=True)
            took = await starts(cluster, size.probes)
            middle = {way: quantiles(each, n=100, method="inclusive") for way, each in took.items()}
            more = middle["edge"][49] - middle["direct"][49]
            print(f"submit to start over MQTT: {_cut(took['edge'])}; on the bus: {_cut(took['direct'])}", end="")
            ratios = [middle["edge"][at] / middle["direct"][at] for at in (49, 98)]
            print(f"; {ratios[0]:.2f} and {ratios[1]:.2f} times; {more:.1f} ms more at p50 (goal: 10)", flush=True)
            told.hurry = True
            print(f"as fast as they are answered: {await watched(told, pids, size.measured_s)}")
            print(f"memory of the bridge: {psutil.Process(bridge).memory_info().rss >> 20} MiB", flush=True)


def main() -> None:
    """Runs it on the broker that LARGESSE_TEST_KAFKA names."""
    size = QUICK if "--quick" in sys.argv[1:] else FULL
    with tempfile.TemporaryDirectory(prefix="largesse-bench-") as folder:
        asyncio.run(measure(os.environ["LARGESSE_TEST_KAFKA"], size, Path(folder)))


if __name__ == "__main__":
    main()
