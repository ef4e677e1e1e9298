"""Campaign of nodes over MQTT: `python -m tests.live.edge_campaign [--seeds N] [--from S] [--keep FOLDER]
[--lease-ms MS]`.

A seed is one cell whose nodes are reached over a real mosquitto, through a proxy that cuts, delays and leaves
connections half open. Bridges and agents are processes. While jobs run, connections go, the broker is killed or paused,
bridges and agents are killed with SIGKILL, a node is away for shorter and longer than its lease, and a second agent
with the same name comes. A seed fixes what is done and when; what runs in between is the machine's. Two of the jobs
hand results from one node to the other. Then: no two attempts of a task wrote at once, each task succeeded once, all
jobs did, and the log is decided again the same.
Exit codes: 0 every seed ended well; 1 not so.
"""

import argparse
import asyncio
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from largesse import shell
from largesse.bus.file.bus import FileBus
from largesse.bus.port import Bus, Writer
from largesse.lifecycle.task_facts import facts_of
from largesse.log.fencing import Accepted
from largesse.log.reader import LogReader, publish_input
from largesse.settings import Settings
from schemas import JobEnded, NodeLost, NodeRegistered, TaskFailed, TaskFinished
from schemas.tasks import TaskEnd
from services.admission import sequencer as admission
from services.altruism import core as altruism
from services.estimator import core as estimator
from services.fairness import core as fairness
from services.leftover import core as leftover
from services.planner import core as planner
from services.replay.source import open_source
from services.replay.verify import verify
from tests.conftest import ROOT
from tests.live.agent_cell import end_tasks
from tests.live.fault_jobs import handing_job, overlaps, writers, writing_jobs
from tests.live.kafka_cell import up_s
from tests.live.socket_bus import serve_bus
from tests.mosquitto import Mosquitto
from tests.mqtt_proxy import Proxy

LEASE_MS = 3_000
"""What runs on a machine that is wanted several times over hears of its lease too late, whatever fails."""
NODES = ("n0", "n1")
BRIDGES = ("b0", "b1")
JOBS = 5
FAULTS = (
    *("cut", "cut", "freeze", "slow", "broker", "pause", "bridge", "bridge", "agent", "agent"),
    *("away briefly", "away for long", "rival"),
)
STEPS = 7
START_S, END_S = 90, 150
"""Guards: what takes so long has not come about."""


@dataclass(slots=True)
class Outcome:
    """What a seed came to."""

    seed: int
    wrong: list[str] = field(default_factory=list)
    figures: Counter[str] = field(default_factory=Counter)
    seconds: float = 0
    cpu_seconds: float = 0

    @property
    def again(self) -> str:
        return f"python -m tests.live.edge_campaign --seeds 1 --from {self.seed}"


class _OneWriter:
    """A bus as many processes share it: what they send goes through one writer."""

    def __init__(self, bus: Bus) -> None:
        self._writer = bus.writer()
        self.fetch, self.bounds, self.wait_any = bus.fetch, bus.bounds, bus.wait_any

    def writer(self) -> Writer:
        return self._writer


