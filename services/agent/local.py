"""One attempt on this machine, as the agent keeps it, and how its end is written down."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from services.agent import core
from services.agent.found import StopReason
from services.agent.outbox import Name, Result


def mono_ms() -> int:
    """Milliseconds of the kernel's monotonic clock: the same in every process until the next boot."""
    return time.monotonic_ns() // 1_000_000


@dataclass(slots=True)
class Local:
    """One attempt on this machine whose end the log does not have. `ticks`: the shim's start time. `ends_ms`: when a
    simulated task ends, `fate` how. `quiet`: the log is not waiting for it. `stopping`: why it was asked to stop.
    `force_ms`: when patience ends. `spawned`: its shim was started by this process. `outcome`: its result, once nothing
    of it is left, for which is waited until `sweep_ms`. `done`: the shim ended of its own accord, and so has ended
    everything. `waits`: nothing of it was begun yet, for results of earlier stages are brought. `unsaid`: its
    command has begun, and the log was not told. `inner`: `folder` from the data folder on, once it was asked for.
    """

    key: str
    name: Name
    admitted: int
    folder: Path
    phase: Literal["starting", "running", "ended"] = "starting"
    pid: int | None = None
    ticks: int | None = None
    ends_ms: int | None = None
    fate: Result | None = None
    result: Result | None = None
    quiet: bool = False
    stopping: StopReason | None = None
    force_ms: int | None = None
    spawned: bool = False
    outcome: Result | None = None
    sweep_ms: int = 0
    done: bool = False
    waits: bool = False
    unsaid: bool = False
    inner: str = ""

    @property
    def run_name(self) -> str:
        """JOB/RUN, where its folder lies."""
        run = self.folder.parents[1]
        return f"{run.parent.name}/{run.name}"


@dataclass(slots=True)
class Launched:
    """What became of one start: a shim, a timer, or a result at once. `trouble`: what of this machine failed it."""

    local: Local
    pid: int | None = None
    ticks: int | None = None
    ends_ms: int | None = None
    fate: Result | None = None
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
