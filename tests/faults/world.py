"""One run of one plan: a cell of real shells, agents, a client, and the faults of the plan as time goes by."""

import asyncio
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import structlog

from largesse import shell as shells
from largesse.bus.port import Bus, BusError
from largesse.log.dead_letters import read_letter
from largesse.log.decisions import DecisionGap
from largesse.log.fencing import Accepted
from largesse.log.reader import publish_input
from largesse.settings import Settings
from largesse.shell import Shell
from schemas.topics import DEADLETTER
from services.admission import sequencer as admission
from services.agent import shell as agent
from services.agent.folders import Kept
from services.agent.settings import NodeSettings
from services.altruism import core as altruism
from services.estimator import core as estimator
from services.fairness import core as fairness
from services.gateway.follow import Follower
from services.leftover import core as leftover
from services.planner import core as planner
from services.planner import shell as planner_shell
from tests.faults.broker import Broker, SimulatedBus
from tests.faults.loop import PROCESS, Died, Process, VirtualLoop, kind_of
from tests.faults.machines import Machine
from tests.faults.parts import Acked, Service, Wrong
from tests.faults.patches import in_hand, machine_of
from tests.faults.plan import FAULTS_FROM_MS, Fault, Job, Plan
from tests.faults.shims import Runs
from tests.faults.watch import Watch

RECOVERED_MS = 120_000
"""Within so long after the last fault everything that was acknowledged has ended."""
LOOK_US = 50_000
"""So often it is compared what processes believe of the log."""
AGAIN_MS = 500
"""A process that ended by itself is started again after so long."""
RETRY_MS = 400
MEMORY = Path("/dev/shm")
"""Folders there lie in memory."""
CORES = {"fairness": fairness, "leftover": leftover, "estimator": estimator}


