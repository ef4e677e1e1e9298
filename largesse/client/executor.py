"""LargesseExecutor: the standard library's interface for calls that run elsewhere, with a cell behind it.

Calls that are made at about the same time become one job with a task for each, or for each chunk of them. A thread with
an event loop of its own submits jobs, follows them, and fetches what tasks leave as they end.
"""

import asyncio
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from time import monotonic
from typing import ParamSpec, TypeVar, cast

from largesse.client.asynchronous import AsyncClient
from largesse.client.calls import Retry
from largesse.client.documents import Job
from largesse.client.errors import LargesseError
from largesse.client.payload import (
    FILE,
    STAGE,
    TASKS_MAX,
    Batch,
    Chunk,
    Item,
    TaskFailed,
    batches_of,
    give,
    job_of,
    packed,
    pickled,
    unpack,
    watched,
)
from largesse.client.specs import JobSpec, Stage, new_name

GATHER_S = 0.02
"""So long the first call waits for others that go with it."""
LOOK_S = 0.2
"""Least time between two looks at what tasks of a job have left."""
FETCHES_MAX = 8
"""Outcomes that are fetched at a time."""
UNREAD_S, UNREAD_PAUSE_S = 60.0, 1.0
"""So long nodes that do not answer are asked again for what tasks of a job that has ended have left."""
STDERR_TASKS, STDERR_BYTES = 3, 2_000
"""Of the first tasks that failed, what they printed last is part of the error."""
DEMAND: Mapping[str, str | int | float] = {"cpu": "1", "memory": "256Mi"}

P = ParamSpec("P")
T = TypeVar("T")


