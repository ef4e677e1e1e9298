"""Routes of attempts: what ran where, from when to when, of one job or on one node."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, FastAPI, Query
from fastapi.responses import Response

from largesse.task_output import NUMBER_MAX
from services.gateway.attempts import LOOKED_AT_MAX, Attempt, AttemptTable, Key
from services.gateway.documents import Document
from services.gateway.documents.models.attempts import JobAttempts, NodeAttempts
from services.gateway.http.api import as_of
from services.gateway.http.openapi import At, Responses, answer, problems
from services.gateway.http.problems import Problem, as_json
from services.gateway.view.state import Allocation, State

if TYPE_CHECKING:
    from services.gateway.http.api import Api

ROWS_MAX = 20_000
ROWS_DEFAULT = 2_000

SINCE_MS = 3_600_000
"""How far back attempts on a node are shown where nothing else is asked for."""

Limit = Annotated[int, Query(ge=1, le=ROWS_MAX)]

_OF_JOB: Responses = {200: answer(JobAttempts, "its attempts"), **problems(404, 422)}
_OF_NODE: Responses = {200: answer(NodeAttempts, "attempts there"), **problems(404, 422)}


def add_attempts(app: FastAPI, api: "Api") -> None:
    """Attempts of a job, and of a node."""
    ready = [Depends(api.is_ready)]

    @app.get("/v1/jobs/{job}/attempts", tags=["jobs"], dependencies=ready, responses=_OF_JOB)
    async def list_attempts_of_job(job: str, limit: Limit = ROWS_DEFAULT, at: At = None) -> Response:
        """Every attempt of a job's tasks, in the order in which they were granted, as the log has it. `truncated`:
        there are more, or the log has not been read to its end for this yet: ask again."""
        view = await api.view(at)
        api.job(job, view)
        seq, time_ms = view.seq, view.time  # The view may go on meanwhile.
        table = await api.attempts.of_job(job, _admitted(view, job), seq)
        document = {"job": job, **_document(table, table.at(seq), seq, time_ms, limit)}
        return as_json(as_of(document, view, at))

    @app.get("/v1/nodes/{node}/attempts", tags=["cluster"], dependencies=ready, responses=_OF_NODE)
    async def list_attempts_on_node(
        node: str,
        since_ms: Annotated[
            int | None, Query(ge=0, le=NUMBER_MAX, description="by default an hour ago, in log time")
        ] = None,
        limit: Limit = ROWS_DEFAULT,
        at: At = None,
    ) -> Response:
        """Every attempt that held room on a node at or after a moment. What came long before that may be null.
        `truncated`: there are more, the moment lies too far back (`since_ms` is a later one then), or the log has not
        been read for this yet."""
        view = await api.view(at)
        if node not in view.nodes:
            raise Problem(404, "unknown_node", f'node "{node}" is not known here', "node")
        since = max(0, view.time - SINCE_MS) if since_ms is None else since_ms
        seq, time_ms = view.seq, view.time  # The view may go on meanwhile.
        places = api.follower.places
        place = await places.before(lambda order: order.time < since)
        told_ms = since
        is_cut = seq - place.seq > LOOKED_AT_MAX
        if is_cut:
            place = await places.before(lambda order: order.seq <= seq - LOOKED_AT_MAX)
            told_ms = max(since, place.order.time)
        table = await api.attempts.of_node(node, place.seq, seq)
        rows = ((key, row) for key, row in _on_node(table, view, node) if row.ended_ms is None or row.ended_ms >= since)
        document = {"node": node, "since_ms": told_ms, **_document(table, rows, seq, time_ms, limit)}
        document["truncated"] |= is_cut
        return as_json(as_of(document, view, at))


def _admitted(view: State, job: str) -> int:
    live = view.jobs.get(job)
    return live.admitted if live is not None else view.ended[job].admitted


def _document(table: AttemptTable, rows: Iterable[tuple[Key, Attempt]], seq: int, time_ms: int, limit: int) -> Document:
    found = [attempt_row(key, row) for key, row in islice(rows, limit + 1)]
    is_whole = len(found) <= limit and not table.left_out and table.read >= seq
    return {"seq": seq, "time_ms": time_ms, "attempts": found[:limit], "truncated": not is_whole}


def attempt_row(key: Key, row: Attempt) -> Document:
    """One attempt as it is shown."""
    job, stage, index, attempt = key
    return {
        "job": job,
        "stage": stage,
        "index": index,
        "attempt": attempt,
        "node": row.node,
        "granted_ms": row.granted_ms,
        "start_ms": row.started_ms,
        "end_ms": row.ended_ms,
        "outcome": row.outcome or ("starting" if row.started_ms is None else "running"),
    }


def _on_node(table: AttemptTable, view: State, node: str) -> Iterator[tuple[Key, Attempt]]:
    """Those of the table, and those that hold room there since before it begins."""
    there = dict(_holds_on(view, node))
    for key, row in table.at(view.seq):
        hold = there.pop(key, None)
        yield key, row if hold is None else _of_hold(hold)
    for key, hold in there.items():
        yield key, _of_hold(hold)


def _holds_on(view: State, node: str) -> Iterator[tuple[Key, Allocation]]:
    for holds in ({key: [hold] for key, hold in view.holds.items() if hold.node == node}, view.copies):
        for name, each in holds.items():
            job, stage, index = name.split("/")
            for hold in each:
                if hold.node == node:
                    yield (job, stage, int(index), hold.attempt), hold


def _of_hold(hold: Allocation) -> Attempt:
    return Attempt(hold.node, hold.granted_ms, hold.granted, hold.started_ms)
