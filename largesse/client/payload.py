"""Calls of functions on their way into the tasks of a job, and what became of them on the way back.

A job carries all its calls in its environment: each function once, and the arguments by task. Both are pickled with
cloudpickle, so functions of `__main__`, lambdas and closures travel as well.
"""

import base64
import pickle
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, replace
from inspect import getsource

from largesse.client import task_program
from largesse.client.errors import LargesseError
from largesse.client.specs import JobSpec, Stage

PAYLOAD_BYTES_MAX = 512 << 10
"""Of the calls of one job, packed. A job may have 900 KiB in all, and base64 takes a third more."""
OUTCOMES_BYTES_MAX = 1 << 30
"""Of what one task left, unpacked."""
TASKS_MAX = 1_000
"""Tasks of one job, unless an executor says otherwise."""
STAGE = "calls"
FILE = "outcomes"
_PART = 32_000  # Characters of an environment variable: a spec takes 32,768.


class PayloadTooLarge(LargesseError, ValueError):
    """A call whose function and arguments are more than a job can carry."""

    fix_default = "keep large data in files that the nodes see, and pass their paths"


class TaskFailed(LargesseError):
    """The task of a call has failed for good, or never ran: no outcome of the call is known."""

    fix_default = "look at what the task printed, or give it `retries`"


class RemoteTraceback(Exception):
    """Where a call raised its exception, as text; it is that exception's cause."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


class RemoteError(LargesseError):
    """A call raised an exception that cannot be brought back; its text, and where it was raised."""


@dataclass(frozen=True, slots=True)
class Item:
    """One call. `function` and `arguments` are pickled; the first is packed, too."""

    future: "Future[object]"
    function: bytes
    arguments: bytes


Chunk = Sequence[Item]
"""Calls of one task."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Calls of one job. `packed`: those of each task."""

    chunks: list[Chunk]
    functions: list[bytes]
    packed: list[bytes]

    @property
    def items(self) -> Iterator[Item]:
        """All its calls."""
        return (item for chunk in self.chunks for item in chunk)


def pickled(value: object) -> bytes:
    """A value as it travels. Raises whatever cannot be pickled raises."""
    import cloudpickle

    data: bytes = cloudpickle.dumps(value)
    return data


def packed(data: bytes) -> bytes:
    """The same, smaller."""
    return zlib.compress(data, 6)


def batches_of(chunks: Iterable[Chunk], tasks_max: int) -> Iterator[Batch]:
    """Jobs for these calls, in order; a call that no job can carry gets PayloadTooLarge."""
    batch, size = Batch([], [], []), 0
    for chunk in chunks:
        numbers, more = _numbered(chunk, batch.functions)
        data = packed(pickle.dumps([(number, item.arguments) for number, item in zip(numbers, chunk, strict=True)]))
        extra = len(data) + sum(map(len, more))
        if batch.chunks and (size + extra > PAYLOAD_BYTES_MAX or len(batch.chunks) == tasks_max):
            yield batch
            batch, size = Batch([], [], []), 0
            numbers, more = _numbered(chunk, batch.functions)
            data = packed(pickle.dumps([(number, item.arguments) for number, item in zip(numbers, chunk, strict=True)]))
            extra = len(data) + sum(map(len, more))
        if extra > PAYLOAD_BYTES_MAX:
            for item in chunk:
                text = f"{extra} bytes of function and arguments: a job carries at most {PAYLOAD_BYTES_MAX}"
                give(item.future, error=PayloadTooLarge(text))
            continue
        batch.chunks.append(chunk)
        batch.functions.extend(more)
        batch.packed.append(data)
        size += extra
    if batch.chunks:
        yield batch


def _numbered(chunk: Chunk, known: list[bytes]) -> tuple[list[int], list[bytes]]:
    """The number of each call's function, and those that are not among the `known` ones."""
    table = {function: number for number, function in enumerate(known)}
    numbers = [table.setdefault(item.function, len(table)) for item in chunk]
    return numbers, list(table)[len(known) :]


def job_of(batch: Batch, stage: Stage, job: JobSpec, python: str) -> JobSpec:
    """The job that runs them: a task that fails for good keeps no other one."""
    text = base64.b64encode(pickle.dumps((list(sys.version_info[:2]), batch.functions, batch.packed))).decode()
    parts = [text[at : at + _PART] for at in range(0, len(text), _PART)]
    env = {f"PICKLED_CALLS_{i}": part for i, part in enumerate(parts)} | {"PICKLED_CALLS": str(len(parts))}
    one = replace(
        stage,
        stage=STAGE,
        tasks=len(batch.chunks),
        command=[python, "-c", getsource(task_program)],
        env={**(stage.env or {}), **env},
        max_failed=len(batch.chunks),
    )
    return replace(job, stages=(one,))


def unpack(data: bytes, chunk: Chunk) -> None:
    """Gives each call of a task its outcome. What it holds is unpickled, which runs what the task has put there."""
    try:
        unzipped = zlib.decompressobj()
        plain = unzipped.decompress(data, OUTCOMES_BYTES_MAX)
        if unzipped.unconsumed_tail:
            raise ValueError(f"more than {OUTCOMES_BYTES_MAX} bytes")
        outcomes = pickle.loads(plain)
        pairs = list(zip(chunk, outcomes, strict=True))
    except Exception as error:
        for item in chunk:
            give(item.future, error=TaskFailed(f"what the task left cannot be read: {error}"))
        return
    for item, (is_good, value, text) in pairs:
        try:
            found = pickle.loads(value) if value else RemoteError(text.strip().rpartition("\n")[2])
        except Exception as error:  # Of a class that is not known here.
            found, is_good = RemoteError(f"what the call gave cannot be unpickled here: {error}"), False
        if is_good:
            give(item.future, found)
        else:
            found.__cause__ = RemoteTraceback(text)
            give(item.future, error=found)


def give(future: "Future[object]", value: object = None, *, error: BaseException | None = None) -> None:
    """Ends a future, unless it has been cancelled or has ended."""
    with suppress(InvalidStateError):
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(value)


def watched(future: "Future[object]") -> "Future[object]":
    """The same, but whoever waits for it is told when it is cancelled, which nobody else does for one that waits."""

    def told(ended: "Future[object]") -> None:
        if ended.cancelled():
            ended.set_running_or_notify_cancel()

    future.add_done_callback(told)
    return future
