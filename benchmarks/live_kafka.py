"""Placements a second and submit-to-start latency of a live cell on Kafka: every service a process, nodes simulated.

This process plays the clients and all agents: a node's tasks start when it reads their closing, are reported by a
message of that node, and are reported as finished when they have held their room for a while. A start is when the
closing is read. Ratios are to bare aiokafka in the same run: a producer and a consumer for what goes through, and for
latency a chain of as many topics as a job passes on its way. `--quick` takes small sizes. Needs LARGESSE_TEST_KAFKA;
nothing is asserted.
"""

import asyncio
import os
import sys
import tempfile
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from typing import Any

import orjson
import psutil
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from largesse.bus.kafka.bus import KafkaBus
from largesse.bus.kafka.topic_settings import TOPICS
from largesse.bus.kafka.topics_admin import TopicsAdmin, partitions_now, put_right
from largesse.bus.port import Outgoing
from largesse.log.reader import LogReader
from schemas import Grant, InputRefused, JobRejected, NodeRegistered, RoundClosed
from schemas.topics import LOG

ROOT = Path(__file__).parents[1]
SERVICES = ("admission", "fairness", "altruism", "leftover", "estimator", "planner")
QUEUES = 10
TASKS_A_JOB = 10
START_S = 60
BARE_BYTES = 300
BARE_BATCH = 1_000
CHAIN = 6
"""Topics from a submission to its start: jobs, the log, shares, asks, grants, the log again."""
GOAL_PLACEMENTS, GOAL_MS = 2_000, 100


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured. `cores`: of each node; `hold_s`: what a task runs; `load`: background tasks a second."""

    nodes: int
    cores: int
    pending: int
    hold_s: float
    measured_s: float
    probes: int
    load: int


FULL = Size(1_000, 8, 10_000, 1.0, 20, 200, 200)
QUICK = Size(100, 4, 1_000, 1.0, 5, 30, 50)


@dataclass
class Cluster:
    """Clients and agents of one cell, and what has been placed. `auto`: whether tasks end by themselves. `start_s`: so
    long may its services take to begin."""

    bus: KafkaBus
    partition: int
    size: Size
    pids: dict[str, int]
    placed: int = 0
    rounds: int = 0
    registered: int = 0
    jobs: int = 0
    start_s: float = START_S
    waiting: dict[str, asyncio.Future[float]] = field(default_factory=dict)
    running: deque[tuple[float, Grant]] = field(default_factory=deque)
    wanted: list[tuple[Callable[[object], bool], asyncio.Future[None]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clients, self.agents = self.bus.writer(), self.bus.writer()
        self.news = asyncio.Event()

    def cpu_s(self) -> dict[str, float]:
        """CPU seconds of every process so far."""
        times = {name: psutil.Process(pid).cpu_times() for name, pid in self.pids.items()}
        return {name: spent.user + spent.system for name, spent in times.items()}

    async def follow(self) -> None:
        """Reads the log, and starts what it grants."""
        reader = LogReader(self.bus, self.partition)
        while True:
            for accepted in await reader.read(1_000):
                body = accepted.record.body
                if isinstance(body, NodeRegistered):
                    self.registered += 1
                elif isinstance(body, InputRefused | JobRejected):
                    raise AssertionError(f"refused: {body}")
                elif isinstance(body, RoundClosed):
                    self.rounds += 1
                    await self._start(body.grants)
                self._tell(body)
            self.news.set()

    async def until(self, wanted: Callable[[object], bool], seconds: float) -> None:
        """Returns once the log has a record with such a body, from now on. Raises TimeoutError."""
        there = asyncio.get_running_loop().create_future()
        self.wanted.append((wanted, there))
        async with asyncio.timeout(seconds):
            await there

    def _tell(self, body: object) -> None:
        found = [each for each in self.wanted if each[1].done() or each[0](body)]
        for each in found:
            self.wanted.remove(each)
            if not each[1].done():
                each[1].set_result(None)

    async def _start(self, grants: list[Grant]) -> None:
        now = time.perf_counter()
        by_node: dict[str, list[Grant]] = {}
        for grant in grants:
            self.placed += grant.count
            self.running.append((now + self.size.hold_s, grant))
            by_node.setdefault(grant.node, []).append(grant)
            waiter = self.waiting.pop(grant.job, None)
            if waiter is not None:
                waiter.set_result(now)
        if by_node:
            await self._say([{"started": {"items": [_item(grant) for grant in own]}} for own in by_node.values()])

    async def end_tasks(self) -> None:
        """Reports what has run long enough, node by node."""
        while True:
            await asyncio.sleep(0.02)
            now, by_node = time.perf_counter(), {}  # type: float, dict[str, list[Any]]
            while self.running and self.running[0][0] <= now:
                grant = self.running.popleft()[1]
                ended = {**_item(grant), "run_ms": [int(self.size.hold_s * 1_000)] * grant.count}
                by_node.setdefault(grant.node, []).append(ended)
            if by_node:
                await self._say([{"finished": {"items": own}} for own in by_node.values()])

    async def _say(self, documents: list[dict[str, Any]], topic: str = "tasks") -> None:
        values = [orjson.dumps(document) for document in documents]
        await self.agents.send([Outgoing(topic, self.partition, v, headers={"author": "agent:bench"}) for v in values])

    async def submit(self, jobs: int, tasks: int = TASKS_A_JOB) -> list[str]:
        """Jobs of so many one-core tasks, queue by queue in turn; returns their names once they are acknowledged."""
        names = [f"j{self.jobs + i}" for i in range(jobs)]
        stage = {"stage": "s", "tasks": tasks, "demand": {"cpu": "1"}, "duration_ms": int(self.size.hold_s * 1_000)}
        documents = [
            {"job": name, "queue": f"q{(self.jobs + i) % QUEUES}", "stages": [stage]} for i, name in enumerate(names)
        ]
        self.jobs += jobs
        batch = [Outgoing("jobs", self.partition, orjson.dumps(d), headers={"author": "bench"}) for d in documents]
        await self.clients.send(batch)
        return names

    async def set_up(self) -> None:
        """Queues, policy and nodes, until the log has them all."""
        tree = {"name": "root", "children": [{"name": f"q{i}"} for i in range(QUEUES)]}
        config = {"queues": tree, "set": {"name_kept_ms": 0, "node_lease_ms": 600_000}}
        await self.clients.send([Outgoing("config", self.partition, orjson.dumps(config))])
        capacity = {"cpu": self.size.cores * 1_000}
        nodes = [
            {"register": {"node": f"n{i}", "epoch": "1", "capacity": capacity, "attempts": []}}
            for i in range(self.size.nodes)
        ]
        await self._say(nodes, "nodes")
        await self.registered_all(self.size.nodes)

    async def registered_all(self, count: int) -> None:
        """Returns once the log has so many nodes."""
        async with asyncio.timeout(self.start_s):
            while self.registered < count:
                self.news.clear()
                await self.news.wait()

    def outgoing(self, topic: str, document: dict[str, Any]) -> Outgoing:
        """A message of a client."""
        return Outgoing(topic, self.partition, orjson.dumps(document), headers={"author": "bench"})


def _item(grant: Grant) -> dict[str, Any]:
    return {
        "job": grant.job,
        "stage": grant.stage,
        "first": grant.first,
        "count": grant.count,
        "attempt": grant.attempt,
        "node": grant.node,
        "epoch": grant.epoch,
    }


# ---------------------------------------------------------------- what is measured
async def throughput(cluster: Cluster) -> dict[str, float]:
    """Placements and rounds a second while as many tasks as asked for are pending; CPU seconds of each process for a
    thousand placements, this one's as `here`.
    """
    size = cluster.size

    async def keep_pending() -> None:
        while True:
            missing = cluster.placed + size.pending - cluster.jobs * TASKS_A_JOB
            if missing > 0:
                await cluster.submit(-(-missing // TASKS_A_JOB))
            await asyncio.sleep(0.02)

    keeping = asyncio.create_task(keep_pending())
    try:
        # The first fill is not measured: the cell is full afterwards.
        await _until(lambda: cluster.placed >= 2 * size.nodes * size.cores)
        placed, rounds, begun = cluster.placed, cluster.rounds, time.perf_counter()
        before = cluster.cpu_s()
        await asyncio.sleep(size.measured_s)
        spent, count = time.perf_counter() - begun, cluster.placed - placed
        cpu = {name: (now - before[name]) * 1_000 / count for name, now in cluster.cpu_s().items()}
        return {"placements": count / spent, "rounds": (cluster.rounds - rounds) / spent, **cpu}
    finally:
        keeping.cancel()


async def latency(cluster: Cluster, load: int) -> tuple[float, float]:
    """p50 and p99 in milliseconds from a submission to its start, beside `load` other tasks a second."""

    async def keep_busy() -> None:
        while True:
            await cluster.submit(max(1, load // TASKS_A_JOB // 10))
            await asyncio.sleep(0.1)

    busy = asyncio.create_task(keep_busy() if load else asyncio.sleep(0))
    if load:
        await asyncio.sleep(2 * cluster.size.hold_s)
    took = []
    for number in range(cluster.size.probes):
        name = f"probe-{load}-{number}"
        waiter = cluster.waiting[name] = asyncio.get_running_loop().create_future()
        stage = {"stage": "s", "tasks": 1, "demand": {"cpu": "1"}, "duration_ms": int(cluster.size.hold_s * 1_000)}
        document = orjson.dumps({"job": name, "queue": "q0", "stages": [stage]})
        begun = time.perf_counter()
        await cluster.clients.send([Outgoing("jobs", cluster.partition, document)])
        took.append((await asyncio.wait_for(waiter, START_S) - begun) * 1_000)
        await asyncio.sleep(0.05)
    busy.cancel()
    return _cut(took)


def _cut(took: list[float]) -> tuple[float, float]:
    cut = quantiles(took, n=100, method="inclusive")
    return cut[49], cut[98]


async def _until(holds: Any) -> None:
    async with asyncio.timeout(4 * START_S):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def bare(address: str, seconds: float) -> float:
    """Records a second that a bare producer sends and a bare consumer reads back meanwhile, on one partition."""
    topic = f"bench-bare-{time.time_ns()}"
    async with TopicsAdmin(address) as admin:
        await admin.make(topic, 1, 1, {})
    producer = AIOKafkaProducer(bootstrap_servers=address, enable_idempotence=True, acks="all")
    consumer = AIOKafkaConsumer(bootstrap_servers=address, group_id=None, auto_offset_reset="earliest")
    await producer.start()
    await consumer.start()
    consumer.assign([TopicPartition(topic, 0)])
    begun, read = time.perf_counter(), 0
    value = b"x" * BARE_BYTES

    async def produce() -> int:
        sent = 0
        while time.perf_counter() - begun < seconds:
            for done in [await producer.send(topic, value, partition=0) for _ in range(BARE_BATCH)]:
                await done
            sent += BARE_BATCH
        return sent

    producing = asyncio.create_task(produce())
    try:
        while not producing.done() or read < producing.result():
            found = await consumer.getmany(timeout_ms=100)
            read += sum(len(records) for records in found.values())
        return read / (time.perf_counter() - begun)
    finally:
        await producer.stop()
        await consumer.stop()


async def bare_chain(address: str, probes: int) -> tuple[float, float]:
    """p50 and p99 in milliseconds of a message through CHAIN topics, each hop a bare consumer and a bare producer."""
    topics = [f"bench-chain-{time.time_ns()}-{hop}" for hop in range(CHAIN)]
    async with TopicsAdmin(address) as admin:
        for topic in topics:
            await admin.make(topic, 1, 1, {})
    producers = [AIOKafkaProducer(bootstrap_servers=address, enable_idempotence=True, acks="all") for _ in range(CHAIN)]
    consumers = [
        AIOKafkaConsumer(bootstrap_servers=address, group_id=None, auto_offset_reset="earliest") for _ in range(CHAIN)
    ]
    await asyncio.gather(*(each.start() for each in (*producers, *consumers)))
    for topic, consumer in zip(topics, consumers, strict=True):
        consumer.assign([TopicPartition(topic, 0)])

    async def hand_on(hop: int) -> None:
        while True:
            record = await consumers[hop].getone()
            await producers[hop + 1].send_and_wait(topics[hop + 1], record.value, partition=0)

    hops = [asyncio.create_task(hand_on(hop)) for hop in range(CHAIN - 1)]
    took = []
    for _ in range(probes):
        begun = time.perf_counter()
        await producers[0].send_and_wait(topics[0], b"x" * BARE_BYTES, partition=0)
        await consumers[-1].getone()
        took.append((time.perf_counter() - begun) * 1_000)
        await asyncio.sleep(0.05)
    for each in hops:
        each.cancel()
    await asyncio.gather(*hops, return_exceptions=True)
    await asyncio.gather(*(each.stop() for each in (*producers, *consumers)))
    return _cut(took)


# ---------------------------------------------------------------- the cell
@asynccontextmanager
async def cell_of(address: str, size: Size, folder: Path, kind: type[Cluster] = Cluster) -> AsyncIterator[Cluster]:
    """A cell of processes on a partition of its own, with its nodes registered. `kind`: what plays its agents."""
    partition = await partitions_now(address, LOG)
    await put_right(address, TOPICS.values(), cells=partition + 1, grow=True)
    said = {"LARGESSE_BUS": f"kafka://{address}", "LARGESSE_CELL": f"bench-{partition}", "PYTHONPATH": str(ROOT)}
    said |= {"LARGESSE_PARTITION": str(partition), "LARGESSE_SHARD": "0"}
    processes = []
    for service in SERVICES:
        with (folder / f"{service}.log").open("wb") as log:
            command = (sys.executable, "-m", f"services.{service}")
            environment = {**os.environ, **said}
            processes.append(await asyncio.create_subprocess_exec(*command, env=environment, stdout=log, stderr=log))
    bus = KafkaBus(address)
    pids = {service: process.pid for service, process in zip(SERVICES, processes, strict=True)}
    cluster = kind(bus, partition, size, {**pids, "here": os.getpid()})
    try:
        async with asyncio.TaskGroup() as group:
            parts = [group.create_task(part) for part in (cluster.follow(), cluster.end_tasks())]
            await cluster.set_up()
            yield cluster
            for part in parts:
                part.cancel()
    finally:
        for process in processes:
            if process.returncode is None:
                process.terminate()
        for process in processes:
            await process.wait()
        await bus.close()


async def measure(address: str, size: Size, folder: Path) -> None:
    """All of it, printed as it comes."""
    records = await bare(address, size.measured_s / 2)
    print(f"bare aiokafka: {records:,.0f} records/s sent and read back, one partition, {BARE_BYTES} bytes")
    chain = await bare_chain(address, size.probes)
    print(f"bare aiokafka: through {CHAIN} topics in p50 {_ms(chain)}")
    async with cell_of(address, size, folder) as cluster:
        idle, busy = await latency(cluster, 0), await latency(cluster, size.load)
        print(f"submit to start, idle: {_beside(idle, chain)} (goal: p99 at most {GOAL_MS} ms)")
        print(f"submit to start, beside {size.load} tasks/s: {_beside(busy, chain)}")
        found = await throughput(cluster)
        most = size.nodes * size.cores / size.hold_s
        print(
            f"{size.nodes} nodes, {size.pending:,} tasks pending: {found['placements']:,.0f} placements/s in "
            f"{found['rounds']:.1f} rounds/s (goal: {GOAL_PLACEMENTS:,}; room for {most:,.0f}); "
            f"{found['placements'] / records:.4f} of bare"
        )
        cpu = ", ".join(f"{name} {found[name]:.2f}" for name in cluster.pids)
        print(f"CPU seconds for 1,000 placements: {cpu}")


def _beside(cut: tuple[float, float], chain: tuple[float, float]) -> str:
    return f"p50 {_ms(cut)}, {cut[0] / chain[0]:.1f} and {cut[1] / chain[1]:.1f} times the bare chain"


def _ms(cut: tuple[float, float]) -> str:
    return f"{cut[0]:.1f} ms, p99 {cut[1]:.1f} ms"


def main() -> None:
    """Runs it on the broker that LARGESSE_TEST_KAFKA names."""
    size = QUICK if "--quick" in sys.argv[1:] else FULL
    with tempfile.TemporaryDirectory(prefix="largesse-bench-") as folder:
        asyncio.run(measure(os.environ["LARGESSE_TEST_KAFKA"], size, Path(folder)))


if __name__ == "__main__":
    main()
