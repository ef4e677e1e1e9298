"""What lies in an attempt's folder, checked: a task can usually write there, so it may be anything.

Everything read here has its types and ranges right, so that it can be reported, or it raises Unsound. Folders are
opened without following links, from the data folder down.
"""

import os
import re
import time
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import unquote

from largesse.task_output import folder_name
from schemas.edge.base import DURATION_MS_MAX, NAME_MAX, NAME_PATTERN, TASKS_MAX
from schemas.edge.known_attempts import DETAIL_MAX, EXIT_CODE_MAX
from schemas.quantities import QUANTITY_MAX
from schemas.tasks import Failure
from services.agent.clearing import ENDED
from services.agent.documents import CLAIM, RESULT, STOP, TASK, BadDocument, open_folder, read_document
from services.agent.folders import JOBS, attempt_folder
from services.agent.outbox import Name, Result

StopReason = Literal["killed", "gang", "revoked", "superseded", "lost"]
"""Why an attempt may be asked to stop."""

NUMBER = re.compile(r"0|[1-9][0-9]{0,15}")
SETTLED_NS = 2_000_000_000
"""A folder that was not changed for so long would show another time of change if it were."""
SMALL_BYTES_MAX = 64 << 10
"""Of every document but the task itself."""

_AMOUNT_MAX = QUANTITY_MAX
_NOT_FOUND = (FileNotFoundError, NotADirectoryError)


class Unsound(Exception):
    """A document of an attempt is missing or not as it was left: names the file, the field and what is wrong."""


@dataclass(frozen=True, slots=True)
class AttemptFolder:
    """An attempt's folder, by the encoded names on the way to it. `root`: below which it lies: JOBS, or a shelf of what
    was put away (clearing.py).
    """

    data: Path
    job: str
    run: str
    stage: str
    index: int
    attempt: int
    root: tuple[str, ...] = (JOBS,)

    @property
    def folder(self) -> Path:
        """Where it is. To be opened by `open` only."""
        return self.data.joinpath(*self._parts())

    @property
    def admitted(self) -> int:
        """The seq of the job's admission."""
        return int(self.run.partition("-")[0])

    def _parts(self) -> tuple[str, ...]:
        return *self.root, self.job, self.run, self.stage, f"{self.index}.{self.attempt}"

    def open(self) -> int:
        """A descriptor of the folder; no part of the way is a link. Raises Unsound, OSError."""
        try:
            return open_folder(self.data, *self._parts())
        except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
            raise Unsound(f"its folder cannot be opened: {error.strerror}") from None

    def name(self) -> Name | None:
        """Which attempt lives here as far as the folders' names say; None where a long name ended in a hash."""
        job, stage = unquote(self.job), unquote(self.stage)
        if not (_is_name(job) and _is_name(stage)) or (folder_name(job), folder_name(stage)) != (self.job, self.stage):
            return None
        return Name(job, stage, self.index, self.attempt)


@dataclass(frozen=True, slots=True)
class Task:
    """What was to be run. `document`: with what its executor has written, which is for that to check."""

    name: Name
    document: dict[str, object]


@dataclass(frozen=True, slots=True)
class Claim:
    """By whom an attempt was claimed. `boot`: when; `document`: the rest, which is for its executor to check."""

    boot: str
    document: dict[str, object]


def places(
    data: Path, job: str | None = None, stage: str | None = None, index: int | None = None, *, ended: bool = False
) -> Iterator[AttemptFolder]:
    """Every folder that is named like an attempt's, of all or of one job, stage and task, and is no link. `ended`: also
    of what was put away.
    """
    roots: list[tuple[str, ...]] = [(JOBS,)]
    if ended:
        roots += [(ENDED, shelf) for shelf in folders_in(data / ENDED) if _is_number(shelf)]
    for root in roots:
        yield from _places(data, root, job, stage, index)


def _places(
    data: Path, root: tuple[str, ...], job: str | None, stage: str | None, index: int | None
) -> Iterator[AttemptFolder]:
    top = data.joinpath(*root)
    jobs = [folder_name(job)] if job is not None else folders_in(top)
    for job_name in jobs:
        for run in folders_in(top / job_name):
            if not _is_number(run.partition("-")[0]):
                continue
            stages = [folder_name(stage)] if stage is not None else folders_in(top / job_name / run)
            for stage_name in stages:
                for name in _attempts_in(top / job_name / run / stage_name, index):
                    yield AttemptFolder(data, job_name, run, stage_name, *name, root)


def _attempts_in(stage: Path, index: int | None) -> list[tuple[int, int]]:
    """(index, number) of attempts in a stage's folder, of all tasks or of one. The folder is not read again for each
    task that is looked up, once nothing has begun there for SETTLED_NS.
    """
    if index is None:
        return [name for each in folders_in(stage) if (name := _index_and_number(each)) is not None]
    try:
        about = stage.lstat()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []
    if time.time_ns() - about.st_mtime_ns > SETTLED_NS:
        indexes, numbers = _settled_attempts(stage, about.st_ino, about.st_mtime_ns)
        return [(index, numbers[at]) for at in range(bisect_left(indexes, index), bisect_right(indexes, index))]
    return [name for each in folders_in(stage, f"{index}.") if (name := _index_and_number(each)) is not None]


