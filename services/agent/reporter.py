"""What one agent says on the bus, and when: registration, heartbeats, reports; again until the log shows it.

A registration that one message has no room for is preceded by messages that name attempts. What it names is settled
when it is first said: nothing starts meanwhile, and what ends is reported afterwards.
"""

import asyncio
import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from largesse import failpoints
from largesse.bus.port import Bus, BusError, BusRefused, Outgoing
from largesse.lifecycle.node_work import NodeWork
from largesse.telemetry import logger
from schemas import NodeReported
from schemas.edge.base import Malformed
from schemas.edge.beats import NodeBeat, document_of
from schemas.edge.nodes import FOLDER_MAX, read_node, with_gpus
from schemas.quantities import Vector, quantity_texts
from schemas.topics import BEATS
from services.agent.lease_file import boot_ms
from services.agent.local import Local, mono_ms
from services.agent.outbox import Outbox, Said, known_attempts, messages
from services.agent.settings import NodeSettings

GATHER_MS = 100
"""While the log has not shown what was said last, what comes is gathered for so long: a cell that has much to do is
told of it in fewer messages, and opens fewer rounds for it.
"""
BEGINS_MS = 250
"""So long what is to be said waits, at most, for a round that is open, of which it becomes no part any more, and for
tasks that begin: those that are brief are reported together, start and end in one. What ran for longer, or failed, is
said without that.
"""
RETRY_MS, RETRY_MS_MAX = 100, 1_000  # A node may not be silent for long once the bus is back.
REGISTER_MS, REGISTER_MS_MAX = 1_000, 30_000
LEAVE_SECONDS = 3


