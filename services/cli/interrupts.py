"""Ctrl-C: one line on stderr and exit code 130, at whatever moment it comes.

While modules are imported and while the process ends, nothing has to be put away: it ends at once. While a command
runs, KeyboardInterrupt is raised, so that the command can put the terminal and its files in order; a second Ctrl-C
ends the process at once. Imports little, so that the guard is in place early.
"""

import os
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

CODE = 128 + signal.SIGINT
"""What a shell shows of a process that Ctrl-C has ended."""

_LINE = b"largesse: interrupted\n"


class _Seen:
    """What became of Ctrl-C in this process so far. `shown`: the line is on stderr."""

    happened = False
    shown = False


def guard() -> None:
    """From here on Ctrl-C ends the process at once. Does nothing where Ctrl-C is ignored, as in a background job."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _end_at_once)
        sys.unraisablehook = _unraisable


@contextmanager
def raising() -> Iterator[None]:
    """Around a command: the first Ctrl-C raises KeyboardInterrupt. To be entered after `guard`."""
    if signal.getsignal(signal.SIGINT) is not _end_at_once:
        yield
        return
    signal.signal(signal.SIGINT, _raise)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, _end_at_once)


def happened() -> bool:
    """Whether Ctrl-C was pressed while a command ran, even if a library made something else of KeyboardInterrupt."""
    return _Seen.happened


def tell(line: str = "") -> None:
    """Writes the line to stderr, once. `line`: a text of the command's own."""
    if not _Seen.shown:
        _Seen.shown = True
        os.write(2, f"largesse: {line}\n".encode(errors="replace") if line else _LINE)


def _raise(number: int, frame: FrameType | None) -> None:
    _Seen.happened = True
    signal.signal(signal.SIGINT, _end_at_once)
    # What had only half begun, like an event loop, complains when it is put away; coroutines that never ran do so, too.
    warnings.simplefilter("ignore", RuntimeWarning)
    raise KeyboardInterrupt


def _end_at_once(number: int, frame: FrameType | None) -> None:
    tell()
    os._exit(CODE)


def _unraisable(what: Any) -> None:
    # Raised inside a finalizer, KeyboardInterrupt cannot get out: Python would print a traceback and go on.
    if isinstance(what.exc_value, KeyboardInterrupt):
        tell()
        os._exit(CODE)
    if not _Seen.happened:
        sys.__unraisablehook__(what)
