"""Ends a process with the one that started it, also where that one was killed.

The parent holds the write end of a pipe as long as it lives, and the child has the read end, on which a thread waits.
The kernel closes what a killed process held, so nothing has to be sent. (PR_SET_PDEATHSIG goes by the thread that
started the child, and misses a parent that ended before it was set.)
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

VARIABLE = "LARGESSE_LIFELINE"
"""Of a child's environment: the file descriptor of the read end."""


@contextmanager
def lifeline() -> Iterator[tuple[int, dict[str, str]]]:
    """What a child is started with that is to end when this context does, or this process: the descriptor that it
    inherits, and its environment."""
    read, write = os.pipe()
    try:
        yield read, {**os.environ, VARIABLE: str(read)}
    finally:
        os.close(write)
        os.close(read)


def end_with_parent() -> None:
    """Ends this process, with exit code 1, once its parent's lifeline does. Does nothing where it was given none."""
    text = os.environ.pop(VARIABLE, "")  # What this process starts has to have one of its own.
    if text.isdecimal():
        threading.Thread(target=_wait, args=(int(text),), daemon=True).start()


def _wait(read: int) -> None:
    with suppress(OSError):
        while os.read(read, 1):
            pass
    os._exit(1)
