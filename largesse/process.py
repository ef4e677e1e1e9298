"""One service as a process of its own: settings from the environment, a bus, telemetry, an orderly end on a signal."""

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable

from largesse.bus import Bus
from largesse.file_bus import DirectoryHeld, JournalDamaged
from largesse.settings import Settings, SettingWrong, open_bus, read_settings
from largesse.telemetry import configure, logger, serve_metrics

Start = Callable[[Bus, Settings, asyncio.Event], Awaitable[None]]

DONE, WRONG_USAGE, INTERNAL = 0, 2, 3


def serve(start: Start) -> int:
    """Runs a service until SIGINT or SIGTERM; returns the exit code. An error is logged, and ends it."""
    try:
        settings = read_settings()
        configure(settings.log_format)
        serve_metrics(settings.metrics_port)
        asyncio.run(_serve(start, settings))
    except (SettingWrong, DirectoryHeld, JournalDamaged) as error:
        sys.stderr.write(f"{error}\n")
        return WRONG_USAGE
    except Exception:
        logger().exception("stopped")
        return INTERNAL
    return DONE


async def _serve(start: Start, settings: Settings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    bus = open_bus(settings)
    try:
        await start(bus, settings, stop)
    finally:
        await bus.close()
