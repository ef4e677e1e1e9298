"""An agent in a process of its own, on a bus behind a socket: `python -m tests.live.agent_process SOCKET DATA`."""

import asyncio
import signal
import sys
from pathlib import Path

from services.agent.shell import run
from tests.live.agent_cell import SocketBus, settings


async def main() -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await run(SocketBus(sys.argv[1]), settings(Path(sys.argv[2])), stop)


if __name__ == "__main__":
    asyncio.run(main())
