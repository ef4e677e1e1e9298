"""Processes of attempts, found without their shims: after a shim was killed, and at an agent's start.

Every process of an attempt has KEY in its environment, every shim has it on its command line; the key names the data
folder by its inode, so a copy of the folder has other keys, and the attempt within it. Found are processes that carry a
key, the sessions they opened, and all their descendants. What clears its environment, and opens a session of its own,
and is orphaned, is still a child of this process if its shim was, and is found as such. It escapes only if the agent
was killed as well; so does what a task has others start (cron, systemd).
"""

import ctypes
import os
import signal
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from services.agent.proc import stat_of

KEY = "LARGESSE_ATTEMPT_KEY"
SHIM = "largesse-shim"
"""What shims are called that were forked (fork_server.py)."""
_PR_SET_CHILD_SUBREAPER = 36
_KERNEL_THREADS = 2
"""The parent of all threads of the kernel."""
SHIM_DONE, UNKNOWN = 0, -1
"""The exit status of a shim that has done all it was to do; of a process that is not a child of this one."""

spawning = threading.Lock()
"""Held while a shim is started and entered in `ours`: until then it looks like an orphan. Also while one is looked at
and sent a signal: it takes on nothing else meanwhile."""
ours: set[int] = set()
"""Shims that this process has started and not yet reaped."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A process as the kernel shows it. `ticks`: its start time."""

    state: bytes
    parent: int
    session: int
    ticks: int

    @property
    def lives(self) -> bool:
        """Whether it is more than an entry that waits to be reaped."""
        return self.state not in (b"Z", b"X")


Table = dict[int, Seen]


def node_key(data: Path) -> str:
    """What the keys of all attempts in a data folder begin with. Raises OSError."""
    about = data.stat()
    return f"{about.st_dev:x}.{about.st_ino:x}/"


def attempt_key(node: str, data: Path, folder: Path) -> str:
    """The key of the attempt in `folder`, below `data` whose node_key is `node`."""
    return node + folder.relative_to(data).as_posix()


def take_in_orphans() -> None:
    """From here on, what loses its parent below this process becomes its child."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


@cache
def hidden() -> bool:
    """Whether /proc hides (`hidepid`) from this user what is not dumpable, its own shims too."""
    if os.geteuid() == 0:
        return False
    lines = _text("/proc/self/mountinfo").splitlines()
    return any(" /proc " in line and "hidepid=" in line and "hidepid=off" not in line for line in lines)


def seen() -> Table:
    """Every process there is. Raises OSError."""
    table: Table = {}
    with os.scandir("/proc") as entries:
        pids = [int(entry.name) for entry in entries if entry.name.isdecimal()]
    for pid in pids:
        with suppress(FileNotFoundError, ProcessLookupError):
            words = stat_of(pid)
            if int(words[1]) != _KERNEL_THREADS:
                table[pid] = Seen(words[0], int(words[1]), int(words[3]), int(words[19]))
    return table


def is_shim(pid: int, ticks: int, key: str) -> bool:
    """Whether a process lives, is the one that started then, and is the shim of the attempt with that key."""
    with suppress(FileNotFoundError, ProcessLookupError):
        words = stat_of(pid)
        return words[0] not in (b"Z", b"X") and int(words[19]) == ticks and _shim_key(pid) == key
    return False


def is_named(pid: int, key: str) -> bool:
    """Whether a process is the shim of the attempt with that key, or was forked from it and has not become another."""
    return _shim_key(pid) == key


def is_idle(pid: int, data: Path) -> bool:
    """Whether a process is a shim of the agent of that folder, and guards nothing at the moment."""
    return _text(f"/proc/{pid}/cmdline").rstrip("\0") == f"{SHIM}\0{data}"


def has_moved_on(pid: int, key: str) -> bool:
    """Whether a shim that guarded the attempt with that key has done all it was to do, and waits for, or guards,
    another one.
    """
    words = _text(f"/proc/{pid}/cmdline").rstrip("\0").split("\0")
    return words[0] == SHIM and words[-1] != key


def carriers(table: Table, node: str) -> dict[str, list[int]]:
    """Living processes that carry a key of the data folder, shims included, by key."""
    found: dict[str, list[int]] = {}
    for pid, process in table.items():
        if process.lives:
            for key in (_shim_key(pid), _environment_key(pid, node)):
                if key.startswith(node) and pid not in found.get(key, ()):
                    found.setdefault(key, []).append(pid)
    return found


def family(table: Table, roots: Iterable[int]) -> set[int]:
    """Living processes that come from `roots`, these included: descendants, and sessions opened by one of them.

    Never this process, nor one that it comes from; nor, for their session alone, those beside it.
    """
    children: dict[int, list[int]] = {}
    members: dict[int, list[int]] = {}
    for pid, process in table.items():
        children.setdefault(process.parent, []).append(pid)
        members.setdefault(process.session, []).append(pid)
    spared = _line_of(table, os.getpid())
    # No task was ever in this session, whose leader may have ended, or be outside this namespace of processes (0).
    own = {0, os.getsid(0)}
    found: set[int] = set()
    waiting = list(roots)
    while waiting:
        pid = waiting.pop()
        if pid in found or pid in spared or pid not in table:
            continue
        found.add(pid)
        waiting += children.get(pid, ())
        session = table[pid].session
        # A leader that lives and was not found has let one in: a person who inspects a task from a shell.
        if session not in own and (session == pid or session in found or session not in table):
            waiting += members.get(session, ())
    return {pid for pid in found if table[pid].lives}


def orphans(table: Table, since: int) -> list[int]:
    """Children of this process that it did not start, in sessions of their own, begun at `since` (ticks) or later: what
    shims that were killed have left. Those that have ended are reaped. To be called under `spawning`.
    """
    me = os.getpid()
    session = os.getsid(0)
    left = [
        pid
        for pid, process in table.items()
        if process.parent == me and process.session != session and process.ticks >= since and pid not in ours
    ]
    for pid in left:
        if not table[pid].lives:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
    return [pid for pid in left if table[pid].lives]


def end(pids: Iterable[int]) -> None:
    """SIGKILL."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _line_of(table: Table, pid: int) -> set[int]:
    line = {0, 1}
    while pid not in line:
        line.add(pid)
        pid = table[pid].parent if pid in table else 1
    return line


def _shim_key(pid: int) -> str:
    """The last word of a process's command line, which of a shim is its key."""
    return _text(f"/proc/{pid}/cmdline").rstrip("\0").rpartition("\0")[2]


def _environment_key(pid: int, node: str) -> str:
    text = "\0" + _text(f"/proc/{pid}/environ")
    _, found, rest = text.partition(f"\0{KEY}={node}")
    return node + rest.partition("\0")[0] if found else ""


def _text(path: str) -> str:
    """Empty where the process has ended, or may not be looked into."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - once for every process of the machine
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def status_of(pid: int) -> int | None:
    """A shim's exit status as waitpid() has it, which is taken once; None: it has not ended. UNKNOWN: it is not, or no
    longer, a child of this process; its new parent has reaped it, or will.
    """
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return UNKNOWN
    if ended == pid:
        ours.discard(pid)
        return status
    return None
