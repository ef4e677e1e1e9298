"""What the cell would have done otherwise, worked out over its log in a process of its own, which slows nobody down."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path

from largesse.bus.kafka.cluster import is_cluster
from services.gateway.documents import Document
from services.gateway.follow import Follower
from services.gateway.http.dry_runs.processes import Asked, process_of
from services.gateway.http.problems import Problem, dumped

WHAT_IF = (sys.executable, "-m", "services.replay", "whatif")
WHAT_IFS_MAX = 1
"""What-ifs at a time."""
WAIT_S = 600.0
"""Time limit of one."""
MEMORY_MIB = 2_048
"""Memory limit of one."""
OUT_OF_MEMORY = (-signal.SIGABRT, -signal.SIGKILL)
"""How a process ends whose libraries get no more, or that the kernel chooses to end."""
QUIET_S = 5.0
"""After so long the last progress is said again, so that nobody takes a process that works for one that hangs."""
WAY_OUT = "say to_seq or to_ms to end it earlier, or run `largesse replay LOG --what-if` beside the cell"


def location_of(follower: Follower, log: str = "") -> str:
    """Where another process reads the log. `log`: of a recorded one. Raises Problem where none can."""
    if log:
        return log
    kind, _, place = follower.address.partition(":")
    if kind == "file":
        return str(Path(place.removeprefix("//")).resolve())
    if is_cluster(follower.address):
        return f"{follower.address.rstrip('/')}/{follower.cell}"
    raise Problem(503, "no_log", "the log of this cell is in its process's memory: no other process can read it")


async def answers(follower: Follower, asked: Document, log: str = "") -> AsyncGenerator[Document, None]:
    """How far it is, again and again (`progress`), and at the end the `answer`, or a `problem`. `asked`: as
    `read_what_if` takes it. Closing this ends the process. Raises Problem before anything is started.
    """
    question: Document = {
        "source": location_of(follower, log),
        "partition": follower.partition,
        "seq": follower.state.seq,
        "asked": asked,
        "archive": follower.archive,
        "memory_bytes": MEMORY_MIB << 20,
        "way_out": WAY_OUT,
    }
    async with process_of(WHAT_IF) as process:
        with suppress(BrokenPipeError, ConnectionResetError):
            process.input.write(dumped(question) + b"\n")
            await process.input.drain()
        ended = False
        async for line in _lines(process):
            yield line
            ended = "progress" not in line
        if not ended:
            why = await process.why_ended()
            if process.process.returncode in OUT_OF_MEMORY:
                yield _problem(503, f"its process was ended, as when it needs more than {MEMORY_MIB:,} MiB: {WAY_OUT}")
            else:
                yield _problem(500, f"it could not be worked out: {why}")


async def _lines(process: Asked) -> AsyncGenerator[Document, None]:
    """What the process says, up to its answer; within WAIT_S."""
    clock = asyncio.get_running_loop().time
    end_s = clock() + WAIT_S
    last: Document = {"progress": {"done": 0, "of": None}}
    reading = asyncio.ensure_future(process.output.readline())
    try:
        while (left_s := end_s - clock()) > 0:
            done, _ = await asyncio.wait((reading,), timeout=min(left_s, QUIET_S))
            if done:
                if not (line := reading.result()):
                    return
                last = json.loads(line)
                if "progress" not in last:
                    yield last
                    return
                reading = asyncio.ensure_future(process.output.readline())
            yield last
        yield _problem(503, f"it was not there within {WAIT_S:g} s: {WAY_OUT}")
    finally:
        reading.cancel()
        with suppress(asyncio.CancelledError):
            await reading


def _problem(status: int, detail: str) -> Document:
    return {"problem": {"status": status, "type": "urn:largesse:effect", "detail": detail}}


async def lines(follower: Follower, asked: Document, log: str = "") -> AsyncGenerator[bytes, None]:
    """The same as lines of JSON."""
    found = answers(follower, asked, log)
    try:
        async for each in found:
            yield dumped(each) + b"\n"
    finally:
        await found.aclose()


async def the_answer(follower: Follower, asked: Document, log: str = "") -> Document:
    """What comes at the end. Raises Problem."""
    *_, last = [each async for each in answers(follower, asked, log)]
    if "problem" in last:
        problem = last["problem"]
        kind = problem["type"].removeprefix("urn:largesse:")
        raise Problem(problem["status"], kind, problem["detail"], problem.get("field"))
    found: Document = last["answer"]
    return found
