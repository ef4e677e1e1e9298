"""`largesse results`: what tasks have left in their results folders, listed or fetched.

Names come from tasks: they are shown as text, and no file is written outside the folder that was named, whatever they
are. A file that is there already and has the size and the time of the task's is not fetched again, and another one
replaced only where that is asked for.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from largesse.access import job_path, step
from largesse.task_output import folder_name
from largesse.task_results import Entry, names_in
from largesse.unpacked import OTHER, Unpacked
from services.cli.client import Gateway, Row
from services.cli.ending import Broken, Refused, Unanswered, Wrong, note, out, out_json, visible
from services.cli.patience import Patience
from services.cli.show import plural

FOLDER_MODE, FILE_MODE = 0o777, 0o666  # Before the umask.


@dataclass(slots=True)
class Task:
    """What one task has left. `problem`: why that is not to be had."""

    stage: str
    index: int
    attempt: int = 0
    left_out: int = 0
    entries: list[Entry] = field(default_factory=list)
    problem: str = ""

    @property
    def name(self) -> str:
        """STAGE/INDEX."""
        return f"{self.stage}/{self.index}"


@dataclass(slots=True)
class _Fetched:
    """What was fetched. `there`: files that were there already. `links`: left out, since they lead elsewhere."""

    files: int = 0
    bytes: int = 0
    there: int = 0
    links: int = 0
    missed: int = 0


def list_results(gateway: Gateway, job: str, stage: str | None, index: int | None, *, json: bool) -> None:
    """Prints a line for each file, folder and link. Raises as `Gateway.ask` does."""
    tasks = _tasks(gateway, job, stage, index)
    if json:
        out_json({"job": job, "tasks": [_document(task) for task in tasks if not task.problem]})
    else:
        for task in tasks:
            for entry in task.entries:
                out(_line(task, entry))
    _note_all(tasks, sum(bool(task.problem) for task in tasks))


def fetch_results(
    gateway: Gateway, job: str, stage: str | None, index: int | None, folder: Path, *, overwrite: bool, json: bool
) -> None:
    """Writes what tasks have left to FOLDER/STAGE/INDEX. `overwrite`: also where other files lie. Raises as
    `Gateway.ask` does; Wrong where the folder cannot be used, Refused where something else is in the way.
    """
    tasks = _tasks(gateway, job, stage, index)
    found = _Fetched()
    with _opened(folder, overwrite) as top:
        for task in tasks:
            if not task.problem:
                _fetch_task(gateway, job, task, top, found)
            found.missed += bool(task.problem)
    if json:
        left_out = found.links + sum(task.left_out for task in tasks)
        counts = {"files": found.files, "bytes": found.bytes, "there_already": found.there, "left_out": left_out}
        out_json({"job": job, "folder": str(folder), "tasks": len(tasks) - found.missed, **counts})
    else:
        there = f" ({found.there} there already)" if found.there else ""
        text = f"{plural(found.files, 'file')}{there}, {found.bytes} bytes, of {plural(len(tasks), 'task')}"
        note(f"{text} in {folder}")
    if found.links:
        note(f"{plural(found.links, 'link')} left out: outside a task's own folder they would lead elsewhere")
    _note_all(tasks, found.missed)


def _note_all(tasks: list[Task], missed: int) -> None:
    """Says what is missing. Raises Broken where a task's results are not to be had."""
    for task in tasks:
        if task.problem:
            note(f"{task.name}: {visible(task.problem)}")
        elif task.left_out:
            text = "neither files, folders nor links, cannot be read, or have names that cannot be sent"
            note(f"{task.name}: {task.left_out} left out: they are {text}")
    if missed:
        raise Broken(f"the results of {plural(missed, 'task')} are not to be had")


def _tasks(gateway: Gateway, job: str, stage: str | None, index: int | None) -> list[Task]:
    """Raises Refused where no task has left anything that is kept."""
    params = {name: value for name, value in (("stage", stage), ("index", index)) if value is not None}
    rows = gateway.rows(f"{job_path(job)}/results", **params)
    tasks = [_task_of(list(group)) for _, group in groupby(rows, lambda row: (row["stage"], row["index"]))]
    if not tasks:
        name = "/".join(str(part) for part in (job, stage, index) if part is not None)
        raise Refused(f"there are no results of {name}: nothing of it has started, or they were removed")
    return tasks


