"""A folder into which files from elsewhere are written: by descriptor, without following a link that lies in it.

Names come from others, and whoever can write to the folder may do so meanwhile: nothing is written outside.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from types import TracebackType
from typing import Self

from largesse.task_results import Entry, names_in, stays_inside

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
OTHER = "is there already, and is another one"
"""What the error says of a file, folder or link that is in the way of one."""
PART = ".part~largesse"
"""Ends the name of a file that is not complete."""


class Unpacked:
    """What is below one folder. `folder`: its descriptor, which is closed at the end. `owner`: user and group to whom
    everything in it is given; None: whoever writes. `mode`: of files, before the umask. `overwrites`: other files that
    are in the way are replaced.
    """

    def __init__(
        self, folder: int, owner: tuple[int, int] | None = None, mode: int = 0o600, *, overwrites: bool = False
    ) -> None:
        self.folder = folder
        self._owner, self._mode, self._overwrites = owner, mode, overwrites
        self._may_run = (mode & 0o444) >> 2

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self.folder)

    def below(self, path: str) -> "Unpacked":
        """One of its folders. Raises OSError."""
        with self._parent(path) as (parent, name):
            folder = os.open(name, _FOLDER, dir_fd=parent)
        return Unpacked(folder, self._owner, self._mode, overwrites=self._overwrites)

    def make_folder(self, path: str) -> None:
        """Makes a folder where there is none. Raises OSError, also where something else lies there."""
        with self._parent(path) as (parent, name):
            try:
                os.mkdir(name, self._mode | self._may_run, dir_fd=parent)
            except FileExistsError:
                if not stat.S_ISDIR(os.lstat(name, dir_fd=parent).st_mode):
                    raise FileExistsError(errno.EEXIST, OTHER, path) from None
            else:
                self._give(name, parent)

    def make_link(self, path: str, target: str) -> bool:
        """Makes a link that leads nowhere out of this folder; False where it would. Raises OSError."""
        if not stays_inside(path, target):
            return False
        with self._parent(path) as (parent, name):
            try:
                os.symlink(target, name, dir_fd=parent)
            except FileExistsError:
                if _target(name, parent) != target:
                    raise FileExistsError(errno.EEXIST, OTHER, path) from None
                return True
            self._give(name, parent)
        return True

    def link_file(self, path: str, source: int, name: str) -> None:
        """Makes `path` another name of the file `name` in the folder `source`. Raises OSError."""
        with self._parent(path) as (parent, own):
            os.link(name, own, src_dir_fd=source, dst_dir_fd=parent, follow_symlinks=False)

    def has(self, entry: Entry) -> bool:
        """Whether the file is there, of that size and time. Raises OSError; FileExistsError where something else is
        there that is not to be overwritten.
        """
        with self._parent(entry.path) as (parent, name):
            try:
                about = os.stat(name, dir_fd=parent, follow_symlinks=False)
            except FileNotFoundError:
                return False
            regular = stat.S_ISREG(about.st_mode)
            if regular and (about.st_size, about.st_mtime_ns // 1_000_000) == (entry.size, entry.changed_ms):
                return True
            if regular and self._overwrites:
                return False
            raise FileExistsError(errno.EEXIST, OTHER, entry.path)

    @contextmanager
    def writing(self, entry: Entry) -> Iterator[int]:
        """A descriptor to which the file is written; complete, it takes its place. Raises OSError."""
        with self._parent(entry.path) as (parent, name):
            draft = f".{blake2b(name.encode(), digest_size=12).hexdigest()}{PART}"
            with suppress(FileNotFoundError):
                os.unlink(draft, dir_fd=parent)
            mode = self._mode | (self._may_run if entry.executable else 0)
            file = os.open(draft, _NEW, mode, dir_fd=parent)
            try:
                yield file
                if self._owner is not None:
                    os.fchown(file, *self._owner)
                os.utime(file, ns=(entry.changed_ms * 1_000_000,) * 2)
                os.rename(draft, name, src_dir_fd=parent, dst_dir_fd=parent)
            except BaseException:
                with suppress(OSError):
                    os.unlink(draft, dir_fd=parent)
                raise
            finally:
                os.close(file)

    def _give(self, name: str, parent: int) -> None:
        if self._owner is not None:
            os.chown(name, *self._owner, dir_fd=parent, follow_symlinks=False)

    @contextmanager
    def _parent(self, path: str) -> Iterator[tuple[int, str]]:
        names = names_in(path)
        if names is None:
            raise ValueError(f"{path!r} is not a path below a folder")
        folder = os.dup(self.folder)
        try:
            for name in names[:-1]:
                inner = os.open(name, _FOLDER, dir_fd=folder)
                os.close(folder)
                folder = inner
            yield folder, names[-1]
        finally:
            os.close(folder)


def _target(name: str, folder: int) -> str | None:
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError:
        return None
