"""Several cells by one set of services: what a flooded one takes from the others.

Two instances of each service run all cells (LARGESSE_CELLS=all); this process plays the clients and agents of each. The
latency of each cell but the first is measured while the first is idle, and while it is flooded. Needs a Kafka of its
own: LARGESSE_TEST_KAFKA. Nothing is asserted. takeovers.py kills and pauses the same instances.

    python -m benchmarks.many_cells [--cells N] [--seconds N]
"""

import argparse
import asyncio
import os
import signal
import socket
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import orjson

from benchmarks.live_kafka import SERVICES, Cluster, Size
from largesse.bus.kafka.bus import KafkaBus
from largesse.bus.port import Outgoing
from largesse.known_cells import Cell
from largesse.process.cell_adding import make_room, put_in

ROOT = Path(__file__).parents[1]
INSTANCES = 2
SMALL = Size(nodes=10, cores=4, pending=0, hold_s=0.5, measured_s=0, probes=0, load=0)
FLOOD_JOBS = 200
START_S = 300
OK = b"200"


@dataclass
class Instance:
    """One instance of a service: the first process of it leads a process group that has them all."""

    name: str
    service: str
    process: asyncio.subprocess.Process
    port: int

    async def ready(self) -> None:
        """Waits until it has been dealt its cells, and has caught up with their logs."""
        async with asyncio.timeout(START_S):
            while await self._status() != OK:  # noqa: ASYNC110
                await asyncio.sleep(0.1)

    async def _status(self) -> bytes:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return b""
        try:
            writer.write(f"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n\r\n".encode())
            return (await reader.readline()).partition(b" ")[2][:3]
        except OSError:
            return b""
        finally:
            writer.close()

    def send(self, number: signal.Signals) -> None:
        """A signal to all of its processes."""
        os.killpg(self.process.pid, number)


@dataclass
class ManyCells:
    """All cells of a broker, their services, and a player of clients and agents for each."""

    address: str
    folder: Path
    settings: dict[str, str] = field(default_factory=dict)
    clusters: dict[str, Cluster] = field(default_factory=dict)
    instances: dict[str, Instance] = field(default_factory=dict)
    running: list[asyncio.Task[None]] = field(default_factory=list)

    async def start(self, service: str, number: int) -> Instance:
        """One instance of a service; it takes the place of one of the same number."""
        name = f"{service}-{number}"
        port = _free_port()
        said = {"LARGESSE_METRICS_PORT": str(port)}
        said |= {"LARGESSE_BUS": f"kafka://{self.address}", "LARGESSE_CELLS": "all", "PYTHONPATH": str(ROOT)}
        with (self.folder / f"{name}.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", f"services.{service}"),
                env={**os.environ, **said, **self.settings},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.instances[name] = Instance(name, service, process, port)
        return self.instances[name]

    async def add(self, name: str, size: Size = SMALL) -> Cluster:
        """A cell, with its nodes, once a sequencer has them."""
        bus = KafkaBus(self.address)
        cell, _ = await put_in(self.address, bus, name)
        cluster = self.clusters[name] = Cluster(bus, cell.partition, size, {}, start_s=START_S)
        self.running += [asyncio.create_task(part) for part in (cluster.follow(), cluster.end_tasks())]
        await cluster.set_up()
        return cluster

    async def set_up(self, cells: int) -> None:
        """Cells, and INSTANCES of each service."""
        await make_room(self.address, cells)
        bus = KafkaBus(self.address)
        for number in range(cells):
            await put_in(self.address, bus, f"c{number}")
        await bus.close()
        for service in SERVICES:
            for number in range(INSTANCES):
                await self.start(service, number)
        for number in range(cells):
            await self.add(f"c{number}")

    async def close(self) -> dict[str, int]:
        """Ends all, those that are paused too; the exit code of each instance that lived."""
        for task in self.running:
            task.cancel()
        await asyncio.gather(*self.running, return_exceptions=True)
        living = [each for each in self.instances.values() if each.process.returncode is None]
        for each in living:
            each.send(signal.SIGCONT)
            each.process.terminate()
        codes = {each.name: await each.process.wait() for each in living}
        for cluster in self.clusters.values():
            await cluster.bus.close()
        return codes

    def place(self, name: str) -> Cell:
        """Where a cell lies."""
        return Cell(name, self.clusters[name].partition)


async def first_start(cluster: Cluster, name: str) -> float:
    """Milliseconds from the submission of a job of one task to its start."""
    waiter = cluster.waiting[name] = asyncio.get_running_loop().create_future()
    stage = {"stage": "s", "tasks": 1, "demand": {"cpu": "1"}, "duration_ms": int(cluster.size.hold_s * 1_000)}
    document = orjson.dumps({"job": name, "queue": "q0", "stages": [stage]})
    begun = time.perf_counter()
    await cluster.clients.send([Outgoing("jobs", cluster.partition, document)])
    async with asyncio.timeout(START_S):
        started: float = await waiter
        return (started - begun) * 1_000


async def latencies(cells: ManyCells, names: list[str], seconds: float, label: str) -> dict[str, list[float]]:
    """Of each of these cells, one job after another for a while."""
    until = time.perf_counter() + seconds

    async def probe(name: str) -> list[float]:
        took: list[float] = []
        while time.perf_counter() < until:
            took.append(await first_start(cells.clusters[name], f"{label}-{len(took)}"))
            await asyncio.sleep(0.1)
        return took

    found = await asyncio.gather(*(probe(name) for name in names))
    return dict(zip(names, found, strict=True))


async def flood(cluster: Cluster) -> None:
    """More jobs than the cell has room for, without end."""
    while True:
        if cluster.jobs * 10 < cluster.placed + 20 * FLOOD_JOBS * 10:
            await cluster.submit(FLOOD_JOBS)
        await asyncio.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _said(found: dict[str, list[float]]) -> str:
    took = sorted(each for some in found.values() for each in some)
    return f"p50 {median(took):.1f} ms, p99 {took[int(len(took) * 0.99)]:.1f} ms ({len(took)} jobs)"


async def measure(options: argparse.Namespace, folder: Path) -> None:
    """All of it."""
    cells = ManyCells(os.environ["LARGESSE_TEST_KAFKA"], folder)
    try:
        await cells.set_up(options.cells)
        names = [f"c{number}" for number in range(1, options.cells)]
        if names:
            idle = await latencies(cells, names, options.seconds, "idle")
            print(f"submit to start in {len(names)} cells, c0 idle: {_said(idle)}", flush=True)
            flooding = asyncio.create_task(flood(cells.clusters["c0"]))
            await asyncio.sleep(5)
            placed = cells.clusters["c0"].placed
            busy = await latencies(cells, names, options.seconds, "busy")
            rate = (cells.clusters["c0"].placed - placed) / options.seconds
            print(
                f"submit to start in {len(names)} cells, c0 flooded ({rate:.0f} placements/s): {_said(busy)}",
                flush=True,
            )
            flooding.cancel()
    finally:
        await cells.close()


def main() -> None:
    """Runs it on the broker that LARGESSE_TEST_KAFKA names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=20)
    with tempfile.TemporaryDirectory(prefix="largesse-bench-") as folder:
        asyncio.run(measure(parser.parse_args(), Path(folder)))


if __name__ == "__main__":
    main()
