"""What one attempt uses of CPU and memory, and whether it was ended for its memory. For its shim.

Where the attempt has a control group (cgroups.py) the kernel counts and limits; elsewhere the processes of its session
are looked at. Imported by every shim: only the standard library, and little of it.
"""

from __future__ import annotations

import os
import resource
import time

from services.agent.proc import read, session_of, stat_of

# As in shim.py.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

KILLED = 128 + 9
"""The exit code of what SIGKILL ended, and of a shell whose command it was."""
NEAR_PARTS = 2
"""An attempt that holds more than this part of its memory is looked at more often."""
CPU_WINDOW_MS = 10_000
"""The peak of CPU is the most that was used on average over so long: what is short can wait for its turn."""
CPU_SAMPLE_MS = 1_000
"""No two looks at the CPU time are closer together."""
KILLS_MS = 1_000
"""So old may be what an attempt begins with of how often the machine had no memory: as old as what it goes on with."""

_lately: list[int] = []  # When the machine's kills were counted last, in nanoseconds, and how many they were.


class Meter:
    """Of one attempt. `task`: as its shim was told (starting.py). `peak_kib`: the most that its processes together were
    seen to hold. `cpu_peak`: the most CPU that they used over a whole CPU_WINDOW_MS, in millicores. `_cpu_seen`: CPU
    time in microseconds at moments in milliseconds, from the last that is a whole window ago.
    """

    def __init__(self, task: dict[str, Any]) -> None:
        groups = task.get("groups") or {}
        self.group: str | None = groups.get("v2")
        self.peak_kib = 0
        self.cpu_peak = 0
        self._cpu_s = 0.0
        self._cpu_seen: list[tuple[int, int]] = []
        self.limit_mib: int | None = task["resident_mib"]
        self._max_mib: int | None = task.get("memory_mib") if groups.get("memory") else None
        self._kills = _kills_lately()

    def look(self, leader: int) -> int | None:
        """Looks at what a session uses; returns in MiB the memory that it holds if that is more than it may."""
        self.note_cpu(time.monotonic_ns() // 1_000_000, leader)
        used_kib = self._group_kib()
        if used_kib is None:
            used_kib = sum(_private_kib(pid) for pid in session_of(leader))
        self.peak_kib = max(used_kib, self.peak_kib)
        self._kills = _kills_lately(0)
        used_mib = used_kib // 1024
        return used_mib if self.limit_mib is not None and used_mib > self.limit_mib else None

    def note_cpu(self, now_ms: int, leader: int) -> None:
        """Notes the CPU time of a session at a moment, unless that was done just before."""
        seen = self._cpu_seen
        if seen and now_ms - seen[-1][0] < CPU_SAMPLE_MS:
            return
        used_us = self.cpu_us(leader)
        seen.append((now_ms, used_us))
        while len(seen) > 1 and now_ms - seen[1][0] >= CPU_WINDOW_MS:
            del seen[0]
        passed_ms = now_ms - seen[0][0]
        if passed_ms >= CPU_WINDOW_MS:
            self.cpu_peak = max(-(-(used_us - seen[0][1]) // passed_ms), self.cpu_peak)

    def cpu_us(self, leader: int) -> int:
        """CPU time so far, in microseconds: the group's, or of the session's processes and of those that have ended."""
        if self.group is not None and (counted_us := count(f"{self.group}/cpu.stat", b"usage_usec")):
            return counted_us
        ticks = sum(_cpu_ticks(pid) for pid in session_of(leader))
        return int(self._cpu_s * 1_000_000) + ticks * 1_000_000 // os.sysconf("SC_CLK_TCK")

    def is_near(self) -> bool:
        """Whether the limit that is watched, not the kernel's, may be passed soon."""
        return self.limit_mib is not None and self.peak_kib * NEAR_PARTS > self.limit_mib * 1024

    def killed_for_memory(self, exit_code: int) -> str | None:
        """Why the kernel ended an attempt that ended with this code, in words; None: it did not, as far as is known."""
        if count(f"{self.group}/memory.events", b"oom_kill") if self.group is not None else 0:
            if self._max_mib is None:
                return "the machine had no more memory, and the kernel ended it"
            self.peak_kib = max(self.peak_kib, self._max_mib * 1024)
            return f"used more than the {self._max_mib} MiB of memory it may"
        # Of others' memory a kill may be, too, but hardly in the second in which this was killed by nobody we know.
        if exit_code == KILLED and _kills_lately(0) > self._kills:
            return "the machine had no more memory: the kernel ended processes, and most likely this one"
        return None

    def full_of_processes(self) -> bool:
        """Whether it was refused a process or thread for its limit."""
        return self.group is not None and count(f"{self.group}/pids.events", b"max") > 0

    def add(self, used: resource.struct_rusage) -> None:
        """A process has ended that used this, with those it had reaped: the largest single one, as the kernel has
        measured it, stands beside the largest sum, which was only looked at.
        """
        self.peak_kib = max(used.ru_maxrss, self.peak_kib)
        self._cpu_s += used.ru_utime + used.ru_stime

    def usage(self, run_us: int) -> dict[str, int]:
        """Peak memory, CPU time and peak CPU, once all its processes have ended and been reaped. The peak of CPU is at
        least what was used on average over the whole run: all that is known of one that is shorter than a window.
        """
        cpu_us = int(self._cpu_s * 1_000_000)
        if self.group is not None:
            cpu_us = count(f"{self.group}/cpu.stat", b"usage_usec") or cpu_us
        cpu_peak = max(self.cpu_peak, -(-cpu_us * 1_000 // max(run_us, 1)), 1)
        return {"peak_mib": -(-self.peak_kib // 1024), "cpu_ms": cpu_us // 1_000, "cpu_peak": cpu_peak}

    def kill(self) -> None:
        """Ends every process of the attempt's group at once, where the kernel can (Linux 5.14)."""
        self._tell("cgroup.kill", b"1")

    def freeze(self, *, on: bool) -> bool:
        """Suspends every process of the attempt's group, or lets them go on; False where the kernel cannot."""
        return self._tell("cgroup.freeze", b"1" if on else b"0")

    def _tell(self, what: str, word: bytes) -> bool:
        if self.group is None:
            return False
        try:
            file = os.open(f"{self.group}/{what}", os.O_WRONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            return os.write(file, word) == len(word)
        except OSError:
            return False
        finally:
            os.close(file)

    def _group_kib(self) -> int | None:
        """What the group holds without pages of files; None where that is not counted."""
        if self.group is None:
            return None
        found = counts(f"{self.group}/memory.stat")
        if b"anon" not in found:
            return None
        return (found[b"anon"] + found.get(b"shmem", 0)) // 1024


def _private_kib(pid: int) -> int:
    """Resident memory that no file stands behind; 0 for a process that has just ended."""
    try:
        words = read(f"/proc/{pid}/statm").split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return (int(words[1]) - int(words[2])) * resource.getpagesize() // 1024


def _cpu_ticks(pid: int) -> int:
    """Clock ticks that a process and the children that it has reaped have run; 0 for one that is no more."""
    try:
        words = stat_of(pid)
    except OSError:
        return 0
    return sum(int(words[at]) for at in range(11, 15))


def _machine_kills() -> int:
    """How many processes the kernel has ended for memory since the machine started (Linux 4.13)."""
    try:
        _, found, rest = read("/proc/vmstat").partition(b"\noom_kill ")
    except OSError:
        return 0
    return int(rest.partition(b"\n")[0]) if found else 0


def _kills_lately(most_ms: int = KILLS_MS) -> int:
    """`_machine_kills`, as it was asked for by this process at most so long ago."""
    now_ns = time.monotonic_ns()
    if not _lately or now_ns - _lately[0] >= most_ms * 1_000_000:
        _lately[:] = now_ns, _machine_kills()
    return _lately[1]


def count(path: str, name: bytes) -> int:
    """The number of one such line; 0: there is none."""
    return counts(path).get(name, 0)


def counts(path: str) -> dict[bytes, int]:
    """Lines of a name and a number; none where the file is not there."""
    try:
        lines = read(path).splitlines()
    except OSError:
        return {}
    return {words[0]: int(words[1]) for words in map(bytes.split, lines) if len(words) == 2 and words[1].isdigit()}
