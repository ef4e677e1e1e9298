"""Keeps other processes of the same user, tasks among them, from reading this one's environment and memory."""

import ctypes
from contextlib import suppress

_PR_SET_DUMPABLE = 4


def keep_private() -> None:
    """From here on only root may trace this process, or read its environment, memory and descriptors in /proc; it
    leaves no core dump either. A no-op where there is no prctl().

    To be called first thing: what the environment holds can be read until then.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
