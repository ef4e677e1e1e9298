"""A cell under full load for a long time: what it does each second, and whether anything grows that should not.

    python -m benchmarks.sustained [--minutes 60] [--kafka HOST:PORT] [--set KEY=NUMBER..] [--data DIR] [--out FILE]

Starts `largesse up`, or with `--kafka` every service and two agents as processes of their own, and keeps `--backlog`
jobs unfinished through the gateway: most of them simulated, one in REAL_EVERY of real commands. Every few seconds it
looks at what each process holds (memory, descriptors, threads), at what lies in the data folder, and at how much was
submitted and started, and at the CPU time that a job took, which a busy machine changes least. FILE gets one JSON
document for each look. At the end it prints a table and, for each series, how much it changed over the second half:
`flat` up to FLAT_PERCENT. The log grows by what is written, as it is meant to.
Exit codes: 0 everything is flat; 1 something is not.
"""

import argparse
import asyncio
import json
import os
import signal
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import orjson
import psutil

from largesse.bus.kafka.topic_settings import TOPICS
from largesse.bus.kafka.topics_admin import partitions_now, put_right
from schemas.topics import LOG

ROOT = Path(__file__).parents[1]
SERVICES = ("admission", "fairness", "altruism", "leftover", "estimator", "planner", "gateway")
NODES = 2
CORES = 64
"""Of each node, on paper: simulated tasks use none."""
CLIENTS = 8
REAL_EVERY = 20
"""One job in so many runs real commands."""
TASKS, REAL_TASKS = 5, 2
"""Of a simulated job, and of one with real commands."""
TASK_MS = 200
PROBE_EVERY = 10
"""One job in so many is asked when it was submitted and started."""
LOOK_S = 5.0
WALK_EVERY = 6
"""Folders are counted at one look in so many."""
FLAT_PERCENT = 10.0
SLACK = {"MiB": 16.0, "descriptors": 8.0, "threads": 4.0, "folders": 200.0, "inodes": 1_000.0, "snapshots_MiB": 4.0}
"""A change below this is none, by the last word of a series' name."""
GROWS = ("log_MiB", "log_seq", "voids")
"""Series that grow with what was written."""
START_S = 90


@dataclass(slots=True)
class Cell:
    """The processes of a cell, by name, and where to look at them."""

    url: str
    processes: dict[str, psutil.Process]
    nodes: list[Path]
    bus: Path | None
    metrics: list[str]
    started: list[asyncio.subprocess.Process] = field(default_factory=list)

    async def end(self) -> None:
        """SIGTERM to all; SIGKILL after 30 s."""
        for process in self.started:
            with suppress(ProcessLookupError):
                process.terminate()
        for process in self.started:
            try:
                await asyncio.wait_for(process.wait(), 30)
            except TimeoutError:
                process.kill()
                await process.wait()


@dataclass
class Load:
    """Clients that keep a number of jobs unfinished."""

    url: str
    backlog: int
    submitted: int = 0
    refused: int = 0
    unfinished: int = 0
    took: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    probes: list[str] = field(default_factory=list)
    name: str = field(default_factory=lambda: f"{time.time_ns() // 1_000_000_000 % 1_000_000}")

    async def run(self) -> None:
        """Until it is cancelled."""
        limits = httpx.Limits(max_connections=CLIENTS + 2)
        async with (
            httpx.AsyncClient(base_url=self.url, timeout=60, limits=limits) as client,
            asyncio.TaskGroup() as group,
        ):
            group.create_task(self._watch(client))
            group.create_task(self._probe(client))
            for _ in range(CLIENTS):
                group.create_task(self._submit(client))

    async def _submit(self, client: httpx.AsyncClient) -> None:
        while True:
            if self.unfinished >= self.backlog:
                await asyncio.sleep(0.02)
                continue
            number = self.submitted
            self.submitted, self.unfinished = number + 1, self.unfinished + 1
            begun = time.perf_counter()
            try:
                answer = await client.post("/v1/jobs", json=self._spec(number))
            except httpx.HTTPError:
                answer = None
            self.took.append((time.perf_counter() - begun) * 1_000)
            if answer is None or answer.status_code not in (200, 201, 202):
                self.refused += 1
                await asyncio.sleep(0.5)
            elif number % PROBE_EVERY == 0:
                self.probes.append(self._name(number))

    def _name(self, number: int) -> str:
        return f"load-{self.name}-{number}"

    def _spec(self, number: int) -> dict[str, Any]:
        stage: dict[str, Any] = {"stage": "s", "demand": {"cpu": "1"}}
        if number % REAL_EVERY == 0:
            stage |= {"tasks": REAL_TASKS, "command": ["sh", "-c", "echo $LARGESSE_JOB > mine"]}
        else:
            stage |= {"tasks": TASKS, "duration_ms": TASK_MS}
        return {"job": self._name(number), "stages": [stage]}

    async def _watch(self, client: httpx.AsyncClient) -> None:
        """Counts what is unfinished."""
        while True:
            with suppress(httpx.HTTPError):
                found = dict(_metrics((await client.get("/metrics")).text, "largesse_jobs"))
                self.unfinished = int(sum(found.get(f'state="{state}"', 0) for state in ("waiting", "running")))
            await asyncio.sleep(0.3)

    async def _probe(self, client: httpx.AsyncClient) -> None:
        """Asks of some jobs how long they waited for their first start."""
        while True:
            await asyncio.sleep(1)
            asked, self.probes = self.probes, []
            for job in asked:
                with suppress(httpx.HTTPError, KeyError, ValueError):
                    document = (await client.get(f"/v1/jobs/{job}")).json()
                    if document["started_ms"] is None:
                        self.probes.append(job)
                    else:
                        self.waits.append(document["started_ms"] - document["submitted_ms"])


