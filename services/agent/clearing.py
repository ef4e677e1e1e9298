"""Puts away what ended jobs left on one node, and removes the oldest of it beyond the limits, in a process of its own.

    DATA/jobs/JOB/RUN            runs of jobs that have not ended, and of those that are about to be put away
    DATA/ended/N/runs.jsonl      what was put away, a line a run: when, its size, and where it came from
    DATA/ended/N/JOB/RUN         the run itself; SHELF_RUNS of them to a shelf N, shelves in order of time

Each step costs what ended, never what is kept: no folder is looked into twice, and a start looks at `jobs` only. The
agent starts this process with `main DATA` when something has ended: its threads would wait for the interpreter at each
of a dozen system calls a run. Only the standard library. No link is followed, whatever a task has put where.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import stat
import sys
from collections import deque
from contextlib import suppress

from services.agent.tidying import size_of
from services.agent.trees import FOLDER, remove_tree

# As in shim.py: they would be much of what a start costs.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any

JOBS, ENDED, INDEX, LOCK = "jobs", "ended", "runs.jsonl", "lock"
SMALL_DISK_PARTS = 10
"""Of a small disk no more than this part has to be free before results of ended jobs are kept."""
SHELF_RUNS = 1_000
"""Runs on one shelf. Only the oldest shelf has gaps, so only that one is compared with its index at a start."""
_PR_SET_PDEATHSIG = 1


class Run:
    """One run that was put away. `size`: bytes. `entries`: files and folders."""

    __slots__ = ("at_ms", "entries", "job", "run", "shelf", "size")

    def __init__(self, at_ms: int, size: int, entries: int, shelf: int, job: str, run: str) -> None:
        self.at_ms, self.size, self.entries = at_ms, size, entries
        self.shelf, self.job, self.run = shelf, job, run


class Shelves:
    """All that is kept below one data folder, the oldest first.

    `kept`: the limits: `age_ms`, `bytes`, `runs`, `inodes`.
    """

    def __init__(self, data: str | Path, kept: dict[str, int]) -> None:
        self.kept = kept
        self.runs: deque[Run] = deque()
        self.size = self.entries = self.removed = 0
        self._data = os.open(data, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._ended = _made(self._data, ENDED)
        self._lock = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=self._ended)
        fcntl.flock(self._lock, fcntl.LOCK_EX)  # One that was left by a killed agent ends first.
        self._left: dict[int, int] = {}  # Runs by shelf.
        self._load()

    def close(self) -> None:
        """Lets go of the folder."""
        for descriptor in (self._lock, self._ended, self._data):
            os.close(descriptor)

    # ---------------------------------------------------------------- what is there
    def _load(self) -> None:
        shelves = sorted(int(name) for name in _names_in(self._ended) if name.isdecimal())
        for shelf in shelves:
            found = list(self._index(shelf))
            if shelf == shelves[0]:
                found = [run for run in found if self._is_there(run)]
            self._left[shelf] = len(found)
            for run in found:
                self._count(run, 1)
            self.runs.extend(found)
            if not found and shelf != shelves[-1]:
                self._drop_shelf(shelf)

    def _index(self, shelf: int) -> Iterator[Run]:
        """The runs of a shelf as its index has them; lines that are torn or strange say nothing."""
        try:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            file = os.open(f"{shelf}/{INDEX}", flags, dir_fd=self._ended)
        except OSError:
            return
        with os.fdopen(file, "rb") as lines:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                return
            for line in lines:
                with suppress(ValueError, TypeError, KeyError):
                    at_ms, size, entries, job, run = json.loads(line)
                    if _is_name(job) and _is_name(run) and min(at_ms, size, entries) >= 0:
                        yield Run(int(at_ms), int(size), int(entries), shelf, job, run)

    def _is_there(self, run: Run) -> bool:
        try:
            return stat.S_ISDIR(os.lstat(f"{run.shelf}/{run.job}/{run.run}", dir_fd=self._ended).st_mode)
        except OSError:
            return False

    def _count(self, run: Run, sign: int) -> None:
        self.size += sign * run.size
        self.entries += sign * run.entries

    # ---------------------------------------------------------------- putting away
    def put_away(self, job: str, run: str, now_ms: int) -> bool:
        """Moves JOB/RUN to the last shelf; False where it resists. A run that is not there is no longer to be moved."""
        if not (_is_name(job) and _is_name(run)):
            return True
        try:
            jobs = os.open(JOBS, FOLDER, dir_fd=self._data)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        try:
            source = os.open(job, FOLDER, dir_fd=jobs)
            try:
                size, entries = size_of(run, source)
                entry = Run(now_ms, size, entries, self._shelf(), job, run)
                if self._is_there(entry):
                    entry.run = f"{run}+{now_ms}"
                self._note(entry)
                self._move(run, entry, source)
            finally:
                os.close(source)
            with suppress(OSError):
                os.rmdir(job, dir_fd=jobs)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        finally:
            os.close(jobs)
        self.runs.append(entry)
        self._left[entry.shelf] = self._left.get(entry.shelf, 0) + 1
        self._count(entry, 1)
        return True

    def _shelf(self) -> int:
        """The shelf that takes the next run."""
        last = max(self._left, default=0)
        if last and self._left[last] < SHELF_RUNS:
            return last
        self._left[last + 1] = 0
        os.close(_made(self._ended, str(last + 1)))
        return last + 1

    def _note(self, run: Run) -> None:
        """Writes the run into the index before it is moved: what lies on a shelf and is not noted would never go."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(f"{run.shelf}/{INDEX}", flags, 0o600, dir_fd=self._ended)
        try:
            line = json.dumps([run.at_ms, run.size, run.entries, run.job, run.run]).encode() + b"\n"
            if os.write(file, line) != len(line):
                raise OSError(errno.ENOSPC, "the index takes no more")
        finally:
            os.close(file)

    def _move(self, name: str, run: Run, source: int) -> None:
        shelf = os.open(str(run.shelf), FOLDER, dir_fd=self._ended)
        try:
            target = _made(shelf, run.job)
            try:
                os.rename(name, run.run, src_dir_fd=source, dst_dir_fd=target)
            finally:
                os.close(target)
        finally:
            os.close(shelf)

    # ---------------------------------------------------------------- removing
    def remove_beyond(self, now_ms: int) -> None:
        """Removes runs, the oldest first, until the limits are kept. What resists is tried again the next time."""
        stubborn = []
        while self.runs and self._is_beyond(self.runs[0], now_ms):
            run = self.runs.popleft()
            self._count(run, -1)
            if self._remove(run):
                self.removed += 1
                self._left[run.shelf] -= 1
                if not self._left[run.shelf] and run.shelf != max(self._left):
                    self._drop_shelf(run.shelf)
            else:
                stubborn.append(run)
        for run in reversed(stubborn):
            self.runs.appendleft(run)
            self._count(run, 1)

    def _is_beyond(self, run: Run, now_ms: int) -> bool:
        kept = self.kept
        too_many = len(self.runs) > kept["runs"] or self.entries > kept["inodes"]
        too_old = now_ms - run.at_ms > kept["age_ms"]
        return too_many or too_old or self.size > kept["bytes"] or self._is_full()

    def _is_full(self) -> bool:
        """Whether less of the disk is free than has to be. What others fill it with costs results, too, but before any
        task is refused for want of room.
        """
        disk = os.fstatvfs(self._data)
        wanted = min(self.kept.get("free_bytes", 0), disk.f_blocks * disk.f_frsize // SMALL_DISK_PARTS)
        return disk.f_bavail * disk.f_frsize < wanted

    def _remove(self, run: Run) -> bool:
        try:
            folder = os.open(f"{run.shelf}", FOLDER, dir_fd=self._ended)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        try:
            job = os.open(run.job, FOLDER, dir_fd=folder)
            try:
                remove_tree(run.run, job)
            finally:
                os.close(job)
            with suppress(OSError):
                os.rmdir(run.job, dir_fd=folder)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        finally:
            os.close(folder)
        return True

    def _drop_shelf(self, shelf: int) -> None:
        """A shelf on which nothing is left goes, with its index."""
        with suppress(OSError):
            os.unlink(f"{shelf}/{INDEX}", dir_fd=self._ended)
        with suppress(OSError):
            os.rmdir(str(shelf), dir_fd=self._ended)
        self._left.pop(shelf, None)


def _is_name(name: Any) -> bool:
    """Whether it is the name of an entry of a folder, and leads nowhere else."""
    return isinstance(name, str) and name not in ("", ".", "..") and "/" not in name and "\0" not in name


def _made(parent: int, name: str) -> int:
    """A descriptor of a folder, which is made where it is missing. Raises OSError."""
    with suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=parent)
    return os.open(name, FOLDER, dir_fd=parent)


