"""An agent as a process, on a bus behind a socket: `python -m tests.live.agent_process SOCKET DATA [NODE]`.

It runs containers where its environment names an engine.
"""

import asyncio
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

from services.agent.container_settings import read_containers
from services.agent.shell import run
from tests.live.agent_cell import settings
from tests.live.socket_bus import SocketBus


async def main() -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    containers = read_containers({"LARGESSE_NODE_ENGINE": "off", **os.environ})
    node = replace(settings(Path(sys.argv[2])), name=(*sys.argv, "n")[3], containers=containers)
    await run(SocketBus(sys.argv[1]), node, stop)


if __name__ == "__main__":
    asyncio.run(main())