def _task_of(rows: list[Row]) -> Task:
    task = Task(str(rows[0]["stage"]), int(rows[0]["index"]))
    for row in rows:
        if "problem" in row:
            task.problem = str(row["problem"]["detail"])
        elif "path" not in row:
            task.attempt, task.left_out = int(row["attempt"]), int(row["left_out"])
        elif names_in(str(row["path"])) is not None and row["kind"] in ("file", "folder", "link"):
            numbers = int(row.get("size", 0)), int(row["changed_ms"])
            runs, target = row.get("executable") is True, str(row.get("target", ""))
            task.entries.append(Entry(str(row["path"]), row["kind"], *numbers, runs, target))
        else:
            task.left_out += 1
    return task


def _document(task: Task) -> dict[str, object]:
    return {
        "stage": task.stage,
        "index": task.index,
        "attempt": task.attempt,
        "left_out": task.left_out,
        "entries": [
            {"path": entry.path, "kind": entry.kind, "size": entry.size, "changed_ms": entry.changed_ms}
            for entry in task.entries
        ],
    }


def _line(task: Task, entry: Entry) -> str:
    end = {"file": "", "folder": "/", "link": f" -> {visible(entry.target)}"}[entry.kind]
    return f"{entry.size:>12}  {visible(task.name)}/{visible(entry.path)}{end}"


# ---------------------------------------------------------------- fetching
def _opened(folder: Path, overwrite: bool) -> Unpacked:
    try:
        folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
        return Unpacked(
            os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), mode=FILE_MODE, overwrites=overwrite
        )
    except OSError as error:
        raise Wrong(f"DIR: {folder}: {error.strerror}") from None


def _fetch_task(gateway: Gateway, job: str, task: Task, top: Unpacked, found: _Fetched) -> None:
    """Raises Refused, Wrong, and as `Gateway.ask` does where the gateway itself fails."""
    stage = folder_name(task.stage)
    under = f"{stage}/{task.index}"
    try:
        for path in (stage, under):
            top.make_folder(path)
        with top.below(under) as folder:
            for entry in task.entries:
                _fetch(gateway, job, task, entry, folder, found)
    except FileExistsError as error:
        path = f"{under}/{error.filename}" if error.strerror == OTHER else under
        raise Refused(
            f"{visible(path)} {OTHER}: name another folder, remove it, or replace files with --overwrite"
        ) from None
    except OSError as error:
        raise Wrong(f"DIR: {visible(under)}: {error.strerror}") from None
    except Broken as why:
        if isinstance(why, Unanswered):
            raise
        task.problem = str(why)


def _fetch(gateway: Gateway, job: str, task: Task, entry: Entry, folder: Unpacked, found: _Fetched) -> None:
    if entry.kind == "folder":
        folder.make_folder(entry.path)
    elif entry.kind == "link":
        found.links += not folder.make_link(entry.path, entry.target)
    elif folder.has(entry):
        found.there += 1
        found.files += 1
    else:
        with folder.writing(entry) as file:
            for data in _contents(gateway, job, task, entry):
                _write(file, data)
                found.bytes += len(data)
        found.files += 1


def _contents(gateway: Gateway, job: str, task: Task, entry: Entry) -> Iterator[bytes]:
    """The bytes of a file; where the connection breaks off, from there on."""
    path = f"/v1/tasks/{step(job)}/{step(task.stage)}/{task.index}/results"
    patience, at = Patience(), 0
    patience.answered()
    while at < entry.size:
        try:
            for data in gateway.pieces(path, file=entry.path, attempt=task.attempt, offset=at):
                kept = data[: entry.size - at]
                at += len(kept)
                yield kept
        except Unanswered as why:
            patience.wait(why)
            continue
        patience.answered()
        if at < entry.size:
            raise Broken(f"{entry.path} has become shorter while it was fetched")


def _write(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]