class LargesseExecutor(Executor):
    """Runs calls as tasks of jobs (docs/client.md).

    `demand`: what each task asks for. `stage`, `job`: what else is to be said of them, such as `retries`, `queue`.
    `python`: the interpreter on the nodes, which has to be of this version and have cloudpickle; by default the path of
    this one. `tasks_max`: of one job. The others are as of `Client`.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        demand: Mapping[str, str | int | float] = DEMAND,
        stage: Stage | None = None,
        job: JobSpec | None = None,
        python: str = sys.executable,
        tasks_max: int = TASKS_MAX,
        context: str | None = None,
        cell: str | None = None,
        user: str | None = None,
        token_file: str | os.PathLike[str] | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        retry: Retry | None = None,
    ) -> None:
        try:
            import cloudpickle
        except ImportError:
            raise ImportError("LargesseExecutor needs cloudpickle: pip install 'largesse[executor]'") from None
        assert cloudpickle, "an import that is used elsewhere"
        if tasks_max < 1:
            raise ValueError(f"tasks_max: has to be 1 or more, not {tasks_max}")
        ask = AsyncClient(
            url, context=context, cell=cell, user=user, token_file=token_file, ca_file=ca_file, retry=retry
        )
        one = replace(stage, demand=demand) if stage is not None else Stage(stage=STAGE, demand=demand)
        self._carrier = _Carrier(ask, one, job or JobSpec(), python, tasks_max)
        self._is_shut = False
        # One that nobody holds any more takes no further calls; what was called before still runs.
        weakref.finalize(self, self._carrier.end)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        """Runs one call. What cannot be pickled is the future's exception."""
        future: Future[T] = Future()
        self._check_open()
        try:
            item = _item(packed(pickled(fn)), args, kwargs, cast("Future[object]", future))
        except Exception as error:
            give(cast("Future[object]", future), error=error)
            return future
        self._carrier.take([[item]])
        return future

    def map(
        self, fn: Callable[..., T], *iterables: Iterable[object], timeout: float | None = None, chunksize: int = 1
    ) -> Iterator[T]:
        """Results in order, as of the standard library; `chunksize` calls are one task."""
        if chunksize < 1:
            raise ValueError(f"chunksize: has to be 1 or more, not {chunksize}")
        self._check_open()
        function = packed(pickled(fn))
        items = [_item(function, args, {}, Future()) for args in zip(*iterables, strict=False)]
        rest = iter(items)
        self._carrier.take(list(iter(lambda: list(islice(rest, chunksize)), [])))
        until = None if timeout is None else monotonic() + timeout
        return cast("Iterator[T]", _results([item.future for item in items], until))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Takes no further calls. `cancel_futures`: those without an outcome are cancelled, and their jobs with them.
        `wait`: returns once all have ended."""
        self._is_shut = True
        self._carrier.end(cancel=cancel_futures)
        if wait:
            self._carrier.join()

    def _check_open(self) -> None:
        if self._is_shut:
            raise RuntimeError("cannot schedule new futures after shutdown")


def _item(function: bytes, args: object, kwargs: object, future: "Future[object]") -> Item:
    return Item(watched(future), function, pickled((args, kwargs)))


def _results(futures: "list[Future[object]]", until: float | None) -> Iterator[object]:
    try:
        futures.reverse()
        while futures:
            future = futures.pop()
            try:
                yield future.result(None if until is None else until - monotonic())
            finally:
                future.cancel()
    finally:
        for future in futures:
            future.cancel()


class _Carrier:
    """Carries calls to the cell and outcomes back, in a thread. Knows nothing of the executor, so that this can go."""

    def __init__(self, ask: AsyncClient, stage: Stage, job: JobSpec, python: str, tasks_max: int) -> None:
        self._ask, self._stage, self._job = ask, stage, job
        self._python, self._tasks_max = python, tasks_max
        self._loop = asyncio.new_event_loop()
        self._queue: asyncio.Queue[list[Chunk] | None] = asyncio.Queue()
        self._open: list[Item] = []
        self._lock = threading.Lock()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="largesse-executor", daemon=True)
        self._thread.start()

    def take(self, chunks: list[Chunk]) -> None:
        """Calls to carry out."""
        with self._lock:
            self._open = [item for item in self._open if not item.future.done()]
            self._open += [item for chunk in chunks for item in chunk]
            self._loop.call_soon_threadsafe(self._queue.put_nowait, chunks)

    def end(self, *, cancel: bool = False) -> None:
        """No more calls come. `cancel`: those that are open are cancelled."""
        with self._lock:
            for item in self._open if cancel else ():
                item.future.cancel()
            if not self._ended:
                self._ended = True
                self._loop.call_soon_threadsafe(self._queue.put_nowait, None)

    def join(self) -> None:
        """Waits until all calls have their outcomes."""
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._carry_all())

    async def _carry_all(self) -> None:
        is_last = False
        async with self._ask, asyncio.TaskGroup() as group:
            while not is_last:
                found = [await self._queue.get()]
                await asyncio.sleep(GATHER_S)
                while not self._queue.empty():
                    found.append(self._queue.get_nowait())
                is_last = None in found
                chunks = [chunk for each in found if each is not None for chunk in each]
                wanted = [left for chunk in chunks if (left := [i for i in chunk if not i.future.cancelled()])]
                for batch in batches_of(wanted, self._tasks_max):
                    group.create_task(self._carry(batch))

    async def _carry(self, batch: Batch) -> None:
        """One job, from its submission until every call has an outcome. Whatever goes wrong is an outcome."""
        try:
            await _Carried(self._ask, batch, new_name(self._job.job or STAGE)).run(
                job_of(batch, self._stage, self._job, self._python)
            )
        except Exception as error:
            for item in batch.items:
                give(item.future, error=error)


class _Carried:
    """One job with its calls. `left`: tasks whose outcomes have not been fetched."""

    def __init__(self, ask: AsyncClient, batch: Batch, name: str) -> None:
        self._ask, self._batch, self._name = ask, batch, name
        self._left = set(range(len(batch.chunks)))
        self._unread: dict[int, str] = {}
        self._news = asyncio.Event()
        self._places = asyncio.Semaphore(FETCHES_MAX)

    async def run(self, spec: JobSpec) -> None:
        """Raises LargesseError where the job cannot be submitted, or followed."""
        loop = asyncio.get_running_loop()
        await self._ask.submit(spec, name=self._name)
        for item in self._batch.items:
            item.future.add_done_callback(lambda future: self._told(future, loop))
        looking = asyncio.ensure_future(self._look())
        try:
            job = await self._followed()
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
        until = monotonic() + UNREAD_S
        await self._fetch()
        while self._unread and monotonic() < until:
            await asyncio.sleep(UNREAD_PAUSE_S)
            await self._fetch()
        await self._fail(job)

    def _told(self, future: "Future[object]", loop: asyncio.AbstractEventLoop) -> None:
        """A future has ended, in whatever thread."""
        if future.cancelled() and not loop.is_closed():
            loop.call_soon_threadsafe(self._cancel_if_unwanted)

    def _cancel_if_unwanted(self) -> None:
        if all(item.future.done() for item in self._batch.items) and self._left:
            self._left.clear()
            self._cancelling = asyncio.ensure_future(self._cancel())

    async def _cancel(self) -> None:
        with suppress(LargesseError):  # It has ended, or nobody answers: nobody waits for it either.
            await self._ask.cancel(self._name)

    async def _followed(self) -> Job:
        last: Job | None = None
        done = 0
        async for last in self._ask.watch(self._name):
            counts = last["tasks"]
            if (now := counts["succeeded"] + counts["failed"]) != done:
                done = now
                self._news.set()
        return last if last is not None else await self._ask.get(self._name)

    async def _look(self) -> None:
        """Fetches outcomes while the job lives; not more often than looking is cheap."""
        while True:
            await self._news.wait()
            self._news.clear()
            begun = monotonic()
            try:
                await self._fetch()
            except LargesseError:
                self._news.set()  # Looked at again, and in any case at the end.
            await asyncio.sleep(max(LOOK_S, 4 * (monotonic() - begun)))

    async def _fetch(self) -> None:
        """Of all tasks that have left an outcome by now. `_unread`: those whose node does not say whether they have."""
        found, self._unread = [], {}
        if not self._left:
            return
        async for row in self._ask.results(self._name, STAGE):
            if row["index"] not in self._left:
                continue
            if "problem" in row:
                self._unread[row["index"]] = str(row["problem"].get("detail"))
            elif row.get("path") == FILE:
                found.append(row["index"])
        done = await asyncio.gather(*map(self._fetch_one, found), return_exceptions=True)
        for index, error in zip(found, done, strict=True):
            if isinstance(error, LargesseError):
                self._unread[index] = str(error)
            elif error is not None:
                raise error

    async def _fetch_one(self, index: int) -> None:
        async with self._places:
            data = await self._ask.result(self._name, STAGE, index, FILE)
        if index in self._left:
            self._left.discard(index)
            # Unpickling runs what it will: other jobs are followed meanwhile.
            await asyncio.to_thread(unpack, data, self._batch.chunks[index])

    async def _fail(self, job: Job) -> None:
        """Gives an error to calls whose task left no outcome."""
        last = {each["index"]: each for each in job["failures"]}
        for number, index in enumerate(sorted(self._left)):
            name = f"{self._name}/{STAGE}/{index}"
            if index in self._unread:
                text = f"{name}: its outcome is not to be had: {self._unread[index]}"
            elif (attempt := last.get(index)) is not None:
                text = f"{name} failed: {attempt['reason']}: {attempt['detail']}"
                text += await self._stderr(index) if number < STDERR_TASKS else ""
            else:
                text = f"{name} left no outcome: job {job['state']}" + (f": {job['detail']}" if job["detail"] else "")
            for item in self._batch.chunks[index]:
                give(item.future, error=TaskFailed(text))

    async def _stderr(self, index: int) -> str:
        try:
            parts = [part async for part in self._ask.logs(self._name, STAGE, index, stream="stderr")]
        except LargesseError:
            return ""
        text = b"".join(parts)[-STDERR_BYTES:].decode(errors="replace").strip()
        return f"\n{text}" if text else ""
