"""Where an archive lies: a folder, or an object store. What has a name keeps its bytes: nothing is ever overwritten.

    PATH, file:PATH                     a folder of this machine
    s3://BUCKET[/PREFIX]                S3, and what speaks like it; also gs:// (Google) and az:// (Azure)

Two who write one name at once: one of them does, the other is told NameTaken. That is all that an archive needs to stay
whole, so no store is asked to compare and swap. Who may use an object store, and where it listens, the environment says
(AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, GOOGLE_SERVICE_ACCOUNT, AZURE_STORAGE_ACCOUNT_KEY, ...): never an argument.
"""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Protocol, TypeVar
from urllib.parse import unquote, urlsplit

import obstore
from obstore import exceptions as failures

SCHEMES = ("s3", "s3a", "gs", "az", "abfs", "abfss")
"""Of URLs that name an object store."""

RETRIES, RETRY_S = 4, 60
"""How often, and for how long, an object store that does not answer is asked again."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(?:/[A-Za-z0-9][A-Za-z0-9._-]*)*")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_UNFINISHED = ".unfinished-"

_numbers = count()

T = TypeVar("T")


class StoreUrlWrong(ValueError):
    """A text that names no store: says what would."""


class StoreError(Exception):
    """A store that does not do what it was asked for: says where, what and, where that is known, what helps."""


class NameTaken(StoreError):
    """There is something of that name already; it was left as it is."""


class NameUnknown(StoreError):
    """There is nothing of that name."""


@dataclass(frozen=True, slots=True)
class Stored:
    """One name of a store, and how many bytes it has."""

    name: str
    size: int


class Store(Protocol):
    """What an archive needs of the place where it lies. Names are words of letters, digits, `.`, `_` and `-`, with `/`
    between them. All calls wait for the store; all raise StoreError.
    """

    url: str

    def put(self, name: str, data: bytes) -> None:
        """Keeps these bytes under a new name, whole and lasting when this returns. Raises NameTaken where the name is
        there, also where the first of two tries of one call has made it: compare what is there before you give up.
        """
        ...

    def get(self, name: str) -> bytes:
        """The bytes under a name. Raises NameUnknown."""
        ...

    def names(self, prefix: str = "") -> list[Stored]:
        """All names that begin with a text, in order."""
        ...

    def delete(self, name: str) -> None:
        """Removes a name, if it is there. No manifest and no segment ever is: this is for what can be made again."""
        ...

    def unfinished(self) -> list[Stored]:
        """What is left of writers that were killed: no name that was ever promised, and safe to remove by hand."""
        ...


def open_store(url: str) -> Store:
    """The store at a path or URL. Asks nothing of it yet. Raises StoreUrlWrong."""
    scheme, colon, rest = url.partition(":")
    if colon and scheme.lower() in SCHEMES:
        return ObjectStore(url)
    if colon and scheme.lower() == "file":
        return FolderStore(Path(_path_of(url, rest)))
    if not url or _SCHEME.match(url):
        raise StoreUrlWrong(f"{url!r} is no store: write a folder, file:FOLDER, or s3://BUCKET/PREFIX (gs://, az://)")
    return FolderStore(Path(url))


def _path_of(url: str, rest: str) -> str:
    """The path that a file URL names. Raises StoreUrlWrong."""
    path = rest
    if rest.startswith("//"):
        host, slash, below = rest[2:].partition("/")
        if host not in ("", "localhost"):
            raise StoreUrlWrong(f"{url!r} names the host {host!r}: write file:///{host}/{below} for a folder here")
        path = slash + below
    if not path:
        raise StoreUrlWrong(f"{url!r} names no folder: write file:FOLDER")
    return unquote(path)


def check_name(name: str) -> None:
    """Names come from this program alone: another one is a mistake of ours."""
    assert _NAME.fullmatch(name), f"{name!r} is no name of a store"


# ---------------------------------------------------------------- a folder
class FolderStore:
    """A store in a folder. A name appears with all its bytes or not at all, also after a power cut."""

    def __init__(self, folder: Path) -> None:
        self.url = str(folder)
        self._folder = folder

    def put(self, name: str, data: bytes) -> None:
        check_name(name)
        target = self._folder / name
        with self._told(name):
            if target.exists():  # Spares the writing; that there is one of it only, the link below decides.
                raise NameTaken(f"{target}: is there already")
            self._make(target.parent)
            draft = target.parent / f"{_UNFINISHED}{os.getpid()}-{next(_numbers)}"
            try:
                _write(draft, data)
                os.link(draft, target)
            except FileExistsError:
                raise NameTaken(f"{target}: is there already") from None
            finally:
                with suppress(FileNotFoundError):
                    draft.unlink()
            _sync(target.parent)

    def get(self, name: str) -> bytes:
        check_name(name)
        path = self._folder / name
        with self._told(name):
            try:
                return path.read_bytes()
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                raise NameUnknown(f"{path}: is not there") from None

    def names(self, prefix: str = "") -> list[Stored]:
        found = (each for each in self._files() if not Path(each.name).name.startswith("."))
        return [each for each in found if each.name.startswith(prefix)]

    def delete(self, name: str) -> None:
        check_name(name)
        with self._told(name), suppress(FileNotFoundError):
            (self._folder / name).unlink()
            _sync((self._folder / name).parent)

    def unfinished(self) -> list[Stored]:
        return [each for each in self._files() if Path(each.name).name.startswith(_UNFINISHED)]

    def _files(self) -> list[Stored]:
        found = []
        with self._told(""):
            for folder, _, files in os.walk(self._folder, onerror=_raise):
                for path in (Path(folder, file) for file in files):
                    with suppress(FileNotFoundError):  # A draft that has become a name meanwhile.
                        found.append(Stored(path.relative_to(self._folder).as_posix(), path.stat().st_size))
        return sorted(found, key=lambda each: each.name)

    def _make(self, folder: Path) -> None:
        """Makes a folder of the store, and the store itself; not what that lies in: a disk may not be mounted."""
        missing = []
        while not folder.is_dir() and folder != self._folder.parent:
            missing.append(folder)
            folder = folder.parent
        for each in reversed(missing):
            with suppress(FileExistsError):
                each.mkdir()
            _sync(each.parent)

    @contextmanager
    def _told(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            where = error.filename or self._folder / name
            raise StoreError(f"{where}: {error.strerror or error}") from None


def _raise(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):  # No folder: a store that nobody has written to.
        raise error


def _write(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# ---------------------------------------------------------------- an object store
class ObjectStore:
    """A store in a bucket of S3, or of what speaks like it, of Google or of Azure."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if not parts.netloc or parts.query or parts.fragment or "@" in parts.netloc:
            raise StoreUrlWrong(f"{url!r} is no store: write {parts.scheme}://BUCKET/PREFIX, without a key or `?`")
        self.url = url.rstrip("/")
        retries = {"max_retries": RETRIES, "retry_timeout": timedelta(seconds=RETRY_S)}
        try:
            self._under = obstore.store.from_url(self.url, retry_config=retries)  # type: ignore[call-overload]
        except (failures.BaseError, ValueError) as error:
            raise StoreUrlWrong(f"{url}: cannot be reached as the environment stands: {_sentence(error)}") from None

    def put(self, name: str, data: bytes) -> None:
        check_name(name)
        self._ask(name, lambda: obstore.put(self._under, name, data, mode="create", use_multipart=False))

    def get(self, name: str) -> bytes:
        check_name(name)
        return self._ask(name, lambda: bytes(obstore.get(self._under, name).bytes()))

    def names(self, prefix: str = "") -> list[Stored]:
        folder = prefix.rpartition("/")[0]  # An object store lists by whole words between slashes.
        chunks = self._ask("", lambda: list(obstore.list(self._under, folder or None, chunk_size=1_000)))
        found = [Stored(each["path"], each["size"]) for chunk in chunks for each in chunk]
        return sorted((each for each in found if each.name.startswith(prefix)), key=lambda each: each.name)

    def delete(self, name: str) -> None:
        check_name(name)
        with suppress(NameUnknown):
            self._ask(name, lambda: obstore.delete(self._under, name))

    def unfinished(self) -> list[Stored]:
        return []  # An object is whole, or is not there.

    def _ask(self, name: str, call: Callable[[], T]) -> T:
        where = f"{self.url}/{name}" if name else self.url
        try:
            return call()
        except failures.AlreadyExistsError:
            raise NameTaken(f"{where}: is there already") from None
        except (failures.BaseError, OSError, ValueError) as error:
            raise self._failed(where, error) from None

    def _failed(self, where: str, error: Exception) -> StoreError:
        """What an error of the client means, and what helps."""
        if "NoSuchBucket" in str(error):
            return StoreError(f"{self.url}: there is no such bucket: make it, or name another one")
        if isinstance(error, FileNotFoundError):
            return NameUnknown(f"{where}: is not there")
        if isinstance(error, failures.PermissionDeniedError | failures.UnauthenticatedError):
            helps = "the environment has to hold credentials that may list, read and write there"
            return StoreError(f"{where}: access is denied ({_sentence(error)}): {helps}")
        return StoreError(f"{where}: {_sentence(error)}")


def _sentence(error: Exception) -> str:
    """What an error of the client says, without the dump of its parts."""
    return str(error).partition("\n")[0].strip()[:300]
