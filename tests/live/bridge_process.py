"""A bridge as a process, on a bus behind a socket: `python -m tests.live.bridge_process SOCKET PORT NAME`."""

import asyncio
import signal
import sys
from dataclasses import replace

from largesse.mqtt.address import read_address
from largesse.mqtt.client import ClientBroker, MqttOptions
from largesse.settings import Settings
from services.bridge.asking import Asking
from services.bridge.shell import run
from tests.live.socket_bus import SocketBus

OPTIONS = MqttOptions(keep_alive_seconds=1, answer_seconds=2, connect_seconds=2)
SNAPSHOT_ROUNDS = 20


async def main() -> None:
    socket, port, name = sys.argv[1:]
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    settings = replace(Settings(), snapshot_rounds=SNAPSHOT_ROUNDS)
    broker = ClientBroker(read_address(f"mqtt://127.0.0.1:{port}"), OPTIONS)
    await run(SocketBus(socket), settings, broker, stop, Asking(settings.cell, name))


if __name__ == "__main__":
    asyncio.run(main())
