"""A keeper and its cells for test_nursery.py: `python -m tests.unit.nursery_child`. Says in lines what happens."""

import asyncio
import os
import signal
import socket
import sys
import time

from largesse.known_cells import Cell
from largesse.process.forked_cells import CellEnded, Processes
from largesse.process.nursery import run_forked


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def serve(cell: Cell, end: socket.socket) -> int:
    def ends(*_: object) -> None:
        say("ends", cell.name)
        os._exit(0)

    signal.signal(signal.SIGTERM, signal.SIG_IGN if cell.name == "stubborn" else ends)
    say("cell", cell.name, cell.partition, os.getpid())
    if cell.name == "broken":
        return 3
    while True:
        time.sleep(60)


async def work(far: socket.socket) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    processes = Processes(far)
    say("keeper", os.getpid())

    async def run(name: str, partition: int) -> None:
        try:
            await processes.run(Cell(name, partition), stop)
        except CellEnded as ended:
            say("ended", name, ended)

    await asyncio.gather(*(run(name, number) for number, name in enumerate(sys.argv[1:])))
    await stop.wait()
    say("keeper ends")


def keep(far: socket.socket) -> int:
    asyncio.run(work(far))
    return 7


if __name__ == "__main__":
    sys.exit(run_forked(keep, serve))
