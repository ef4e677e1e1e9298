"""A cell of the real sequencer, shells and agent cores on any bus, stepped one after another by a clock of the test's.

So the same story gives the same log, byte by byte, whatever the bus. `play` tells one; `Stage` puts a recorded log on
another bus, record by record, before fresh shells, and holds every answer against the recorded one.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from heapq import heappop, heappush
from typing import Any

from largesse.bus.port import Bus, Message, Outgoing
from largesse.core import Core
from largesse.lifecycle import node_work as agent
from largesse.log.codec import decode, heading, unwrap
from largesse.log.reader import LogReader, publish_input
from largesse.settings import Settings
from largesse.shell import Shell
from schemas import JobEnded, Record, RoundAbandoned, RoundClosed, RoundOpened
from schemas.topics import DECISIONS, LOG, SHARDED
from services.admission.sequencer import Sequencer
from services.agent.outbox import Name, Result, Said, messages
from services.altruism import core as altruism
from services.estimator import core as estimator
from services.fairness import core as fairness
from services.leftover import core as leftover
from services.planner import core as planner
from tests.cells import drop_caches

BEFORE_ALTRUISM: tuple[Core, ...] = (fairness,)
AFTER_ALTRUISM: tuple[Core, ...] = (leftover, estimator, planner)
HEARTBEAT_MS = 2_000
FETCH_MS = 1_000


def shells_on(bus: Bus, settings: Settings, shards: int) -> list[Shell]:
    """Every service of a cell, in an order in which each finds what it waits for."""
    return [
        *(Shell(core, bus, settings) for core in BEFORE_ALTRUISM),
        *(Shell(altruism, bus, settings, shard=shard, of=shards) for shard in range(shards)),
        *(Shell(core, bus, settings) for core in AFTER_ALTRUISM),
    ]


# ---------------------------------------------------------------- what was recorded
@dataclass(slots=True)
class Recording:
    """What a bus holds of a cell: messages of the log, and of decision topics by place."""

    log: list[Message] = field(default_factory=list)
    decisions: dict[tuple[str, int], list[Message]] = field(default_factory=dict)

    def records(self) -> Iterator[Record]:
        """The log's records, claims included."""
        return (decode(unwrap(message.value)[1]) for message in self.log)

    def bodies(self, kind: type) -> list[Any]:
        """Bodies of the log of one type."""
        return [record.body for record in self.records() if isinstance(record.body, kind)]

    def outcomes(self) -> dict[str, str]:
        """Job -> how it ended."""
        return {end.job: end.outcome for body in self.bodies(JobEnded) for end in body.jobs}

    def first_answers(self) -> dict[str, bytes]:
        """Record id -> content, of the first decision of each name."""
        answers: dict[str, bytes] = {}
        for kept in self.decisions.values():
            for message in kept:
                content = unwrap(message.value)[1]
                answers.setdefault(heading(content)[1], content)
        return answers

    def messages(self) -> list[Message]:
        """Everything, decisions before the log."""
        return [message for kept in self.decisions.values() for message in kept] + self.log


async def recorded(bus: Bus, shards: int) -> Recording:
    """All that a bus holds of a cell by now."""
    return Recording(await _all(bus, LOG, 0, 0), await _decisions(bus, shards, {}))


async def _decisions(bus: Bus, shards: int, since: dict[tuple[str, int], int]) -> dict[tuple[str, int], list[Message]]:
    """Decision topics from the offsets in `since` on."""
    places = [(topic, place) for topic in DECISIONS for place in range(shards if topic in SHARDED else 1)]
    return {(topic, place): await _all(bus, topic, place, since.get((topic, place), 0)) for topic, place in places}


async def _all(bus: Bus, topic: str, partition: int, at: int) -> list[Message]:
    end = (await bus.bounds(topic, partition))[1]
    found: list[Message] = []
    while at < end:
        fetched = await bus.fetch(topic, partition, at, wait_ms=FETCH_MS)
        found += fetched
        at = fetched.position
    return found


