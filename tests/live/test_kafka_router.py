"""Jobs that name no cell, on three cells of a real Kafka: they are spread; those that wait where the nodes went are
moved; and while routers are killed and paused every job succeeds once.
"""

import asyncio
import signal
from collections import Counter
from dataclasses import dataclass

import orjson
import pytest

from benchmarks.live_kafka import Cluster, Size
from benchmarks.many_cells import START_S, ManyCells
from largesse.bus.kafka.bus import KafkaBus
from largesse.bus.port import Outgoing
from largesse.log.reader import LogReader
from largesse.process.cell_adding import put_in
from schemas import JobEnded, NodeRegistered, RoundClosed
from schemas.routes import JobRouted, MoveAnswered, MoveAsked, RouteDeclined, RouteEnded
from schemas.topics import ROUTER_JOBS, ROUTER_LOG
from services.router.checking import check
from tests.kafka_broker import SCRIPT, Broker
from tests.unit.cli_process import largesse

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.slow,
    pytest.mark.xdist_group("kafka cells"),
    pytest.mark.skipif(not SCRIPT.exists(), reason="no script that starts a Kafka broker beside the checkout"),
]

SIZE = Size(nodes=4, cores=2, pending=0, hold_s=2, measured_s=0, probes=0, load=0)
CELLS = ("c0", "c1", "c2")
JOBS = 240
PAUSE_S = 8
END_S = 240
SETTINGS = {
    "LARGESSE_LOG_FORMAT": "json",
    "LARGESSE_SNAPSHOT_ROUNDS": "5",
    "LARGESSE_ROUTER_MOVE_AFTER_MS": "3000",
}


@dataclass
class Player(Cluster):
    """A cell in which a refusal is an answer: a router may ask for a job that has begun meanwhile."""

    async def follow(self) -> None:
        reader = LogReader(self.bus, self.partition)
        while True:
            for accepted in await reader.read(1_000):
                body = accepted.record.body
                if isinstance(body, NodeRegistered):
                    self.registered += 1
                elif isinstance(body, RoundClosed):
                    await self._start(body.grants)
            self.news.set()


class RoutedCells(ManyCells):
    """Many cells that keep the names of jobs, and the router's topics."""

    async def add(self, name, size=SIZE):
        bus = KafkaBus(self.address)
        cell, _ = await put_in(self.address, bus, name)
        cluster = self.clusters[name] = Player(bus, cell.partition, SIZE, {}, start_s=START_S)
        self.running += [asyncio.create_task(part) for part in (cluster.follow(), cluster.end_tasks())]
        await cluster.set_up()
        await cluster.clients.send([cluster.outgoing("config", {"set": {"name_kept_ms": 604_800_000}})])
        return cluster

    async def submit(self, names):
        writer = next(iter(self.clusters.values())).clients
        stage = {"stage": "s", "tasks": 1, "demand": {"cpu": "1"}, "duration_ms": 2_000}
        documents = [{"job": name, "queue": "q0", "user": "ann", "stages": [stage]} for name in names]
        await writer.send([Outgoing(ROUTER_JOBS, 0, orjson.dumps(each)) for each in documents])

    async def drain(self, name):
        """All nodes of a cell take nothing more."""
        cluster = self.clusters[name]
        drains = [{"drain": {"node": f"n{number}", "draining": True}} for number in range(SIZE.nodes)]
        await cluster.clients.send([cluster.outgoing("nodes", each) for each in drains])


async def records(bus, partition=0, topic="cluster.log"):
    reader, found = LogReader(bus, partition, topic=topic), []
    _, end = await bus.bounds(topic, partition)
    while reader.offset < end:
        found += [each.record for each in await reader.read(1_000) if each.record.seq]
    return found


async def until_ended(bus, names):
    """Until the router's log has the end of each of these jobs."""
    wanted, reader = set(names), LogReader(bus, topic=ROUTER_LOG)
    async with asyncio.timeout(END_S):
        while wanted:
            for accepted in await reader.read(1_000):
                if isinstance(accepted.record.body, RouteEnded | RouteDeclined):
                    wanted.discard(accepted.record.body.job)


async def story(cells):
    await cells.set_up(len(CELLS))
    for number in range(2):
        await cells.start("router", number)
    for instance in list(cells.instances.values()):
        await instance.ready()
    bus = cells.clusters["c0"].bus

    first = [f"first-{number}" for number in range(JOBS)]
    await cells.submit(first)
    await asyncio.sleep(3)
    await cells.drain("c0")
    cells.instances["router-0"].send(signal.SIGKILL)
    second = [f"second-{number}" for number in range(10)]
    await cells.submit(second)
    await asyncio.sleep(PAUSE_S)
    await cells.start("router", 0)
    await cells.instances["router-0"].ready()
    cells.instances["router-1"].send(signal.SIGSTOP)
    third = [f"third-{number}" for number in range(10)]
    await cells.submit(third)
    await asyncio.sleep(PAUSE_S)
    cells.instances["router-1"].send(signal.SIGCONT)
    await until_ended(bus, [*first, *second, *third])
    await asyncio.sleep(3)

    logs = {name: await records(bus, cluster.partition) for name, cluster in cells.clusters.items()}
    routed = await records(bus, 0, ROUTER_LOG)
    codes = await cells.close()
    assert set(codes.values()) == {0}, codes
    return [*first, *second, *third], logs, routed


def test_every_job_runs_once_in_one_cell_though_nodes_go_and_routers_are_killed_and_paused(tmp_path):
    broker = Broker(tmp_path / "broker", heap="512m")
    broker.start()
    cells = RoutedCells(broker.address, tmp_path, SETTINGS)

    async def whole():
        try:
            return await story(cells)
        finally:
            await cells.close()

    try:
        names, logs, routed = asyncio.run(whole())
        for name in logs:
            said = largesse("replay", f"kafka://{broker.address}/{name}", "--verify")
            assert said.code == 0, f"{name}: {said.out}{said.err}"
        of_router = f"kafka://{broker.address}/.router"
        said = largesse("replay", of_router, "--verify")
        assert said.code == 0, said.err
        assert "decided again, alike" in said.out
        ends = largesse("tail", of_router, "--type", "RouteEnded", "--last", "1000").out.splitlines()
        assert len(ends) == len(names)
    finally:
        broker.stop()

    def bodies(kind):
        return [record.body for record in routed if isinstance(record.body, kind)]

    ends = [
        end for log in logs.values() for record in log if isinstance(record.body, JobEnded) for end in record.body.jobs
    ]
    assert Counter(end.job for end in ends if end.outcome == "succeeded") == Counter(names)
    begun = Counter(
        job
        for log in logs.values()
        for job in {grant.job for record in log if isinstance(record.body, RoundClosed) for grant in record.body.grants}
    )
    assert set(begun.values()) == {1}, "an attempt in one cell only"

    spread = Counter(body.cell for body in bodies(JobRouted) if body.number == 1 and body.job.startswith("first"))
    assert min(spread.get(name, 0) for name in CELLS) >= JOBS // len(CELLS) // 2, spread
    moved = [body.job for body in bodies(MoveAnswered) if body.is_free]
    assert moved
    assert {body.cell for body in bodies(MoveAsked)} >= {"c0"}
    checked = check(routed)
    assert checked.wrong == []
    assert checked.decided >= len(names) + len(moved)
    assert checked.state.jobs == {}
