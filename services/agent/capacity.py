"""What a machine has for tasks, in base units, and the equal parts into which several agents on it divide that."""

import os
from pathlib import Path

import psutil

from schemas import Vector
from schemas.quantities import MIB

CGROUP = Path("/sys/fs/cgroup")


def measured(data: Path, parts: int = 1, cgroup: Path = CGROUP) -> Vector:
    """Logical cores as millicores, memory and the data folder's disk in MiB; one of `parts` equal parts of it.

    A container that may use less than its machine has offers what it may use (cgroup v2). Rounds down: others build on
    it.
    """
    whole = {"cpu": _cpu(cgroup), "disk": psutil.disk_usage(str(data)).total // MIB, "memory": _memory(cgroup)}
    return {resource: part for resource, amount in whole.items() if (part := amount // parts)}


def _cpu(cgroup: Path) -> int:
    millicores = len(os.sched_getaffinity(0)) * 1000
    quota, _, period = _line(cgroup / "cpu.max").partition(" ")
    if quota.isdecimal() and period.isdecimal() and int(period):
        millicores = min(millicores, int(quota) * 1000 // int(period))
    return millicores


def _memory(cgroup: Path) -> int:
    total = psutil.virtual_memory().total
    limit = _line(cgroup / "memory.max")
    if limit.isdecimal():
        total = min(total, int(limit))
    return int(total) // MIB


def _line(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""  # Another system, or no limit.
