"""A real cell around a real agent: the cores of the engine judge what the agent says, over a bus in memory.

The agent runs beside it on the same loop, or in a process of its own (agent_process.py) over a socket, to be killed.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from largesse.bus.memory import MemoryBus
from largesse.bus.port import Message, Outgoing
from largesse.failpoints import VARIABLE
from largesse.log.codec import encode, record_of, wrap
from schemas import Header, JobEnded, Record, SequencerClaimed
from schemas.edge.read import Malformed, read_input
from schemas.edge.strict_json import loads
from schemas.topics import LOG
from services.admission.core.judge import lose
from services.agent.documents import CHILD, CLAIM, claim, read_json
from services.agent.local import mono_ms
from services.agent.proc import session_of, start_ticks
from services.agent.processes import family, seen
from services.agent.settings import NodeSettings
from services.agent.shell import run
from services.simulator.engine import Cell
from tests.conftest import ROOT
from tests.live.socket_bus import serve_bus

GUARD_SECONDS = 240
"""Ends a story that hangs: far above what any step takes where a machine has little to give."""

INPUTS = ("config", "nodes", "tasks", "jobs", "reservations")
TOKEN = Header("scripted")


@dataclass
class ScriptedCell:
    """A cell whose sequencer does what the story says. `records`: its log so far; `inputs`: what came in, by topic;
    `heard`: how many that were, those included that it was deaf to."""

    bus: MemoryBus = field(default_factory=MemoryBus)
    records: list[Record] = field(default_factory=list)
    inputs: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    heard: dict[str, int] = field(default_factory=dict)
    deaf: bool = False
    serving: "asyncio.Future[None]" = field(default_factory=asyncio.Future)
    _unwritten: list[Outgoing] = field(default_factory=list)
    _grown: asyncio.Condition = field(default_factory=asyncio.Condition)

    def __post_init__(self) -> None:
        self.cell = Cell(listener=self._heard, observers=[self.records.append])
        self._begun_ms = mono_ms()
        self._positions = {(topic, 0): 0 for topic in INPUTS}
        claim = record_of(
            SequencerClaimed("scripted"), cell="default", seq=0, round_number=0, time=0, id_="default/claim", cause=""
        )
        self._unwritten.append(Outgoing(LOG, 0, wrap(TOKEN, encode(claim))))

    def _heard(self, topic: str, header: Header | None, content: bytes) -> None:
        if topic == LOG:
            self._unwritten.append(Outgoing(LOG, 0, wrap(TOKEN, content)))

    async def serve(self) -> None:
        """Sequences inputs and rounds until it is cancelled."""
        while True:
            await self.settle()
            due_ms = self.cell.next_due_ms()
            wait_ms = 1_000 if due_ms is None else max(0, min(1_000, due_ms - self._now_ms()))
            await self.bus.wait_any(self._positions, wait_ms)
            for topic in INPUTS:
                for message in await self.bus.fetch(topic, 0, self._positions[topic, 0]):
                    self._positions[topic, 0] = message.offset + 1
                    self._take(message)

    def _take(self, message: Message) -> None:
        self.heard[message.topic] = self.heard.get(message.topic, 0) + 1
        if self.deaf:
            return
        document = loads(message.value)
        self.inputs.setdefault(message.topic, []).append(document)
        self.cell.advance(self._now_ms())
        try:
            body = read_input(message.topic, document, message.headers.get("author", ""))
        except Malformed as fault:
            raise AssertionError(f"malformed on {message.topic}: {fault}") from fault
        self.cell.take(body, "story")

    def _now_ms(self) -> int:
        return max(self.cell.time, mono_ms() - self._begun_ms)

    async def settle(self) -> None:
        """Everything that is due, and all of it on the bus."""
        self.cell.advance(self._now_ms())
        while self.cell.settle() is not None:
            pass
        batch, self._unwritten = self._unwritten, []
        if batch:
            await self.bus.writer().send(batch)
        async with self._grown:
            self._grown.notify_all()

    # ---------------------------------------------------------------- what a story does
    async def tell(self, topic: str, document: Any) -> None:
        """A message from somebody else."""
        await self.bus.writer().send([Outgoing(topic, 0, json.dumps(document).encode(), headers={"author": "story"})])

    async def submit(self, job: str, *stages: dict[str, Any], **others: Any) -> None:
        """A job of `stages`, each with what differs from one task of 100 millicores; `others`: what else it says."""
        listed = [{"stage": "s", "demand": {"cpu": "100m"}, **stage} for stage in stages]
        for stage in listed:
            if "durations_ms" not in stage:
                stage.setdefault("tasks", 1)
        await self.tell("jobs", {"job": job, "stages": listed, **others})

    async def lose(self, node: str) -> None:
        """The node's lease runs out."""
        body = lose(self.cell.admission, node)
        assert body is not None
        self.cell.put(body)
        await self.settle()

    async def put(self, body: Any) -> None:
        """A record that the sequencer makes of its own accord."""
        self.cell.put(body)
        await self.settle()

    # ---------------------------------------------------------------- what a story looks at
    async def until(self, holds: Callable[[], Any]) -> Any:
        """Waits until it holds, and returns what it said."""
        async with asyncio.timeout(GUARD_SECONDS), self._grown:
            return await self._grown.wait_for(holds)

    def bodies(self, kind: type) -> list[Any]:
        """The bodies of one type, in order."""
        return [record.body for record in self.records if isinstance(record.body, kind)]

    def items(self, kind: type, job: str | None = None) -> list[Any]:
        """What task facts of one type say, task by task, of one job or of all."""
        found = [item for body in self.bodies(kind) for item in body.items]
        single = [replace(item, first=item.first + task, count=1) for item in found for task in range(item.count)]
        return [item for item in single if job is None or item.job == job]


