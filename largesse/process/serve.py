"""One service as a process of its own: settings from the environment, a bus, telemetry, an orderly end on a signal."""

import asyncio
import gc
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial

import structlog

from largesse.bus.file.bus import DirectoryHeld, JournalDamaged
from largesse.bus.port import Bus, BusRefused
from largesse.core import Core, S
from largesse.descriptors import raise_limit
from largesse.hosts import Hosts, hosts_of
from largesse.known_variables import stranger_text, strangers
from largesse.process import heap
from largesse.process.cell_reports import answer_reports
from largesse.process.cells import placed_by_list
from largesse.process.forked_cells import run_cells
from largesse.process.health import AddressTaken, Pages, WhyNot, readiness, served
from largesse.process.shards import run_assigned
from largesse.process.usage import Usage, answered
from largesse.process.ways_out import way_out, with_way_out
from largesse.settings import ALL_CELLS, Settings, SettingWrong, check_cells, open_bus, read_settings, served_hosts
from largesse.telemetry import configure, logger, stopwatch
from largesse.tls import read_peers

Start = Callable[[Bus, Settings, asyncio.Event], Awaitable[None]]

DONE, WRONG_USAGE, INTERNAL = 0, 2, 3

LOOK_SECONDS = 1
WAITS_LOOKS = 2
"""What takes no more looks than these is not worth a line."""

END_SECONDS = 7
"""Whatever has not ended so long after the signal is cut off: who stops containers waits 10 s."""

COLLECTED_AFTER = (10_000, 20, 20)
"""New objects before the collector looks for cycles among them, and rounds of that before it looks at older ones.
Records, and states of cores, are never part of a cycle."""


class CutOff(Exception):
    """A service did not end in time. What it had not written, its next instance does again."""


def serve(
    usage: Usage,
    start: Start,
    pages: Callable[[Settings], Pages] | None = None,
    name: Callable[[Settings], str] | None = None,
    opened: Callable[[Settings], Bus] = open_bus,
    takes_cells: bool = False,
    takes_all: bool = False,
) -> int:
    """Runs a service until SIGINT or SIGTERM; returns the exit code. An error is logged, and ends it.

    What stands on the command line is answered before anything is opened (usage.py). `pages`: what it answers over HTTP
    beside its health. `name`: by which others ask it for that, where it is not the host's own. `opened`: the bus that
    the settings name. `takes_cells`: with LARGESSE_CELLS it runs those that are dealt to it, each in a process of its
    own (forked_cells.py). `takes_all`: it serves the deployment, whatever cell the settings name.
    """
    code = answered(usage, sys.argv[1:])
    if code is not None:
        return code
    log = "LOG"
    try:
        settings = read_settings()
        check_cells(replace(settings, cells=ALL_CELLS) if takes_all else settings)
        if takes_all:
            settings = replace(settings, cells="", partition=0)
        log = f"{settings.bus}/{settings.cell}"
        configure(settings.log_format)
        for variable, near in strangers(os.environ):
            logger(service=usage.name).warning(stranger_text(variable, near))
        logger(service=usage.name).info("begins", bus=settings.bus, cell=settings.cells or settings.cell)
        calm_collector()
        heap.set_up_heap()
        raise_limit()
        hosts = served_hosts(settings, settings.metrics_host, *([name(settings)] if name is not None else []))
        if takes_cells and settings.cells:
            return run_cells(usage.name, settings, hosts, opened, partial(_serve_one, start, opened))
        asyncio.run(_serve(start, settings, hosts, opened, pages(settings) if pages is not None else None))
    except (SettingWrong, AddressTaken, DirectoryHeld, JournalDamaged) as error:
        sys.stderr.write(with_way_out(str(error), error, log) + "\n")
        return WRONG_USAGE
    except BusRefused as error:
        logger().error("stopped", refused=str(error))
        return INTERNAL
    except Exception as error:
        helps = way_out(error, log)
        logger().exception("stopped", **({"way_out": helps} if helps else {}))
        return INTERNAL
    return DONE


def serve_core(usage: Usage, core: Core[S]) -> int:
    """Runs a core as a process: the shards that are its own, or as a standby (shards.py)."""
    return serve(usage, lambda bus, settings, stop: run_assigned(core, bus, settings, stop=stop), takes_cells=True)


def calm_collector() -> None:
    """For a process that is about to serve. What was imported stays for good, so no collection walks it: one over all
    of it takes 30 ms on a core of its own, and half a second where others want the core too.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTED_AFTER)


def _serve_one(start: Start, opened: Callable[[Settings], Bus], settings: Settings, end: socket.socket) -> int:
    """One of several cells, in the process that was forked for it. Returns the exit code."""
    structlog.contextvars.bind_contextvars(cell=settings.cell)
    log = f"{settings.bus}/{settings.cell}"
    try:
        asyncio.run(_serve(start, settings, hosts_of(settings.metrics_host), opened, None, end))
    except Exception as error:
        helps = way_out(error, log)
        logger().exception("stopped", **({"way_out": helps} if helps else {}))
        return INTERNAL
    return DONE


async def _serve(
    start: Start,
    settings: Settings,
    hosts: Hosts,
    opened: Callable[[Settings], Bus],
    pages: Pages | None,
    reports: socket.socket | None = None,
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    bus = opened(settings)
    why_not = readiness(bus, settings.partition, stop)
    beside = [asyncio.ensure_future(heap.keep_small(stop)), asyncio.ensure_future(tell_ready(why_not, stop))]
    if reports is not None:
        beside.append(asyncio.ensure_future(answer_reports(reports)))
    try:
        async with AsyncExitStack() as open_now:
            peers = read_peers(settings)
            if settings.metrics_port:
                host, port = settings.metrics_host, settings.metrics_port
                tls = None if peers is None else peers.server
                await open_now.enter_async_context(served(host, port, why_not, pages, hosts, tls=tls))
            placed = await placed_by_list(bus, settings) if settings.cells else settings
            await _until_ended(start(bus, placed, stop), stop)
    finally:
        for each in beside:
            each.cancel()
        await bus.close()


async def tell_ready(why_not: WhyNot, stop: asyncio.Event) -> None:
    """Says in the log what a service waits for, where that takes long, and once that it is ready.

    It is ready when it was at two looks: at the first one it may not have begun to read.
    """
    took, told, looks, was_ready = stopwatch(), "", 0, False
    while not stop.is_set():
        await asyncio.sleep(LOOK_SECONDS)
        why, looks = await why_not(), looks + 1
        if not why and was_ready:
            logger().info("ready", after_s=round(took(), 1))
            return
        was_ready = not why
        if why not in ("", told) and looks > WAITS_LOOKS and not stop.is_set():
            logger().info("waiting", reason=why)
            told = why


async def _until_ended(started: Awaitable[None], stop: asyncio.Event) -> None:
    """Waits for a service; once it is asked to end, END_SECONDS at most. Raises what it raised, and CutOff."""
    running, asked = asyncio.ensure_future(started), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((running, asked), return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            await asyncio.wait((running,), timeout=END_SECONDS)
        if not running.done():
            raise CutOff(f"did not end within {END_SECONDS} s of being asked to")
        await running
    finally:
        for each in (running, asked):
            each.cancel()
        await asyncio.wait((running, asked))
