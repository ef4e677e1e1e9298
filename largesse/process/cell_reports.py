"""What the processes of single cells say of themselves to the keeper of them all: their counters, and what they wait
for.
"""

import asyncio
import json
import socket
from collections.abc import Mapping
from contextlib import suppress

from largesse.telemetry import behind, exposition

ASK = b"?"
SIZE_BYTES = 4
ANSWER_SECONDS = 2
"""A cell that is too busy to answer within this is left out."""


async def answer_reports(end: socket.socket) -> None:
    """Answers the keeper for ever; returns once that is gone."""
    reader, writer = await asyncio.open_connection(sock=end)
    with suppress(OSError):
        while await reader.read(1) == ASK:
            said = json.dumps({"behind": behind(), "metrics": exposition()[1].decode()}).encode()
            writer.write(len(said).to_bytes(SIZE_BYTES, "big") + said)
            await writer.drain()
    writer.close()


class CellReport:
    """The keeper's end of one cell's socket."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._asking: asyncio.Task[tuple[list[str], str]] | None = None

    async def ask(self) -> tuple[list[str], str] | None:
        """What it has not caught up with, and its counters; None where there is no answer in time."""
        # A question that is still open goes on: its answer must not be taken for that to a later one.
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask())
        done, _ = await asyncio.wait([self._asking], timeout=ANSWER_SECONDS)
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            return self._asking.result() if done else None
        return None

    async def _ask(self) -> tuple[list[str], str]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(sock=self._end)
        reader, writer = self._streams
        writer.write(ASK)
        size = int.from_bytes(await reader.readexactly(SIZE_BYTES), "big")
        said = json.loads(await reader.readexactly(size))
        return said["behind"], said["metrics"]

    def close(self) -> None:
        """Lets go of the socket."""
        if self._asking is not None:
            self._asking.cancel()
        if self._streams is not None:
            self._streams[1].close()
        else:
            self._end.close()


def merged(own: str, cells: Mapping[str, str]) -> str:
    """Counters of several processes as one text: those of cells have a label `cell`, and families are in one piece."""
    heads: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for cell, text in [("", own), *sorted(cells.items())]:
        family, is_new = "", False
        for line in text.splitlines():
            if line.startswith("# HELP "):
                family = line.split(" ", 3)[2]
                is_new = family not in heads
                heads.setdefault(family, [])
                samples.setdefault(family, [])
            if line.startswith("#"):
                heads[family] += [line] if is_new else []
            elif line:
                samples[family].append(_labelled(line, cell) if cell else line)
    return "".join(f"{line}\n" for family, head in heads.items() for line in (*head, *samples[family]))


def _labelled(sample: str, cell: str) -> str:
    name, brace, rest = sample.partition("{")
    if 'cell="' in rest:
        return sample
    if brace:
        return f'{name}{{cell="{cell}",{rest}'
    name, _, value = sample.partition(" ")
    return f'{name}{{cell="{cell}"}} {value}'
