"""A process that uses a file bus until somebody kills it, or its disk is full. Says on stdout what it did.

write FOLDER ROUND     sends for ever from four senders at once; one line `offset value` for each acknowledged message
fill FOLDER [BYTES]    sends until BusFull (files limited to BYTES); then a JSON document of what happened
hold FOLDER            opens, says `held`, and waits for its stdin to end
"""

import asyncio
import itertools
import json
import resource
import sys
from contextlib import suppress
from pathlib import Path

from largesse.bus.file.bus import FileBus
from largesse.bus.port import BusFull, Outgoing


async def write(folder: Path, name: str) -> None:
    bus = FileBus(folder, segment_bytes=20_000)
    numbers = itertools.count()

    async def sender() -> None:
        writer = bus.writer()
        for number in numbers:
            value = f'{{"round":{name},"n":{number},"pad":"{"x" * (number * 37 % 500)}"}}'
            await writer.send([Outgoing("shares", 0, b"not durable")], durable=False)
            offsets = await writer.send([Outgoing("cluster.log", 0, value.encode()), Outgoing("tasks", 1, b"\x00\n")])
            sys.stdout.write(f"{offsets[0]} {value}\n")
            sys.stdout.flush()

    await asyncio.gather(*(sender() for _ in range(4)))


async def fill(folder: Path, bytes_max: int | None) -> None:
    if bytes_max is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_max, bytes_max))
    bus = FileBus(folder)
    acknowledged = 0
    error = ""
    try:
        for number in itertools.count():
            await bus.writer().send([Outgoing("jobs", 0, f'{{"n":{number},"pad":"{"x" * 1_000}"}}'.encode())])
            acknowledged += 1
    except BusFull as full:
        error = str(full)
    readable = 0
    while found := await bus.fetch("jobs", 0, readable):
        readable += len(found)
    again = False
    try:
        await bus.writer().send([Outgoing("jobs", 0, b"one more")])
    except BusFull:
        again = True
    with suppress(BusFull):
        await bus.close()
    said = {"acknowledged": acknowledged, "readable": readable, "error": error, "refused_again": again}
    print(json.dumps(said), flush=True)


async def hold(folder: Path) -> None:
    bus = FileBus(folder)
    print("held", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await bus.close()


def main() -> None:
    task, folder, *rest = sys.argv[1:]
    match task:
        case "write":
            asyncio.run(write(Path(folder), rest[0]))
        case "fill":
            asyncio.run(fill(Path(folder), int(rest[0]) if rest else None))
        case "hold":
            asyncio.run(hold(Path(folder)))


if __name__ == "__main__":
    main()
