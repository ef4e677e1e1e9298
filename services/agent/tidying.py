"""The run of an ended job before it is put away (clearing.py): its size, without the useless files of its attempts.

Only the standard library. No link is followed.
"""

from __future__ import annotations

import os
from contextlib import suppress

from services.agent.trees import FOLDER, measured, remove_tree, unlock_upper

SPENT = ("claim.json", "child.json", "result.json", "stop.json", "shim.err")
"""Files of an attempt that are useless once its job has ended. `shim.err` goes where it is empty."""
INPUTS = "#inputs"
"""As in folders.py, which is not imported here."""
LEVELS_TIDIED = 3
"""Folders below a run that have to be opened to put it away: stages, attempts, work."""


def size_of(run: str, parent: int) -> tuple[int, int]:
    """What `_tidied` says, also where a task has locked a folder on the way. Raises OSError."""
    try:
        return _tidied(run, parent)
    except PermissionError:
        unlock_upper(run, parent, LEVELS_TIDIED)
        return _tidied(run, parent)


def _tidied(run: str, parent: int) -> tuple[int, int]:
    """Size in bytes and number of entries of a run, once the useless files of its attempts have gone. Raises
    OSError."""
    folder = os.open(run, FOLDER, dir_fd=parent)
    try:
        size, entries = 0, 2  # The folders of the job and of the run.
        for stage in _folders_in(folder):
            if stage == INPUTS:
                with suppress(OSError):
                    remove_tree(stage, folder)  # The nodes where they were made keep them.
                    continue
            entries += 1
            inner = os.open(stage, FOLDER, dir_fd=folder)
            try:
                for attempt in _folders_in(inner):
                    _tidy(attempt, inner)
                more, count = measured(inner)
                size, entries = size + more, entries + count
            finally:
                os.close(inner)
        return size, entries
    finally:
        os.close(folder)


def _folders_in(folder: int) -> list[str]:
    with os.scandir(folder) as found:
        return [entry.name for entry in found if entry.is_dir(follow_symlinks=False)]


def _tidy(attempt: str, parent: int) -> None:
    """Removes the useless files of an attempt whose job has ended. What cannot be removed stays."""
    with suppress(OSError):
        folder = os.open(attempt, FOLDER, dir_fd=parent)
        try:
            for name in SPENT:
                with suppress(OSError):
                    if name != "shim.err" or not os.lstat(name, dir_fd=folder).st_size:
                        os.unlink(name, dir_fd=folder)
            with suppress(OSError):
                os.rmdir("work", dir_fd=folder)
        finally:
            os.close(folder)
