"""How soon standbys take over: an instance of one service at a time is killed (kill -9) or paused (SIGSTOP).

Two instances of each service run all cells, as in many_cells.py. The time is from the signal until each cell has what
was asked for right after it, of which the service has a part: a job of the router's log that was sent to a cell, the
answer to a reservation, a new forecast, else the start of a job. Needs a Kafka of its own: LARGESSE_TEST_KAFKA. Nothing
is asserted.

    python -m benchmarks.takeovers [--cells N] [--tries N] [--services NAME ...]
"""

import argparse
import asyncio
import os
import signal
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from statistics import median

import orjson

from benchmarks.live_kafka import SERVICES, Cluster
from benchmarks.many_cells import INSTANCES, START_S, Instance, ManyCells, first_start
from largesse.bus.kafka.bus import KafkaBus
from largesse.bus.port import Outgoing
from largesse.log.reader import LogReader
from schemas import Plans, Releases
from schemas.routes import JobRouted
from schemas.topics import ROUTER_JOBS, ROUTER_LOG

ALL = (*SERVICES, "router")
PAUSE_S = 2
HOUR_S = 3_600
AGAIN_S = 0.3
NAME_KEPT_MS = 7 * 24 * 3_600_000
TOLD_MS = 20_000
"""What a job is told to run with which a forecast is moved; it ends long before."""

Asked = Callable[[Cluster, str], Awaitable[None]]


async def planned(cluster: Cluster, name: str) -> None:
    """Until a reservation is answered."""
    begin = (int(time.time()) // HOUR_S + 3) * HOUR_S
    atom = {"op": "atom", "b": {"cpu": "1"}, "g": 1, "h": 1, "l": 60, "w": 60}
    window = {"op": "window", "s": begin, "e": begin + HOUR_S, "of": atom}
    request = {"request": {"reservation": name, "user": "bench", "queue": "q0", "rdl": window}}

    def is_answered(body: object) -> bool:
        return isinstance(body, Plans) and any(each.reservation == name for each in body.answers)

    answered = asyncio.create_task(cluster.until(is_answered, START_S))
    await asyncio.sleep(0)
    await cluster.clients.send([cluster.outgoing("reservations", request)])
    await answered


async def forecast(cluster: Cluster, name: str) -> None:
    """Until a forecast is said that was made from now on. Jobs are submitted meanwhile: they move it."""
    begun_ms = int(time.time() * 1_000)
    heard = asyncio.create_task(
        cluster.until(lambda body: isinstance(body, Releases) and body.at_ms > begun_ms, START_S)
    )
    number = 0
    while not heard.done():
        stage = {"stage": "s", "tasks": 12, "demand": {"cpu": "1"}, "duration_ms": TOLD_MS}
        document = {"job": f"{name}-{number}", "queue": "q0", "stages": [stage]}
        await cluster.clients.send([cluster.outgoing("jobs", document)])
        number += 1
        await asyncio.wait((heard,), timeout=AGAIN_S)
    heard.result()


async def started(cluster: Cluster, name: str) -> None:
    """Until a job has started."""
    await first_start(cluster, name)


async def routed(cells: ManyCells, name: str) -> None:
    """Until a job that names no cell was sent to one."""
    bus = KafkaBus(cells.address)
    try:
        reader = LogReader(bus, topic=ROUTER_LOG)
        stage = {"stage": "s", "tasks": 1, "demand": {"cpu": "1"}, "duration_ms": 100}
        document = {"job": name, "queue": "q0", "user": "bench", "stages": [stage]}
        writer = bus.writer()
        await writer.send([Outgoing(ROUTER_JOBS, 0, orjson.dumps(document))])
        async with asyncio.timeout(START_S):
            while True:
                read = await reader.read(100)
                bodies = [each.record.body for each in read]
                if any(isinstance(body, JobRouted) and body.job == name for body in bodies):
                    return
    finally:
        await bus.close()


PROBES: dict[str, Asked] = {"planner": planned, "estimator": forecast}
"""What is asked for where a start does not show that the service answers: no round waits for these."""


async def asked(cells: ManyCells, service: str, name: str) -> None:
    """Until every cell has something of which this service has a part."""
    if service == "router":
        await routed(cells, name)
        return
    probe = PROBES.get(service, started)
    await asyncio.gather(*(probe(cluster, name) for cluster in cells.clusters.values()))


async def takeover(cells: ManyCells, instance: Instance, number: signal.Signals, label: str) -> float:
    """Seconds from the signal until all that was asked for right after it is there."""
    instance.send(number)
    begun = time.perf_counter()
    await asked(cells, instance.service, label)
    return time.perf_counter() - begun


async def takeovers(cells: ManyCells, services: Sequence[str], tries: int) -> None:
    """Of each service, by kill -9 and by SIGSTOP, printed as it comes; first what it takes while nobody is gone."""
    for service in services:
        own = f"{service}-{time.time_ns()}"  # No name is used twice on one broker.
        await asked(cells, service, f"{own}-warm")
        begun = time.perf_counter()
        await asked(cells, service, f"{own}-quiet")
        print(f"{service}, all well: {time.perf_counter() - begun:.2f} s", flush=True)
        for number in (signal.SIGKILL, signal.SIGSTOP):
            took = [await _one(cells, service, number, turn) for turn in range(tries)]
            print(
                f"{service}, {number.name}: p50 {median(took):.2f} s, at most {max(took):.2f} s ({tries} tries)",
                flush=True,
            )


async def _one(cells: ManyCells, service: str, number: signal.Signals, turn: int) -> float:
    for each in range(INSTANCES):
        await cells.instances[f"{service}-{each}"].ready()
    await asyncio.sleep(PAUSE_S)
    instance = cells.instances[f"{service}-{turn % INSTANCES}"]
    took = await takeover(cells, instance, number, f"{service}-{time.time_ns()}")
    if number is signal.SIGSTOP:
        instance.send(signal.SIGCONT)
    else:
        await instance.process.wait()
        await cells.start(service, turn % INSTANCES)
    return took


async def start_routers(cells: ManyCells) -> None:
    """INSTANCES of the router, which sends nothing to cells that forget names at once."""
    for cluster in cells.clusters.values():
        await cluster.clients.send([cluster.outgoing("config", {"set": {"name_kept_ms": NAME_KEPT_MS}})])
    for number in range(INSTANCES):
        await cells.start("router", number)


async def measure(options: argparse.Namespace, folder: Path) -> None:
    """All of it."""
    cells = ManyCells(os.environ["LARGESSE_TEST_KAFKA"], folder)
    try:
        await cells.set_up(options.cells)
        if "router" in options.services:
            await start_routers(cells)
        await takeovers(cells, options.services, options.tries)
    finally:
        await cells.close()


def main() -> None:
    """Runs it on the broker that LARGESSE_TEST_KAFKA names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", type=int, default=2)
    parser.add_argument("--tries", type=int, default=10)
    parser.add_argument("--services", nargs="*", choices=ALL, default=ALL, help="whose instances are killed and paused")
    with tempfile.TemporaryDirectory(prefix="largesse-bench-") as folder:
        asyncio.run(measure(parser.parse_args(), Path(folder)))


if __name__ == "__main__":
    main()
