"""An agent as a process, on a bus behind a socket: `python -m tests.live.agent_process SOCKET DATA [NODE]`."""

import asyncio
import signal
import sys
from dataclasses import replace
from pathlib import Path

from services.agent.shell import run
from tests.live.agent_cell import settings
from tests.live.socket_bus import SocketBus


async def main() -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    node = replace(settings(Path(sys.argv[2])), name=(*sys.argv, "n")[3])
    await run(SocketBus(sys.argv[1]), node, stop)


if __name__ == "__main__":
    asyncio.run(main())