class Reporter:
    """Speaks for one node. Messages of one topic keep their order, also when one has to be sent twice.

    `labels`: the node's at the moment. `unschedulable`: why the node takes no new tasks, said at once when it changes;
    empty: it does. `out`: the devices on which nothing may start, by index, and why; said at once, too. `heard_ms`:
    when the last message that the bus has taken was sent.
    """

    def __init__(self, bus: Bus, node: NodeSettings) -> None:
        self.outbox = Outbox()
        self.unschedulable = ""
        self.out: dict[int, str] = {}
        self.labels = node.labels
        self.heard_ms = mono_ms()
        self._sure: tuple[str, int] = ("", 0)  # The epoch of the last message that was taken, and when it was sent.
        self._offered: tuple[str, dict[int, str]] = ("", {})  # What was said last of `unschedulable` and `out`.
        self._reported: dict[str, object] = {}  # The last report that may have gone to `nodes`.
        self._named: tuple[str, list[list[dict[str, Any]]]] = ("", [])
        self._bus, self._node = bus, node
        self._writer = bus.writer()
        self._epoch = ""  # The one that was last registered, as far as we know.
        self._register_ms, self._register_wait_ms = 0, REGISTER_MS
        self._beat_ms = 0
        self._flush_ms = self._gather_ms = self._begins_ms = 0
        self._retry_ms, self._retry_wait_ms = 0, RETRY_MS
        self._log = logger(service="agent", node=node.name)

    async def speak(
        self,
        work: NodeWork,
        lease_ms: int,
        locals_: Iterable[Local],
        *,
        in_round: bool = False,
        is_known: Callable[[NodeReported], bool] = lambda said: False,
    ) -> int | None:
        """Says what is due; returns when to call again, or None: not before something happens. `lease_ms`: how long the
        cell believes a silent node. `is_known`: whether the log has a report already, so that a sign of life will do.
        """
        if work.standing in ("lost", "taken"):
            return None  # What still runs here has to end first, or another epoch has to be begun.
        if mono_ms() < self._retry_ms:
            return self._retry_ms
        if work.standing != "registered":
            return await self._register(work, list(locals_))
        if self._epoch != work.epoch:
            self._settle(work, lease_ms)
        now_ms = mono_ms()
        if now_ms >= self._beat_ms or self._offered != (self.unschedulable, self.out):
            offer = self._offer(work)
            said = self.unschedulable, self.out
            if await self._send(*self._heartbeat(offer, is_known), work.epoch):
                self._offered = said
                self._beat_ms = now_ms + min(self._node.heartbeat_ms, lease_ms // 3)
        await self._report(work, locals_, in_round)
        due_ms = self.outbox.due_ms()
        moments = [self._beat_ms] if due_ms is None else [self._beat_ms, max(due_ms, self._speaks_ms, self._begins_ms)]
        return max(self._retry_ms, min(moments))

    def _heartbeat(
        self, offer: dict[str, object], is_known: Callable[[NodeReported], bool]
    ) -> tuple[str, list[dict[str, object]]]:
        """A report, until the log shows what it says and nothing else may be on its way there; else a sign of life."""
        with suppress(Malformed):  # What is wrong with it the sequencer says.
            said = read_node({"report": offer}, "")
            if self._reported in ({}, offer) and isinstance(said, NodeReported) and is_known(said):
                return BEATS, [document_of(NodeBeat(said.node, said.epoch))]
        self._reported = offer
        return "nodes", [{"report": offer}]

    def note(self, local: Local, now_ms: int) -> None:
        """For the next report: that an attempt has begun, that it has ended, or both, where both were heard at once."""
        if local.unsaid or local.result is None:
            local.unsaid = False
            self.outbox.started(local.key, local.name, now_ms)
        if local.result is not None:
            self.outbox.ended(local.key, local.name, local.result, now_ms)

    def sure_ms(self, epoch: str) -> int | None:
        """Where the log shows that epoch as registered: the cell gives nothing of the node away before a lease after,
        by the clock of lease_file.py. None: not a word of it was begun.
        """
        return self._sure[1] if self._sure[0] == epoch else None

    def begin_anew(self) -> None:
        """Another epoch is to be registered, at once."""
        self._register_ms, self._register_wait_ms = 0, REGISTER_MS

    async def leave(self, work: NodeWork) -> None:
        """Last words: the node goes. Where the bus does not take them in time, the node's lease says the same later."""
        if work.standing != "registered":
            return
        document = {"leave": {"node": work.node, "epoch": work.epoch}}
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                left = await self._send("nodes", [document], work.epoch)
        except TimeoutError:
            left = False
        self._log.info("left", epoch=work.epoch, said=left)

    async def drop(self) -> None:
        """Says nothing more."""
        await self._writer.drop()

    async def _register(self, work: NodeWork, locals_: list[Local]) -> int:
        if mono_ms() >= self._register_ms:
            offer, said = self._offer(work), (self.unschedulable, self.out)
            if self._sure[0] != work.epoch:
                self._sure = (work.epoch, boot_ms())  # The log may show it before the bus says that it has it.
            if await self._send("nodes", self._registration(work, offer, locals_), work.epoch):
                self._offered = said
                # There may be no sequencer to answer, so repeats become rarer and rarer (exponential back-off).
                self._register_ms = mono_ms() + self._register_wait_ms
                self._register_wait_ms = min(2 * self._register_wait_ms, REGISTER_MS_MAX)
        return max(self._retry_ms, self._register_ms)

    def _registration(self, work: NodeWork, offer: dict[str, Any], locals_: list[Local]) -> list[dict[str, Any]]:
        """The messages that register the node under the node's epoch."""
        if self._named[0] != work.epoch:
            loud = [local for local in locals_ if not local.quiet]
            running = [local.name for local in loud if local.result is None]
            ended = [(local.name, local.result) for local in loud if local.result is not None]
            self._named = (work.epoch, known_attempts(running, ended))
        *before, last = self._named[1]
        where = {"node": work.node, "epoch": work.epoch}
        known = [{"known": {**where, "part": part, "attempts": batch}} for part, batch in enumerate(before)]
        register = {**offer, "attempts": last, "address": self._node.address, "parts": len(before)}
        first, last_port = self._node.ports
        register |= {"host": self._node.host, "port_first": first, "port_last": last_port}
        return [*known, {"register": {**register, "results": self._results()}}]

    def _results(self) -> dict[str, Any] | None:
        """Where the results of ended jobs lie, and for how long; None for a path that no record can hold."""
        kept, folder = self._node.kept, str(self._node.data)
        if len(folder) > FOLDER_MAX or not folder.isprintable():
            return None
        limits = {"age_ms": kept.age_ms, "bytes": kept.bytes, "runs": kept.runs, "inodes": kept.inodes}
        return {"folder": folder, **limits}

    def _settle(self, work: NodeWork, lease_ms: int) -> None:
        """The log has the registration: from here on what is said counts."""
        self._epoch = work.epoch
        self._named = ("", [])
        self._reported = {}
        self._register_ms, self._register_wait_ms = 0, REGISTER_MS
        self._beat_ms = mono_ms() + min(self._node.heartbeat_ms, lease_ms // 3)
        self.outbox.again(mono_ms())
        self._log.info("registered", epoch=work.epoch)

    async def _report(self, work: NodeWork, locals_: Iterable[Local], in_round: bool) -> None:
        """Everything that is due in one batch, at most one every `report_flush_ms`."""
        now_ms = mono_ms()
        if now_ms < self._speaks_ms:
            return
        self._begins_ms = 0
        said, since_ms = self.outbox.due(now_ms), self.outbox.due_ms()
        if since_ms is not None and now_ms < since_ms + BEGINS_MS and all(_is_brief(part) for part in said):
            if in_round or any(local.phase == "starting" and not local.waits for local in locals_):
                self._begins_ms = since_ms + BEGINS_MS
                return
        if said:
            self._flush_ms = now_ms + self._node.report_flush_ms
            self._gather_ms = now_ms + max(GATHER_MS, self._node.report_flush_ms)
            if await self._send("tasks", messages(said, work.node, work.epoch), work.epoch):
                self.outbox.sent(said, mono_ms())

    @property
    def _speaks_ms(self) -> int:
        """When reports may be sent next."""
        return self._gather_ms if self.outbox.awaited else self._flush_ms

    async def _send(self, topic: str, documents: list[dict[str, Any]], epoch: str) -> bool:
        """False: it may or may not have arrived; nothing is sent before `_retry_ms`."""
        headers = {"author": f"agent:{self._node.name}"}
        values = [json.dumps(document).encode() for document in documents]
        begun_ms, since_ms = mono_ms(), boot_ms()
        failpoints.hit("agent", "before_publish")
        try:
            partition, early = self._node.partition, topic == "tasks"  # As a rule a record follows these at once.
            await self._writer.send([Outgoing(topic, partition, value, "", headers, early) for value in values])
        except BusRefused:
            raise
        except BusError as error:
            self._log.warning("the bus took no message at the moment", topic=topic, error=str(error))
            await self._writer.drop()
            self._writer = self._bus.writer()
            self._retry_ms = mono_ms() + self._retry_wait_ms
            self._retry_wait_ms = min(2 * self._retry_wait_ms, RETRY_MS_MAX)
            return False
        failpoints.hit("agent", "after_publish")
        self.heard_ms, self._sure = begun_ms, (epoch, since_ms)
        self._retry_wait_ms = RETRY_MS
        return True

    def _offer(self, work: NodeWork) -> dict[str, Any]:
        node = self._node
        gpus = [{**asdict(gpu), "out": self.out.get(gpu.index, "")} for gpu in node.devices]
        offer = {
            "node": node.name,
            "epoch": work.epoch,
            "capacity": quantity_texts(self._capacity()),
            "labels": self.labels,
        }
        return {**offer, "devices": {"gpu": gpus}, "unschedulable": self.unschedulable}

    def _capacity(self) -> Vector:
        """Without the devices that are out."""
        node = self._node
        if not node.devices:
            return node.capacity
        return with_gpus(node.capacity, sum(gpu.milli for gpu in node.devices if gpu.index not in self.out))


def _is_brief(part: Said) -> bool:
    """Whether this may wait for others like it: that something began, or that it has succeeded after a short time."""
    return part.result is None or (part.result.reason is None and part.result.run_ms < BEGINS_MS)
