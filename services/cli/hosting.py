"""A whole cell in one process: every service's shell, agents and the gateway on one embedded bus.

The first service that ends by an error ends them all, and the error says at which record; so does a bus that writes
nothing more (a full disk), whichever part notices. Tasks run in processes of their own: unless told otherwise they
outlive this one, and the next one takes them over.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from socket import socket
from typing import Any, TypeVar

from largesse import shell
from largesse.bus.file.bus import FileBus
from largesse.bus.file.lock import DirectoryHeld
from largesse.bus.port import BusError
from largesse.process.heap import keep_small
from largesse.process.ways_out import with_way_out
from largesse.readers import Readers, ReadersBusy
from largesse.settings import read_settings, served_hosts
from largesse.task_output import Piece, Wanted, folder_name
from largesse.task_results import FilePiece, Listed, WantedResults
from largesse.telemetry import logger
from schemas import InputRefused, Policy, Queue
from schemas.knobs import with_knobs
from schemas.policy import NEW_CELL_KNOBS, KnobValue
from schemas.queue_tree import with_default
from services.admission import sequencer as admission
from services.agent import shell as agent
from services.agent.peers import by_folder
from services.agent.settings import NodeSettings
from services.agent.task_output import attempt_with_output, made_ns, read_piece
from services.agent.task_results import read_results
from services.altruism import core as altruism
from services.cli.archive_beside import keep_archive
from services.cli.ending import Broken, Ending, Wrong
from services.cli.leaving import departing_nodes
from services.estimator import core as estimator
from services.fairness import core as fairness
from services.gateway.follow import Follower
from services.gateway.http.agents.output import tasks_of
from services.gateway.http.app import make_app
from services.gateway.http.problems import Problem
from services.gateway.http.serve import bound, serve
from services.gateway.view.places import admitted_of, place_of
from services.gateway.view.state import State
from services.leftover import core as leftover
from services.planner import shell as planner

T = TypeVar("T")

BUS, NODES = "bus", "nodes"
"""Folders of the data folder."""

CELL = "default"

CORES: tuple[Any, ...] = (fairness, leftover, estimator)
SHARDED: Any = altruism

CONFIG_WAIT_S = 60.0
NODES_WAIT_S = 60.0
"""Requests are taken once every agent has registered, or after so long."""
REST_MS = 60_000
"""Services on this bus are woken by whatever comes, so that they need look up by themselves but rarely. The sequencer
looks at its clock, too."""
END_S = 8.0
"""Whatever has not ended so long after the signal is cut off."""


@dataclass(frozen=True, slots=True)
class Given:
    """What a cluster file says of queues and policy: `values` and `queues` as read, `message` for the config topic."""

    file: str
    message: dict[str, object]
    values: dict[str, KnobValue]
    queues: Queue | None

    def differing(self, policy: Policy, queues: Queue | None) -> list[str]:
        """The knobs, and `queues`, of which something else is in force."""
        found = [name for name, value in self.values.items() if getattr(policy, name) != value]
        if self.queues is not None and with_default(self.queues) != queues:
            found.append("queues")
        return found


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be run. `nodes`: agents; their data folders lie below `data`. `given` counts where the cell has had no
    config yet. `archive`: the store in which the log is kept; empty: in none.
    """

    data: Path
    nodes: list[NodeSettings]
    port: int
    host: str = "127.0.0.1"
    author: str = "unknown"
    given: Given | None = None
    archive: str = ""


async def opened(plan: Plan, stop: asyncio.Event) -> "Host":
    """Takes the data folder and the port. Raises DirectoryHeld, JournalDamaged, BusFull, PortTaken, SettingWrong,
    OSError.
    """
    is_new = is_unused(plan.data)
    bus = FileBus(plan.data / BUS, cache_bytes=read_settings().bus_cache_mib << 20, packs=True)
    try:
        return Host(plan, bus, bound(plan.host, plan.port), stop, is_new=is_new)
    except BaseException:
        await bus.close()
        raise


def is_unused(data: Path) -> bool:
    """Whether no cell has been started in a data folder yet: its bus has no file."""
    bus = data / BUS
    return not bus.exists() or not any(bus.iterdir())


