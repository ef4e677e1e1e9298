"""How many files and sockets this process may have open, and how many of them connections from outside may take."""

import errno
import resource
import threading
from collections.abc import Callable

DESCRIPTORS_MAX = 65_536
"""The soft limit is raised to the hard one, but not beyond this: no service needs more."""
RESERVE = 256
"""For the bus, snapshots, what services ask each other, and the tasks of an agent: never for connections."""
CONNECTIONS_SHARE = 4
"""Of what is left beyond the reserve connections get one part in so many: a busy agent's tasks need the rest."""
CONNECTIONS_MIN = 16

ACCEPTED_AT_ONCE = 8
"""Connections that asyncio accepts before it looks at any of them. Its own 100 and more would overrun a limit, and each
of them fails where no descriptor is left, with a traceback in the log."""

WAIT_SECONDS = 60
"""So long a file that has to be opened waits for a descriptor: connections and tasks give them back."""
AGAIN_SECONDS = 0.1

_inherited: int | None = None


def raise_limit() -> int:
    """Raises the soft limit of open files to the hard one, or DESCRIPTORS_MAX, and returns it. Once at the start."""
    global _inherited
    soft, hard = _limits()
    if _inherited is None:
        _inherited = soft
    wanted = min(hard, DESCRIPTORS_MAX)
    if soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        except (ValueError, OSError):
            return soft  # A sandbox that says so is to be believed.
    return max(soft, wanted)


def inherited_limit() -> int | None:
    """The soft limit before `raise_limit`, for processes that this one starts: a program that uses `select` breaks
    above 1,024. None where nothing was raised."""
    return _inherited


def connections_within(most: int) -> int:
    """How many connections a server may take: `most`, or fewer where the limit of open files is low."""
    soft, _ = _limits()
    return max(CONNECTIONS_MIN, min(most, (soft - RESERVE) // CONNECTIONS_SHARE))


def _limits() -> tuple[int, int]:
    """Soft and hard; DESCRIPTORS_MAX stands for no limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    endless = resource.RLIM_INFINITY
    return DESCRIPTORS_MAX if soft == endless else soft, DESCRIPTORS_MAX if hard == endless else hard


def is_exhausted(error: OSError) -> bool:
    """Whether a file could not be opened because this process, or the machine, has too many open: a matter of time."""
    return error.errno in (errno.EMFILE, errno.ENFILE)


def when_there_are(opens: Callable[[], None]) -> None:
    """Calls `opens` until there is a descriptor for it. Blocks, WAIT_SECONDS at most: for threads. Raises what `opens`
    raises; it has to be such that it can be called again."""
    for _ in range(int(WAIT_SECONDS / AGAIN_SECONDS)):
        try:
            return opens()
        except OSError as error:
            if not is_exhausted(error):
                raise
        threading.Event().wait(AGAIN_SECONDS)
    return opens()
