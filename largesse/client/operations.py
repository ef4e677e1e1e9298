"""What can be asked of a cell, step by step; `Client` and `AsyncClient` carry it out. Each raises LargesseError."""

import json
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, TypeAlias, cast

from largesse.access import job_path, step, task_path
from largesse.client.calls import (
    DRY_RUN_TIMEOUT_S,
    TIMEOUT_S,
    WHAT_IF_TIMEOUT_S,
    Answer,
    Call,
    Document,
    Items,
    Out,
    Pause,
    Retry,
    Steps,
    Tries,
    asked,
    document_in,
)
from largesse.client.documents import Job, QueueStatus, Reservation, ResultRow, Submitted, Why
from largesse.client.errors import NotFound, Refused, Unavailable, Unreachable, error_of
from largesse.client.specs import JobLike, JobSpec, Stage, document_of, mapped, named

PAGE = 1_000
"""Rows that one request of a list asks for."""
FOLLOW_S = 0.5
"""Between two looks at the output of a task that runs."""
ATTEMPT, END, STATE = "largesse-output-attempt", "largesse-output-end", "largesse-task-state"
FIELD_OF: dict[str, str] = {"/v1/jobs": "jobs", "/v1/nodes": "nodes"}

Value: TypeAlias = str | int | bool | Sequence[str] | None
Kind = Literal["job", "reservation", "queue", "node"]


def params_of(**given: Value) -> dict[str, str | list[str]]:
    """Parameters of a request; those that are None are left out."""
    found: dict[str, str | list[str]] = {}
    for name, value in given.items():
        if value is None:
            continue
        if isinstance(value, bool):
            found[name] = "true" if value else "false"
        elif isinstance(value, str | int):
            found[name] = str(value)
        else:
            found[name] = [str(each) for each in value]
    return found


def body_of(document: Mapping[str, object]) -> bytes:
    """A document as a request carries it."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def one(retry: Retry, path: str, *fields: str, params: Mapping[str, str | list[str]] | None = None) -> Steps[Document]:
    """The document at a path."""
    return document_in((yield from asked(Call("GET", path, params or {}), retry)), *fields)


# ---------------------------------------------------------------- jobs
def submit(retry: Retry, job: JobLike, *, name: str | None, dry_run: bool) -> Steps[Submitted]:
    """A job, once the log has it."""
    document = named(document_of(job), name)
    is_rerun = bool(document.get("rerun"))
    call = Call(
        "POST",
        "/v1/jobs",
        params_of(dry_run=True if dry_run else None),
        body_of(document),
        DRY_RUN_TIMEOUT_S if dry_run else TIMEOUT_S,
        repeatable=dry_run or not is_rerun,
    )
    tries = Tries(retry)
    while True:
        found = cast(Submitted, document_in((yield from asked(call, retry)), "job", "state"))
        if found["state"] != "unanswered" or is_rerun:
            return found
        try:
            yield Pause(tries.pause_s(Unavailable("the log has not answered")))
        except Unavailable:
            return found


def get(retry: Retry, job: str) -> Steps[Job]:
    """A job as it is now."""
    return cast(Job, (yield from one(retry, job_path(job), "job", "state", "ended_ms")))


def spec(retry: Retry, job: str) -> Steps[Document]:
    """What a job was submitted with."""
    return cast(Document, (yield from one(retry, f"{job_path(job)}/spec", "spec"))["spec"])


def cancel(retry: Retry, job: str) -> Steps[Job]:
    """Cancels a job; one that an earlier try has cancelled, whose answer was lost, is not refused."""
    calls = _Counted(Call("DELETE", job_path(job)))
    try:
        return cast(Job, document_in((yield from calls.asked(retry)), "state"))
    except Refused:
        if calls.sent < 2 or (found := (yield from get(retry, job)))["state"] != "cancelled":
            raise
        return found


class _Counted:
    """How often a call has been sent."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self.sent = 0

    def asked(self, retry: Retry) -> Steps[Answer]:
        """As `asked` does."""
        steps = asked(self._call, retry)
        try:
            todo = next(steps)
            while True:
                self.sent += isinstance(todo, Call)
                try:
                    given = yield todo
                except Exception as error:
                    todo = steps.throw(error)
                else:
                    todo = steps.send(given)
        except StopIteration as end:
            return cast(Answer, end.value)


def change(retry: Retry, job: str, changes: Mapping[str, object]) -> Steps[Job]:
    """A live job with other settings."""
    call = Call("PATCH", job_path(job), body=body_of(changes))
    return cast(Job, document_in((yield from asked(call, retry)), "state"))


def rerun(retry: Retry, job: str, from_stage: str | None) -> Steps[Submitted]:
    """A further run of a job that has ended. Two of them are two runs, so it is not sent again."""
    body = body_of({} if from_stage is None else {"from_stage": from_stage})
    call = Call("POST", f"{job_path(job)}/rerun", body=body, repeatable=False)
    return cast(Submitted, document_in((yield from asked(call, retry)), "job", "state"))


def why(retry: Retry, of: str, kind: Kind | None) -> Steps[Why]:
    """Why something is as it is."""
    return cast(Why, (yield from one(retry, "/v1/why", "reasons", params=params_of(id=of, kind=kind))))


# ---------------------------------------------------------------- lists
def listed(retry: Retry, path: str, params: Mapping[str, str | list[str]], limit: int | None) -> Items:
    """The rows of a list, page by page; `limit` at most. Rows that come or go meanwhile may be missing, or twice."""
    seen = 0
    while limit is None or seen < limit:
        size = PAGE if limit is None else min(PAGE, limit - seen)
        window = {**params, "offset": str(seen), "limit": str(size)}
        document = yield from one(retry, path, FIELD_OF[path], "total", params=window)
        rows = cast(list[object], document[FIELD_OF[path]])
        for row in rows:
            yield Out(row)
        seen += len(rows)
        if len(rows) < size or seen >= cast(int, document["total"]):
            return


