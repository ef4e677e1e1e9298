"""Keeps other processes of the same user, tasks among them, from reading this one's environment and memory.

To be imported before anything else by a module that is run as a process, and by no other: importing it does it. What
the environment holds can be read until then, which is for some hundredths of a second after a start.
"""

import ctypes
from contextlib import suppress

_PR_SET_DUMPABLE = 4


def _keep_private() -> None:
    """From here on only root may trace this process, or read its environment, memory and descriptors in /proc; it
    leaves no core dump either. Does nothing where there is no prctl().
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


_keep_private()