def _metrics(text: str, name: str) -> Iterator[tuple[str, float]]:
    """Labels and values of one metric."""
    for line in text.splitlines():
        head, _, value = line.rpartition(" ")
        if head == name or head.startswith(f"{name}{{"):
            yield head.removeprefix(name).strip("{}"), float(value)


# ---------------------------------------------------------------- cells
def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


async def _begin(words: list[str], folder: Path, name: str, **said: str) -> asyncio.subprocess.Process:
    with (folder / f"{name}.log").open("ab") as log:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", *words, env={**os.environ, **said}, cwd=ROOT, stdout=log, stderr=log
        )


async def embedded(folder: Path, nodes: int = NODES, cores: int = CORES) -> Cell:
    """`largesse up` on a folder."""
    cluster = {"nodes": [{"name": "n", "count": nodes, "capacity": {"cpu": str(cores), "memory": "64Gi"}}]}
    (folder / "cluster.json").write_text(json.dumps(cluster))
    port = _free_port()
    words = ["services.cli.main", "up", "--data", str(folder / "data"), "--cluster", str(folder / "cluster.json")]
    process = await _begin([*words, "--http", str(port)], folder, "up")
    url = f"http://127.0.0.1:{port}"
    folders = [folder / "data" / "nodes" / f"n-{number}" for number in range(nodes)]
    return Cell(url, {"up": psutil.Process(process.pid)}, folders, folder / "data" / "bus", [url], [process])


async def on_kafka(address: str, folder: Path, broker: Path | None) -> Cell:
    """Every service a process, on a partition of its own."""
    partition = await partitions_now(address, LOG)
    await put_right(address, TOPICS.values(), cells=partition + 1, grow=True)
    http, ports = _free_port(), {}
    offer = json.dumps({"capacity": {"cpu": str(CORES), "memory": "64Gi"}})
    cell = Cell(f"http://127.0.0.1:{http}", {}, [], broker, [])
    for name in (*SERVICES, *(f"agent-{number}" for number in range(NODES))):
        ports[name] = _free_port()
        said = {
            "LARGESSE_BUS": f"kafka://{address}",
            "LARGESSE_CELL": f"sustained-{partition}",
            "LARGESSE_PARTITION": str(partition),
            "LARGESSE_METRICS_PORT": "0" if name == "gateway" else str(ports[name]),
            "LARGESSE_HTTP": f"127.0.0.1:{http}",
            "LARGESSE_NODE": name,
            "LARGESSE_NODE_DATA": str(folder / name),
            "LARGESSE_NODE_OFFER": offer,
        }
        process = await _begin([f"services.{name.partition('-')[0]}"], folder, name, **said)
        cell.started.append(process)
        cell.processes[name] = psutil.Process(process.pid)
        if name.startswith("agent-"):
            cell.nodes.append(folder / name)
    cell.metrics = [f"http://127.0.0.1:{ports['admission']}"]
    return cell


# ---------------------------------------------------------------- looking
def folder_figures(folders: list[Path]) -> dict[str, float]:
    """Folders of runs, and everything that lies below the nodes' folders."""
    runs = inodes = 0
    for folder in folders:
        # What vanishes meanwhile is left out.
        for at, names, files in os.walk(folder):
            inodes += len(names) + len(files)
            runs += len(names) * (Path(at).parent == folder / "jobs")
    return {"nodes folders": runs, "nodes inodes": inodes}