# ---------------------------------------------------------------- telling a story
class _Agent:
    """One node: the agent's own core; what it starts ends by a timer, as its stage and the attempt's name say."""

    def __init__(self, bus: Bus, node: str, cpu: str, partition: int = 0) -> None:
        self._reader, self._writer = LogReader(bus, partition), bus.writer()
        self._partition = partition
        self._node, self._cpu = node, cpu
        self._life = 1
        self.state = agent.start(node, "e1")
        self._ends: list[tuple[int, str]] = []
        self._runs: dict[str, tuple[Name, Result]] = {}
        self._beat_ms = 0
        self.away = False

    @property
    def work(self) -> agent.NodeWork:
        """What the log has of its node."""
        return self.state.nodes[self._node]

    def next_ms(self) -> int | None:
        """When it has something to say by itself."""
        return None if self.away else min([self._beat_ms, *(end_ms for end_ms, _ in self._ends[:1])])

    async def act(self, now_ms: int) -> bool:
        """Reads the log, does what it says, and reports; False where there was nothing of that."""
        if self.away:
            return False
        read = await self._reader.read()
        for accepted in read:
            agent.fold(self.state, accepted.record)
        said = [part for action in agent.take(self.state, self._node) for part in self._do(action, now_ms)]
        while self._ends and self._ends[0][0] <= now_ms:
            _, key = heappop(self._ends)
            if key in self._runs:
                name, result = self._runs.pop(key)
                said.append(Said(key, name, False, result))
        for document in messages(said, self._node, self.work.epoch):
            await publish_input(self._writer, "tasks", document, f"agent:{self._node}", self._partition)
        if now_ms >= self._beat_ms:
            self._beat_ms = now_ms + HEARTBEAT_MS
            await self._speak("report" if self.work.standing == "registered" else "register")
        return bool(read)

    async def come_back(self) -> None:
        """Another process in its place, that knows of nothing."""
        self.away, self._life, self._runs, self._ends, self._beat_ms = False, self._life + 1, {}, [], 0
        agent.renew(self.work, f"e{self._life}")

    async def _speak(self, form: str) -> None:
        offer = {"node": self._node, "epoch": self.work.epoch, "capacity": {"cpu": self._cpu, "memory": "8Gi"}}
        await publish_input(self._writer, "nodes", {form: offer}, f"agent:{self._node}", self._partition)

    def _do(self, action: agent.Action, now_ms: int) -> list[Said]:
        key = action.key
        match action:
            case agent.Start(_, held, stage):
                name = Name(held.job, held.stage, held.index, held.attempt)
                run_ms = stage.durations_ms[held.index % len(stage.durations_ms)]
                self._runs[key] = name, _fate(key, stage.stage, run_ms)
                heappush(self._ends, (now_ms + run_ms, key))
                return [Said(key, name, True, None)]
            case agent.Stop(_, held, reason) if key in self._runs or not held.given:
                self._runs.pop(key, None)
                name = Name(held.job, held.stage, held.index, held.attempt)
                return [Said(key, name, False, Result(reason))]
            case agent.Over():
                self._runs.pop(key, None)
        return []


def _fate(key: str, stage: str, run_ms: int) -> Result:
    """One in four attempts of a stage whose name begins so is shaky and fails; its own name says which."""
    fails = stage.startswith("shaky") and blake2b(key.encode(), digest_size=1).digest()[0] % 4 == 0
    return Result("exit_code", run_ms, 1, "shaky") if fails else Result(None, run_ms)


class SteppedCell:
    """Sequencer, shells and agents (node -> cores as text) on one bus. `now_ms`: the clock that the sequencer sees."""

    def __init__(self, bus: Bus, settings: Settings, shards: int, nodes: dict[str, str]) -> None:
        self.now_ms = 0
        self.bus = bus
        self.agents = {node: _Agent(bus, node, cpu, settings.partition) for node, cpu in nodes.items()}
        self.shells = shells_on(bus, settings, shards)
        self.sequencer = Sequencer(
            bus, settings, clock=lambda: self.now_ms, draw_token=lambda: "the-only-token", alone=True
        )

    async def settle(self) -> None:
        """Lets everybody do what there is to do at this time."""
        busy = True
        while busy:
            busy = False
            while await self.sequencer.step():
                busy = True
            for shell in self.shells:
                while await shell.step():
                    busy = True
            for each in self.agents.values():
                busy = await each.act(self.now_ms) or busy

    def next_ms(self) -> int:
        """When somebody has something to do next."""
        moments = [each.next_ms() for each in self.agents.values()]
        return min(self.now_ms + self.sequencer.wait_ms(), *(moment for moment in moments if moment is not None))


