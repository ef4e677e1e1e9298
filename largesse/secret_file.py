"""A password or a token that stands in a file of its own, so that it is in no argument, address or log.

What everybody on the machine may read is no secret, and is refused: tasks run there, too.
"""

import os
import re
import stat
from pathlib import Path

BYTES_MAX = 65_535

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class SecretUnreadable(ValueError):
    """A file that does not hold one: says why, and never what stands there."""


def exposed(mode: int, path: str | Path) -> str:
    """What is wrong with the mode of a file that holds a secret, and what helps; "": nothing."""
    return f"everybody on this machine may read it: `chmod o= {path}`" if mode & stat.S_IROTH else ""


def secret_in(path: str | Path) -> str:
    """What stands on the one line of a file. Raises SecretUnreadable."""
    try:
        with Path(path).open("rb") as file:
            fault = exposed(os.fstat(file.fileno()).st_mode, path)
            text = file.read(BYTES_MAX + 1).decode()
    except (OSError, ValueError) as error:
        why = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else getattr(error, "strerror", None) or error
        raise SecretUnreadable(f"no password can be read from {path}: {why}") from None
    if fault:
        raise SecretUnreadable(f"no password can be read from {path}: {fault}")
    secret = text.removesuffix("\n").removesuffix("\r")
    if not secret or _CONTROL.search(secret) or len(text) > BYTES_MAX:
        raise SecretUnreadable(f"no password can be read from {path}: it has to stand on the only line")
    return secret
