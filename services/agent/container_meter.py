"""What one container uses of CPU and memory, and whether it was ended for its memory. For its shim.

The kernel counts it by the container's control group. Where the engine makes it below a group of the attempt's own
(`parent`), the counts are still there when the container is not; elsewhere they are those of the last look. Only the
standard library, and little of it.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

from services.agent.meter import Meter, count, counts
from services.agent.proc import read

# As in shim.py.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from services.agent.becoming import Document

TOP = "/sys/fs/cgroup"
NEEDED = ("memory", "cpuacct", "pids")
"""Controllers of cgroup v1, each with a tree of its own; v2 has one for all."""


class ContainerMeter(Meter):
    """Of one attempt. `out_of_memory`: the engine says that the kernel ended something of it for its memory.
    `since_ns`: from when on its CPU time is counted: the engine spends a little before the command runs.
    """

    def __init__(self, task: Document) -> None:
        super().__init__({**task, "groups": None, "resident_mib": None})
        self.out_of_memory = self.counted = False
        self.since_ns = time.monotonic_ns()
        self._may_mib: int | None = task["memory_mib"]
        self._parent: str | None = task["container"]["parent"]
        self._v2 = ""
        self._v1: dict[str, str] = {}
        self._within: list[str] = []  # The container's own groups.
        self._refused = 0
        self._cpu_us = 0

    def find(self, pid: int) -> None:
        """Its groups, by one of its processes; none where it has ended already, but for those of the attempt's own."""
        lines: list[str] = []
        with suppress(OSError):
            lines = read(f"/proc/{pid}/cgroup").decode().splitlines() if pid else []
        found = {name: path for line in lines for _, names, path in [line.split(":", 2)] for name in names.split(",")}
        self._within = [_place(name, path) for name, path in found.items() if name in ("", *NEEDED)]
        for name in NEEDED:
            group = _place(name, self._parent or found.get(name, "-"))
            if _is_there(group):
                self._v1[name] = group
        group = _place("", self._parent or found.get("", "-"))
        if _is_there(f"{TOP}/cgroup.controllers") and _is_there(group):
            self._v2 = group
        self.look(pid)

    def look(self, leader: int) -> int | None:
        """Looks at what it uses. Never more than it may: the kernel sees to that."""
        counted_us = self.cpu_us(leader)
        self.counted = self.counted or counted_us > 0
        self.peak_kib = max(self.peak_kib, self._held_kib())
        self._refused = max([self._refused, *(count(f"{group}/pids.events", b"max") for group in self._within)])
        return None

    def cpu_us(self, leader: int) -> int:
        """CPU time so far, in microseconds."""
        if self._v2:
            counted_us = count(f"{self._v2}/cpu.stat", b"usage_usec")
        else:
            counted_us = _number(f"{self._v1.get('cpuacct', '-')}/cpuacct.usage") // 1_000
        self._cpu_us = max(self._cpu_us, counted_us)
        return self._cpu_us

    def killed_for_memory(self, exit_code: int) -> str | None:
        """Why the kernel ended it, in words; None: it did not, as far as is known."""
        if not self.out_of_memory:
            return None
        if self._may_mib is None:
            return "the machine had no more memory, and the kernel ended it"
        self.peak_kib, self.counted = max(self.peak_kib, self._may_mib * 1024), True
        return f"used more than the {self._may_mib} MiB of memory it may"

    def full_of_processes(self) -> bool:
        """Whether it was refused a process or thread for its limit."""
        return self._refused > 0

    def usage(self, run_us: int) -> dict[str, int]:
        """Peak memory, CPU time and peak CPU, once all its processes have ended; nothing where it was not counted."""
        self.look(0)
        if not self.counted:
            return {}
        self.peak_kib = max(self.peak_kib, self._highest_kib())
        whole_us = max(run_us, (time.monotonic_ns() - self.since_ns) // 1_000, 1)
        cpu_peak = max(self.cpu_peak, -(-self._cpu_us * 1_000 // whole_us), 1)
        return {"peak_mib": -(-self.peak_kib // 1024), "cpu_ms": self._cpu_us // 1_000, "cpu_peak": cpu_peak}

    def kill(self) -> None:
        """Ends its processes without the engine, as far as this user may."""
        for pid in self._processes():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    def lives(self) -> bool:
        """Whether processes of it are left."""
        return bool(self._processes())

    def freeze(self, *, on: bool) -> bool:
        """The engine does that."""
        return False

    def remove(self) -> None:
        """The attempt's own groups, once nothing is left in them."""
        if self._parent is not None:
            remove_groups(self._parent)

    def _processes(self) -> list[int]:
        found: list[int] = []
        for group in self._within[:1]:
            with suppress(OSError, ValueError):
                found += [int(pid) for pid in read(f"{group}/cgroup.procs").split()]
        return found

    def _held_kib(self) -> int:
        """What it holds without pages of files, now."""
        if self._v2:
            found = counts(f"{self._v2}/memory.stat")
            return (found.get(b"anon", 0) + found.get(b"shmem", 0)) // 1024
        found = counts(f"{self._v1.get('memory', '-')}/memory.stat")
        return (found.get(b"total_rss", 0) + found.get(b"total_shmem", 0)) // 1024

    def _highest_kib(self) -> int:
        """The kernel's own peak without what is still counted when all processes have ended: pages of files."""
        if self._parent is None:
            return 0
        group, highest, now = self._v2, "memory.peak", "memory.current"
        if not group:
            group, highest, now = self._v1.get("memory", "-"), "memory.max_usage_in_bytes", "memory.usage_in_bytes"
        return max(0, _number(f"{group}/{highest}") - _number(f"{group}/{now}")) // 1024


def remove_groups(parent: str) -> None:
    """The groups of that name in every tree, where nothing is left in them."""
    with os.scandir(TOP) as trees:
        places = [f"{tree.path}{parent}" for tree in trees if tree.is_dir(follow_symlinks=False)]
    for group in (f"{TOP}{parent}", *places):
        with suppress(OSError):
            os.rmdir(group)  # noqa: PTH106 - imported by shims


def _place(controller: str, path: str) -> str:
    return f"{TOP}/{controller}{path}" if controller else f"{TOP}{path}"


def _is_there(path: str) -> bool:
    return os.access(path, os.F_OK)


def _number(path: str) -> int:
    try:
        text = read(path).strip()
    except OSError:
        return 0
    return int(text) if text.isdigit() else 0
