"""Measures and removes folders that tasks have made: of any depth and size, locked, full of links.

Nothing recurses further than LEVELS_MAX, no link is followed, and a handful of descriptors is enough. Only the standard
library: the process that clears folders away imports it (clearing.py).
"""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import suppress

LEVELS_MAX = 50
"""What lies deeper is not measured, and is removed by a slower way."""

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PLACE = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_DEEP = (errno.EMFILE, errno.ENFILE, errno.ENAMETOOLONG, errno.EACCES, errno.EPERM)


def measured(folder: int, levels: int = LEVELS_MAX) -> tuple[int, int]:
    """Bytes and number of all entries below a folder; what cannot be looked into, or lies too deep, counts as one.

    Raises OSError where the folder itself cannot be read.
    """
    size = count = 0
    with os.scandir(folder) as found:
        for entry in found:
            count += 1
            with suppress(OSError):
                if not entry.is_dir(follow_symlinks=False):
                    size += entry.stat(follow_symlinks=False).st_size
                elif levels:
                    inner = os.open(entry.name, FOLDER, dir_fd=folder)
                    try:
                        more, entries = measured(inner, levels - 1)
                        size, count = size + more, count + entries
                    finally:
                        os.close(inner)
    return size, count


def remove_tree(name: str, parent: int) -> None:
    """Removes the folder `name` in `parent` with all below it. Raises OSError."""
    try:
        shutil.rmtree(name, dir_fd=parent)
    except RecursionError:
        _remove_flat(name, parent)
    except OSError as error:
        if error.errno not in _DEEP:
            raise
        _remove_flat(name, parent)


def unlock(name: str, parent: int) -> None:
    """Lets the owner of a folder read and change it, whatever lies in its place meanwhile. Raises OSError."""
    place = os.open(name, _PLACE, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{place}", 0o700)  # By its name a link could be followed.
    finally:
        os.close(place)


def unlock_upper(name: str, parent: int, levels: int) -> None:
    """`unlock`, also for folders below, `levels` deep. Raises OSError."""
    unlock(name, parent)
    if not levels:
        return
    folder = os.open(name, FOLDER, dir_fd=parent)
    try:
        for inner in _entries(folder)[0]:
            unlock_upper(inner, folder, levels - 1)
    finally:
        os.close(folder)


def _remove_flat(name: str, parent: int) -> None:
    """Removes level by level; what lies too deep is first moved up to the top."""
    unlock(name, parent)
    top = os.open(name, FOLDER, dir_fd=parent)
    try:
        moved = _empty(top, top, 0, LEVELS_MAX)
        while moved:
            moved = _empty(top, top, moved, LEVELS_MAX)
    finally:
        os.close(top)
    os.rmdir(name, dir_fd=parent)


def _empty(folder: int, top: int, moved: int, levels: int) -> int:
    """Removes what is in a folder, but moves to the top what lies deeper than `levels`. `moved`: how many were moved so
    far; returns how many by now, 0 where this was the top and nothing is left in it.
    """
    before = moved
    folders, files = _entries(folder)
    for file in files:
        os.unlink(file, dir_fd=folder)
    for inner in folders:
        unlock(inner, folder)  # Or its owner could neither empty nor move it.
        if not levels:
            moved = _move_up(inner, folder, top, moved)
            continue
        below = os.open(inner, FOLDER, dir_fd=folder)
        try:
            moved = _empty(below, top, moved, levels - 1)
        finally:
            os.close(below)
        os.rmdir(inner, dir_fd=folder)
    return 0 if folder == top and moved == before else moved


def _move_up(inner: str, folder: int, top: int, moved: int) -> int:
    """Moves a folder to the top under a name that is free there; returns the name's number."""
    while True:
        moved += 1
        try:
            os.mkdir(_name(moved), 0o700, dir_fd=top)
        except FileExistsError:
            continue  # Left by an earlier try that was ended, or a name of the task's.
        os.rename(inner, _name(moved), src_dir_fd=folder, dst_dir_fd=top)  # In the place of the empty one.
        return moved


def _name(count: int) -> str:
    return f"#{count}"


def _entries(folder: int) -> tuple[list[str], list[str]]:
    """Names of the folders in a folder, and of all else."""
    folders: list[str] = []
    others: list[str] = []
    with os.scandir(folder) as found:
        for entry in found:
            (folders if entry.is_dir(follow_symlinks=False) else others).append(entry.name)
    return folders, others
