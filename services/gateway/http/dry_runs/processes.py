"""Processes that answer one question beside the gateway, and end with it."""

import asyncio
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

ANSWER_BYTES_MAX = 64 << 20
"""The longest line that such a process may send."""
ERROR_CHARACTERS_MAX = 300
ROOT = Path(__file__).parents[4]


@dataclass(slots=True)
class Asked:
    """A process that runs. What it says on stderr is read as it comes, so that it never waits for that."""

    process: Process
    input: asyncio.StreamWriter
    output: asyncio.StreamReader
    _errors: "asyncio.Task[bytes]"

    async def why_ended(self) -> str:
        """The last line that it said on stderr, or its exit code. Waits for its end."""
        code = await self.process.wait()
        last = (await self._errors).decode(errors="replace").strip().rpartition("\n")[2][:ERROR_CHARACTERS_MAX]
        return last or f"exit code {code}"


@asynccontextmanager
async def process_of(command: tuple[str, ...]) -> AsyncIterator[Asked]:
    """Starts it; whoever leaves ends it."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, stdin=pipe, stdout=pipe, stderr=pipe, cwd=ROOT, limit=ANSWER_BYTES_MAX
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    errors = asyncio.create_task(process.stderr.read())
    try:
        yield Asked(process, process.stdin, process.stdout, errors)
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        await errors