def bus_figures(bus: Path | None) -> dict[str, float]:
    """What snapshots take, in a folder of the embedded bus or of a broker, and what all else takes."""
    if bus is None:
        return {}
    log = kept = 0
    for path in bus.rglob("*"):
        with suppress(OSError):
            inside = path.relative_to(bus).parts[0].startswith(("compacted", "snapshots-"))
            size = path.stat().st_size if path.suffix in (".json", ".jsonl", ".log") else 0
            log, kept = log + (not inside) * size, kept + inside * size
    return {"bus log_MiB": log / 2**20, "bus snapshots_MiB": kept / 2**20}


def process_figures(cell: Cell) -> dict[str, float]:
    """Memory, descriptors and threads of each process. Raises NoSuchProcess where one has ended."""
    figures: dict[str, float] = {}
    for name, process in cell.processes.items():
        with process.oneshot():
            spent = process.cpu_times()
            figures[f"{name} MiB"] = process.memory_info().rss / 2**20
            figures[f"{name} descriptors"] = process.num_fds()
            figures[f"{name} threads"] = process.num_threads()
            figures[f"{name} cpu_s"] = spent.user + spent.system
    return figures


@dataclass
class Looker:
    """Looks at a cell under load, and remembers."""

    cell: Cell
    load: Load
    out: Path | None
    looks: list[dict[str, float]] = field(default_factory=list)
    walked: dict[str, float] = field(default_factory=dict)
    counted: dict[str, float] = field(default_factory=dict)
    begun: float = field(default_factory=time.monotonic)

    async def look(self, client: httpx.AsyncClient) -> dict[str, float]:
        """One look. Counters become rates: how much was added a second since the last look."""
        now = time.monotonic()
        figures: dict[str, float] = {"s": now - self.begun}
        if len(self.looks) % WALK_EVERY == 0:
            self.walked = await asyncio.to_thread(folder_figures, self.cell.nodes)
        figures |= self.walked | await asyncio.to_thread(bus_figures, self.cell.bus)
        figures |= process_figures(self.cell)
        counted: dict[str, float] = {"submitted": self.load.submitted, "refused": self.load.refused}
        counted["cpu_s"] = sum(value for name, value in figures.items() if name.endswith(" cpu_s"))
        for url in self.cell.metrics:
            with suppress(httpx.HTTPError):
                text = (await client.get(f"{url}/metrics")).text
                counted["tasks"] = sum(value for _, value in _metrics(text, "largesse_granted_tasks_total"))
                counted["rounds"] = sum(value for _, value in _metrics(text, "largesse_round_seconds_count"))
        spent_s = figures["s"] - self.counted.get("s", 0.0)
        for name, count in counted.items():
            figures[f"{name}/s"] = (count - self.counted.get(name, 0)) / spent_s if spent_s else 0.0
        figures["cpu_ms/job"] = 1_000 * figures.pop("cpu_s/s") / max(figures["submitted/s"], 0.01)
        self.counted = {**counted, "s": figures["s"]}
        for name, series in (("ack p50_ms", self.load.took), ("start p50_ms", self.load.waits)):
            if series:
                figures[name] = statistics.median(series)
                series.clear()
        figures["unfinished"] = self.load.unfinished
        self.looks.append(figures)
        if self.out is not None:
            with self.out.open("ab") as file:
                file.write(orjson.dumps({name: round(value, 3) for name, value in figures.items()}) + b"\n")
        return figures


