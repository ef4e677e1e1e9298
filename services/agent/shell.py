"""Agent: processes on one node, and what becomes of them.

Follows the log and acts on nothing else: starts what is granted to its node and epoch, stops what the log says is over,
and reports to `nodes` and `tasks` until the log shows the report. Tasks outlive the agent (shim.py); the next one
registers the node under a new epoch, names the attempts it still knows, and kills those that the log does not adopt.
"""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from functools import partial
from typing import Literal

from largesse.bus.port import Bus
from largesse.lifecycle.node_work import Action, Begun, NodeWork, Over, Start, Stop
from largesse.telemetry import CAUGHT_UP, logger
from largesse.waiting import is_set_within, until_first_ends
from services.agent.archive import Archive
from services.agent.attempts import Attempts
from services.agent.capacity import measured
from services.agent.device_watch import DevicesWatch, with_devices
from services.agent.devices.health import Health
from services.agent.edge import EdgeBus
from services.agent.executors.port import LOOK_MS
from services.agent.feed import Feed
from services.agent.folders import live_name, take_identity
from services.agent.images import Images
from services.agent.inputs import Inputs
from services.agent.lease_file import HOLD, SUSPEND_PARTS, boot_ms
from services.agent.local import Launched, Local, mono_ms
from services.agent.log_follower import LogFollower
from services.agent.machine import Machine
from services.agent.outbox import Name, Result
from services.agent.peers import Peer, by_address, by_bridges
from services.agent.reporter import Reporter
from services.agent.settings import NodeSettings
from services.agent.troubles import MACHINE, Troubles

HOLD_MS, HOLD_PARTS = 250, 40
"""So often, or this part of the lease, it is said again how long tasks may run on."""
DEVICES_MS = 2_000
"""So often devices are asked how they are."""
QUIET_TIMES = 4
"""So many times more rarely a node is looked at where nothing runs and nothing is wrong."""
PAUSE_MS = 5_000
"""An agent that has done nothing for so long was paused."""
DEPARTING = "its node is not run any more"
START_WAIT_MS = 1_000
END_WAIT_MS = 20_000  # Beyond the grace, for everything to have ended.


class TakenOver(Exception):
    """Another agent has registered this node: names node and epoch. Everything that ran here has been stopped."""


async def run(
    bus: Bus, node: NodeSettings, stop: asyncio.Event, peer: Peer | None = None, machine: Machine | None = None
) -> None:
    """Serves one node until `stop` is set. `peer`: reads what other agents keep; None: from where they say they are,
    or by a bridge. `machine`: None: this one.

    Raises DirectoryHeld (another agent has the data folder), TakenOver, PositionGap and Undecodable (the log cannot be
    followed), OSError (the data folder cannot be used). A bus that fails for a while is waited for, and so is a data
    folder whose disk is full.
    """
    data, machine = node.data.absolute(), machine or Machine()
    while not stop.is_set():
        try:
            data.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = machine.lock(data)
            try:
                offered = replace(node, data=data, capacity=node.capacity or measured(data, node.parts))
                offered, health = await with_devices(offered, machine)
                agent = _Agent(bus, offered, peer, machine, health)
                await agent.live(stop)
            finally:
                lock.release()
            return
        except OSError as error:
            if error.errno not in MACHINE:
                raise
            logger(service="agent", node=node.name).warning("its folder cannot be used at the moment", error=str(error))
        await is_set_within(stop, START_WAIT_MS / 1_000)


