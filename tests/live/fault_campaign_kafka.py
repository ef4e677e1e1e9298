"""Cells of processes on Kafka under faults beside kills: agents and services paused beyond their leases, guardians of
tasks killed whose children live in sessions of their own, a copy of an agent's folder started beside it, nodes that
come and go. `python -m tests.live.fault_campaign --kafka`; the seed's course is that of kafka_campaign.py.
"""

import asyncio
import math
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from largesse.lifecycle.task_facts import facts_of
from schemas import NodeLost, NodeRegistered
from tests.kafka_broker import SCRIPT, Broker
from tests.live.campaign_jobs import marked
from tests.live.fault_jobs import DETACHED, PLAIN, overlaps
from tests.live.kafka_campaign import FAULT_SECONDS, Outcome
from tests.live.kafka_campaign import Seed as KillSeed
from tests.live.kafka_cell import AGENTS, KafkaCell, Member, free_partition, up_s
from tests.live.up_process import end_tasks
from tests.ports import free_port

LEASE_MS = 3_000
PAUSE_S = (4.0, 8.0)
"""Longer than a node's lease and a sequencer's."""
RIVAL_S = 4.0
NOTICED_S = 20.0
"""A node that the log has not declared lost so long after its agent is back was never lost."""
REAPED = 6
FAULTS = ("pause agent", "pause agent", "pause service", "copy", "reap", "reap", "remove node", "pause leader")


class FaultSeed(KillSeed):
    """One cell's life."""

    def __init__(self, seed: int, cell: KafkaCell) -> None:
        super().__init__(seed, cell, None)
        self.writes = cell.folder / "writes"
        self.writes.mkdir(parents=True)
        self.allowed: list[tuple[float, float]] = []
        self.rivals = 0

    def _arm(self) -> None:
        """No failpoints: kills are another campaign's."""

    async def run(self) -> Outcome:
        """From the first start to the verdict."""
        telling = self.cell.tell

        async def tell(topic: str, document: Any) -> int:
            if topic == "config":
                document = {"set": {**document["set"], "node_lease_ms": LEASE_MS, "retry_backoff_ms": 100}}
            return await telling(topic, document)

        self.cell.tell = tell  # type: ignore[method-assign]
        outcome = await super().run()
        # An agent that has only just been started again has no ear for signals yet.
        outcome.wrong = [each for each in outcome.wrong if not re.match(r"agent-\d ended with -15 when", each)]
        return outcome

    def _job(self, job: str) -> tuple[dict[str, Any], str]:
        draws = self.draws
        command = ["sh", "-c", draws.choice((PLAIN, DETACHED)), "sh", str(draws.randint(2, 80))]
        stage = {"stage": "w", "tasks": draws.randint(1, 3), "demand": {"cpu": "500m"}, "command": command}
        return {"job": job, "stages": [marked(stage, self.proofs, WRITES=str(self.writes))]}, "succeeded"

    # ---------------------------------------------------------------- faults
    async def _strike(self) -> None:
        faults = list(FAULTS)
        self.draws.shuffle(faults)
        for fault in faults:
            await asyncio.sleep(self.draws.uniform(0.3, 2))
            match fault:
                case "pause agent":
                    await self._pause(self._agent())
                case "pause service":
                    names = [member for member in self.cell.members.values() if member.service != "agent"]
                    await self._pause(self.draws.choice(names))
                case "pause leader":
                    await self._pause_leader()
                case "copy":
                    await self._rival()
                case "reap":
                    self._reap()
                case "remove node":
                    await self._remove()

    def _agent(self) -> Member:
        return self.cell.members[f"agent-{self.draws.randrange(AGENTS)}"]

    async def _back(self, agent: Member, known: int) -> None:
        """Waits until the log believes the agent's node again, if it was lost or taken over behind the first `known`
        records: an agent registers anew when what it may not have any more has ended."""

        def changes() -> list[Any]:
            bodies = [accepted.record.body for accepted in self.cell.records[known:]]
            return [body for body in bodies if isinstance(body, NodeLost | NodeRegistered) and body.node == agent.name]

        with suppress(TimeoutError):
            await self.cell.until(changes, NOTICED_S)
            # The last registration may be a rival's.
            await self.cell.until(lambda: self._epoch_of(agent) == getattr(changes()[-1], "epoch", ""), FAULT_SECONDS)

    def _epoch_of(self, agent: Member) -> str | None:
        """Under which an agent says that it is registered."""
        said = self.cell.said(agent, "registered") or {}
        return said.get("epoch")

    async def _pause(self, member: Member) -> None:
        begun, known = up_s(), len(self.cell.records)
        member.send(signal.SIGSTOP)
        try:
            await asyncio.sleep(self.draws.uniform(*PAUSE_S))
        finally:
            member.send(signal.SIGCONT)
        if member.service == "agent":
            # Who sleeps ends nothing: what it had runs on until it wakes.
            await self._back(member, known)
            self.allowed.append((begun, up_s()))

    async def _rival(self) -> None:
        """Another agent on a copy of a node's folder, under the node's name."""
        agent = self._agent()
        self.rivals += 1
        folder = self.cell.folder / f"rival-{self.rivals}"
        with suppress(shutil.Error):
            await asyncio.to_thread(
                shutil.copytree, self.cell.folder / agent.name, folder, symlinks=True, ignore=_pipes
            )
        begun, known = up_s(), len(self.cell.records)
        port = free_port()
        environment = {**agent.environment, "LARGESSE_NODE_DATA": str(folder), "LARGESSE_METRICS_PORT": str(port)}
        with (self.cell.folder / f"rival-{self.rivals}.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "services.agent"), env={**os.environ, **environment}, stdout=log, stderr=log
            )
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), RIVAL_S)
        if process.returncode is None:
            process.kill()
            await process.wait()
        end_tasks(folder)  # Nobody takes over what it has started.
        await self._back(agent, known)
        self.allowed.append((begun, up_s()))

    def _reap(self) -> None:
        """Kills shims, whose arguments name the attempt's folder."""
        place = f"{self.cell.folder}/agent-".encode()
        shims = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdecimal() and place in (entry / "cmdline").read_bytes():
                    shims.append(int(entry.name))
        for pid in self.draws.sample(shims, min(REAPED, len(shims))):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                self.outcome.kills += 1

    async def _remove(self) -> None:
        """A node is gone for longer than its lease, and its tasks run on without their agent."""
        agent = self._agent()
        begun, known = up_s(), len(self.cell.records)
        self.cell.held.clear()
        self._kill(agent)
        await asyncio.sleep(self.draws.uniform(*PAUSE_S))
        self.cell.held.set()
        await self._back(agent, known)
        self.allowed.append((begun, up_s()))

    # ---------------------------------------------------------------- the verdict
    def _count_deaths(self) -> None:
        # An agent that was taken over, or waited too long for its broker, ends, and is started again.
        for member in self.cell.members.values():
            if member.service == "agent":
                member.own_accord.clear()
        super()._count_deaths()

    def _judge_attempts(self) -> list[str]:
        self.broker_killed = True  # As there: a node that was lost may have done its work.
        return super()._judge_attempts() + overlaps(self.writes, self.allowed, self._lost())

    def _lost(self) -> dict[tuple[str, int], float]:
        """Attempts that were lost with their nodes, and when those were registered again. An agent that was not paused,
        but could not be heard while a sequencer was, or for want of a machine's time, hears of its loss later.
        """
        back: dict[str, float] = {}
        found = {}
        for accepted, read_s in zip(reversed(self.cell.records), reversed(self.cell.read_s), strict=True):
            body = accepted.record.body
            if isinstance(body, NodeRegistered):
                back[body.node] = read_s
            elif isinstance(body, NodeLost):
                for fact in facts_of(body):
                    for index in range(fact.first, fact.first + fact.count):
                        found[f"{fact.job}~{fact.stage}~{index}", fact.attempt] = back.get(body.node, math.inf)
        return found


