"""The cell that `benchmarks.page` looks at: an embedded one in a process of its own, and all its nodes simulated there.

    python -m benchmarks.page_cell FOLDER NODES JOBS QUEUES RATE

Says its address in a line of JSON, then each second how it does: `live` jobs, `records` of the log so far, `rounds`,
how long those took in ms of log time that were closed since the line before, and `cpu_s`, in which the simulated nodes
are. Ends with SIGTERM, or with its standard input.
"""

import asyncio
import json
import signal
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import orjson

from largesse.bus.port import Bus, Outgoing
from largesse.descriptors import raise_limit
from largesse.log.reader import LogReader
from largesse.process.heap import set_up_heap
from largesse.process.serve import calm_collector
from largesse.telemetry import configure
from schemas import Grant, InputRefused, JobAdmitted, JobEnded, JobRejected, NodeRegistered, RoundClosed, RoundOpened
from services.cli.hosting import Host, Plan, opened

TEAMS = 9
"""Leaf queues below each top-level one."""
CORES, MEMORY = 8, "64Gi"
SIZES = (("1", "2Gi"), ("1", "6Gi"), ("2", "4Gi"), ("2", "16Gi"), ("3", "12Gi"), ("4", "8Gi"))
"""What tasks ask for."""
RECORDS_A_JOB = 4
"""Admitted, started, finished, ended."""
BATCH = 500
LEASE_MS = 3_600_000