class _Agent:
    """One life of an agent. Everything happens on one event loop; only what blocks runs in threads."""

    def __init__(self, bus: Bus, node: NodeSettings, peer: Peer | None, machine: Machine, health: Health) -> None:
        self._bus, self._node, self._machine = bus, node, machine
        self._log = logger(service="agent", node=node.name)
        self._identity = take_identity(node.data)
        begin = bus.feed if isinstance(bus, EdgeBus) else partial(LogFollower, bus)
        self._feed: Feed = begin(node, self._identity.epoch, self._note_end)
        self._attempts = Attempts(node, hold=str(node.data / HOLD), made=machine.executors)
        bridge = bus.peer() if isinstance(bus, EdgeBus) else by_bridges(node.bridges, node.peers)
        self._inputs = Inputs(node, peer or by_address(lambda name: self._feed.address_of(name), bridge, node.peers))
        self._images = Images(node)
        self._reporter = Reporter(bus, node)
        self._events = self._attempts.open_events()
        self._archive = Archive(node, lambda: self._feed.time, machine.put_away)
        self._holding = machine.hold(node.data, self._lease_ms, alone=node.alone)
        self._troubles = Troubles(DEPARTING if node.departing else "")
        self._devices = DevicesWatch(health)
        self._registered = asyncio.Event()
        self._seen = ""  # The epoch for which tasks were held.
        self._withheld: list[Local] = []  # Ends that are not reported before it is known whether the node is well.
        self._look = asyncio.Event()
        self._wake = asyncio.Event()
        self._caught_up = asyncio.Event()

    async def live(self, stop: asyncio.Event) -> None:
        """From the first look at the folder until `stop`."""
        loop = asyncio.get_running_loop()
        CAUGHT_UP.labels(self._node.name).set(0)
        try:
            await asyncio.to_thread(self._attempts.scan)
            await self._look_at_devices()
            self._log.info("limits of tasks", limits=self._attempts.limits_text)
            self._label()
            for local in self._attempts.by_key.values():
                self._archive.runs.began(live_name(local.name.job, local.admitted), local.run_name)
            for events in self._events:
                loop.add_reader(events, self._hear)
            try:
                await self._serve(stop)
            except TakenOver:
                await self._end_all("killed")
                raise
            if not self._node.keep_running:
                await self._end_all("lost" if self._node.leaves else "killed")
            if self._node.leaves:
                await self._reporter.leave(self._work)
            if self._node.departing and self._registered.is_set() and not self._attempts.alive:
                await self._archive.put_all_away()
        finally:
            if self._node.alone and self._node.keep_running and stop.is_set():
                self._holding.keep()
            self._holding.close()
            for events in self._events:
                loop.remove_reader(events)
            self._inputs.close()
            self._images.close()
            self._attempts.close()
            CAUGHT_UP.remove(self._node.name)
            await self._reporter.drop()

    async def _serve(self, stop: asyncio.Event) -> None:
        """Until `stop`, or the first error of any part."""
        lives: list[Coroutine[object, object, object]] = [self._follow(), self._keep_time(), self._hold()]
        lives += [self._inputs.watch(), self._images.watch(), stop.wait()]
        if self._node.departing:
            lives.append(self._registered.wait())
        else:
            lives += [self._watch_node(), self._watch_bus(), self._clear(), self._watch_devices()]
        await until_first_ends(lives)

    @property
    def _work(self) -> NodeWork:
        """What the log has said so far of this node."""
        return self._feed.work

    # ---------------------------------------------------------------- the log
    async def _follow(self) -> None:
        await self._catch_up()
        feed = self._feed
        while True:
            await self._act(feed.take(may_start=not feed.fell_behind()))
            self._check_standing()
            self._say_troubles()
            self._end_on_broken()
            await feed.save()
            if feed.fell_behind():
                await feed.read_on(self._act)
            else:
                await feed.read()

    async def _catch_up(self) -> None:
        await self._feed.catch_up()
        for local in list(self._attempts.by_key.values()):
            held = self._work.held.get(local.key)
            if held is None or held.run != local.admitted:
                self._drop(local)
        self._caught_up.set()
        CAUGHT_UP.labels(self._node.name).set(1)

    def _note_end(self, job: str, run: int) -> None:
        self._archive.runs.ended(live_name(job, run))
        self._inputs.forget(job, run)

    def _check_standing(self) -> None:
        work = self._work
        # A message of our own that came late, be it of the agent before us, is no rival.
        if work.rival and work.rival not in self._identity.issued:
            raise TakenOver(
                f"node {work.node} was registered by another agent, under epoch {work.rival}: end one of the two, or "
                "give this one another name (LARGESSE_NODE)"
            )
        if work.standing == "registered":
            self._put_off()
            self._registered.set()
        if work.standing == "taken":
            self._renew()
        self._wake.set()

    async def _may_come_back(self) -> bool:
        """Whether this node was lost, nothing runs on it any more, and no other agent has it."""
        work = self._work
        if work.standing != "lost" or self._attempts.alive or not await self._feed.knows_of_the_loss():
            return False
        return not work.rival or work.rival in self._identity.issued

    def _renew(self) -> None:
        self._feed.forget_loss()
        try:
            self._identity = take_identity(self._node.data)
        except OSError as error:
            self._fall(f"its epoch cannot be written down: {error.strerror or error}")
            return  # The standing stays, so it is tried again.
        self._feed.renew(self._identity.epoch)
        self._reporter.begin_anew()
        self._log.warning("the node has to be registered again", epoch=self._work.epoch)

    @property
    def _lease_ms(self) -> int:
        return self._node.silent_ms or self._feed.node_lease_ms

    async def _hold(self) -> None:
        """Holds the node's tasks as long as the cell certainly gives them to nobody else.

        Where that was over for a moment, the log may hold the node lost by now, or be about to: it is registered again,
        as after a restart, and the record says what goes on here.
        """
        while True:
            if self._seen == self._work.epoch:
                self._put_off()
            # Whatever starts meanwhile has it said first.
            await asyncio.sleep(self._rarely(min(HOLD_MS, self._lease_ms / HOLD_PARTS)) / 1_000)

    def _put_off(self) -> None:
        """Tells the shims for how long their tasks may run on. Whatever the log no longer wants ends by now."""
        epoch, holding, lease_ms = self._work.epoch, self._holding, self._lease_ms
        sure_ms = self._reporter.sure_ms(epoch)
        if self._work.standing != "registered" or sure_ms is None:
            return
        if self._seen == epoch and boot_ms() >= holding.until_ms - holding.lease_ms // SUSPEND_PARTS:
            self._log.warning("it was not heard for long: what runs here waits until the log has it again")
            self._renew()
            self._wake.set()
            return
        due_ms = sure_ms + lease_ms
        # Where it makes a difference: this is asked for with every batch of the log.
        if self._seen != epoch or lease_ms != holding.lease_ms or due_ms - holding.until_ms >= lease_ms // HOLD_PARTS:
            holding.put_off(due_ms, lease_ms)
        self._seen = epoch

    # ---------------------------------------------------------------- what the log wants
    async def _act(self, actions: list[Action]) -> None:
        starts = []
        for action in actions:
            match action:
                case Start():
                    starts.append(action)
                case Stop():
                    self._stop(action)
                case Begun(key):
                    self._reporter.outbox.begun(key)
                case Over(key):
                    self._reporter.outbox.over(key)
                    if (local := self._attempts.by_key.get(key)) is not None:
                        self._drop(local)
        if starts:
            self._put_off()
            await self._start(starts)

    async def _start(self, starts: list[Start]) -> None:
        known = [start for start in starts if start.key in self._attempts.by_key]
        for start in known:
            self._report(start, Result("lost", detail="an older attempt of the same name is still ending"))
        prepared = self._attempts.prepare([start for start in starts if start.key not in self._attempts.by_key])
        for local, start in prepared:
            self._archive.runs.began(live_name(local.name.job, local.admitted), local.run_name)
            if start.stage.inputs:
                self._inputs.begin(local, self._feed.handed_to(start), partial(self._brought, local, start))
            else:
                self._fetch(local, start)
        if at_once := [(local, start) for local, start in prepared if not local.waits]:
            await self._launch(at_once)

    def _fetch(self, local: Local, start: Start) -> bool:
        """Whether an attempt has to wait until its image is fetched."""
        said = start.stage.container
        if said is None or self._images.is_there(said):
            return False
        self._images.begin(local, said, partial(self._fetched, local, start))
        return True

    async def _brought(self, local: Local, start: Start, outcome: Launched | None) -> None:
        """Results of earlier stages are in place, or cannot be brought."""
        if outcome is not None or not self._fetch(local, start):
            await self._fetched(local, start, outcome)

    async def _fetched(self, local: Local, start: Start, outcome: Launched | None) -> None:
        """All that an attempt needs is here, or cannot be had."""
        if outcome is not None:
            self._take_in([outcome])
            return
        await self._feed.kept_up()
        if local.phase != "ended":
            local.waits = False
            self._put_off()
            await self._launch([(local, start)])

    async def _launch(self, prepared: list[tuple[Local, Start]]) -> None:
        launching = asyncio.ensure_future(asyncio.to_thread(self._attempts.launch, prepared))
        try:
            await asyncio.shield(launching)
        finally:
            # An operator who ends this agent wants to know what runs.
            self._take_in(await launching)

    def _take_in(self, outcomes: list[Launched]) -> None:
        for trouble in [outcome.trouble for outcome in outcomes if outcome.trouble]:
            self._fall(trouble)
        self._note(self._attempts.launched(outcomes))

    def _stop(self, stop: Stop) -> None:
        local = self._attempts.by_key.get(stop.key)
        if local is not None and local.admitted == stop.held.run:
            grace_ms = self._node.revoke_grace_ms if stop.reason == "revoked" else self._node.stop_grace_ms
            if stop.held.grace_ms is not None:
                grace_ms = stop.held.grace_ms  # What the cell takes back it has told the time for.
            self._note(self._attempts.stop(local, stop.reason, grace_ms))
        elif stop.held.epoch == self._work.epoch:
            self._report(stop, Result(stop.reason, detail=f"stopped before it began: {stop.reason}"))

    def _report(self, action: Start | Stop, result: Result) -> None:
        held = action.held
        self._reporter.outbox.ended(action.key, Name(held.job, held.stage, held.index, held.attempt), result, mono_ms())

    def _drop(self, local: Local) -> None:
        """The log does not wait for it, or no longer: nothing of it is reported, and nothing of it runs on."""
        local.quiet = True
        if local.phase != "ended":
            self._attempts.stop(local, "killed", 0)  # The cell may have given it to another node by now.
        if local.phase == "ended":
            self._forget(local)

    def _forget(self, local: Local) -> None:
        """It has ended, here and in the log."""
        if self._attempts.by_key.get(local.key) is local:
            self._attempts.forget(local.key)
            self._archive.runs.forgotten(live_name(local.name.job, local.admitted))

    # ---------------------------------------------------------------- what happens here
    def _hear(self) -> None:
        self._note(self._attempts.hear())

    def _note(self, changed: list[Local]) -> None:
        """Attempts that began or ended, on their way to the log."""
        now_ms = mono_ms()
        for local in changed:
            self._devices.explain(local)
            if local.quiet:
                if local.phase == "ended":
                    self._forget(local)
            elif local.result and local.result.reason == "lost" and not (local.stopping or local.waits):
                self._withheld.append(local)
                self._troubles.suspect(now_ms)
                self._look.set()
            else:
                self._reporter.note(local, now_ms)
        if changed:
            self._wake.set()

    async def _keep_time(self) -> None:
        """Looks and words, each when it is due."""
        while True:
            self._wake.clear()
            self._note(self._attempts.look_where_due(mono_ms()))
            moments = [self._attempts.look_ms()]
            if self._caught_up.is_set():
                if await self._may_come_back():
                    self._renew()
                known = self._attempts.by_key.values()
                feed = self._feed
                words = self._reporter.speak(
                    feed.work, feed.node_lease_ms, known, in_round=feed.in_round, is_known=feed.has
                )
                moments.append(await words)
            next_ms = min(moment for moment in moments if moment is not None)
            await self._sleep_until(next_ms)

    async def _watch_bus(self) -> None:
        """Ends what runs here once this node has been cut off from the bus for too long."""
        cut_off_ms, spared_ms = self._node.cut_off_ms, 0
        while cut_off_ms:
            before_ms = mono_ms()
            await asyncio.sleep(LOOK_MS / 1_000)
            now_ms = mono_ms()
            if now_ms - before_ms > PAUSE_MS:
                spared_ms = now_ms + PAUSE_MS  # It was paused, so the bus has to get a chance first.
            if now_ms >= max(spared_ms, self._reporter.heard_ms + cut_off_ms):
                self._cut_off()
        await asyncio.Event().wait()

    def _cut_off(self) -> None:
        """The cell has not heard from this node for so long that its tasks may run elsewhere too: they end."""
        running = [local for local in self._attempts.by_key.values() if local.phase != "ended" and not local.stopping]
        if running:
            self._log.warning("cut off: what runs here is ended", attempts=len(running))
        for local in running:
            self._note(self._attempts.stop(local, "lost", self._node.stop_grace_ms))

    async def _sleep_until(self, moment_ms: int) -> None:
        """Until then, or until something happens."""
        waiting = asyncio.ensure_future(self._wake.wait())
        await asyncio.wait((waiting,), timeout=max(0, moment_ms - mono_ms()) / 1_000)
        waiting.cancel()

    # ---------------------------------------------------------------- whether this node is well
    def _fall(self, reason: str) -> None:
        """Something fails that is no job's fault: the node takes no new tasks until it works again."""
        if not self._troubles.reason:
            self._log.warning("takes no new tasks for now", reason=reason)
        self._troubles.fall(reason, mono_ms())
        self._say_troubles()

    def _label(self) -> None:
        """With the node's own labels, and those of what can be run on it at the moment."""
        self._reporter.labels = dict(sorted({**self._node.labels, **self._attempts.labels}.items()))

    def _say_troubles(self) -> None:
        """Tells the log whether the node takes tasks, and then what was withheld until it knows."""
        troubles = self._troubles
        if self._reporter.unschedulable and not troubles.reason:
            self._log.info("takes new tasks again")
        self._reporter.unschedulable = troubles.reason
        if self._withheld and (self._work.unschedulable or not (troubles.reason or troubles.suspected)):
            withheld, self._withheld = self._withheld, []
            for local in withheld:
                if self._attempts.by_key.get(local.key) is local and not local.quiet and local.result is not None:
                    self._reporter.outbox.ended(local.key, local.name, local.result, mono_ms())
        self._wake.set()

    async def _watch_node(self) -> None:
        """Looks at the disk, and probes where something has failed."""
        data, room, troubles = self._node.data, self._node.room, self._troubles
        machine = self._machine
        while True:
            self._look.clear()
            if fault := await asyncio.to_thread(machine.short_of, data, room) or self._archive.behind(
                closed=bool(troubles.reason)
            ):
                self._fall(fault)
            if troubles.is_due(mono_ms()):
                fault = await asyncio.to_thread(machine.probe, data, room)
                if fault and not troubles.reason:
                    self._log.warning("takes no new tasks for now", reason=fault)
                troubles.probed(fault, mono_ms(), logged=bool(self._work.unschedulable))
            self._say_troubles()
            self._label()
            is_well = not troubles.reason and not troubles.suspected
            await is_set_within(self._look, (self._rarely(LOOK_MS) if is_well else LOOK_MS) / 1_000)

    async def _watch_devices(self) -> None:
        """Asks how the devices are, again and again."""
        while self._devices.is_asked:
            await asyncio.sleep(DEVICES_MS / 1_000)
            await self._look_at_devices()
        await asyncio.Event().wait()

    async def _look_at_devices(self) -> None:
        """Says which devices are out, and ends what comes to no good there."""
        if not self._devices.is_asked:
            return
        for text in await asyncio.to_thread(self._devices.look):
            self._log.warning(text)
        if self._reporter.out != self._devices.out:
            self._log.warning("devices that are out", out=self._devices.out or "none")
            self._reporter.out = self._devices.out
            self._wake.set()
        self._end_on_broken()

    def _end_on_broken(self) -> None:
        """Ends what runs on devices that are broken, once the log has them as out: it would start there again."""
        for local, detail in self._devices.to_end(self._work, self._attempts.by_key):
            self._log.warning("ended, since its device is broken", attempt=local.key, detail=detail)
            self._note(self._attempts.stop(local, "lost", self._node.stop_grace_ms))

    def _rarely(self, every_ms: float) -> float:
        """How often something is looked at that is every so often where tasks run."""
        return every_ms if self._attempts.alive else QUIET_TIMES * every_ms

    async def _clear(self) -> None:
        """Puts away what ended jobs left, from the moment on at which the log has been read."""
        await self._caught_up.wait()
        await self._archive.keep(self._feed.live_runs, self._look.set)

    async def _end_all(self, reason: Literal["killed", "lost"]) -> None:
        """Stops everything and sees it end, or gives up on what the kernel does not let go."""
        for local in list(self._attempts.by_key.values()):
            self._attempts.stop(local, reason, self._node.stop_grace_ms)
        over_ms = mono_ms() + self._node.stop_grace_ms + END_WAIT_MS
        while self._attempts.alive and mono_ms() < over_ms:
            self._wake.clear()
            self._attempts.look(mono_ms())
            if self._attempts.alive:
                await self._sleep_until(mono_ms() + 100)
