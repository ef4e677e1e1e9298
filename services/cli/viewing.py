"""`largesse view`: the page and the API over a recorded log or a bundle, without a cell."""

import asyncio
import signal
from collections.abc import Callable

from largesse.bus.memory import MemoryBus
from largesse.descriptors import raise_limit
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
from services.gateway.follow import Follower
from services.gateway.http.app import make_app
from services.gateway.http.serve import PortTaken, bound, serve
from services.replay.onto_bus import put_onto
from services.replay.source import Source
from services.replay.viewing import viewing

HOST = "127.0.0.1"

NEVER = 1 << 60
"""Rounds between two snapshots: nothing is restored from them here."""


def view_log(log: str, *, port: int) -> None:
    """Serves a log until Ctrl-C. Raises Wrong."""
    configure("console", level="warning")
    source = source_of(log)
    with reading():
        viewing(source.start)  # A bundle of another version is refused before anything is served.
    calm_collector()
    raise_limit()
    asyncio.run(_view(source, port))


async def _view(source: Source, port: int) -> None:
    bus, stop = MemoryBus(compacts=True), asyncio.Event()
    with reading(), progress_of("reading", "records") as tell:

        def told(count: int) -> None:
            if tell is not None:
                tell(count, None)

        cell = await put_onto(source, bus.writer(), view.NAME, told)
    if not cell:
        raise Wrong(f"{source.name}: the log has no record")
    settings = Settings(bus="memory:", cell=cell, snapshot_rounds=NEVER)
    try:
        hosts = served_hosts(read_settings(), HOST)
        listening = bound(HOST, port)
    except PortTaken as error:
        raise Wrong(f"--port: {error}: name another port, or 0 for any that is free") from None
    except SettingWrong as error:
        raise Wrong(str(error)) from None
    begins = source.start.seq if source.start is not None else 0
    follower = Follower(bus, settings, stop=stop, begins=begins)
    app = make_app(follower, _no_output, read_results=_no_results, hosts=hosts, recorded=True)
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
