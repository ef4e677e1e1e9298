"""Secrets that a node keeps for tasks: a file each, which is read where the command is about to begin.

They lie in the folder of LARGESSE_NODE_SECRETS, those of a queue in the folder below it that has the queue's path; a
task finds what lies in the folder of its own queue, or in those above. The value goes into the environment of the
command, and into no file, record or log. Imported by shims: only the standard library, and little of it.
"""

from __future__ import annotations

import os

SECRET_BYTES_MAX = 32_768

_NOT_OWNER, _WRITERS, _TYPE, _FILE = 0o077, 0o022, 0o170000, 0o100000


class NoSecret(Exception):
    """A secret that a task cannot have: why, and never what it is."""


def secret_values(folder: str | None, queue: str, names: dict[str, str]) -> dict[str, str]:
    """By variable, the secret that it names. `folder`: where the node keeps them; None: nowhere. `queue`: of the job.
    Raises NoSecret.
    """
    if folder is None and names:
        name = next(iter(names.values()))
        raise NoSecret(f"secret {name}: this node keeps none: set LARGESSE_NODE_SECRETS")
    return {variable: _value(folder or "", queue, name) for variable, name in names.items()}


def _value(folder: str, queue: str, name: str) -> str:
    for place in _folders(folder, queue):
        try:
            return _read(f"{place}/{name}", name)
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            continue
        except OSError as error:
            raise NoSecret(f"secret {name}: cannot be read on this node: {error.strerror}") from None
    raise NoSecret(f"secret {name}: this node has none of that name for tasks of queue {queue}")


def _folders(folder: str, queue: str) -> list[str]:
    """Where a secret of a queue may lie: its own folder first. Raises NoSecret where others could put one there."""
    places = [folder]
    for segment in queue.split("/") if queue else ():
        if segment in (".", ".."):
            break
        places.append(f"{places[-1]}/{segment}")
    there = []
    for place in places:
        try:
            about = os.stat(place)  # noqa: PTH116 - pathlib would cost every task its start-up
        except (FileNotFoundError, NotADirectoryError):
            break
        except OSError as error:
            raise NoSecret(f"the folder of secrets cannot be read on this node: {error.strerror}") from None
        if about.st_uid not in (0, os.geteuid()) or about.st_mode & _WRITERS:
            raise NoSecret("a folder of secrets on this node can be written by others: `chmod go-w` it")
        there.append(place)
    there.reverse()
    return there


def _read(path: str, name: str) -> str:
    """What stands in a file, without the end of its last line. Raises NoSecret, OSError."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        about = os.fstat(file)
        if about.st_mode & _TYPE != _FILE:
            raise IsADirectoryError
        if about.st_uid not in (0, os.geteuid()):
            raise NoSecret(f"secret {name}: its file on this node is of another user than the agent and root")
        if about.st_mode & _NOT_OWNER:
            raise NoSecret(f"secret {name}: others on this node may read its file: `chmod 600` it")
        text = os.read(file, SECRET_BYTES_MAX + 1)
    finally:
        os.close(file)
    text = text.removesuffix(b"\n").removesuffix(b"\r")
    if len(text) > SECRET_BYTES_MAX or b"\0" in text or not text:
        raise NoSecret(f"secret {name}: its file on this node has to hold 1 to {SECRET_BYTES_MAX} bytes without NUL")
    return os.fsdecode(text)
