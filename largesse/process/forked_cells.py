"""A service that runs several cells: a keeper, and a process for each cell that is dealt to it (nursery.py)."""

import asyncio
import json
import signal
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from itertools import count

from largesse.bus.port import Bus, BusError
from largesse.hosts import Hosts
from largesse.known_cells import Cell
from largesse.process.cell_reports import CellReport, merged
from largesse.process.cells import CellKeeper
from largesse.process.health import READY_SECONDS, AddressTaken, WhyNot, own_metrics, served
from largesse.process.nursery import MESSAGE_BYTES_MAX, run_forked
from largesse.settings import Settings
from largesse.telemetry import logger
from schemas.topics import CELLS

CELL_END_SECONDS = 8
"""A cell's process that has not ended so long after it was asked to is killed."""
WRONG_USAGE, INTERNAL = 2, 3

ServeOne = Callable[[Settings, socket.socket], int]
"""Runs one cell as a process; the socket leads to the keeper. Returns the exit code."""


class CellEnded(Exception):
    """The process of a cell has ended before it was asked to: says how."""


def run_cells(
    service: str, settings: Settings, hosts: Hosts, opened: Callable[[Settings], Bus], serve_one: ServeOne
) -> int:
    """Runs the cells that are dealt to this instance until SIGINT or SIGTERM. Returns the exit code."""

    def keep(far: socket.socket) -> int:
        try:
            asyncio.run(_keep(service, settings, hosts, opened, far))
        except AddressTaken as error:
            logger(service=service).error("stopped", reason=str(error))
            return WRONG_USAGE
        except Exception:
            logger(service=service).exception("stopped")
            return INTERNAL
        return 0

    def serve(cell: Cell, end: socket.socket) -> int:
        own = replace(settings, cell=cell.name, partition=cell.partition, cells="", metrics_port=0)
        return serve_one(own, end)

    return run_forked(keep, serve)


async def _keep(
    service: str, settings: Settings, hosts: Hosts, opened: Callable[[Settings], Bus], far: socket.socket
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    processes = Processes(far)
    bus = opened(settings)
    try:
        keeper = CellKeeper(bus, service, settings.cell_copies, processes.run)
        async with AsyncExitStack() as open_now:
            if settings.metrics_port:
                why_not = _readiness(bus, keeper, processes, stop)
                place = settings.metrics_host, settings.metrics_port
                pages = served(*place, why_not, None, hosts, metrics=processes.metrics)
                await open_now.enter_async_context(pages)
            await keeper.run(stop)
    finally:
        await bus.close()
        processes.close()


def _readiness(bus: Bus, keeper: CellKeeper, processes: "Processes", stop: asyncio.Event) -> WhyNot:
    async def why_not() -> str:
        if stop.is_set():
            return "ending"
        if not keeper.is_dealt:
            return "waits for what its group deals it"
        try:
            async with asyncio.timeout(READY_SECONDS):
                await bus.bounds(CELLS, 0)
        except TimeoutError:
            return f"the bus has not answered within {READY_SECONDS} s"
        except BusError as error:
            return str(error)
        behind = await processes.behind()
        late = [name for name in keeper.cells if behind.get(name, ["its process"])]
        return f"catching up: {', '.join(late)}" if late else ""

    return why_not


class Processes:
    """The processes of cells, as the keeper knows them: `far` leads to the process that forks them."""

    def __init__(self, far: socket.socket) -> None:
        self._far = far
        self._far.setblocking(False)
        self._keys = count(1)
        self._ended: dict[int, asyncio.Future[int]] = {}
        self._reports: dict[int, CellReport] = {}
        self._cells: dict[int, str] = {}
        asyncio.get_running_loop().add_reader(far, self._hear)

    async def run(self, cell: Cell, stop: asyncio.Event) -> None:
        """See RunCell. Raises CellEnded."""
        key = next(self._keys)
        ended = self._ended[key] = asyncio.get_running_loop().create_future()
        self._cells[key] = cell.name
        try:
            await self._tell({"start": key, "cell": cell.name, "partition": cell.partition})
            asked = asyncio.ensure_future(stop.wait())
            await asyncio.wait((ended, asked), return_when=asyncio.FIRST_COMPLETED)
            asked.cancel()
            for word in ("stop", "kill"):
                if not ended.done():
                    await self._tell({word: key})
                    await asyncio.wait((ended,), timeout=CELL_END_SECONDS)
            code = await ended
        finally:
            del self._ended[key], self._cells[key]
            if (report := self._reports.pop(key, None)) is not None:
                report.close()
        if not stop.is_set():
            raise CellEnded(f"its process has ended with exit code {code}")

    async def metrics(self) -> tuple[str, bytes]:
        """The counters of all: content type and text."""
        kind, own = await own_metrics()
        said = {name: text for name, (_, text) in (await self._ask_all()).items()}
        return kind, merged(own.decode(), said).encode()

    async def behind(self) -> dict[str, list[str]]:
        """By cell whose process answers, what has not caught up there."""
        return {name: late for name, (late, _) in (await self._ask_all()).items()}

    def close(self) -> None:
        """Hears nothing more."""
        asyncio.get_running_loop().remove_reader(self._far)

    async def _ask_all(self) -> dict[str, tuple[list[str], str]]:
        keys = list(self._reports)
        answers = await asyncio.gather(*(self._reports[key].ask() for key in keys))
        said = zip(keys, answers, strict=True)
        return {self._cells[key]: answer for key, answer in said if answer is not None and key in self._cells}

    async def _tell(self, said: dict[str, object]) -> None:
        await asyncio.get_running_loop().sock_sendall(self._far, json.dumps(said).encode())

    def _hear(self) -> None:
        try:
            message, descriptors, _, _ = socket.recv_fds(self._far, MESSAGE_BYTES_MAX, 1)
        except BlockingIOError:
            return
        said = json.loads(message) if message else {}
        for descriptor in descriptors:
            end = socket.socket(fileno=descriptor)
            end.setblocking(False)
            if said.get("started") in self._ended:
                self._reports[said["started"]] = CellReport(end)
            else:
                end.close()
        ended = self._ended.get(said.get("ended", 0))
        if ended is not None and not ended.done():
            ended.set_result(said["code"])