def _pipes(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if not Path(folder, name).is_dir() and not Path(folder, name).is_file()]


async def run_seed(seed: int, address: str, folder: Path) -> Outcome:
    """One seed on a broker, in a folder of its own."""
    partition = await free_partition(address)
    cell = KafkaCell(address, partition, f"faults-{seed}-{time.time_ns()}", folder / f"faults-{seed}")
    return await FaultSeed(seed, cell).run()


def run(first: int, seeds: int) -> int:
    """Seeds one after another, on LARGESSE_TEST_KAFKA or a broker of their own; 1 if any of them failed."""
    folder = Path(tempfile.mkdtemp(prefix="largesse-faults-"))
    address, broker, dirty = os.environ.get("LARGESSE_TEST_KAFKA", ""), None, 0
    if not address:
        if not SCRIPT.exists():
            sys.stderr.write(f"no broker: LARGESSE_TEST_KAFKA is not set, and there is no {SCRIPT}\n")
            return 2
        broker = Broker(folder / "broker")
        broker.start()
        address = broker.address
    try:
        for seed in range(first, first + seeds):
            outcome = asyncio.run(run_seed(seed, address, folder))
            print(outcome.line(), flush=True)
            dirty += bool(outcome.wrong)
            if not outcome.wrong:
                shutil.rmtree(folder / f"faults-{seed}", ignore_errors=True)
    finally:
        if broker is not None:
            broker.stop()
    print(f"{seeds} seeds, {dirty} not clean{f'; what they left is in {folder}' if dirty else ''}")
    if not dirty:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if dirty else 0
