"""Questions to a process of their own that needs the cell's log: the gateway lends it its bus, for reading.

The process asks for messages by lines of JSON on its stdout, and hears them on its stdin (replay/live/lent.py); its
last line is the answer. So it needs no way to the bus, and reads any that the gateway has.
"""

import asyncio
import json
from contextlib import suppress
from pathlib import Path

from largesse.bus.port import Bus, PositionGap
from services.gateway.documents import Document
from services.gateway.http.problems import Problem, dumped

ANSWER_BYTES_MAX = 64 << 20
"""The longest line that the process may send."""
ERROR_CHARACTERS_MAX = 300
TRIAL_WAIT_S = 60.0
"""Time limit of such a process. An interpreter that starts on a busy machine may need tens of seconds."""
ROOT = Path(__file__).parents[4]


async def asked_with_bus(bus: Bus, question: Document, command: tuple[str, ...], what: str) -> Document:
    """What the process answers. `what`: it is asked for. Raises Problem, BusError."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, stdin=pipe, stdout=pipe, stderr=pipe, cwd=ROOT, limit=ANSWER_BYTES_MAX
    )
    assert process.stderr is not None
    saying = asyncio.ensure_future(process.stderr.read())
    answer = None
    try:
        async with asyncio.timeout(TRIAL_WAIT_S):
            answer = await _answered(process, bus, question)
            if answer is None:
                await process.wait()
    except TimeoutError:
        raise Problem(503, "effect", f"{what} was not there within {TRIAL_WAIT_S:g} s") from None
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        said = (await saying).decode(errors="replace").strip().rpartition("\n")[2][:ERROR_CHARACTERS_MAX]
    if answer is None:
        raise Problem(500, "effect", f"{what} could not be worked out: {said or f'exit code {process.returncode}'}")
    return answer


async def _answered(process: asyncio.subprocess.Process, bus: Bus, question: Document) -> Document | None:
    """Lends the bus until the answer comes; None where the process ends without one."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(dumped(question) + b"\n")
        while line := await process.stdout.readline():
            said: Document = json.loads(line)
            if "fetch" in said:
                process.stdin.writelines(await _fetched(bus, *said["fetch"]))
            elif "bounds" in said:
                process.stdin.write(dumped({"bounds": await bus.bounds(*said["bounds"])}) + b"\n")
            else:
                return said
            await process.stdin.drain()
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
