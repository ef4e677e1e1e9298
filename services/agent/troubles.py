"""Whether this node can take new tasks: troubles of the agent's own, which are not the fault of any job.

A full disk, too few processes or descriptors and the like make every start fail. The node then is unschedulable: it
says so, and why, with its reports, and comes back once a probe, which does what a start does, has succeeded
PROBES_GOOD times in a row. A trouble that returns soon makes the pauses between probes longer. `Troubles` is pure:
times come in, in milliseconds of one monotonic clock.
"""

import errno
import os
import select
import shutil
import signal
import sys
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from schemas.edge.nodes import UNSCHEDULABLE_MAX
from services.agent.folders import JOBS

MACHINE = (
    errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN
)  # fmt: skip
"""Errors that say that this machine has no more of something, or a broken disk: they may pass."""
PROBE_MS, PROBE_MS_MAX = 1_000, 60_000
"""Pause before the first probe, and the longest: it doubles with every probe that fails, and with every relapse."""
PROBES_GOOD = 2
"""Probes in a row that have to succeed before the node takes tasks again."""
RELAPSE_MS = 300_000
"""A trouble that comes so soon after the last one ended goes on with its pauses."""
SUSPECTS_MAX, SUSPECTS_MS = 5, 60_000
"""So many attempts that ended without a result within that time are a trouble, though probes succeed."""
ROOM_FACTOR = 2
"""A node comes back when it has this many times the free room below which it stopped."""
PROBE_BYTES = 256 * 1024
PROBE = "#probe"  # No encoded name has a #.
PROBE_WAIT_MS = 10_000
"""A process that has not ended so long after its start is a trouble, too."""


@dataclass(frozen=True, slots=True)
class Room:
    """Free room on the data folder's disk below which a node takes no new tasks. 0: no limit."""

    bytes: int = 64 << 20
    inodes: int = 1_000


@dataclass(slots=True)
class Troubles:
    """`reason`: why the node is unschedulable, in the words of the first trouble; empty: it is not. `suspected`: a
    probe has to say first whether the node is well.
    """

    reason: str = ""
    suspected: bool = False
    pause_ms: int = PROBE_MS
    probe_ms: int = 0
    good: int = 0
    ended_ms: int | None = None
    suspects: deque[int] = field(default_factory=lambda: deque(maxlen=SUSPECTS_MAX))

    def fall(self, reason: str, now_ms: int) -> None:
        """Something that a start needs has failed."""
        self.suspected, self.good = False, 0
        if not self.reason:
            self.reason = "".join(c if c.isprintable() else "?" for c in reason[:UNSCHEDULABLE_MAX])
            relapse = self.ended_ms is not None and now_ms - self.ended_ms < RELAPSE_MS
            self.pause_ms = min(2 * self.pause_ms, PROBE_MS_MAX) if relapse else PROBE_MS
        self.probe_ms = now_ms + self.pause_ms

    def suspect(self, now_ms: int) -> None:
        """An attempt has ended without a result: that may be the task's doing or the node's."""
        if self.reason:
            return
        self.suspects.append(now_ms)
        if len(self.suspects) == SUSPECTS_MAX and now_ms - self.suspects[0] < SUSPECTS_MS:
            self.suspects.clear()
            self.fall("attempts end without a result, again and again", now_ms)
        else:
            self.suspected = True

    def is_due(self, now_ms: int) -> bool:
        """Whether a probe is to be made now."""
        return self.suspected or bool(self.reason and now_ms >= self.probe_ms)

    def probed(self, fault: str, now_ms: int, *, logged: bool) -> None:
        """A probe has found `fault`, or nothing. `logged`: the log has it that the node is unschedulable; until it has,
        the node is, so that nothing is lost to it that is granted meanwhile.
        """
        self.suspected = False
        if fault:
            if self.reason:
                self.pause_ms = min(2 * self.pause_ms, PROBE_MS_MAX)
            self.fall(fault, now_ms)
            return
        if not self.reason:
            return
        self.good += 1
        self.probe_ms = now_ms + PROBE_MS
        if self.good >= PROBES_GOOD and logged:
            self.reason, self.good, self.ended_ms = "", 0, now_ms


def short_of(data: Path, room: Room, factor: int = 1) -> str:
    """What the disk of `data` is short of, in words; empty: nothing. The words have no numbers that change: each change
    is a record of the log. Blocks.
    """
    try:
        disk = os.statvfs(data)
    except OSError as error:
        return f"its disk cannot be looked at: {error.strerror}"
    if disk.f_bavail * disk.f_frsize < _wanted(room.bytes, factor, disk.f_blocks * disk.f_frsize):
        return f"its disk is full: less than {room.bytes >> 20} MiB were left"
    # Some file systems do not count inodes, and say 0 of 0.
    if disk.f_files and disk.f_favail < _wanted(room.inodes, factor, disk.f_files):
        return f"its disk is full: less than {room.inodes} inodes were left"
    return ""


def _wanted(limit: int, factor: int, total: int) -> int:
    """`factor` times the limit, but of a small disk no more than half beyond the limit itself."""
    return min(limit * factor, max(limit, total // 2))


def probe(data: Path, room: Room) -> str:
    """Does what the start of a task does, and undoes it. Returns what failed, in words; empty: nothing. Blocks."""
    if fault := short_of(data, room, ROOM_FACTOR):
        return fault
    folder = data / JOBS / PROBE
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (folder / "file").open("wb") as file:
            file.write(bytes(PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())
        return _spawned()
    except OSError as error:
        return failed_start(error)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def failed_start(error: OSError) -> str:
    """Why the node is unschedulable, once a start has failed for `error`."""
    return f"it could not start a task: {error.strerror or error}"


def _spawned() -> str:
    """Starts a process that ends at once. Raises OSError."""
    null = [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_RDWR, 0) for stream in (0, 1, 2)]
    pid = os.posix_spawn(sys.executable, [sys.executable, "-I", "-S", "-c", ""], {}, file_actions=null)
    descriptor = os.pidfd_open(pid)
    try:
        if not select.select([descriptor], [], [], PROBE_WAIT_MS / 1_000)[0]:
            os.kill(pid, signal.SIGKILL)
    finally:
        os.close(descriptor)
        status = os.waitpid(pid, 0)[1]
    return "" if status == 0 else "it could not start a task: a process that does nothing failed"