Input = tuple[int, str, Any]
"""When, on which topic, what. On the topic `away` and `back`: an agent of that name that goes or comes."""


async def play(cell: SteppedCell, story: list[Input], over_ms: int) -> None:
    """Tells the story in virtual time, up to `over_ms`, and ends the shells."""
    await tell(cell, story, over_ms)
    for shell in cell.shells:
        await shell.close()


async def tell(cell: SteppedCell, story: list[Input], over_ms: int) -> None:
    """Tells the story in virtual time, up to `over_ms`."""
    writer, waiting = cell.bus.writer(), sorted(story, key=lambda given: given[0])
    while cell.now_ms < over_ms:
        while waiting and waiting[0][0] <= cell.now_ms:
            _, topic, what = waiting.pop(0)
            if topic == "away":
                cell.agents[what].away = True
            elif topic == "back":
                await cell.agents[what].come_back()
            else:
                await publish_input(writer, topic, what, "client")
        await cell.settle()
        moments = [cell.next_ms(), *(at for at, _, _ in waiting[:1])]
        cell.now_ms = max(cell.now_ms + 1, min(moments))


# ---------------------------------------------------------------- hearing it again
class Stage:
    """Fresh shells on another bus, before which a recorded log is put up record by record.

    `forgetful`: all caches are dropped before every round. `restarting`: after every round each shell is a new one,
    from the snapshot that the one before it has just taken. `unrecorded`: answers of which the recording has none,
    since its round did not wait for them.
    """

    def __init__(self, bus: Bus, shards: int, *, forgetful: bool = False, restarting: bool = False) -> None:
        self.bus, self.shards, self.forgetful, self.restarting = bus, shards, forgetful, restarting
        self.settings = Settings(snapshot_rounds=1 if restarting else 1_000)
        self.shells = shells_on(bus, self.settings, shards)
        self.compared = self.unrecorded = self.restarts = 0
        self._read: dict[tuple[str, int], int] = {}

    async def hear(self, recording: Recording) -> None:
        """The whole log. Raises AssertionError at the first answer that is another one."""
        answers, writer = recording.first_answers(), self.bus.writer()
        for at, (message, record) in enumerate(zip(recording.log, recording.records(), strict=True)):
            opens = isinstance(record.body, RoundOpened)
            if opens and self.forgetful:
                drop_caches(shell.state for shell in self.shells)
            offsets = await writer.send([Outgoing(LOG, 0, message.value)], durable=True)
            assert offsets == [at]
            for shell in self.shells:
                while shell.log.order.offset <= at:
                    if not await shell.step():
                        await self.bus.wait_any(shell.log.position, FETCH_MS)
            if opens:
                await self._compare(record, answers)
            elif self.restarting and isinstance(record.body, RoundClosed | RoundAbandoned):
                await self._restart(at)
        for shell in self.shells:
            await shell.close()

    async def _compare(self, opening: Record, answers: dict[str, bytes]) -> None:
        given = await _decisions(self.bus, self.shards, self._read)
        self._read = {place: self._read.get(place, 0) + len(kept) for place, kept in given.items()}
        found = Recording([], given).first_answers()
        wanted = {id_: content for id_, content in answers.items() if id_.endswith(opening.id)}
        assert {id_: found.get(id_) for id_ in wanted} == wanted, opening.id
        self.compared += len(wanted)
        self.unrecorded += len(found) - len(wanted)

    async def _restart(self, at: int) -> None:
        for shell in self.shells:
            await shell.close()
        self.shells = shells_on(self.bus, self.settings, self.shards)
        for shell in self.shells:
            await shell.restore()
            assert shell.log.order.offset == at + 1, f"{shell.name} was not restored to the end of the round"
        self.restarts += 1