def queues(retry: Retry, at: str | None) -> Steps[QueueStatus]:
    """The tree of queues, as its root."""
    return cast(QueueStatus, (yield from one(retry, "/v1/queues", "queue", "children", params=params_of(at=at))))


# ---------------------------------------------------------------- reservations
def reserve(retry: Retry, request: Mapping[str, object], *, dry_run: bool) -> Steps[Reservation]:
    """Capacity in time, once the planner has answered. Its name makes two requests that are alike one."""
    call = Call(
        "POST",
        "/v1/reservations",
        params_of(dry_run=True if dry_run else None),
        body_of(request),
        DRY_RUN_TIMEOUT_S if dry_run else TIMEOUT_S,
    )
    return cast(Reservation, document_in((yield from asked(call, retry)), "reservation"))


def reservation(retry: Retry, name: str) -> Steps[Reservation]:
    """One reservation."""
    return cast(Reservation, (yield from one(retry, f"/v1/reservations/{step(name)}", "state")))


def reservations(retry: Retry) -> Items:
    """All of them, in the order of their requests."""
    for row in cast(list[object], (yield from one(retry, "/v1/reservations", "reservations"))["reservations"]):
        yield Out(row)


def give_back(retry: Retry, name: str) -> Steps[Reservation]:
    """Ends a reservation."""
    call = Call("DELETE", f"/v1/reservations/{step(name)}")
    return cast(Reservation, document_in((yield from asked(call, retry)), "state"))


# ---------------------------------------------------------------- what tasks printed and left
def output(retry: Retry, job: str, stage: str, index: int, *, stream: str, follow: bool, attempt: int | None) -> Items:
    """What one task printed, piece by piece, with `follow` until its job has ended; attempts one after another."""
    path, offset, now = task_path(job, stage, index, "logs"), 0, attempt
    while True:
        params = params_of(stream=stream, offset=offset, attempt=attempt)
        try:
            answer = yield from asked(Call("GET", path, params), retry)
        except NotFound as why_not:
            if not (follow and why_not.document.get("live")):
                raise
            yield Pause(FOLLOW_S)
            continue
        found, end, has_ended = _place_of(answer)
        if now is not None and found != now:
            now, offset = found, 0
            continue
        now, offset = found, end
        if answer.body:
            yield Out(answer.body)
        if not follow or has_ended:
            return
        yield Pause(FOLLOW_S)


def _place_of(answer: Answer) -> tuple[int, int, bool]:
    """Which attempt it is, where its output goes on, and whether the job has ended."""
    attempt, end = (answer.headers.get(name, "") for name in (ATTEMPT, END))
    if not (attempt.isdecimal() and end.isdecimal()):
        raise Unreachable("an answer that no gateway gives: whose output it is, it does not say")
    return int(attempt), int(end), answer.headers.get(STATE) == "ended"


def text_of(row: Document) -> tuple[str, bytes]:
    """The task, as STAGE/INDEX, and the bytes of one line of the output of a whole job."""
    output = row.get("output")
    data = output.encode() if isinstance(output, str) else b64decode(str(row.get("output_base64", "")))
    return f"{row['stage']}/{row['index']}", data


def rows_call(what: str, job: str, stage: str | None, index: int | None = None, stream: str | None = None) -> Call:
    """The request for the lines of `logs` or `results` of a job."""
    return Call("GET", f"{job_path(job)}/{what}", params_of(stage=stage, index=index, stream=stream), streamed=True)


def result_row(row: Document) -> ResultRow:
    """A line of a list of results. Raises Unreachable for what is none."""
    if not {"stage", "index"} <= row.keys():
        raise Unreachable("a line that no gateway sends")
    return cast(ResultRow, row)


def result(retry: Retry, job: str, stage: str, index: int, file: str, attempt: int | None) -> Steps[bytes]:
    """A file that a task has left, whole."""
    path, data = task_path(job, stage, index, "results"), bytearray()
    while True:
        params = params_of(file=file, attempt=attempt, offset=len(data))
        answer = yield from asked(Call("GET", path, params), retry)
        found, size, _ = _place_of(answer)
        attempt = found if attempt is None else attempt
        data += answer.body
        if len(data) >= size:
            return bytes(data)
        if not answer.body:
            raise Unavailable(f"{file} has become shorter while it was fetched")


def what_if_call(different: Mapping[str, object]) -> Call:
    """The request for a what-if, which nobody needs twice."""
    body = body_of(different)
    return Call("POST", "/v1/what-if", body=body, timeout_s=WHAT_IF_TIMEOUT_S, repeatable=False, streamed=True)


def answer_in(rows: list[Document]) -> Document:
    """The answer of a what-if, which comes last. Raises LargesseError where there is none."""
    last = rows[-1] if rows else {}
    if isinstance(found := last.get("answer"), dict):
        return found
    problem = last.get("problem", last)
    raise error_of(500, problem)


def mapped_job(
    commands: Sequence[str | Sequence[str]],
    demand: Mapping[str, str | int | float],
    stage: Stage | None,
    job: JobSpec | None,
) -> JobSpec:
    """The job whose one stage has a task for each command. Raises ValueError."""
    base = stage or Stage(stage="map", demand=demand)
    one = replace(base, demand=demand, tasks=len(commands), command=mapped(commands))
    return replace(job or JobSpec(), stages=(one,))
