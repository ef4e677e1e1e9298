"""What agents say of task attempts. A fact speaks of index ranges: tasks `first` .. `first + count - 1` of one stage.

`refused` names parts of a report that speak of attempts never granted to that node and agent epoch; no core meets them.
"""

from dataclasses import dataclass, field
from typing import Literal

from schemas.quantities import Vector

Failure = Literal["exit_code", "timeout", "cannot_start", "memory", "killed", "revoked", "lost", "gang", "superseded"]
"""`memory`: ended because it used more memory than it asked for, or because its machine had no more. `superseded`:
another attempt of the same task succeeded first."""


@dataclass(slots=True)
class DeviceShare:
    """Part of one device of a node, in milli-units. One fraction lies on one device."""

    index: int
    milli: int


@dataclass(slots=True)
class SpareAttempt:
    """An attempt of a task that has, or had, several at a time. Its end, which the same record tells, is not the end of
    the task: another attempt has succeeded, or still holds room.
    """

    job: str
    stage: str
    index: int
    attempt: int


@dataclass
class TaskRange:
    """Attempts of tasks `first` .. `first + count - 1` of a stage, all on one node under one agent epoch."""

    job: str
    stage: str
    first: int
    count: int
    attempt: int
    node: str
    epoch: str


@dataclass
class TaskEnd:
    """Attempts that succeeded. `run_ms`: by the agent's monotonic clock, one a task, or one for all. `peak`: largest
    use of any of them. Of memory, in MiB, that is the larger of two: the largest single process, as the kernel measured
    it, and the largest sum over all processes of the attempt, without pages of files, as looked at once a second. Of
    CPU, in millicores, it is the most that all processes used on average over 10 seconds, and at least the average over
    the whole run; there is none where any of the attempts was not measured.
    `peak_mib`, `cpu_ms`: that peak of memory, in MiB, and the CPU time of all processes, in milliseconds, one a task;
    none where the agent did not measure them.
    """

    job: str
    stage: str
    first: int
    count: int
    attempt: int
    node: str
    epoch: str
    run_ms: list[int]
    peak: Vector = field(default_factory=dict)
    peak_mib: list[int] = field(default_factory=list)
    cpu_ms: list[int] = field(default_factory=list)


@dataclass
class TaskFailure:
    """Attempts that ended without success, and why. Only `exit_code`, `timeout`, `cannot_start` and `memory`
    count against `retries`. `peak`, `peak_mib`, `cpu_ms`: as of attempts that succeeded.
    """

    job: str
    stage: str
    first: int
    count: int
    attempt: int
    node: str
    epoch: str
    reason: Failure
    exit_code: int | None = None
    detail: str = ""
    run_ms: list[int] = field(default_factory=list)
    peak: Vector = field(default_factory=dict)
    peak_mib: list[int] = field(default_factory=list)
    cpu_ms: list[int] = field(default_factory=list)


@dataclass
class TaskStarted:
    """A node's batch: attempts that began to run."""

    items: list[TaskRange]
    refused: list[TaskRange] = field(default_factory=list)
    author: str = "unknown"


@dataclass
class TaskFinished:
    """A node's batch: attempts that succeeded. `spare`: those of them that do not end their task, since another attempt
    of it succeeded before.
    """

    items: list[TaskEnd]
    refused: list[TaskRange] = field(default_factory=list)
    author: str = "unknown"
    spare: list[SpareAttempt] = field(default_factory=list)


@dataclass
class TaskFailed:
    """A node's batch: attempts that ended without success. `spare`: those of them that do not end their task."""

    items: list[TaskFailure]
    refused: list[TaskRange] = field(default_factory=list)
    author: str = "unknown"
    spare: list[SpareAttempt] = field(default_factory=list)
