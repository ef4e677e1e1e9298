"""Questions to a process of their own that needs the cell's log: the gateway lends it its bus, for reading.

The process asks for messages by lines of JSON on its stdout, and hears them on its stdin (replay/live/lent.py); its
last line is the answer. So it needs no way to the bus, and reads any that the gateway has.
"""

import asyncio
import json

from largesse.bus.port import Bus, PositionGap
from services.gateway.documents import Document
from services.gateway.http.dry_runs.processes import Asked, process_of
from services.gateway.http.problems import Problem, dumped

TRIAL_WAIT_S = 60.0
"""Time limit of such a process. An interpreter that starts on a busy machine may need tens of seconds."""


async def asked_with_bus(bus: Bus, question: Document, command: tuple[str, ...], what: str) -> Document:
    """What the process answers. `what`: it is asked for. Raises Problem, BusError."""
    async with process_of(command) as process:
        try:
            async with asyncio.timeout(TRIAL_WAIT_S):
                answer = await _answered(process, bus, question)
                why = "" if answer is not None else await process.why_ended()
        except TimeoutError:
            raise Problem(503, "effect", f"{what} was not there within {TRIAL_WAIT_S:g} s") from None
    if answer is None:
        raise Problem(500, "effect", f"{what} could not be worked out: {why}")
    return answer


async def _answered(process: Asked, bus: Bus, question: Document) -> Document | None:
    """Lends the bus until the answer comes; None where the process ends without one."""
    try:
        process.input.write(dumped(question) + b"\n")
        while line := await process.output.readline():
            said: Document = json.loads(line)
            if "fetch" in said:
                process.input.writelines(await _fetched(bus, *said["fetch"]))
            elif "bounds" in said:
                process.input.write(dumped({"bounds": await bus.bounds(*said["bounds"])}) + b"\n")
            else:
                return said
            await process.input.drain()
    except (BrokenPipeError, ConnectionResetError):
        pass  # It has ended: what it said on stderr tells why.
    return None


async def _fetched(bus: Bus, topic: str, partition: int, offset: int, most: int) -> list[bytes]:
    """A line that says what follows, and the bytes of the messages."""
    try:
        found = await bus.fetch(topic, partition, offset, most=most)
    except PositionGap as gap:
        return [dumped({"gap": str(gap)}) + b"\n"]
    heads = [[message.offset, len(message.value), message.headers] for message in found]
    head = dumped({"position": found.position, "messages": heads})
    return [head + b"\n", *(message.value for message in found)]
