"""Which runs of jobs lie in an agent's data folder, and which of them are over and to be put away (clearing.py)."""

import asyncio
import json
import subprocess
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from services.agent import clearing
from services.agent.folders import JOBS, Kept

BATCH_RUNS = 1_000
"""Runs that one process puts away."""
PROCESSES_MAX = 2
"""Processes that clear away at once for all agents of this process."""
_START = "import sys; sys.path.append(sys.argv[1]); from services.agent import clearing; clearing.main(sys.argv[2])"
_TURNS: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

Answer = dict[str, Any]
"""What the process says that clears away (`clearing.clear`)."""
PutAway = Callable[[Path, list[str], Kept, int], Awaitable[Answer]]
"""What `put_away` is."""


class ClearingFailed(Exception):
    """The process that clears away could not do it: says why."""


@dataclass(slots=True)
class Runs:
    """By live name (folders.py): the folders JOB/RUN there are, and how many attempts in them are not forgotten.

    `over`: names whose jobs have ended. `waiting`: folders that nothing uses any more, in the order of their ends.
    `taken`: those that are being put away; `failed`: those that could not be.
    """

    folders: dict[str, dict[str, bool]] = field(default_factory=dict)
    held: dict[str, int] = field(default_factory=dict)
    over: dict[str, bool] = field(default_factory=dict)
    waiting: deque[str] = field(default_factory=deque)
    taken: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    @property
    def behind(self) -> int:
        """How many are to be put away."""
        return len(self.waiting) + len(self.taken) + len(self.failed)

    def found(self, folders: Iterable[str], live: dict[str, bool]) -> None:
        """These folders were there at the start. `live`: names whose jobs have not ended."""
        for folder in folders:
            job, _, run = folder.partition("/")
            name = f"{job}/{run.partition('-')[0]}"
            self.folders.setdefault(name, {})[folder] = True
            if name not in live:
                self.ended(name)

    def began(self, name: str, folder: str) -> None:
        """An attempt uses the folder from now on."""
        self.folders.setdefault(name, {})[folder] = True
        self.held[name] = self.held.get(name, 0) + 1

    def ended(self, name: str) -> None:
        """The job has ended in the log."""
        if name in self.folders:
            self.over[name] = True
            self._settle(name)

    def forgotten(self, name: str) -> None:
        """An attempt of it has ended here, and the log knows."""
        self.held[name] -= 1
        if not self.held[name]:
            del self.held[name]
            self._settle(name)

    def take(self) -> list[str]:
        """What is to be put away next."""
        self.taken = [self.waiting.popleft() for _ in range(min(BATCH_RUNS, len(self.waiting)))]
        return self.taken

    def put_away(self, failed: Iterable[str]) -> None:
        """What was taken has been put away, but for these."""
        self.taken = []
        self.failed += failed

    def try_again(self) -> None:
        """What could not be put away waits again."""
        self.waiting.extend(self.failed)
        self.failed = []

    def _settle(self, name: str) -> None:
        if name in self.over and name not in self.held:
            del self.over[name]
            self.waiting.extend(self.folders.pop(name))


def runs_of_jobs(data: Path) -> list[str]:
    """Folders JOB/RUN that have not been put away. Blocks."""
    return [f"{run.parent.name}/{run.name}" for run in (data / JOBS).glob("*/*")]


async def put_away(data: Path, names: list[str], kept: Kept, now_ms: int) -> Answer:
    """Puts runs away and removes what is beyond the limits, in a process of its own. Says what became of it
    (`clearing.clear`). `now_ms`: log time. Raises ClearingFailed.
    """
    limits = {"age_ms": kept.age_ms, "bytes": kept.bytes, "runs": kept.runs, "inodes": kept.inodes}
    limits["free_bytes"] = kept.free_bytes
    asked = json.dumps({"names": names, "kept": limits, "now_ms": now_ms}).encode()
    async with _TURNS.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(PROCESSES_MAX)):
        try:
            process = _started(data)
        except OSError as error:
            raise ClearingFailed(str(error)) from error
        try:
            out, err = await asyncio.to_thread(process.communicate, asked)
        except asyncio.CancelledError:
            process.kill()
            raise
    try:
        answer: Answer = json.loads(out)
    except ValueError:
        said = err.decode(errors="replace").strip().splitlines() or [f"exit code {process.returncode}"]
        raise ClearingFailed(said[-1]) from None
    return answer


def _started(data: Path) -> "subprocess.Popen[bytes]":
    """The process that puts away. It is killed when the thread that started it ends: never one of a pool."""
    where = str(Path(clearing.__file__).parents[2])
    command = [sys.executable, "-I", "-S", "-c", _START, where, str(data)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={}, close_fds=True
    )
