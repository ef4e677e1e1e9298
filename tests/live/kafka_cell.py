"""A cell of real processes on a real Kafka broker: started, killed, paused and watched as a supervisor would.

Every service runs as `python -m services.NAME`; whoever dies is started again. The broker is the campaign's own,
tests/kafka_broker.py, or somebody else's (LARGESSE_TEST_KAFKA), which is never killed.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from largesse.bus.kafka.bus import KafkaBus
from largesse.bus.kafka.topic_settings import TOPICS
from largesse.bus.kafka.topics_admin import partitions_now
from largesse.bus.port import BusError
from largesse.failpoints import VARIABLE
from largesse.log.fencing import Accepted
from largesse.log.reader import LogReader, publish_input
from schemas import JobEnded, SequencerClaimed
from schemas.topics import LOG
from tests.conftest import ROOT
from tests.contract.kafka_rig import put_right_at_once
from tests.live.up_process import end_tasks
from tests.ports import free_port

AGENTS = 3
COPIES = {"admission": 2, "fairness": 2, "altruism": 2, "leftover": 2, "estimator": 1, "planner": 1, "gateway": 1}
SNAPSHOT_ROUNDS = 5
RESTART_SECONDS = 0.2
READY_SECONDS = 300
DRAIN_SECONDS = 240
ANSWER_SECONDS = 60


async def free_partition(address: str) -> int:
    """A partition that no cell has had: the topics are made, or grow, by one cell."""
    partition = await partitions_now(address, LOG)
    await put_right_at_once(address, TOPICS.values(), cells=partition + 1, grow=True)
    return partition


@dataclass
class Member:
    """One process of the cell over all its lives. `failpoint`: armed until it has struck."""

    name: str
    service: str
    environment: dict[str, str]
    port: int
    failpoint: str = ""
    process: asyncio.subprocess.Process | None = None
    lives: int = 0
    log_begun: int = 0  # Where in its log file its present life begins.
    killed: bool = False
    struck: list[str] = field(default_factory=list)
    own_accord: list[int] = field(default_factory=list)

    @property
    def is_alive(self) -> bool:
        return self.process is not None and self.process.returncode is None

    def send(self, number: signal.Signals) -> None:
        """A signal, if it lives."""
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(number)

    def count_strike(self, code: int | None) -> bool:
        """Whether it died with `code` because its failpoint struck; then that is disarmed and counted."""
        if code != -signal.SIGKILL or not self.failpoint or self.killed:
            return False
        self.struck.append(":".join(self.failpoint.split(":")[:2]))
        self.failpoint = ""
        return True

    def kill(self) -> None:
        """SIGKILL: its supervisor starts it again."""
        self.killed = True
        self.send(signal.SIGKILL)


def up_s() -> float:
    """Seconds since boot, as the jobs of fault_jobs.py tell them."""
    return float(Path("/proc/uptime").read_text().split()[0])


class KafkaCell:
    """The processes of one cell, a client of its topics, and what its log says so far."""

    def __init__(
        self, address: str, partition: int, name: str, folder: Path, copies: dict[str, int] | None = None
    ) -> None:
        """`copies`: how many processes of each service and of agents, where it is not COPIES and AGENTS."""
        self.address, self.partition, self.name, self.folder = address, partition, name, folder
        self.records: list[Accepted] = []
        self.read_s: list[float] = []  # When each was read, in seconds since boot.
        self.tokens: list[str] = []
        self.ended: dict[str, str] = {}
        self.held = asyncio.Event()  # Set: the dead may be started again.
        self.held.set()
        self.closing = asyncio.Event()
        self.bus = KafkaBus(address)
        self._writer: Any = None
        self._grown = asyncio.Condition()
        self._keepers: list[asyncio.Task[None]] = []
        self._follower: asyncio.Task[None] | None = None
        counts = copies or {**COPIES, "agent": AGENTS}
        places = [(service, f"{service}-{i}") for service, count in counts.items() for i in range(count)]
        self.http = free_port()
        self.members = {}
        for service, member in places:
            port = free_port()
            self.members[member] = Member(member, service, self._environment(service, member, port), port)

    @property
    def url(self) -> str:
        """The log's address, as `largesse replay` takes it."""
        return f"kafka://{self.address}/{self.name}"

    def _environment(self, service: str, name: str, port: int) -> dict[str, str]:
        said = {
            "LARGESSE_BUS": f"kafka://{self.address}",
            "LARGESSE_CELL": self.name,
            "LARGESSE_PARTITION": str(self.partition),
            "LARGESSE_SNAPSHOT_ROUNDS": str(SNAPSHOT_ROUNDS),
            "LARGESSE_METRICS_PORT": str(port),
            "LARGESSE_LOG_FORMAT": "json",
            "PYTHONPATH": str(ROOT),
        }
        if service == "agent":
            said["LARGESSE_NODE"] = name
            said["LARGESSE_NODE_DATA"] = str(self.folder / name)
            said["LARGESSE_NODE_OFFER"] = json.dumps({"capacity": {"cpu": "4", "memory": "4Gi"}})
        if service == "gateway":
            said["LARGESSE_HTTP"] = f"127.0.0.1:{self.http}"
            said["LARGESSE_METRICS_PORT"] = "0"
        return said

    # ---------------------------------------------------------------- processes
    async def __aenter__(self) -> "KafkaCell":
        self.folder.mkdir(parents=True, exist_ok=True)
        self._follower = asyncio.create_task(self._follow())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.closing.set()
        for member in self.members.values():
            member.kill()
            member.send(signal.SIGCONT)
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        for member in self.members.values():
            if member.process is not None:
                await member.process.wait()
        if self._follower is not None:
            self._follower.cancel()
            await asyncio.wait([self._follower])
        await self.bus.close()
        end_tasks(self.folder)

    def start(self, *members: Member) -> None:
        """Starts members, and whenever one dies, starts it again."""
        self._keepers += [asyncio.create_task(self._keep(member)) for member in members]

    async def _keep(self, member: Member) -> None:
        while not self.closing.is_set():
            await self.held.wait()
            member.killed = False
            with (self.folder / f"{member.name}.log").open("ab") as log:
                member.log_begun = log.tell()
                member.process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    f"services.{member.service}",
                    cwd=self.folder,
                    env={**os.environ, **member.environment, VARIABLE: member.failpoint},
                    stdout=log,
                    stderr=log,
                )
            member.lives += 1
            code = await member.process.wait()
            if self.closing.is_set():
                return
            if not member.count_strike(code) and not member.killed:
                member.own_accord.append(code)
            await asyncio.sleep(RESTART_SECONDS)

    async def drain(self) -> dict[str, int | None]:
        """SIGTERM to everybody; exit codes, None for who took longer than DRAIN_SECONDS.

        Without those whose failpoint struck only now (a standby may come to its point when the others leave), and those
        that had been started so shortly before that they had said nothing yet: the signal simply ends them.
        """
        self.closing.set()
        living = [member for member in self.members.values() if member.is_alive]
        starting = {member.name for member in living if not self._log_of(member)}
        for member in living:
            member.send(signal.SIGTERM)

        async def end(member: Member) -> int | None:
            assert member.process is not None
            try:
                return await asyncio.wait_for(member.process.wait(), DRAIN_SECONDS)
            except TimeoutError:
                return None

        codes = await asyncio.gather(*(end(member) for member in living))
        ends = zip(living, codes, strict=True)
        return {
            member.name: code
            for member, code in ends
            if not member.count_strike(code) and not (member.name in starting and code == -signal.SIGTERM)
        }

    def _log_of(self, member: Member) -> bytes:
        """What a member has logged in its present life."""
        try:
            return (self.folder / f"{member.name}.log").read_bytes()[member.log_begun :]
        except OSError:
            return b""

    def said(self, member: Member, *events: str) -> dict[str, Any] | None:
        """The last line of one of these kinds that a member has logged in its present life."""
        for line in reversed(self._log_of(member).splitlines()):
            with suppress(ValueError):
                logged = json.loads(line)
                if isinstance(logged, dict) and logged.get("event") in events:
                    return logged
        return None

    def leader(self) -> Member | None:
        """The admission that says that it leads."""
        for member in self.members.values():
            if member.service == "admission" and member.is_alive:
                logged = self.said(member, "leading", "standing_by")
                if logged is not None and logged["event"] == "leading":
                    return member
        return None

    def owner(self, service: str, but: Member | None = None) -> Member | None:
        """The instance that shard 0 of a service was dealt to last, as far as the living say; another than `but`."""
        for member in self.members.values():
            if member.service == service and member.is_alive and member is not but:
                logged = self.said(member, "shards_dealt")
                if logged is not None and 0 in logged["first"]:
                    return member
        return None

    async def get(self, port: int, path: str) -> tuple[int, str]:
        """Status and body of one HTTP answer; (0, why) where nobody answers."""
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode())
            answer = await asyncio.wait_for(reader.read(), ANSWER_SECONDS)
            writer.close()
        except (OSError, TimeoutError) as error:
            return 0, str(error)
        head, _, body = answer.decode().partition("\r\n\r\n")
        return (int(head.split(" ")[1]), body) if head else (0, "")

    async def ready(self, *names: str) -> None:
        """Waits until members say that they are ready; all of them where none is named."""
        async with asyncio.timeout(READY_SECONDS):
            for name in names or self.members:
                member = self.members[name]
                port = self.http if member.service == "gateway" else member.port
                while (await self.get(port, "/readyz"))[0] != 200:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)

    # ---------------------------------------------------------------- the client's side
    async def tell(self, topic: str, document: Any) -> int:
        """Publishes one input until it is acknowledged. May arrive twice where the broker was away meanwhile."""
        while True:
            try:
                if self._writer is None:
                    self._writer = self.bus.writer()
                return await publish_input(self._writer, topic, document, "campaign", self.partition)
            except BusError:
                writer, self._writer = self._writer, None
                if writer is not None:
                    await writer.drop()

    async def _follow(self) -> None:
        reader = LogReader(self.bus, self.partition)
        while True:
            try:
                found = await reader.read(1_000)
            except BusError:
                await asyncio.sleep(0.2)
                continue
            for accepted in found:
                self.records.append(accepted)
                self.read_s.append(up_s())
                if isinstance(accepted.record.body, SequencerClaimed):
                    self.tokens.append(accepted.header.token)
                elif isinstance(accepted.record.body, JobEnded):
                    self.ended |= {end.job: end.outcome for end in accepted.record.body.jobs}
            if found:
                async with self._grown:
                    self._grown.notify_all()

    async def until(self, holds: Callable[[], Any], seconds: float) -> Any:
        """Waits until something about the log holds, and returns what it said. Raises TimeoutError."""
        async with asyncio.timeout(seconds), self._grown:
            return await self._grown.wait_for(holds)
