"""A client that blocks: each call returns once the answer is there, and lists are iterators."""

import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from time import monotonic, sleep
from types import TracebackType
from typing import Self, TypeVar, cast

from httpx_sse import EventSource

from largesse.http_library import httpx
from largesse.access import job_path
from largesse.client import operations
from largesse.client.calls import (
    Answer,
    Call,
    Document,
    Items,
    Lines,
    NoAnswer,
    Out,
    Pause,
    Retry,
    Steps,
    asked,
    failure_of,
)
from largesse.client.documents import (
    Changes,
    Job,
    JobState,
    JobSummary,
    Node,
    QueueStatus,
    Reservation,
    ResultRow,
    Submitted,
    Why,
)
from largesse.client.errors import JobFailed, LargesseError, Unreachable, WaitedTooLong
from largesse.client.operations import Kind, params_of
from largesse.client.specs import JobLike, JobSpec, Stage
from largesse.client.transport import (
    EVENTS,
    JSON_LINES,
    NO_CONTENT,
    Place,
    Where,
    answer_of,
    check_type,
    no_answer,
    opened_of,
    request_of,
    response_of,
)

T = TypeVar("T")


class Client:
    """One cell, asked as `largesse` asks it: what no argument says comes from the environment, then from the config
    file's context (docs/command-line.md). Usable by several threads at a time. Close it, or use it in a `with`.

    Calls raise LargesseError; making one raises largesse.contexts.AccessWrong for what cannot be.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        context: str | None = None,
        cell: str | None = None,
        user: str | None = None,
        token_file: str | os.PathLike[str] | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        retry: Retry | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """`context`, `cell`: as the options of `largesse`. `retry`: how often what failed is tried again, Retry() by
        default. `transport`: in place of a network, for tests."""
        options = Where(url, context, cell, user, token_file, ca_file).options()
        self.url = options["base_url"]
        self.retry = retry or Retry()
        self._http = httpx.Client(**options, transport=transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes its connections."""
        self._http.close()

    # ---------------------------------------------------------------- jobs
    def submit(self, job: JobLike, *, name: str | None = None, dry_run: bool = False) -> Submitted:
        """Submits a job, once: however often its request is sent, under one name it is one job. A job without a name
        gets one here. `name`: in place of the job's own. `dry_run`: only says what would become of it."""
        return self._run(operations.submit(self.retry, job, name=name, dry_run=dry_run))

    def map(
        self,
        commands: Sequence[str | Sequence[str]],
        *,
        demand: Mapping[str, str | int | float],
        stage: Stage | None = None,
        job: JobSpec | None = None,
        name: str | None = None,
    ) -> Submitted:
        """Submits one job of one stage `map`, whose task number i runs command i: a text by a shell, words as they are.
        `stage`, `job`: what else is to be said of them."""
        return self.submit(operations.mapped_job(commands, demand, stage, job), name=name)

    def get(self, job: str) -> Job:
        """A job as it is now."""
        return self._run(operations.get(self.retry, job))

    def spec(self, job: str) -> Document:
        """What a job was submitted with; `submit` takes it under another name."""
        return self._run(operations.spec(self.retry, job))

    def jobs(
        self,
        *,
        state: Sequence[JobState] | JobState | None = None,
        queue: str | None = None,
        user: str | None = None,
        since_ms: int | None = None,
        reservation: str | None = None,
        q: str | None = None,
        sort: str | None = None,
        at: str | None = None,
        limit: int | None = None,
    ) -> Iterator[JobSummary]:
        """Jobs in brief, page by page; docs/http.md has what the arguments mean. `limit`: as many at most."""
        params = params_of(
            state=state, queue=queue, user=user, since_ms=since_ms, reservation=reservation, q=q, sort=sort, at=at
        )
        return cast("Iterator[JobSummary]", self._each(operations.listed(self.retry, "/v1/jobs", params, limit)))

    def cancel(self, job: str) -> Job:
        """Cancels a job; its tasks are killed. Raises Refused where it has ended."""
        return self._run(operations.cancel(self.retry, job))

    def change(
        self, job: str, *, hold: bool | None = None, priority: int | None = None, queue: str | None = None
    ) -> Job:
        """Holds or releases a live job, or gives it another priority or queue."""
        said = {"hold": hold, "priority": priority, "queue": queue}
        return self._run(operations.change(self.retry, job, {k: v for k, v in said.items() if v is not None}))

    def rerun(self, job: str, *, from_stage: str | None = None) -> Submitted:
        """Runs a job that has ended again. Its request is sent again only where the gateway has taken nothing of it."""
        return self._run(operations.rerun(self.retry, job, from_stage))

    def why(self, of: str, *, kind: Kind | None = None) -> Why:
        """Why something is as it is: JOB[/STAGE[/INDEX]], or the name of a reservation, a queue or a node."""
        return self._run(operations.why(self.retry, of, kind))

    def watch(self, job: str) -> Iterator[Job]:
        """The job's document now, and whenever it has changed, until it has ended; goes on where a stream broke off."""
        return self._watched(job, None)

    def wait(self, job: str, *, timeout_s: float | None = None, check: bool = True) -> Job:
        """The job's last document. With `check` raises JobFailed for a job that has not succeeded; after `timeout_s`
        WaitedTooLong."""
        until = None if timeout_s is None else monotonic() + timeout_s
        last: Job | None = None
        for last in self._watched(job, until):  # noqa: B007 - the last one is what counts
            pass
        if last is None:
            last = self.get(job)
        if last["ended_ms"] is None:
            raise WaitedTooLong(f"{job} has not ended within {timeout_s:g} s")
        if check and last["state"] != "succeeded":
            raise JobFailed(last)
        return last

    def _watched(self, job: str, until: float | None) -> Generator[Job]:
        with closing(self._events(Place(f"{job_path(job)}/events", {}, self.retry), until)) as events:
            for document in events:
                yield cast(Job, document)
                if document["ended_ms"] is not None:
                    return

    # ---------------------------------------------------------------- the cell
    def nodes(
        self, *, q: str | None = None, state: str | None = None, at: str | None = None, limit: int | None = None
    ) -> Iterator[Node]:
        """Nodes, page by page."""
        params = params_of(q=q, state=state, at=at)
        return cast("Iterator[Node]", self._each(operations.listed(self.retry, "/v1/nodes", params, limit)))

    def queues(self, *, at: str | None = None) -> QueueStatus:
        """The tree of queues, as its root."""
        return self._run(operations.queues(self.retry, at))

    def changes(self, *, after: int | None = None) -> Iterator[Changes]:
        """What changes in the cell, behind the record `after` or from now on; has no end. It goes on where a stream
        broke off."""
        place = Place("/v1/changes", {}, self.retry, "" if after is None else str(after))
        return cast("Iterator[Changes]", self._events(place, None))

    def reserve(self, request: Mapping[str, object], *, dry_run: bool = False) -> Reservation:
        """Asks for capacity in time, as docs/reservations.md has it, and waits for the planner's answer. Raises Refused
        where that is no. `dry_run`: only asks what the answer would be."""
        return self._run(operations.reserve(self.retry, request, dry_run=dry_run))

    def reservation(self, name: str) -> Reservation:
        """One reservation."""
        return self._run(operations.reservation(self.retry, name))

    def reservations(self) -> Iterator[Reservation]:
        """All of them, in the order of their requests."""
        return cast("Iterator[Reservation]", self._each(operations.reservations(self.retry)))

    def give_back(self, name: str) -> Reservation:
        """Ends a reservation. Its jobs go on without it."""
        return self._run(operations.give_back(self.retry, name))

    def what_if(self, **different: object) -> Document:
        """What the cell would have done otherwise (docs/what-if.md): `set`, `queues`, `add_nodes`, `from_ms` and so on.
        It takes a while, and is not tried again."""
        call = operations.what_if_call(different)
        with closing(self._rows(call)) as rows:
            return operations.answer_in(list(rows))

    # ---------------------------------------------------------------- what tasks printed and left
    def logs(
        self,
        job: str,
        stage: str,
        index: int = 0,
        *,
        stream: str = "stdout",
        follow: bool = False,
        attempt: int | None = None,
    ) -> Iterator[bytes]:
        """What one task printed, piece by piece: `stdout` or `stderr`. `follow`: until its job has ended, also where it
        has not started, or is tried again."""
        steps = operations.output(self.retry, job, stage, index, stream=stream, follow=follow, attempt=attempt)
        return cast("Iterator[bytes]", self._each(steps))

    def job_logs(self, job: str, stage: str | None = None, *, stream: str = "stdout") -> Iterator[tuple[str, bytes]]:
        """What all tasks of a job, or of a stage, printed so far: pieces, each with its task as STAGE/INDEX. Of a task
        whose output is not to be had the piece is missing."""
        for row in self._rows(operations.rows_call("logs", job, stage, stream=stream)):
            if "problem" not in row:
                yield operations.text_of(row)

    def results(self, job: str, stage: str | None = None, index: int | None = None) -> Iterator[ResultRow]:
        """What tasks have left in their results folders, as docs/http.md lists it."""
        for row in self._rows(operations.rows_call("results", job, stage, index)):
            yield operations.result_row(row)

    def result(self, job: str, stage: str, index: int, file: str, *, attempt: int | None = None) -> bytes:
        """A file that a task has left, whole; without `attempt` that of the last one."""
        return self._run(operations.result(self.retry, job, stage, index, file, attempt))

    # ---------------------------------------------------------------- carrying it out
    def _run(self, steps: Steps[T]) -> T:
        given: Answer | None = None
        failed: NoAnswer | None = None
        while True:
            try:
                todo = steps.send(given) if failed is None else steps.throw(failed)
            except StopIteration as end:
                return cast(T, end.value)
            given = failed = None
            try:
                given = self._done(todo)
            except NoAnswer as why:
                failed = why

    def _done(self, todo: Call | Pause) -> Answer | None:
        if isinstance(todo, Pause):
            sleep(todo.seconds)
            return None
        try:
            response = self._http.send(request_of(self._http, todo), stream=todo.streamed)
            if todo.streamed and response.is_success:
                return opened_of(response)
            response.read()
        except httpx.HTTPError as error:
            raise no_answer(error) from None
        return answer_of(response)

    def _each(self, items: Items) -> Generator[object]:
        given: Answer | None = None
        failed: NoAnswer | None = None
        while True:
            try:
                todo = items.send(given) if failed is None else items.throw(failed)
            except StopIteration:
                return
            given = failed = None
            if isinstance(todo, Out):
                yield todo.item
                continue
            try:
                given = self._done(todo)
            except NoAnswer as why:
                failed = why

    def _rows(self, call: Call) -> Generator[Document]:
        """Lines of JSON. Once the first one has come a broken connection is an error."""
        response = response_of(self._run(asked(call, self.retry)))
        try:
            check_type(response, JSON_LINES)
            lines = Lines()
            for data in response.iter_bytes():
                yield from lines.of(data)
        except httpx.HTTPError as error:
            raise Unreachable(f"the answer broke off: {type(error).__name__}") from error
        finally:
            response.close()

    def _events(self, place: Place, until: float | None) -> Generator[Document]:
        """Events of a stream, which is opened again where it breaks off. `until`: by the clock, when to give up."""
        while until is None or monotonic() < until:
            left_s = None if until is None else max(0.05, until - monotonic())
            failure: LargesseError | None = Unreachable("the stream of events ended")
            try:
                response = self._http.send(request_of(self._http, place.call(left_s)), stream=True)
                with closing(response):
                    if response.status_code == NO_CONTENT:
                        return
                    if not response.is_success:
                        response.read()
                        raise failure_of(answer_of(response))
                    check_type(response, EVENTS)
                    for event in EventSource(response).iter_sse():
                        if event.data:
                            yield place.take(event.data, event.id)
                        elif place.is_late(until, left_s):
                            failure = None
                            break
            except httpx.ReadTimeout:
                failure = None if until is not None else Unreachable("the stream of events fell silent")
            except httpx.HTTPError as error:
                failure = Unreachable(f"the stream of events broke off: {type(error).__name__}")
            except LargesseError as error:
                failure = error
            if failure is not None:
                sleep(place.pause_s(failure, until))