class EdgeSeed:
    """One cell's story."""

    def __init__(self, seed: int, folder: Path, steps: int = STEPS, jobs: int = JOBS, lease_ms: int = LEASE_MS) -> None:
        self.dice = random.Random(f"edge {seed}")
        self.outcome = Outcome(seed)
        self.folder, self._steps, self._lease_ms = folder, steps, lease_ms
        (folder / "proof").mkdir()
        self.jobs = writing_jobs(folder, self.dice, jobs)
        self.jobs += [handing_job(folder, f"handed-on-by-{node}", node, other) for node, other in (NODES, NODES[::-1])]
        self.dice.shuffle(self.jobs)
        self.records: list[Accepted] = []
        self.read_s: list[float] = []
        self.bus = FileBus(folder / "bus")
        self.mosquitto = Mosquitto(folder)
        self.proxy = Proxy(self.mosquitto.port)
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._rivals: Counter[str] = Counter()

    async def run(self) -> Outcome:
        """The whole story."""
        begun, cpu_begun = time.monotonic(), _cpu_seconds()
        try:
            async with self._cell():
                # Both: a job that needs a label which no node has is rejected.
                await self._until(lambda: self._registered() == set(NODES), START_S, "nodes register")
                story = asyncio.ensure_future(self._submit())
                for _ in range(self._steps):
                    await asyncio.sleep(self.dice.uniform(0.1, 0.8))
                    await self._suffer(self.dice.choice(FAULTS))
                await story
                await self._heal()
                await self._until(lambda: len(self._ended()) == len(self.jobs), END_S, "jobs end")
            self._judge()
        except TimeoutError as error:
            self.outcome.wrong.append(str(error))
        self.outcome.seconds, self.outcome.cpu_seconds = time.monotonic() - begun, _cpu_seconds() - cpu_begun
        return self.outcome

    @asynccontextmanager
    async def _cell(self) -> AsyncIterator[None]:
        stop, settings = asyncio.Event(), Settings(bus=f"file:{self.folder}/bus")
        cores: tuple[Any, ...] = (fairness, altruism, leftover, estimator, planner)
        self.mosquitto.start()
        parts = [asyncio.ensure_future(shell.run(core, self.bus, settings, stop=stop)) for core in cores]
        parts += [asyncio.ensure_future(admission.run(self.bus, settings, stop=stop))]
        following = asyncio.ensure_future(self._follow())
        await self._tell("config", {"set": {"node_lease_ms": self._lease_ms}})
        server = await serve_bus(_OneWriter(self.bus), self.folder / "socket")  # type: ignore[arg-type]
        try:
            async with self.proxy.running():
                for name in (*BRIDGES, *NODES):
                    await self._start(name)
                yield
        finally:
            for name in list(self._processes):
                await self._kill(name)
            server.close()
            stop.set()
            following.cancel()
            await asyncio.gather(*parts, following, return_exceptions=True)
            self.mosquitto.kill()
            await self.bus.close()
            end_tasks(self.folder)

    async def _follow(self) -> None:
        reader = LogReader(self.bus)
        while True:
            found = await reader.read(500)
            self.records += found
            self.read_s += [up_s()] * len(found)

    async def _tell(self, topic: str, document: object) -> None:
        await publish_input(self.bus.writer(), topic, document, "campaign")

    async def _submit(self) -> None:
        for job in self.jobs:
            await self._tell("jobs", job.spec)
            await asyncio.sleep(self.dice.uniform(0.1, 1))

    # ---------------------------------------------------------------- processes
    async def _start(self, name: str, data: str = "") -> None:
        """A bridge, or the agent of a node. `data`: its folder, where it is another agent's than the node's first."""
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        if name in BRIDGES:
            words = ["tests.live.bridge_process", str(self.folder / "socket"), str(self.proxy.port), name]
        else:
            words = ["services.agent"]
            environment |= {
                "LARGESSE_BUS": f"mqtt://127.0.0.1:{self.proxy.port}",
                "LARGESSE_MQTT_KEEP_ALIVE_S": "1",
                "LARGESSE_NODE": name,
                "LARGESSE_NODE_DATA": str(self.folder / (data or name)),
                "LARGESSE_NODE_OFFER": json.dumps(
                    {"capacity": {"cpu": "2", "memory": "1Gi"}, "labels": {"node": name}}
                ),
                "LARGESSE_NODE_CGROUP": "off",
            }
        with (self.folder / f"{data or name}.log").open("ab") as log:
            self._processes[data or name] = await asyncio.create_subprocess_exec(
                sys.executable, "-m", *words, cwd=ROOT, env=environment, stdout=log, stderr=log
            )

    async def _kill(self, name: str) -> None:
        process = self._processes.pop(name)
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
        await process.wait()

    async def _revive(self) -> None:
        """Starts bridges and agents that are not there, as their supervisors would."""
        for name in (*BRIDGES, *NODES):
            known = self._processes.get(name)
            if known is None or known.returncode is not None:
                await self._start(name)

    # ---------------------------------------------------------------- faults
    async def _suffer(self, fault: str) -> None:
        dice, proxy = self.dice, self.proxy
        self.outcome.figures[fault] += 1
        who = dice.choice(["", *BRIDGES, *(f"default/{node}/" for node in NODES)])
        clients = [client for client in proxy.clients if client.startswith(who)]
        match fault:
            case "cut":
                for client in clients:
                    proxy.cut(client)
            case "freeze":
                for client in clients:
                    proxy.freeze(client)
            case "slow":
                proxy.delay = dice.choice([0.0, 0.01, 0.05, 0.2])
            case "broker":
                self.mosquitto.kill()
                await asyncio.sleep(dice.uniform(0, 1))
                self.mosquitto.start()
            case "pause":
                self.mosquitto.pause()
                await asyncio.sleep(dice.uniform(0.2, self._lease_ms / 1_000 + 1))
                self.mosquitto.pause(False)
            case "bridge" | "agent":
                name = dice.choice(BRIDGES if fault == "bridge" else NODES)
                if name in self._processes:
                    await self._kill(name)
                await asyncio.sleep(dice.uniform(0, 1))
                await self._revive()
            case "rival":
                node = dice.choice(NODES)
                self._rivals[node] += 1
                await self._start(node, f"{node}-rival-{self._rivals[node]}")
            case _:
                await self._away(dice.choice(NODES), self._lease_ms * (2 if fault == "away for long" else 0.4) / 1_000)

    async def _away(self, node: str, seconds: float) -> None:
        prefix = f"default/{node}/"
        self.proxy.barred[prefix] = True
        for client in self.proxy.clients:
            if client.startswith(prefix):
                self.proxy.freeze(client)  # Half open: neither side is told.
        await asyncio.sleep(seconds)
        del self.proxy.barred[prefix]

    async def _heal(self) -> None:
        """From here on nothing fails, and each node has one agent."""
        self.proxy.delay = 0.0
        for name in list(self._processes):
            if "-rival-" in name:
                await self._kill(name)
        self.proxy.cut()
        await self._revive()

    # ---------------------------------------------------------------- the verdict
    async def _until(self, holds: Any, seconds: float, what: str) -> None:
        over = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > over:
                raise TimeoutError(f"in {seconds} s it did not come about that {what}: {self._ended()}")
            await self._revive()
            await asyncio.sleep(0.05)

    def _bodies(self, kind: type) -> list[Any]:
        return [each.record.body for each in self.records if isinstance(each.record.body, kind)]

    def _registered(self) -> set[str]:
        return {body.node for body in self._bodies(NodeRegistered)}

    def _ended(self) -> dict[str, str]:
        return {end.job: end.outcome for body in self._bodies(JobEnded) for end in body.jobs}

    def _judge(self) -> None:
        wrong, figures = self.outcome.wrong, self.outcome.figures
        given_up = [f"handed-on-by-{node}" for node in self._rivals]  # Who took its name has not what it left.
        failed = [job for job, how in self._ended().items() if how == "failed" and job in given_up]
        wrong += [
            f"{job} ended as {how} ({self._failures(job)})"
            for job, how in self._ended().items()
            if how != "succeeded" and job not in failed
        ]
        # Also a registration can say that attempts have succeeded: it names what its agent still knows.
        facts = (
            fact for kind in (TaskFinished, NodeRegistered) for body in self._bodies(kind) for fact in facts_of(body)
        )
        succeeded = Counter(
            f"{fact.job}/{fact.stage}/{index}"
            for fact in facts
            if isinstance(fact, TaskEnd)
            for index in range(fact.first, fact.first + fact.count)
            if fact.job not in failed
        )
        wrong += [f"{task} succeeded {times} times" for task, times in succeeded.items() if times != 1]
        tasks = sum(stage["tasks"] for job in self.jobs if job.name not in failed for stage in job.spec["stages"])
        if len(succeeded) != tasks:
            wrong.append(f"{len(succeeded)} tasks succeeded, and there are {tasks}")
        wrong += overlaps(self.folder / "writes", lost=self._taken_over())
        verdict = verify(open_source(self.folder / "bus"))
        if not verdict.is_same:
            wrong.append(verdict.text())
        figures["tasks"] += tasks
        figures["jobs whose inputs were gone"] += len(failed)
        figures["lines written"] += len(writers(self.folder))
        figures["nodes lost"] += len(self._bodies(NodeLost))
        figures["registrations"] += len(self._bodies(NodeRegistered))

    def _failures(self, job: str) -> str:
        """How often its attempts failed for which reason."""
        items = (item for body in self._bodies(TaskFailed) for item in body.items if item.job == job)
        return ", ".join(f"{reason}: {times}" for reason, times in Counter(item.reason for item in items).items())

    def _taken_over(self) -> dict[tuple[str, int], float]:
        """Attempts that another agent of the node's name ended by registering it, and until when its own agent may not
        have heard of that: for as long as it holds them without an answer."""
        found = {}
        for accepted, read_s in zip(self.records, self.read_s, strict=True):
            body = accepted.record.body
            if isinstance(body, NodeRegistered) and self._rivals[body.node]:
                for item in body.lost:
                    for index in range(item.first, item.first + item.count):
                        found[f"{item.job}~{item.stage}~{index}", item.attempt] = read_s + self._lease_ms / 1_000
        return found


