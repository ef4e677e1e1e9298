"""One attempt on this machine, as the agent keeps it, and how its end is written down."""

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from largesse.lifecycle import node_work as core
from schemas.tasks import Failure
from services.agent.documents import claim, open_folder, write_json
from services.agent.found import StopReason
from services.agent.outbox import Name, Result


def mono_ms() -> int:
    """Milliseconds of the kernel's monotonic clock: the same in every process until the next boot."""
    return time.monotonic_ns() // 1_000_000


class NotStarted(Exception):
    """Nothing has begun, and this machine is well: why, in words. `reason`: how the attempt has failed by that."""

    def __init__(self, why: str, reason: Failure) -> None:
        super().__init__(why)
        self.reason: Failure = reason


class Handle:
    """What an executor keeps of an attempt that it runs; each executor has a class of its own."""

    __slots__ = ()


@dataclass(slots=True)
class Local:
    """One attempt on this machine whose end the log does not have. `executor`: the kind of what runs it; empty: its
    folder does not say. `quiet`: the log is not waiting for it. `stopping`: why it was asked to stop. `waits`: nothing
    of it was begun yet, for results of earlier stages are brought. `unsaid`: its command has begun, and the log was not
    told. `inner`: `folder` from the data folder on, once it was asked for.
    """

    key: str
    name: Name
    admitted: int
    folder: Path
    executor: str = ""
    phase: Literal["starting", "running", "ended"] = "starting"
    handle: Handle | None = None
    result: Result | None = None
    quiet: bool = False
    stopping: StopReason | None = None
    waits: bool = False
    unsaid: bool = False
    inner: str = ""

    def parts(self, data: Path) -> list[str]:
        """Names on the way from the data folder to the attempt's."""
        self.inner = self.inner or str(self.folder)[len(str(data)) + 1 :]
        return self.inner.split("/")

    @property
    def run_name(self) -> str:
        """JOB/RUN, where its folder lies."""
        run = self.folder.parents[1]
        return f"{run.parent.name}/{run.name}"


@dataclass(slots=True)
class Launched:
    """What became of one start: something that runs, or a result at once. `trouble`: what of this machine
    failed it.
    """

    local: Local
    handle: Handle | None = None
    result: Result | None = None
    trouble: str = ""


def key_of(name: Name) -> str:
    return core.attempt_key(name.job, name.stage, name.index, name.attempt)


def tampered(fault: Exception) -> Result:
    """Of an attempt whose folder is not as it was left: only tasks of its job can write there, so they pay for it."""
    return Result("exit_code", detail=f"its folder was tampered with: {fault}")


def spoilt(error: OSError) -> Result:
    """Of an attempt that cannot start since a task of its job has put something in the way."""
    return Result("cannot_start", detail=f"a task of the job has spoilt its folder: {error.filename}: {error.strerror}")


def without_result(stopping: StopReason | None) -> Result:
    """How an attempt ended whose shim left no result."""
    if stopping is not None:
        return Result(stopping, detail=f"stopped: {stopping}")
    return Result("lost", detail="its guardian is gone and left no result")


def document_of(result: Result) -> dict[str, object]:
    state = "succeeded" if result.reason is None else "failed"
    return {"state": state, "reason": result.reason, "run_ms": result.run_ms, "detail": result.detail}


def forestall(data: Path, local: Local) -> None:
    """Claims an attempt in the place of its shim, if it has not begun and that can be done: then it never begins."""
    with suppress(OSError):
        folder = open_folder(data, *local.parts(data))
        try:
            claim("", {}, dir_fd=folder)
        finally:
            os.close(folder)


def leave(data: Path, local: Local, name: str, document: dict[str, object]) -> None:
    """Leaves a document in an attempt's folder, if that can be done."""
    with suppress(OSError):
        folder = open_folder(data, *local.parts(data))
        try:
            write_json(name, document, dir_fd=folder)
        finally:
            os.close(folder)
