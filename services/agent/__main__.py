"""One node's agent as a process, set up by LARGESSE_* (largesse/settings.py, and settings.py beside this)."""

import asyncio
import signal

from largesse.settings import open_bus, read_settings
from largesse.telemetry import configure, serve_metrics
from services.agent.settings import read_node_settings
from services.agent.shell import run


async def main() -> None:
    """Until SIGTERM or SIGINT. Tasks run on, and the next agent takes them over."""
    settings = read_settings()
    configure(settings.log_format)
    serve_metrics(settings.metrics_port)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    bus = open_bus(settings)
    try:
        await run(bus, read_node_settings(settings.partition), stop)
    finally:
        await bus.close()


if __name__ == "__main__":
    asyncio.run(main())