@dataclass
class Fleet:
    """All nodes of the cell and its users: `jobs` live at a time, and `rate` records come a second."""

    bus: Bus
    nodes: int
    jobs: int
    queues: list[str]
    rate: int
    live: int = 0
    records: int = 0
    registered: int = 0
    submitted: int = 0
    rounds: list[int] = field(default_factory=list)
    running: deque[tuple[float, Grant]] = field(default_factory=deque)
    filled: bool = False

    def __post_init__(self) -> None:
        self.clients, self.agents = self.bus.writer(), self.bus.writer()
        self._chance = Random(1)
        self._opened_ms = 0
        self._begun = time.perf_counter()

    async def follow(self) -> None:
        """Reads the log, and starts what it grants."""
        reader = LogReader(self.bus)
        while True:
            for accepted in await reader.read(200):
                record = accepted.record
                self.records = record.seq
                match record.body:
                    case NodeRegistered():
                        self.registered += 1
                    case JobAdmitted():
                        self.live += 1
                    case JobEnded(jobs=jobs):
                        self.live -= len(jobs)
                    case JobRejected() | InputRefused() as refused:
                        raise AssertionError(f"refused: {refused}")
                    case RoundOpened():
                        self._opened_ms = record.time
                    case RoundClosed(grants=grants):
                        self.rounds.append(record.time - self._opened_ms)
                        await self._start(grants)

    async def _start(self, grants: list[Grant]) -> None:
        by_node: dict[str, list[dict[str, Any]]] = {}
        for grant in grants:
            self.running.append((time.perf_counter(), grant))
            by_node.setdefault(grant.node, []).append(_item(grant))
        await self._say([{"started": {"items": items}} for items in by_node.values()])

    async def churn(self) -> None:
        """Ends as many tasks as the rate asks for, and puts as many jobs in their places."""
        due = 0.0
        while True:
            await asyncio.sleep(0.1)
            if not self.filled:
                continue
            due += self.rate / RECORDS_A_JOB / 10
            ended = [self._taken() for _ in range(min(int(due), len(self.running)))]
            due -= int(due)
            by_node: dict[str, list[dict[str, Any]]] = {}
            for begun, grant in ended:
                run_ms = [int((time.perf_counter() - begun) * 1_000)] * grant.count
                by_node.setdefault(grant.node, []).append({**_item(grant), "run_ms": run_ms})
            await self._say([{"finished": {"items": items}} for items in by_node.values()])
            if (missing := self.jobs - self.live) > 0:
                await self.submit(min(missing, BATCH))

    def _taken(self) -> tuple[float, Grant]:
        """One that runs, drawn among the longest: jobs end in no order of their starts."""
        at = self._chance.randrange(max(1, len(self.running) // 2))
        self.running.rotate(-at)
        found = self.running.popleft()
        self.running.rotate(at)
        return found

    async def submit(self, count: int) -> None:
        """Jobs of a task each; one in fifty has stages, and one in a hundred is a gang."""
        documents = []
        for _ in range(count):
            number, self.submitted = self.submitted, self.submitted + 1
            cpu, memory = SIZES[self._chance.randrange(len(SIZES))]
            stage = {"stage": "main", "tasks": 1, "demand": {"cpu": cpu, "memory": memory}, "duration_ms": 60_000}
            stages = [stage]
            if number % 50 == 7:
                stages.append({**stage, "stage": "reduce", "after": ["main"]})
            if number % 100 == 13:
                stages = [{**stage, "tasks": 4, "gang": True}]
            queue = self.queues[self._chance.randrange(len(self.queues))]
            job = {"job": f"job-{number}", "queue": queue, "user": f"user-{number % 40}", "stages": stages}
            documents.append(Outgoing("jobs", 0, orjson.dumps(job), headers={"author": "bench"}))
        await self.clients.send(documents)

    async def set_up(self, tree: dict[str, Any]) -> None:
        """Queues, nodes and the first jobs, until they are there."""
        config = {"queues": tree, "set": {"node_lease_ms": LEASE_MS, "round_gap_ms": 100}}
        await self.clients.send([Outgoing("config", 0, orjson.dumps(config), headers={"author": "bench"})])
        offers = [
            {
                "register": {
                    "node": f"node-{number:04}",
                    "epoch": "1",
                    "capacity": {"cpu": CORES, "memory": MEMORY},
                    "labels": {"zone": f"z{number % 4}"},
                    "attempts": [],
                }
            }
            for number in range(self.nodes)
        ]
        for at in range(0, len(offers), BATCH):
            await self._say(offers[at : at + BATCH], "nodes")
        await _until(lambda: self.registered >= self.nodes)
        while self.submitted < self.jobs:
            await self.submit(min(BATCH, self.jobs - self.submitted))
            await _until(lambda: self.live >= self.submitted)
        await asyncio.sleep(5)
        self.filled = True

    async def _say(self, documents: list[dict[str, Any]], topic: str = "tasks") -> None:
        if documents:
            values = [orjson.dumps(document) for document in documents]
            await self.agents.send([Outgoing(topic, 0, value, headers={"author": "agent:bench"}) for value in values])


def _item(grant: Grant) -> dict[str, Any]:
    fields = ("job", "stage", "first", "count", "attempt", "node", "epoch")
    return {name: getattr(grant, name) for name in fields}


def tree_of(queues: int) -> tuple[dict[str, Any], list[str]]:
    """So many queues on two levels, and which of them are leaves. Every third one at the top has a guarantee."""
    tops = max(1, queues // (TEAMS + 1))
    children = []
    for top in range(tops):
        below = [{"name": f"team-{at}", "weight": 1 + at % 3} for at in range(TEAMS)]
        queue: dict[str, Any] = {"name": f"org-{top:02}", "weight": 1 + top % 4, "children": below}
        if top % 3 == 0:
            queue["guaranteed"] = {"cpu": str(CORES * 20)}
        children.append(queue)
    leaves = [f"{queue['name']}/{child['name']}" for queue in children for child in queue["children"]]
    return {"name": "root", "children": children}, leaves


async def _until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110
        await asyncio.sleep(0.05)


async def _tell(fleet: Fleet) -> None:
    """A line each second."""
    while True:
        await asyncio.sleep(1)
        rounds, fleet.rounds = fleet.rounds, []
        said = {"live": fleet.live, "records": fleet.records, "rounds": rounds, "filled": fleet.filled}
        print(json.dumps({**said, "running": len(fleet.running), "cpu_s": time.process_time()}), flush=True)


async def _run(folder: Path, nodes: int, jobs: int, queues: int, rate: int) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    loop.add_reader(sys.stdin.fileno(), stop.set)
    host: Host = await opened(Plan(folder, [], 0), stop)
    tree, leaves = tree_of(queues)
    fleet = Fleet(host.follower.bus, nodes, jobs, leaves, rate)
    ready = asyncio.Event()

    async def drive() -> None:
        await ready.wait()
        print(json.dumps({"url": host.url}), flush=True)
        await fleet.set_up(tree)
        await stop.wait()

    parts = [asyncio.ensure_future(each) for each in (drive(), fleet.follow(), fleet.churn(), _tell(fleet))]
    running = asyncio.ensure_future(host.run(ready.set))
    try:
        await asyncio.wait([running, *parts], return_when=asyncio.FIRST_COMPLETED)
        for part in (running, *parts):
            if part.done() and not stop.is_set():
                part.result()
    finally:
        stop.set()
        for part in parts:
            part.cancel()
        await asyncio.gather(running, *parts, return_exceptions=True)


def main() -> None:
    """The command."""
    folder, *numbers = sys.argv[1:]
    configure("console", level="warning")
    set_up_heap()
    calm_collector()
    raise_limit()
    asyncio.run(_run(Path(folder), *(int(number) for number in numbers)))


if __name__ == "__main__":
    main()
