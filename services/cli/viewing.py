"""`largesse view`: the page and the API over a recorded log or a bundle, without a cell; or the page over results."""

import asyncio
import json
import signal
import socket
from collections.abc import Callable
from pathlib import Path

from largesse.bus.memory import MemoryBus
from largesse.descriptors import raise_limit
from largesse.hosts import Hosts
from largesse.process.serve import calm_collector
from largesse.settings import Settings, SettingWrong, read_settings, served_hosts
from largesse.task_output import Piece, Wanted
from largesse.task_results import FilePiece, Listed, WantedResults
from largesse.telemetry import configure
from services.cli import interrupts
from services.cli.ending import Wrong, out
from services.cli.progress import progress_of
from services.cli.replaying import reading, source_of
from services.gateway import view
from services.gateway.documents import Document
from services.gateway.follow import Follower
from services.gateway.http.app import make_app
from services.gateway.http.results_app import are_results, results_app
from services.gateway.http.serve import PortTaken, bound, serve
from services.replay.onto_bus import put_onto
from services.replay.source import ARCHIVE, Source
from services.replay.viewing import viewing
from services.simulator.result import RESULTS

HOST = "127.0.0.1"

NEVER = 1 << 60
"""Rounds between two snapshots: nothing is restored from them here."""


def view_log(log: str, *, port: int) -> None:
    """Serves a log, or results, until Ctrl-C. Raises Wrong."""
    configure("console", level="warning")
    if (results := results_in(Path(log))) is not None:
        raise_limit()
        asyncio.run(_view_results(Path(log).name or log, results, port))
        return
    source = source_of(log)
    place = source.name if source.name.startswith(ARCHIVE) or "://" in source.name else str(Path(source.name).resolve())
    with reading():
        viewing(source.start)  # A bundle of another version is refused before anything is served.
    calm_collector()
    raise_limit()
    asyncio.run(_view(source, place, port))


_SUFFIX = ".json"


def results_in(path: Path) -> Document | None:
    """What a comparison or a what-if has printed with --json, in a file or in the folder of a report; None: it is none
    of those. Raises Wrong."""
    path = path / RESULTS if path.is_dir() else path
    if path.suffix != _SUFFIX or not path.is_file():
        return None
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise Wrong(f"{path}: cannot be read as JSON: {error}") from None
    if not are_results(document):
        raise Wrong(f"{path}: has no results of `compare`, `replay --what-if` or `whatif` with --json")
    found: Document = document
    return found


async def _view_results(name: str, results: Document, port: int) -> None:
    stop = asyncio.Event()
    hosts, listening = _listening(port)
    _end_with(stop.set)
    out(f"{name}: results, at http://{HOST}:{listening.getsockname()[1]}/#/results")
    out("Ctrl-C ends it")
    await serve(results_app(name, results, hosts), listening, stop)


def _listening(port: int) -> tuple[Hosts, socket.socket]:
    """For whom to answer, and where. Raises Wrong."""
    try:
        return served_hosts(read_settings(), HOST), bound(HOST, port)
    except PortTaken as error:
        raise Wrong(f"--port: {error}: name another port, or 0 for any that is free") from None
    except SettingWrong as error:
        raise Wrong(str(error)) from None


async def _view(source: Source, place: str, port: int) -> None:
    bus, stop = MemoryBus(compacts=True), asyncio.Event()
    with reading(), progress_of("reading", "records") as tell:

        def told(count: int) -> None:
            if tell is not None:
                tell(count, None)

        cell = await put_onto(source, bus.writer(), view.NAME, told)
    if not cell:
        raise Wrong(f"{source.name}: the log has no record")
    settings = Settings(bus="memory:", cell=cell, snapshot_rounds=NEVER)
    hosts, listening = _listening(port)
    begins = source.start.seq if source.start is not None else 0
    follower = Follower(bus, settings, stop=stop, begins=begins)
    app = make_app(follower, _no_output, read_results=_no_results, hosts=hosts, recorded=True, log=place)
    _end_with(stop.set)
    parts = [asyncio.ensure_future(part) for part in (follower.run(), serve(app, listening, stop))]
    try:
        out(f"{source.name}: cell `{cell}` as recorded, at http://{HOST}:{listening.getsockname()[1]}")
        out("Ctrl-C ends it; nothing can be changed")
        done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
        for part in done:
            with reading():
                part.result()
    finally:
        stop.set()
        await asyncio.gather(*parts, return_exceptions=True)
        await bus.close()


def _end_with(end: Callable[[], None]) -> None:
    """Has the first signal end what is served, and the second one the process."""
    loop = asyncio.get_running_loop()

    def hear() -> None:
        end()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
        interrupts.guard()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, hear)


async def _no_output(_wanted: Wanted) -> Piece | None:
    """What tasks printed is no part of a log, and the nodes that it names are asked for nothing."""
    return None


async def _no_results(_wanted: WantedResults) -> Listed | FilePiece | None:
    """Nor is what they left."""
    return None