def first_config(said: dict[str, object], state: State, *, is_new: bool) -> dict[str, object] | None:
    """What a start sends of queues and policy, of which its cluster file has `said` this; None: nothing. A new cell
    also gets what every new cell gets. An earlier one whose config is no more than that has had none of its operator.
    """
    if is_new:
        knobs = said.get("set", {})
        assert isinstance(knobs, dict)
        return {**said, "set": {**NEW_CELL_KNOBS, **knobs}, "initial": True}
    is_bare = state.queues is None and state.policy == with_knobs(Policy(), NEW_CELL_KNOBS)
    return {**said, "initial": not is_bare} if said else None


class Host:
    """Runs a plan. `url`: where it listens. `departing`: nodes of earlier starts that leave the cell. `is_new`: the
    cell has never been started before.
    """

    def __init__(
        self, plan: Plan, bus: FileBus, listening: socket, stop: asyncio.Event, *, is_new: bool = False
    ) -> None:
        self.stop = stop
        self._is_new = is_new
        self.url = f"http://{plan.host}:{listening.getsockname()[1]}"
        self._plan = plan
        started = [node.name for node in plan.nodes]
        self.departing = departing_nodes(plan.data / NODES, started, plan.nodes[0]) if plan.nodes else []
        # Paces may come from the environment; where and which the cell is, this process says.
        said = read_settings()
        store = plan.archive or said.archive
        self._settings = replace(said, bus=f"file:{plan.data / BUS}", cell=CELL, partition=0, archive=store)
        self._rested = replace(self._settings, wait_ms=max(REST_MS, self._settings.wait_ms))
        self._hosts = served_hosts(self._settings, plan.host)
        self._bus = bus
        self._readers = Readers()
        self._socket = listening
        self.follower = Follower(self._bus, self._rested, stop=stop)
        self._running: dict[asyncio.Task[None], str] = {}
        self._news = asyncio.Event()
        bus.on_failure = self._news.set
        self._shards = 0

    async def run(self, on_ready: Callable[[], None]) -> None:
        """Until `stop` is set, or a service ends by an error. `on_ready` is called once the cell takes requests.

        Raises Broken, which names the service and the record, or the folder that takes no more; Wrong where the cell
        refuses the plan's config.
        """
        plan, settings, stop = self._plan, self._settings, self.stop
        self._begin("admission", admission.run(self._bus, settings, stop=stop))
        for core in CORES:
            self._begin(core.NAME, shell.run(core, self._bus, self._rested, stop=stop))
        self._begin("planner", planner.run(self._bus, self._rested, stop=stop))
        self._begin("gateway", self.follower.run())
        for node in plan.nodes:
            placed = replace(node, data=self._folder_of(node), alone=True, archive=plan.archive or settings.archive)
            self._begin(f"agent {node.name}", agent.run(self._bus, placed, stop, by_folder(self._folder_named)))
        for node in self.departing:
            self._begin(f"agent {node.name}, which leaves", self._depart(node))
        self._begin("altruism", self._keep_shards())
        self._begin("start", self._start(on_ready))
        self._begin("stop", self._hear_stop())
        self._begin("heap", keep_small(self.stop))
        try:
            while not stop.is_set():
                await self._news.wait()
                self._news.clear()
                self._look()
        finally:
            stop.set()
            await self._end()

    def _begin(self, name: str, running: Coroutine[object, object, None]) -> None:
        task = asyncio.ensure_future(running)
        self._running[task] = name
        task.add_done_callback(lambda _: self._news.set())

    def _look(self) -> None:
        """Takes in what has ended. Raises Broken, Wrong."""
        if self._bus.failure is not None:
            # First: the others ended because of this.
            raise Broken(str(self._bus.failure))
        for task in [task for task in self._running if task.done()]:
            name = self._running.pop(task)
            error = task.exception()
            if isinstance(error, Ending):
                raise error
            if error is not None:
                cause = error.__cause__
                why = f" ({type(cause).__name__}: {cause})" if cause is not None else ""
                data = str(self._plan.data)
                text = f"{name}: {type(error).__name__}: {error}{why}"
                raise Broken(with_way_out(text, error, data, data)) from error

    async def _end(self) -> None:
        """Sees everything end; what takes too long is cut off. Raises Broken where the bus lost what was sent."""
        if self._running:
            await asyncio.wait(self._running, timeout=END_S)
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        self._socket.close()
        try:
            await self._bus.close()
        except BusError as error:
            raise Broken(str(error)) from error

    # ---------------------------------------------------------------- parts of its own
    async def _hear_stop(self) -> None:
        await self.stop.wait()

    async def _start(self, on_ready: Callable[[], None]) -> None:
        """Once the view has caught up: the config in force, the nodes there, then requests are taken."""
        while not self.follower.ready:
            if self.stop.is_set():
                return
            await self.follower.changed(1)
        plan = self._plan
        said = plan.given.message if plan.given is not None else {}
        if (initial := first_config(said, self.follower.state, is_new=self._is_new)) is not None:
            answer = await self.follower.send("config", initial, plan.author, CONFIG_WAIT_S)
            refused = answer.record.body if answer.record is not None else None
            if isinstance(refused, InputRefused):
                raise Wrong(f"--cluster: {refused.field}: {refused.reason}")
        # A job that no node could ever run is refused; so the nodes come first.
        await self.follower.until(lambda view: all(node.name in view.nodes for node in plan.nodes), NODES_WAIT_S)
        if self.stop.is_set():
            return
        app = make_app(
            self.follower,
            self._read_output,
            read_results=self._read_results,
            author=plan.author,
            hosts=self._hosts,
        )
        self._begin("gateway's HTTP", serve(app, self._socket, self.stop))
        if plan.archive:
            self._begin("archive", keep_archive(plan.archive, plan.data, self.url, self.stop))
        on_ready()

    async def _keep_shards(self) -> None:
        """As many altruism shells as the policy in force asks for. Surplus ones answer nothing."""
        while not self.stop.is_set():
            while self._shards < self.follower.state.policy.altruism_shards:
                running = shell.run(SHARDED, self._bus, self._rested, shard=self._shards, stop=self.stop)
                self._begin(f"altruism shard {self._shards}", running)
                self._shards += 1
            await self.follower.changed(REST_MS / 1_000)

    async def _depart(self, node: NodeSettings) -> None:
        """Ends what lives on a node of an earlier start. What goes wrong with it ends nothing else."""
        try:
            await agent.run(self._bus, node, self.stop)
        except (OSError, DirectoryHeld, agent.TakenOver) as error:
            logger(service="agent", node=node.name).warning("cannot leave the cell", error=str(error))

    def _folder_of(self, node: NodeSettings) -> Path:
        return self._folder_named(node.name)

    def _folder_named(self, node: str) -> Path:
        return self._plan.data / NODES / folder_name(node)

    async def _read_output(self, wanted: Wanted) -> Piece | None:
        """What a task printed, on whichever of the nodes it ran last; nothing of an earlier job of its name."""
        admitted = admitted_of(self.follower.state, wanted.job, wanted.stage)
        exact = replace(wanted, admitted=admitted) if admitted is not None else wanted

        def read() -> Piece | None:
            # Also of nodes that are not started any more.
            folders = [folder for folder in (self._plan.data / NODES).iterdir() if folder.is_dir()]
            attempts = [(attempt_with_output(folder, exact), folder) for folder in folders]
            found = [(made_ns(attempt), folder) for attempt, folder in attempts if attempt is not None]
            return read_piece(max(found)[1], exact) if found else None

        return await self._read(read)

    async def _read_results(self, wanted: WantedResults) -> Listed | FilePiece | None:
        """What a task has left, on the node where it ran last."""
        state = self.follower.state
        if tasks_of(state, wanted.job) is None:
            return None
        place = place_of(state, wanted.job, wanted.stage, wanted.index, wanted.attempt)
        if place is None:
            return None
        exact = replace(wanted, admitted=place.admitted)
        return await self._read(lambda: read_results(self._folder_named(place.node), exact))

    async def _read(self, read: Callable[[], T]) -> T:
        try:
            return await self._readers.read(read)
        except ReadersBusy as error:
            raise Problem(503, "busy", str(error)) from None
        except OSError as error:
            raise Problem(503, "unreadable", f"it cannot be read at the moment: {error.strerror}") from None