@lru_cache(maxsize=32)
def _settled_attempts(stage: Path, inode: int, changed_ns: int) -> tuple["array[int]", "array[int]"]:
    """Indexes and numbers of the attempts in a stage's folder, in order. `changed_ns`: when the folder last changed, so
    that what was read before a change is not found after it.
    """
    names = sorted(_attempts_in(stage, None))
    return array("q", [index for index, _ in names]), array("q", [number for _, number in names])


def _index_and_number(attempt: str) -> tuple[int, int] | None:
    index, _, number = attempt.partition(".")
    if not (_is_number(index) and _is_number(number)) or int(index) >= TASKS_MAX or int(number) < 1:
        return None
    return int(index), int(number)


def attempt_folders(data: Path) -> Iterator[Path]:
    """The folders of `places`."""
    return (place.folder for place in places(data, ended=True))


def task_in(place: AttemptFolder, folder: int) -> Task | None:
    """The task of an attempt; None: there is none. Raises Unsound, OSError."""
    document = _read(folder, TASK, whole=True)
    if document is None:
        return None
    job, stage = (_text(document, TASK, field, NAME_MAX) for field in ("job", "stage"))
    name = Name(job, stage, place.index, place.attempt)
    said = (document.get("index"), document.get("attempt"), document.get("admitted"))
    where = attempt_folder(place.data, job, place.run, stage, place.index, place.attempt)
    if not (_is_name(job) and _is_name(stage)) or said != (name.index, name.attempt, place.admitted):
        raise Unsound(f"{TASK} is of another attempt")
    if where != place.folder:
        raise Unsound(f"{TASK} is of another attempt")
    return Task(name, document)


def claim_in(folder: int) -> Claim | None:
    """Who has claimed the attempt; None: a claim that was to start nothing. Raises Unsound, OSError."""
    document = _read(folder, CLAIM)
    return Claim(_text(document, CLAIM, "boot", NAME_MAX), document) if document else None


def result_in(folder: int) -> Result | None:
    """How the attempt ended, as its shim, or an agent, has left it. Raises Unsound, OSError."""
    document = _read(folder, RESULT)
    if document is None:
        return None
    state, reason = document.get("state"), document.get("reason")
    if state not in ("succeeded", "failed"):
        raise Unsound(f"{RESULT}: state is unknown")
    if state == "failed" and reason not in get_args(Failure):
        raise Unsound(f"{RESULT}: reason is unknown")
    peak_mib = whole_in({"peak_mib": 0, **document}, RESULT, "peak_mib", 0, _AMOUNT_MAX)
    cpu_ms = whole_in(document, RESULT, "cpu_ms", 0, _AMOUNT_MAX) if "cpu_ms" in document else None
    peak = {"memory": peak_mib} if peak_mib else {}
    if "cpu_peak" in document:
        peak["cpu"] = whole_in(document, RESULT, "cpu_peak", 0, _AMOUNT_MAX)
    exit_code = document.get("exit_code")
    if exit_code is not None:
        exit_code = whole_in(document, RESULT, "exit_code", -EXIT_CODE_MAX, EXIT_CODE_MAX)
    detail = document.get("detail", "")
    return Result(
        reason=reason if state == "failed" else None,
        run_ms=whole_in(document, RESULT, "run_ms", 0, DURATION_MS_MAX),
        exit_code=exit_code,
        detail=_clean(detail) if isinstance(detail, str) else "",
        peak=peak,
        cpu_ms=cpu_ms,
    )


def stop_in(folder: int) -> StopReason | None:
    """Why the attempt was asked to stop, if it was. Raises Unsound, OSError."""
    document = _read(folder, STOP)
    if document is None:
        return None
    reason: Any = document.get("reason")
    if reason not in get_args(StopReason):
        raise Unsound(f"{STOP}: reason is unknown")
    return reason  # type: ignore[no-any-return]


def whole_in(document: Mapping[str, object], file: str, field: str, least: int, most: int) -> int:
    """A whole number of a document. Raises Unsound."""
    value = document.get(field)
    if type(value) is not int or not least <= value <= most:  # True is an int, too.
        raise Unsound(f"{file}: {field} has to be a whole number from {least} to {most}")
    return value


def folders_in(path: Path, begins: str = "") -> list[str]:
    """Names of the folders in a folder that begin with `begins`, links left out; none where it cannot be read."""
    with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        if not path.is_symlink():
            with os.scandir(path) as entries:
                return [
                    entry.name
                    for entry in entries
                    if entry.name.startswith(begins) and entry.is_dir(follow_symlinks=False)
                ]
    return []


def _read(folder: int, name: str, *, whole: bool = False) -> dict[str, Any] | None:
    try:
        if whole:
            return read_document(name, dir_fd=folder)
        return read_document(name, dir_fd=folder, most=SMALL_BYTES_MAX)
    except BadDocument as fault:
        raise Unsound(f"{name} {fault}") from None


def _text(document: dict[str, Any], file: str, field: str, most: int) -> str:
    value = document.get(field)
    if not isinstance(value, str) or not 1 <= len(value) <= most or _clean(value) != value:
        raise Unsound(f"{file}: {field} has to be a text of 1 to {most} characters")
    return value


def _clean(text: str) -> str:
    """The text as it can be sent: without halves of characters, and not longer than a report takes."""
    return text[:DETAIL_MAX].encode(errors="replace").decode()


def _is_name(text: str) -> bool:
    return len(text) <= NAME_MAX and re.match(NAME_PATTERN, text) is not None and _clean(text) == text


def _is_number(text: str) -> bool:
    return NUMBER.fullmatch(text) is not None
