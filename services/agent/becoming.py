"""What an attempt's shim does on the way from a fork to its command's own first instruction.

Every page that is written to is copied, twice: in the child, and in the shim if that writes first. That costs more than
all else here, and whatever Python does writes. So what can be done before the fork is. Imported by every shim: only the
standard library, and little of it.
"""

from __future__ import annotations

import os
import resource
import signal
from contextlib import suppress

# As in shim.py.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import ctypes
    from typing import Any, NoReturn

    Document = dict[str, Any]
    """Of a shim, as it was read or is written."""

WORK = "work"
NOT_EXECUTABLE, NOT_FOUND = 126, 127
"""Exit codes of a command that could not be executed, as shells say it."""
SIGNAL_BASE = 128
"""An exit code above it is a signal, as shells say it."""
NOT_ITS_FAULT = b"\0"
"""What a child says first that could not begin for a fault of the machine's."""
NOT_JOINED = "cannot join its control group"
PDEATHSIG = 1
_KILL = int(signal.SIGKILL)

_library: list[ctypes.CDLL] = []  # The C library, once it was needed: every shim needs it before it forks.


def places_of(task: Document) -> list[str]:
    """Where the program may be: the places at which execvpe() would try it, from the first on at which something is."""
    program, user = task["command"][0], task["user"]
    if os.path.dirname(program):
        return [program]
    # As os.get_exec_path() does, which holds back warnings first.
    places = [os.path.join(folder, program) for folder in task["env"].get("PATH", os.defpath).split(os.pathsep)]
    for at, place in enumerate(places):
        # What another user may not look into is no reason, and a folder may be named from where the command begins.
        if user or not os.path.isabs(place) or os.path.lexists(place):
            return places[at:]
    return places


def _execute(places: list[str], command: list[str], env: dict[str, str]) -> NoReturn:
    """As execvpe() does, which has to import something first. Raises OSError."""
    why: OSError | None = None
    for place in places:
        try:
            os.execve(place, command, env)
        except OSError as error:
            if why is None or isinstance(why, FileNotFoundError | NotADirectoryError):
                why = error
    assert why is not None
    raise why


def become(
    task: Document, places: list[str], pipes: list[int], groups: list[int], said: int, guardian: int
) -> NoReturn:
    """In the forked child: everything up to the command's own first instruction, or the reason why not to `said`.

    `groups`: files by which it joins its control groups. Its mask and its limit of descriptors it has from the shim.
    Signals that the shim hears have their defaults again once the command runs.
    """
    problem, exit_code = "the shim failed", NOT_EXECUTABLE
    try:
        os.setsid()
        problem = NOT_ITS_FAULT.decode() + NOT_JOINED
        for group in groups:
            os.write(group, b"0")
        problem = "the shim failed"
        signal.set_wakeup_fd(-1)
        if task["user"] is not None:
            problem = f"cannot become user {task['user']['uid']}"
            os.chdir(WORK)  # Of which the user need not be able to enter the folders above.
            os.setgroups(task["user"]["groups"])
            os.setgid(task["user"]["gid"])
            os.setuid(task["user"]["uid"])
        # After that: a change of user clears it.
        if _library:
            _library[0].prctl(PDEATHSIG, _KILL, 0, 0, 0)
        if os.getppid() != guardian:
            os._exit(SIGNAL_BASE + _KILL)
        os.dup2(pipes[0], 1)
        os.dup2(pipes[1], 2)
        if task["user"] is None:
            os.chdir(WORK)
        if task["cwd"] is not None:
            problem = f"no working directory {task['cwd']}"
            os.chdir(task["cwd"])
        if task["address_mib"] is not None:
            problem = "cannot limit its memory"
            resource.setrlimit(resource.RLIMIT_AS, (task["address_mib"] << 20,) * 2)
        problem = ""
        try:
            os.execve(places[0], task["command"], task["env"])
        except OSError:
            _execute(places, task["command"], task["env"])
    except Exception as error:
        if not problem:
            problem = f"cannot execute {task['command'][0]}"
            exit_code = NOT_FOUND if isinstance(error, FileNotFoundError) else exit_code
        os.write(said, f"{problem}: {getattr(error, 'strerror', None) or error}".encode(errors="replace"))
    finally:
        os._exit(exit_code)


def prctl(option: int, value: int = 1) -> bool:
    """Whether that could be done."""
    with suppress(ImportError, OSError, AttributeError):
        if not _library:
            import ctypes

            _library.append(ctypes.CDLL(None))
        done: int = _library[0].prctl(option, value, 0, 0, 0)
        return done == 0
    return False