def _cpu_seconds() -> float:
    """Of this process, and of those that it has waited for."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


async def run_seed(seed: int, folder: Path, steps: int = STEPS, jobs: int = JOBS, lease_ms: int = LEASE_MS) -> Outcome:
    """One seed, in an empty folder of its own. SIGTERM cuts it off, and nothing of it stays."""
    running = asyncio.current_task()
    assert running is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    return await EdgeSeed(seed, folder, steps, jobs, lease_ms).run()


def main(words: list[str]) -> int:
    """Runs seeds one after another."""
    parser = argparse.ArgumentParser(prog="python -m tests.live.edge_campaign", description=__doc__)
    parser.add_argument("--seeds", type=int, default=300)
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="bus and logs of a seed that failed are copied there")
    parser.add_argument("--lease-ms", type=int, default=LEASE_MS, help="longer where other programs want the machine")
    asked = parser.parse_args(words)
    total: Counter[str] = Counter()
    bad = 0
    for seed in range(asked.first, asked.first + asked.seeds):
        with tempfile.TemporaryDirectory(prefix="largesse-edge-", ignore_cleanup_errors=True) as folder:
            outcome = asyncio.run(run_seed(seed, Path(folder), lease_ms=asked.lease_ms))
            if outcome.wrong and asked.keep is not None:
                shutil.copytree(Path(folder, "bus"), asked.keep / f"{seed}-bus", dirs_exist_ok=True)
                for log in Path(folder).glob("*.log"):
                    shutil.copy(log, asked.keep / f"{seed}-{log.name}")
        total += outcome.figures
        took = f"{outcome.seconds:.1f} s, {outcome.cpu_seconds:.1f} s of CPU"
        print(f"seed {seed}: {took}, {'; '.join(outcome.wrong) or 'well'}", flush=True)
        if outcome.wrong:
            bad += 1
            print(f"repeat: {outcome.again}", flush=True)
    print(", ".join(f"{name}: {count}" for name, count in sorted(total.items())), flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
