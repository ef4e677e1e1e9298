"""A cell asked straight over its bus, past its gateway: the log is read, an input written, and its answer found.

The folder of a `largesse up` that does not run has nobody who would answer: there the sequencer alone is run, until it
has. What starts a cell later goes on from there.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from largesse.bus.file.bus import DirectoryHeld, FileBus, JournalDamaged
from largesse.bus.file.journal import has_journal
from largesse.bus.port import Bus, BusError, BusRefused, PositionGap
from largesse.folding import CoreStopped
from largesse.log.codec import Undecodable
from largesse.log.decisions import DecisionGap
from largesse.log.inputs import InputStopped
from largesse.process.cells import placed_by_list
from largesse.process.ways_out import with_way_out
from largesse.settings import Settings, SettingWrong, open_bus, read_settings
from largesse.telemetry import configure
from services.admission import sequencer
from services.cli.contexts import asked_cell
from services.cli.ending import Broken, Unanswered, Wrong
from services.cli.hosting import BUS, CELL
from services.gateway.follow import Follower

WAIT_S = 60.0
"""So long may reading the log and an answer take each."""

NO_SNAPSHOTS = 1 << 60
"""Rounds after which this process would take one: the cell's own gateway does that."""

T = TypeVar("T")


def straight(address: str, ask: Callable[[Follower], Awaitable[T]]) -> T:
    """What is asked of a cell whose bus is at an address, by what its log says. Raises Wrong, Broken."""
    configure("console", level="warning")
    try:
        settings, bus = _opened(address)
        return asyncio.run(_asked(bus, settings, ask))
    except DirectoryHeld as error:
        raise Wrong(f"--bus: {error}. A running cell is asked through its gateway: omit --bus") from None
    except JournalDamaged as error:
        raise Wrong(with_way_out(f"--bus: {error}", error, address)) from None
    except SettingWrong as error:
        raise Wrong(str(error)) from None
    except OSError as error:
        raise Wrong(f"--bus: {error.filename}: {error.strerror}") from None
    except BusRefused as error:
        raise Wrong(f"--bus: {error}") from None
    except BusError as error:
        raise Unanswered(f"--bus: {error}", f"no answer from {address}") from None
    except (CoreStopped, DecisionGap, InputStopped, PositionGap, Undecodable) as error:
        raise Broken(f"--bus: {error}") from error


def _opened(address: str) -> tuple[Settings, Bus]:
    """The bus, and how the cell is wired to it: a folder is that of one cell, elsewhere the environment says which."""
    settings = read_settings()
    if "://" in address:
        settings = replace(settings, bus=address, snapshot_rounds=NO_SNAPSHOTS)
        return settings, open_bus(settings)
    data = Path(address.removeprefix("file:")).absolute()
    folder = next((each for each in (data / BUS, data) if each.is_dir() and has_journal(each)), None)
    if folder is None:
        raise Wrong(f"--bus: {data}: there is no journal in this folder; another bus is written kafka[s]://HOST:PORT")
    settings = replace(settings, bus=f"file:{folder}", cell=CELL, partition=0, snapshot_rounds=NO_SNAPSHOTS)
    return settings, FileBus(folder)


async def _asked(bus: Bus, settings: Settings, ask: Callable[[Follower], Awaitable[T]]) -> T:
    stop = asyncio.Event()
    try:
        if (name := asked_cell.get()) is not None:
            if settings.is_alone:
                raise Wrong("--cell: a data folder has one cell; of several on Kafka it names one")
            settings = await placed_by_list(bus, replace(settings, cell=name))
        follower = Follower(bus, settings, stop=stop)
        running = [asyncio.ensure_future(follower.run())]
        try:
            await _ready(follower, running[0])
            if settings.is_alone:
                running.append(asyncio.ensure_future(sequencer.run(bus, settings, stop=stop)))
            asking = asyncio.ensure_future(ask(follower))
            await asyncio.wait([asking, *running], return_when=asyncio.FIRST_COMPLETED)
            for each in running:
                if each.done():
                    asking.cancel()
                    each.result()
            return await asking
        finally:
            stop.set()
            await asyncio.gather(*running, return_exceptions=True)
    finally:
        await bus.close()


async def _ready(follower: Follower, running: asyncio.Future[None]) -> None:
    """Waits until the log has been read. Raises Unanswered, and what reading it raises."""
    try:
        async with asyncio.timeout(WAIT_S):
            while not follower.ready:
                if running.done():
                    running.result()
                await follower.changed(0.2)
    except TimeoutError:
        text = f"the log has not been read within {WAIT_S:.0f} s"
        raise Unanswered(text, text) from None