def _names_in(folder: int) -> list[str]:
    with os.scandir(folder) as found:
        return [entry.name for entry in found]


def clear(data: str | Path, names: list[str], kept: dict[str, int], now_ms: int) -> dict[str, Any]:
    """Puts the runs `names` (JOB/RUN) away, then removes what is beyond the limits. Says what became of it; `failed`
    are those that resisted. `now_ms`: log time, for ages: a wall clock that jumps ahead must not remove what is kept.
    Raises OSError where the data folder cannot be used.
    """
    shelves = Shelves(data, kept)
    try:
        failed = []
        for at, name in enumerate(names):
            job, _, run = name.partition("/")
            if not shelves.put_away(job, run, now_ms):
                failed.append(name)
            if at % 100 == 0:
                shelves.remove_beyond(now_ms)  # In between, so that a full disk has room again as soon as may be.
        shelves.remove_beyond(now_ms)
        return {
            "failed": failed,
            "removed": shelves.removed,
            "runs": len(shelves.runs),
            "bytes": shelves.size,
            "inodes": shelves.entries,
        }
    finally:
        shelves.close()


def main(data: str) -> None:
    """Reads what to do on stdin, `{"names": [...], "kept": {...}, "now_ms": N}`; says on stdout what became of it."""
    with suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    asked = json.loads(sys.stdin.buffer.read())
    sys.stdout.write(json.dumps(clear(data, asked["names"], asked["kept"], asked["now_ms"])))