Story = Callable[[ScriptedCell], Awaitable[None]]


@asynccontextmanager
async def scripted_cell(bus: MemoryBus | None = None) -> AsyncIterator[ScriptedCell]:
    """A cell that serves for the length of the story."""
    cell = ScriptedCell(bus or MemoryBus())
    cell.serving = asyncio.ensure_future(cell.serve())
    try:
        yield cell
    finally:
        cell.serving.cancel()
        with suppress(asyncio.CancelledError):
            await cell.serving
        await cell.bus.close()


async def first_end(*ways: Awaitable[Any]) -> None:
    """Until the first of these has ended; raises what it raised."""
    done, _ = await asyncio.wait(map(asyncio.ensure_future, ways), return_when=asyncio.FIRST_COMPLETED)
    for end in done:
        end.result()


async def outcome_of(cell: ScriptedCell, job: str = "j") -> str:
    """How a job ended, once it has."""
    ends = await cell.until(lambda: [end for body in cell.bodies(JobEnded) for end in body.jobs if end.job == job])
    return str(ends[0].outcome)


def settings(data: Path, **changes: Any) -> NodeSettings:
    """A node `n` of four cores, quick to stop and to speak, on which nothing is put away while a story looks on."""
    return replace(
        NodeSettings("n", data, capacity={"cpu": 4_000, "memory": 8_192}, stop_grace_ms=500, heartbeat_ms=500),
        **{"clear_ms": 3_600_000, "cgroup": "off", **changes},
    )


async def eventually(holds: Callable[[], Any]) -> Any:
    """Waits until something about processes or files holds, which nobody announces; returns what it said."""
    async with asyncio.timeout(GUARD_SECONDS):
        while not (said := holds()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return said


def is_alive(pid: int) -> bool:
    """Whether a process runs: a zombie does not."""
    return start_ticks(pid) is not None


@asynccontextmanager
async def agent_on(cell: ScriptedCell, node: NodeSettings) -> AsyncIterator["asyncio.Task[None]"]:
    """An agent on the same loop, for the length of the story."""
    stop = asyncio.Event()
    running = asyncio.create_task(run(cell.bus, node, stop))
    try:
        yield running
    finally:
        stop.set()
        with suppress(Exception):
            await asyncio.wait_for(running, GUARD_SECONDS)


class AgentProcess:
    """An agent in a process of its own, which a story starts and kills."""

    def __init__(self, bus: MemoryBus, folder: Path, node: str = "n") -> None:
        self._bus, self._socket, self.data, self.node = bus, folder / "bus", folder / "data", node
        self._server: asyncio.Server | None = None
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, failpoint: str = "") -> None:
        """Another life, with or without a failpoint armed."""
        if self._server is None:
            self._server = await serve_bus(self._bus, self._socket)
        command = [sys.executable, "-m", "tests.live.agent_process", str(self._socket), str(self.data), self.node]
        environment = {**os.environ, VARIABLE: failpoint}
        self._process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, env=environment)

    async def kill(self) -> None:
        """SIGKILL, if it still lives; returns when it is gone."""
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()
        await self.gone()

    def send(self, number: int) -> None:
        """A signal to it, which lives."""
        assert self._process is not None
        self._process.send_signal(number)

    async def gone(self) -> None:
        """Waits until it has died."""
        if self._process is not None:
            await asyncio.wait_for(self._process.wait(), GUARD_SECONDS)

    async def __aenter__(self) -> "AgentProcess":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()
        if self._server is not None:
            self._server.close()


def end_tasks(folder: Path) -> None:
    """Kills what a story has left below a folder."""
    # Not by `glob`, for which each folder has to stay where it was found.
    for task in [Path(inner, "task.json") for inner, _, names in os.walk(folder) if "task.json" in names]:
        try:
            claim(task.parent, {})  # What has not begun may not.
        except FileNotFoundError:
            continue  # A process of an agent that was killed has just put away what ended.
        known = read_json(task.with_name(CLAIM)) or {}
        if "pid" in known and start_ticks(known["pid"]) == known["start"]:
            child = read_json(task.with_name(CHILD)) or {"pid": known["pid"]}
            for pid in {*_stopped(known["pid"]), *session_of(child["pid"])}:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def _stopped(shim: int) -> set[int]:
    """A shim and all that comes from it, none of which goes on: what has left its session could not be found later."""
    stopped: set[int] = set()
    while fresh := family(seen(), [shim]) - stopped:
        for pid in fresh:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        stopped |= fresh
    return stopped