@dataclass(slots=True)
class World:
    """See `run`. `met`: how often what was met; `story`: what happened, for the digest and for people."""

    plan: Plan
    folder: Path
    verbose: bool = False
    wrong: list[Wrong] = field(default_factory=list)
    met: Counter[str] = field(default_factory=Counter)
    story: list[str] = field(default_factory=list)
    acked: list[Acked] = field(default_factory=list)
    services: dict[str, Service] = field(default_factory=dict)
    machines: dict[str, Machine] = field(default_factory=dict)
    guardians: dict[str, Process] = field(default_factory=dict)
    locks: dict[Path, Process] = field(default_factory=dict)
    armed: dict[str, int] = field(default_factory=dict)
    passed: Counter[tuple[str, str]] = field(default_factory=Counter)
    buried: list[Process] = field(default_factory=list)
    submitted: int = 0
    loop: VirtualLoop = field(init=False)
    broker: Broker = field(init=False)
    runs: Runs = field(init=False)
    watch: Watch = field(init=False)

    def __post_init__(self) -> None:
        seed = self.plan.seed
        self.machines["control"] = Machine("control", lambda: self.loop.now_us)
        self.loop = VirtualLoop(random.Random(f"order {seed}"), self.machines["control"])
        self.broker = Broker(random.Random(f"bus {seed}"), self.plan.rates.but({}), self.loop)
        self.broker.calm = True
        self.broker.met = self.met
        self.watch = Watch(self.fail, self._tell_record)
        self.watch.met = self.met
        self.broker.hear = self.watch.hear
        self.broker.told = self.tell
        self.runs = Runs(self.tell, self.fail, self.met)

    # ---------------------------------------------------------------- telling
    def tell(self, text: str) -> None:
        """Something happened."""
        self.story.append(f"{self.loop.now_us / 1_000:10.2f}  {text}")

    def fail(self, rule: str, detail: str) -> None:
        """Something that must not be."""
        self.tell(f"WRONG: {rule}: {detail}")
        self.wrong.append(Wrong(self.loop.now_us // 1_000, rule, detail))
        self.loop.stop()

    def _tell_record(self, accepted: Accepted) -> None:
        record = accepted.record
        self.met[f"record: {record.type}"] += 1
        text = str(record.body)
        cut = text if len(text) <= 150 else f"{text[:150]}..."
        self.story.append(f"{self.loop.now_us / 1_000:10.2f}  log {record.seq} {cut}")

    def said(self, _logger: object, level: str, event: dict[str, Any]) -> str:
        """A line of a service's log: for people only."""
        process = PROCESS.get(self.loop.world)
        words = " ".join(f"{name}={value}" for name, value in event.items() if name not in ("event", "service"))
        self.story.append(f"{self.loop.now_us / 1_000:10.2f}    {process}: {event.get('event')} {words[:160]}")
        raise structlog.DropEvent

    def at_point(self, service: str, point: str) -> None:
        """A process passes a failpoint."""
        process = PROCESS.get(self.loop.world)
        self.passed[process.name, point] += 1
        left = self.armed.get(f"{process.name}:{point}") if self.armed else None
        if left is None:
            return
        key, kind = f"{process.name}:{point}", process.kind
        if left > 1:
            self.armed[key] = left - 1
            return
        del self.armed[key]
        self.met[f"died: {kind} {point}"] += 1
        self.tell(f"{process.name} dies at {point}")
        self.end(self.services[process.name], AGAIN_MS)
        raise Died

    # ---------------------------------------------------------------- services
    def settings(self) -> Settings:
        """Of every service: a bus that others use too."""
        return Settings(bus="kafka://simulated", snapshot_rounds=self.plan.snapshot_rounds, checkpoints=2)

    def build(self) -> None:
        """All services and agents of the plan."""
        plan, control = self.plan, self.machines["control"]
        for name in ("admission", *(["admission+"] if "admission" in plan.standbys else [])):
            machine = self.machines[name] = Machine(name, lambda: self.loop.now_us)
            self._add(name, machine, self._admission(name))
        for name, core in CORES.items():
            if name not in plan.without:
                self._add(name, control, self._core(name, core, 0, standby=False))
            if name in plan.standbys:
                self._add(f"{name}+", control, self._core(f"{name}+", core, 0, standby=True))
        for shard in range(plan.shards):
            self._add(f"altruism-{shard}", control, self._core(f"altruism-{shard}", altruism, shard, standby=False))
        for name, begin in {"planner": self._planner, "gateway": self._gateway}.items():
            if name not in plan.without:
                self._add(name, control, begin)
        for node in plan.nodes:
            machine = self.machines[node] = Machine(node, lambda: self.loop.now_us)
            self.guardians[node] = Process(f"shims-{node}", machine)
            self._add(f"agent-{node}", machine, self._agent(node))

    def _add(self, name: str, machine: Machine, begin: Callable[[SimulatedBus], Awaitable[None]]) -> None:
        self.services[name] = Service(name, machine, begin)

    def _admission(self, name: str) -> Callable[[SimulatedBus], Awaitable[None]]:
        def begin(bus: SimulatedBus) -> Awaitable[None]:
            machine, tokens = self.services[name].machine, random.Random(f"{name} {self.services[name].life}")
            sequencer = admission.Sequencer(
                bus,
                self.settings(),
                clock=machine.wall_ms,
                steady=machine.steady_ms,
                draw_token=lambda: f"{tokens.getrandbits(64):016x}",
                alone=False,
                name=name,
            )
            self.services[name].shell = sequencer
            return admission.drive(sequencer, bus, asyncio.Event())

        return begin

    def _core(self, name: str, core: Any, shard: int, *, standby: bool) -> Callable[[SimulatedBus], Awaitable[None]]:
        def begin(bus: SimulatedBus) -> Awaitable[None]:
            active = asyncio.Event() if standby else None
            shell = Shell(core, bus, self.settings(), shard=shard, of=self.plan.shards if shard else 1, name=name,
                          active=active)  # fmt: skip
            self.services[name].shell = shell
            return shells.drive(shell, bus, self.settings(), asyncio.Event())

        return begin

    def _planner(self, bus: SimulatedBus) -> Awaitable[None]:
        shell = Shell(planner, bus, self.settings(), name="planner")
        self.services["planner"].shell = shell
        return planner_shell.drive(shell, bus, self.settings(), asyncio.Event())

    def _gateway(self, bus: SimulatedBus) -> Awaitable[None]:
        follower = Follower(bus, self.settings(), stop=asyncio.Event(), name="gateway")
        self.services["gateway"].shell = follower._shell
        return follower.run()

    def _agent(self, node: str) -> Callable[[SimulatedBus], Awaitable[None]]:
        def begin(bus: SimulatedBus) -> Awaitable[None]:
            service = self.services[f"agent-{node}"]
            assert service.process is not None
            cpu = self.plan.nodes[node]
            settings = NodeSettings(
                node, self.folder / node, capacity={"cpu": cpu * 1_000, "memory": 8_192}, heartbeat_ms=1_000,
                stop_grace_ms=500, kept=Kept(free_bytes=0), ports=(0, 0),
            )  # fmt: skip
            machine = machine_of(self.loop, service.process, self.guardians[node], self.runs, self.locks)
            return agent.run(bus, settings, asyncio.Event(), machine=machine)

        return begin

    def begin(self, service: Service) -> None:
        """Starts a service, if it does not run."""
        service.due = False
        if service.runs:
            return
        service.life += 1
        self.met[f"started: {kind_of(service.name)}"] += 1
        self.tell(f"{service.name} starts, life {service.life}")
        process = service.process = Process(service.name, service.machine)
        bus = service.bus = self.broker.bus()

        async def live() -> None:
            try:
                await service.begin(bus)
            except (BusError, DecisionGap) as error:
                self._ended(service, process, f"{type(error).__name__}: {error}")
            except Exception as error:
                cause = f" from {error.__cause__!r}" if error.__cause__ is not None else ""
                self.fail("a service fails", f"{service.name}: {error!r}{cause}")
                self._ended(service, process, repr(error))

        self.loop.start(process, live())

    def _ended(self, service: Service, process: Process, why: str) -> None:
        if process.is_dead:
            return
        self.met[f"ended by itself: {why.split(':')[0]}"] += 1
        self.tell(f"{service.name} ends: {why}")
        self.end(service, AGAIN_MS)

    def end(self, service: Service, again_ms: int | None) -> None:
        """SIGKILL. `again_ms`: when it is started again; None: by somebody else."""
        process = service.process
        if process is not None and not process.is_dead:
            self.loop.kill(process)
            self.buried.append(process)
            if service.bus is not None:
                self.broker.leave(service.bus)
        service.shell = None
        if again_ms is not None and not service.due:
            service.due = True
            self.loop.call_world(again_ms * 1_000, self.begin, service)

    # ---------------------------------------------------------------- the client
    async def submit(self, job: Job) -> None:
        """Sends a job until the bus has it, and what cancels it."""
        await asyncio.sleep(job.at_ms / 1_000)
        await self._send("jobs", job.spec, job.name)
        self.submitted += 1
        if job.cancel_ms is not None:
            await asyncio.sleep(max(0, job.cancel_ms * 1_000 - self.loop.now_us) / 1e6)
            await self._send("jobs", {"cancel": job.name}, "")

    async def _send_bad(self, at_ms: int) -> None:
        await asyncio.sleep(at_ms / 1_000)
        await self._send("jobs", b"{no json", "")

    async def _send(self, topic: str, document: dict[str, Any] | bytes, job: str) -> None:
        bus: Bus = self.broker.bus()
        while True:
            writer = bus.writer()
            try:
                offset = await publish_input(writer, topic, document, "client")
            except BusError:
                await writer.drop()
                await asyncio.sleep(RETRY_MS / 1_000)
                continue
            value = self.broker.shown((topic, 0))[offset].value
            self.acked.append(Acked(topic, offset, value, job))
            self.tell(f"client: {topic} {offset} is acknowledged: {job}")
            return

    # ---------------------------------------------------------------- faults
    def strike(self, fault: Fault) -> None:
        """One fault of the plan."""
        self.met[f"fault: {fault.kind}"] += 1
        self.tell(f"FAULT {fault}")
        getattr(self, f"_{fault.kind}")(fault)

    def _kill(self, fault: Fault) -> None:
        if (service := self.services.get(fault.target)) is not None:
            self.end(service, fault.much)

    def _point(self, fault: Fault) -> None:
        self.armed[fault.target] = fault.much

    def _pause(self, fault: Fault) -> None:
        service = self.services.get(fault.target)
        if service is not None and service.process is not None and service.runs:
            self.loop.pause(service.process)
            self.loop.call_world(fault.much * 1_000, self._wake, service.process)

    def _wake(self, process: Process) -> None:
        if process.is_paused and not process.is_dead:
            self.tell(f"{process.name} is woken")
            self.loop.wake(process)

    def _wall(self, fault: Fault) -> None:
        self.machines[fault.target].ahead_ms += fault.much

    def _cut(self, fault: Fault) -> None:
        service = self.services.get(fault.target)
        if service is not None and service.bus is not None:
            service.bus.cut = True
            self.loop.call_world(fault.much * 1_000, self._join, service.bus, fault.target)

    def _join(self, bus: SimulatedBus, name: str) -> None:
        self.tell(f"{name} gets through again")
        bus.join()

    def _held(self, fault: Fault) -> None:
        self.broker.holding[fault.target] = fault.much

    def _parted(self, fault: Fault) -> None:
        if (bus := self.services[fault.target].bus) is not None:
            bus.parting_ms = fault.much

    def _reboot(self, fault: Fault) -> None:
        machine = self.machines[fault.target]
        self.end(self.services[f"agent-{fault.target}"], fault.much)
        for shim in list(machine.shims.values()):
            shim.die()  # type: ignore[attr-defined]
        machine.reboot()

    def _shim(self, fault: Fault) -> None:
        shims = list(self.machines[fault.target].shims.values())
        if shims:
            shims[0].die()  # type: ignore[attr-defined]

    def _power(self, fault: Fault) -> None:
        for service in self.services.values():
            self.end(service, fault.much)
        for node in self.plan.nodes:
            for shim in list(self.machines[node].shims.values()):
                shim.die()  # type: ignore[attr-defined]
            self.machines[node].reboot()
        self.tell(f"{self.broker.lose_power()} messages are lost")

    def _away(self, fault: Fault) -> None:
        self.broker.away = True
        self.loop.call_world(fault.much * 1_000, self._back)

    def _back(self) -> None:
        self.tell("the broker is back")
        self.broker.away = False
        self.broker.wake_all()

    def _slow(self, fault: Fault) -> None:
        place = (fault.target, 0)
        self.broker.rates.slow[place] = 50
        self.loop.call_world(fault.much * 1_000, self._fast, place)

    def _fast(self, place: tuple[str, int]) -> None:
        self.broker.rates.slow.pop(place, None)

    # ---------------------------------------------------------------- a run
    def play(self) -> None:
        """From the first start until everything that was acknowledged has ended, or the time is over."""
        plan, loop = self.plan, self.loop
        self.build()
        loop.start(loop.world, self._send("config", {"set": plan.knobs}, ""))
        for service in self.services.values():
            loop.call_world(loop.dice.randrange(1_000_000), self.begin, service)
        for job in plan.jobs:
            loop.start(loop.world, self.submit(job))
        for at_ms in plan.bad_ms:
            loop.start(loop.world, self._send_bad(at_ms))
        for fault in plan.faults:
            loop.call_world(fault.at_ms * 1_000, self.strike, fault)
        loop.call_world(FAULTS_FROM_MS * 1_000, setattr, self.broker, "calm", False)
        loop.call_world(plan.until_ms * 1_000, self._calm)
        loop.run_until(self._look, LOOK_US, (plan.until_ms + RECOVERED_MS) * 1_000)
        for (name, point), count in self.passed.items():
            self.met[f"point: {kind_of(name)} {point}"] += count
        for context in loop.faults:
            self.fail("a task fails", f"{context.get('message')}: {context.get('exception')!r}")
        if not self.wrong and not self._is_over():
            left = sorted({acked.job for acked in self.acked if acked.job} - {*self.watch.ended, *self.watch.rejected})
            text = f"jobs not ended: {', '.join(left)}" if left else f"{self.submitted} jobs acknowledged"
            self.fail("not everything that was acknowledged has ended", text)

    def _calm(self) -> None:
        """The faults end."""
        self.tell("the faults end")
        self.broker.calm = True
        self.broker.holding.clear()
        self.armed.clear()

    def _is_over(self) -> bool:
        if self.loop.now_us < self.plan.until_ms * 1_000 or self.submitted < len(self.plan.jobs):
            return False
        ended = all(job.name in self.watch.ended or job.name in self.watch.rejected for job in self.plan.jobs)
        return ended and not self.runs.running and not self.watch.held and self.letters() >= {*self.watch.refused}

    def letters(self) -> set[object]:
        """Seqs of the refusals of which there are dead letters."""
        return {read_letter(message.value)["seq"] for message in self.broker.shown((DEADLETTER, 0))}

    def _look(self) -> bool:
        """Whether it is over, after a look at what the processes believe."""
        self.watch.look(self._orders())
        return self._is_over()

    def _orders(self) -> list[tuple[str, Any]]:
        found: list[tuple[str, Any]] = []
        for name, service in self.services.items():
            shell = service.shell
            if isinstance(shell, Shell):
                found.append((name, shell.log.order))
            elif isinstance(shell, admission.Sequencer) and shell._reader is not None:
                found.append((name, shell._reader.order))
        return found

    def digest(self) -> str:
        """Of everything that happened, and of everything that was written."""
        digest = blake2b(digest_size=16)
        for line in self.story:
            digest.update(line.encode())
        for place in self.broker.places():
            for message in self.broker.shown(place):
                digest.update(message.value)
        return digest.hexdigest()

    def bury(self) -> None:
        """Ends what is left."""
        processes = [service.process for service in self.services.values() if service.process is not None]
        self.loop.bury([*self.buried, *processes, *self.guardians.values(), self.loop.world])


@dataclass(slots=True)
class Report:
    """What became of one seed."""

    plan: Plan
    wrong: list[Wrong]
    met: Counter[str]
    story: list[str]
    digest: str
    virtual_ms: int
    steps: int
    records: int


def run(plan: Plan, *, verbose: bool = False, check: Callable[[World], None] | None = None) -> Report:
    """Plays a plan. `verbose`: the story has lines of the services' logs, too. `check`: looks at the world at the
    end."""
    room = MEMORY if MEMORY.is_dir() else None
    folder = Path(tempfile.mkdtemp(prefix="largesse-faults-", dir=room))
    world = World(plan, folder)
    try:
        with in_hand(random.Random(f"tokens {plan.seed}"), world.at_point, world.met, world.said if verbose else None):
            world.play()
            digest = "" if verbose else world.digest()
            if check is not None and not world.wrong:
                check(world)
            wrong = list(world.wrong)
            with suppress(Exception):
                world.bury()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return Report(
        plan, wrong, world.met, world.story, digest, world.loop.now_us // 1_000, world.loop.steps,
        world.watch.order.seq,
    )  # fmt: skip