# ---------------------------------------------------------------- judging
def growth(looks: list[dict[str, float]], name: str) -> tuple[float, float, float]:
    """Over the second half: mean, change by the line of least squares, and that in percent of the mean."""
    half = [look for look in looks[len(looks) // 2 :] if name in look]
    if len(half) < 3:
        return 0.0, 0.0, 0.0
    xs, ys = [look["s"] for look in half], [look[name] for look in half]
    mean = statistics.fmean(ys)
    try:
        slope = statistics.linear_regression(xs, ys).slope
    except statistics.StatisticsError:
        return mean, 0.0, 0.0
    change = slope * (xs[-1] - xs[0])
    return mean, change, 100 * change / mean if mean else 0.0


def verdict(looks: list[dict[str, float]], name: str) -> str:
    """`flat`, `grows`, `falls` or, of what is meant to grow, `log`."""
    kind = name.rpartition(" ")[2]
    if kind in GROWS:
        return "log"
    _, change, percent = growth(looks, name)
    if abs(percent) <= FLAT_PERCENT or abs(change) <= SLACK.get(kind, 0.0):
        return "flat"
    return "grows" if change > 0 else "falls"


BETTER_HIGHER = ("submitted/s", "tasks/s")
HARMLESS = ("s", "unfinished", "refused/s", "rounds/s")


def judged(looks: list[dict[str, float]]) -> tuple[list[str], bool]:
    """The table of all series, and whether nothing got worse."""
    lines = [f"{'series':<28}{'first':>12}{'middle':>12}{'last':>12}{'2nd half':>12}  verdict"]
    good = True
    for name in sorted({name for look in looks for name in look}):
        if name in HARMLESS or name.endswith("cpu_s"):
            continue
        values = [look[name] for look in looks if name in look]
        found = verdict(looks, name)
        bad = found == ("falls" if name in BETTER_HIGHER else "grows")
        good &= not bad
        _, _, percent = growth(looks, name)
        cut = max(1, len(values) // 10)
        first, last = statistics.fmean(values[:cut]), statistics.fmean(values[-cut:])
        middle = values[len(values) // 2]
        lines.append(f"{name:<28}{first:>12,.1f}{middle:>12,.1f}{last:>12,.1f}{percent:>+11.1f}%  {found}")
    return lines, good


def line(figures: dict[str, float]) -> str:
    """One look, short."""
    shown = [f"{figures['s']:7.0f} s"]
    for name, text in (("submitted/s", "jobs/s"), ("tasks/s", "tasks/s"), ("start p50_ms", "ms to start")):
        shown.append(f"{figures.get(name, 0):7.0f} {text}")
    memory = sum(value for name, value in figures.items() if name.endswith(" MiB"))
    files = sum(value for name, value in figures.items() if name.endswith(" descriptors"))
    shown += [f"{memory:6.0f} MiB", f"{files:5.0f} descriptors", f"{figures.get('nodes folders', 0):7.0f} folders"]
    shown.append(
        f"log {figures.get('bus log_MiB', 0):.0f} MiB, snapshots {figures.get('bus snapshots_MiB', 0):.1f} MiB"
    )
    return "  ".join(shown)


async def run(asked: argparse.Namespace, folder: Path) -> bool:
    """All of it; whether everything was flat."""
    cell = await (on_kafka(asked.kafka, folder, asked.broker) if asked.kafka else embedded(folder))
    load = Load(cell.url, asked.backlog)
    looker = Looker(cell, load, asked.out)
    ending = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ending.set)
    try:
        async with httpx.AsyncClient(timeout=30) as client:
            await until_it_serves(client, cell.url)
            if asked.knobs:
                set_ = {"set": {key: int(value) for key, _, value in (each.partition("=") for each in asked.knobs)}}
                (await client.put(f"{cell.url}/v1/config", json=set_)).raise_for_status()
            loading = asyncio.create_task(load.run())
            looker.begun = time.monotonic()
            while looker.begun + asked.minutes * 60 > time.monotonic() and not ending.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(ending.wait(), LOOK_S)
                figures = await looker.look(client)
                if len(looker.looks) % WALK_EVERY == 1:
                    print(line(figures), flush=True)
            loading.cancel()
            await asyncio.wait([loading])
    finally:
        await cell.end()
    lines, good = judged(looker.looks)
    print(*lines, f"{load.submitted:,} jobs submitted, {load.refused:,} not taken", sep="\n", flush=True)
    return good


async def until_it_serves(client: httpx.AsyncClient, url: str, nodes: int = NODES, within_s: float = START_S) -> None:
    """Raises TimeoutError."""
    async with asyncio.timeout(within_s):
        while not await _serves(client, url, nodes):  # noqa: ASYNC110
            await asyncio.sleep(0.5)


async def _serves(client: httpx.AsyncClient, url: str, nodes: int) -> bool:
    try:
        if (await client.get(f"{url}/readyz")).status_code != 200:
            return False
        return len((await client.get(f"{url}/v1/nodes")).json()["nodes"]) >= nodes
    except httpx.HTTPError:
        return False


def main() -> int:
    """The command; its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sustained", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--kafka", default="", help="HOST:PORT of a broker; without it the embedded cell")
    parser.add_argument("--broker", type=Path, help="that broker's data folder, where it lies on this machine")
    parser.add_argument("--backlog", type=int, default=100, help="jobs kept unfinished")
    parser.add_argument("--set", action="append", dest="knobs", metavar="KEY=NUMBER", help="a knob of the policy")
    parser.add_argument("--data", type=Path, help="folder for all that the cell keeps; without it one that is removed")
    parser.add_argument("--out", type=Path, help="a JSON document for each look")
    asked = parser.parse_args()
    if asked.data is not None:
        asked.data.mkdir(parents=True, exist_ok=True)
        return 0 if asyncio.run(run(asked, asked.data.absolute())) else 1
    with tempfile.TemporaryDirectory(prefix="largesse-sustained-", ignore_cleanup_errors=True) as folder:
        return 0 if asyncio.run(run(asked, Path(folder))) else 1


if __name__ == "__main__":
    sys.exit(main())
