"""Processes as the kernel shows them, for the shim of an attempt and for its agent.

Imported by every shim: only the standard library, and little of it.
"""

from __future__ import annotations

import os
from contextlib import suppress

_READ_BYTES = 8_192
_boot: list[str] = []  # Once it was asked for.


def read(path: str) -> bytes:
    """A file of the kernel's. Raises OSError."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        text = part = os.read(file, _READ_BYTES)
        while part:
            part = os.read(file, _READ_BYTES)
            text += part
    finally:
        os.close(file)
    return text


def session_of(leader: int) -> list[int]:
    """Processes of the session that `leader` opened. A number in use by a session is given to no other process."""
    members = []
    for pid in processes():
        with suppress(ProcessLookupError, PermissionError):
            if os.getsid(pid) == leader:
                members.append(pid)
    return members


def processes() -> list[int]:
    """Every process there is."""
    with os.scandir("/proc") as entries:
        return [int(entry.name) for entry in entries if entry.name.isdecimal()]


def boot_id() -> str:
    """Names this run of the kernel: pids and the monotonic clock mean nothing beyond it."""
    if not _boot:
        _boot.append(read("/proc/sys/kernel/random/boot_id").decode().strip())
    return _boot[0]


def start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since boot, which with its pid names it for good; None: it is no more."""
    try:
        words = stat_of(pid)
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if words[0] in (b"Z", b"X") else int(words[19])


def stat_of(pid: int) -> list[bytes]:
    """What the kernel says of a process, from its state on; the name before it may hold anything. Raises
    FileNotFoundError, ProcessLookupError: there is none."""
    text = read(f"/proc/{pid}/stat")
    return text[text.rindex(b")") + 2 :].split()


def family(child: int) -> list[int]:
    """The session of the command, and every descendant of this process: orphans come to it."""
    parents: dict[int, list[int]] = {}
    for pid in processes():
        with suppress(FileNotFoundError, ProcessLookupError):
            parents.setdefault(int(stat_of(pid)[1]), []).append(pid)
    found, waiting = [], [os.getpid()]
    while waiting:
        children = parents.get(waiting.pop(), [])
        found += children
        waiting += children
    return [*found, *(pid for pid in session_of(child) if pid not in found)]
