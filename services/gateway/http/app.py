"""HTTP API of one cell. It reads from the view, sends changes as inputs, and answers once they are in the log.

Who makes a request is known by a token (callers.py). As long as a cell has none, everybody may do everything, and the
header Largesse-User, which nothing checks, says who it is: such a gateway listens on the loopback interface only.
"""

import time
from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import quote

from fastapi import Depends, FastAPI, Header, Query, Request
from fastapi.responses import PlainTextResponse, Response

from largesse.hosts import Hosts, hosts_of
from largesse.release import VERSION
from largesse.task_output import ATTEMPT, CUT, END, NUMBER_MAX, Stream, Wanted, cut_text
from largesse.telemetry import exposition
from largesse.tls import Peers
from schemas import InputRepeated, JobAdmitted, JobRejected, JobRerun
from schemas.edge.read import Malformed, warnings_of
from schemas.wording import placed
from services.gateway.answers import Answer
from services.gateway.documents import Document
from services.gateway.documents.cell import standing_document
from services.gateway.documents.classes import known_classes
from services.gateway.documents.job_lists import WantedJobs, each_job_document, listed_jobs
from services.gateway.documents.jobs import HOW, state_of
from services.gateway.documents.label_hints import label_hint
from services.gateway.documents.models.cell import JobState, Live, Ready
from services.gateway.documents.models.jobs import Job, Jobs, JobSpecAnswer, Submitted
from services.gateway.documents.reserved_waits import unpromised_warnings
from services.gateway.documents.specs import kept_spec, spec_document
from services.gateway.follow import Follower
from services.gateway.http.agents.output import ReadOutput, check_task, first_of, printed, why_nothing
from services.gateway.http.agents.results import ReadResults
from services.gateway.http.agents.stage_logs import JsonLines, node_in, output_rows, wanted_of_job
from services.gateway.http.api import ANSWER_WAIT_S, Api, ListCells, Routing, as_of, check_taken
from services.gateway.http.callers import Asker, Reader, check_queue_of, user_for
from services.gateway.http.dry_runs.jobs import tried
from services.gateway.http.front_page import add_front_page
from services.gateway.http.guard import Budget, Guard
from services.gateway.http.openapi import (
    EVERYWHERE,
    TEXT_MAX,
    At,
    Offset,
    Responses,
    answer,
    complete,
    operation_id,
    problems,
)
from services.gateway.http.problems import Problem, as_json, install, malformed
from services.gateway.http.reading import message_of
from services.gateway.http.routes.access import add_sessions, add_tokens
from services.gateway.http.routes.attempts import add_attempts
from services.gateway.http.routes.cells import add_cells
from services.gateway.http.routes.changes import add_changes
from services.gateway.http.routes.cluster import add_cluster, add_config, add_node_list, add_nodes, add_repairs
from services.gateway.http.routes.history import add_history
from services.gateway.http.routes.records import add_records
from services.gateway.http.routes.reservations import add_reservations
from services.gateway.http.routes.results import add_results
from services.gateway.http.routes.room import add_room
from services.gateway.http.routes.routed import add_routes
from services.gateway.http.routes.series import add_series
from services.gateway.http.routes.services import add_services
from services.gateway.http.routes.streams import add_change_stream
from services.gateway.http.routes.what_ifs import add_what_ifs
from services.gateway.http.routes.why import add_why
from services.gateway.http.series_jobs import bind
from services.gateway.http.streams import EventStream
from services.gateway.http.watching import was_sent
from services.gateway.view.state import ENDED_JOBS_MAX

if TYPE_CHECKING:
    from services.gateway.access.jwts import Jwts

TAIL_LINES_MAX = 1_000_000

JOBS_MAX = 10_000
JOBS_DEFAULT = 1_000

# fmt: off
JobSort = Literal[
    "name", "queue", "user", "state", "submitted", "waiting", "ended", "tasks",
    "-name", "-queue", "-user", "-state", "-submitted", "-waiting", "-ended", "-tasks",
]
# fmt: on

STATE_HEADER = "Largesse-Task-State"

EVENT_ID_MAX = 100
"""Characters of a Last-Event-ID; the gateway's own have 37 at most."""


def make_app(
    follower: Follower,
    read_output: ReadOutput | None = None,
    *,
    read_results: ReadResults | None = None,
    author: str = "unknown",
    hosts: Hosts | None = None,
    bridges: tuple[str, ...] = (),
    recorded: bool = False,
    log: str = "",
    issued: "Jwts | None" = None,
    peers: Peers | None = None,
    budget: Budget | None = None,
    cells: ListCells | None = None,
    routing: Routing | None = None,
) -> FastAPI:
    """The API of one cell. `read_output`, `read_results`: read what tasks print and leave; by default it is fetched
    from the agents. `hosts`: names under which it may be requested; by default those of the loopback interface.
    `bridges`: who asks nodes over MQTT. `recorded`: it shows a recorded log, and takes no inputs; `log`: where another
    process reads that, where the bus cannot say. `issued`: JWTs that count. `peers`: TLS among gateway and agents.
    `budget`: of the bodies of all apps of this process. `cells`: all that the gateway serves. `routing`: of
    jobs that name none."""
    api = Api(
        follower,
        read_output,
        read_results,
        author,
        bridges,
        recorded=recorded,
        log=log,
        issued=issued,
        peers=peers,
        cells=cells,
        routing=routing,
    )
    app = FastAPI(
        title="Largesse",
        summary="A hierarchically fair scheduler for shared clusters",
        version=VERSION,
        docs_url=None,  # Its pages load scripts from elsewhere.
        redoc_url=None,
        redirect_slashes=False,  # An unknown address is 404, not a redirect.
        dependencies=[Depends(api.admit), Depends(api.check_parameters)],
        responses=problems(*EVERYWHERE),
        generate_unique_id_function=operation_id,
    )
    app.state.api = api
    app.add_middleware(Guard, hosts=hosts or hosts_of("127.0.0.1"), budget=budget or Budget())
    install(app)
    add_front_page(app)
    _add_routes(app, api)
    complete(app)
    return app


def _add_routes(app: FastAPI, api: Api) -> None:
    _add_health(app, api)
    _add_submissions(app, api)
    _add_jobs(app, api)
    add_changes(app, api)
    _add_streams(app, api)
    _add_logs(app, api)
    add_results(app, api)
    add_cluster(app, api)
    add_repairs(app, api)
    add_node_list(app, api)
    add_nodes(app, api)
    add_config(app, api)
    add_reservations(app, api)
    add_series(app, api)
    add_why(app, api)
    add_what_ifs(app, api)
    add_change_stream(app, api)
    add_records(app, api)
    add_attempts(app, api)
    add_history(app, api)
    add_room(app, api)
    add_cells(app, api)
    add_routes(app, api, ANSWER_WAIT_S)
    add_services(app, api)
    add_tokens(app, api)
    add_sessions(app, api)


# ---------------------------------------------------------------- health
def _add_health(app: FastAPI, api: Api) -> None:
    @app.get("/livez", tags=["health"], responses={200: answer(Live, "the process answers")})
    async def get_livez() -> Response:
        """200 as long as the process answers."""
        return as_json({"status": "live"})

    @app.get("/readyz", tags=["health"], responses={200: answer(Ready, "the log has been read")})
    async def get_readyz() -> Response:
        """200 once the gateway has read what the log had, with how far it has read; else 503."""
        await api.is_ready()
        follower = api.follower
        silent_ms = 0 if api.recorded else int(follower.silent_s * 1_000)
        said = {"status": "ready", "version": VERSION, **standing_document(follower.state), "silent_ms": silent_ms}
        return as_json({**said, "recorded": True} if api.recorded else said)

    @app.get("/metrics", tags=["health"], response_class=PlainTextResponse)
    async def get_metrics() -> Response:
        """Metrics for Prometheus, in its text format: those of the cell, and of this process."""
        kind, of_process = exposition()
        return Response(await api.metrics.exposition(api.follower.state) + of_process, media_type=kind)


# ---------------------------------------------------------------- jobs
_SUBMITTED: Responses = {
    201: answer(Submitted, "admitted", Location="where the job is"),
    200: answer(Submitted, "the cell has the same job already, or the answer of a dry run"),
    202: answer(Submitted, "the log has not answered within 10 s", Location="where the job is"),
    **problems(409, 413, 422),
}


def _add_submissions(app: FastAPI, api: Api) -> None:
    ready = [Depends(api.is_ready)]

    @app.post("/v1/jobs", tags=["jobs"], status_code=201, dependencies=ready, responses=_SUBMITTED)
    async def submit_job(request: Request, asker: Asker, dry_run: bool = False) -> Response:
        """Submits a job spec (JSON, or YAML by content type). The answer names the job in any case. A problem of type
        `refused:...`: the cell refuses it; `job_state` where the name is taken: what the job of that name is now, null
        if that is forgotten. `dry_run`: only says what would become of it (200, or the same problem)."""
        document, spec = await api.body(request, "jobs")
        user_for(asker, document)
        check_queue_of(asker, (spec.spec if isinstance(spec, JobRerun) else spec).queue)
        said = bind(api.follower.state, document, int(time.time() * 1000))
        data, name, said["warnings"] = message_of(document), document.get("job"), warnings_of(document)
        labels = [stage.labels for stage in (spec.spec if isinstance(spec, JobRerun) else spec).stages]
        said["warnings"] += unpromised_warnings(api.follower.state.reservations, document)
        del document, spec  # They take ten times the bytes of the body, and waiting for the log does not need it.
        if dry_run:
            api.check_lives()  # Its rules are asked, which are not there without it.
            async with api.dry_runs:
                found, then = await tried(api.follower, data, asker.user or api.author)
            check_taken(found)
        else:
            found, then = await api.send("jobs", data, asker.user), None
        # The sequencer names a job without a name after its place in the topic.
        place = f"jobs-{api.follower.partition}-{found.offset}"
        view = api.follower.state
        body = found.record.body if found.record is not None else None
        hint = label_hint(view, body.field, labels) if isinstance(body, JobRejected) else ""
        return _submitted(name or place, found, said, state_of(view, name or place), hint, then)


_SPEC: Responses = {200: answer(JobSpecAnswer, "its spec"), **problems(404)}


def _add_jobs(app: FastAPI, api: Api) -> None:
    ready = [Depends(api.is_ready)]

    @app.get(
        "/v1/jobs", tags=["jobs"], dependencies=ready, responses={200: answer(Jobs, "jobs in brief"), **problems(422)}
    )
    async def list_jobs(
        state: Annotated[list[JobState] | None, Query(description="may be given several times")] = None,
        queue: str | None = None,
        user: str | None = None,
        job_class: Annotated[str | None, Query(alias="class")] = None,
        since_ms: Annotated[
            int | None, Query(ge=0, le=NUMBER_MAX, description="submitted or ended since (Unix milliseconds)")
        ] = None,
        reservation: Annotated[str | None, Query(description="only jobs that run under it")] = None,
        q: Annotated[str, Query(max_length=TEXT_MAX, description="part of the name, the queue or the user")] = "",
        sort: Annotated[JobSort | None, Query(description="`-` before it: the highest first")] = None,
        offset: Offset = 0,
        limit: Annotated[int, Query(ge=1, le=JOBS_MAX)] = JOBS_DEFAULT,
        at: At = None,
    ) -> Response:
        """Jobs in brief: those that have not ended first, then ended ones, latest first, or as `sort` says. `queue`:
        with those below. `user`: the job's, or its author where it names none. `total`: how many jobs there are of
        which the answer has `limit`, from number `offset` on, counted from 0."""
        view = await api.view(at)
        if job_class is not None and job_class not in (known := known_classes(view)):
            raise malformed(Malformed("class", f"has to be one of {', '.join(known)}"))
        wanted = WantedJobs(tuple(state or ()), queue, user, job_class, since_ms, reservation, q)
        names = listed_jobs(view, wanted, sort or "")
        more = {"total": len(names), "offset": offset, "ended_kept_max": ENDED_JOBS_MAX}
        each = each_job_document(view, names[offset : offset + limit])
        return await api.listed("jobs", each, **as_of(more, view, at))

    @app.get(
        "/v1/jobs/{job}", tags=["jobs"], dependencies=ready, responses={200: answer(Job, "the job"), **problems(404)}
    )
    async def get_job(job: str, at: At = None) -> Response:
        """One job with its stages, why tasks wait, on which nodes they run, and the attempts that failed."""
        view = await api.view(at)
        return as_json(as_of(api.job(job, view), view, at))

    @app.get("/v1/jobs/{job}/spec", tags=["jobs"], dependencies=ready, responses=_SPEC)
    async def get_job_spec(job: str, at: At = None) -> Response:
        """What the job was submitted with, less what is the default, so that `POST /v1/jobs` takes it. Of jobs that
        have ended specs are kept for a while (404 of type `no_spec`)."""
        view = await api.view(at)
        api.job(job, view)
        live = view.jobs.get(job)
        spec = view.submitted.get(job) or (live.spec if live is not None else kept_spec(view, job))
        if spec is None:
            raise Problem(404, "no_spec", f'what job "{job}" was submitted with is kept no longer')
        return as_json(as_of({"job": job, "spec": spec_document(spec)}, view, at))


def _submitted(
    name: str, found: Answer, answer: Document, before: str | None, hint: str, then: Document | None
) -> Response:
    """The answer to a submission, with what `answer` says already. `before`: the state of the job that had the name
    already. `hint`: what to add to a refusal. `then`: of a dry run, what would follow. Raises Problem."""
    body = found.record.body if found.record is not None else None
    match body:
        case JobAdmitted():
            state, status = "waiting", 201
        case InputRepeated():
            state, status = "repeated", 200
            answer["job_state"] = before or body.outcome
        case JobRejected():
            detail = placed(body.field, body.detail) + hint
            if body.reason == "name_taken":
                answer["job_state"] = before
                detail += f"; that job has ended: {HOW[before]}" if before in HOW else ""
            full = body.reason == "too_many_jobs" or (body.reason == "too_many_tasks" and body.field != "stages")
            status = 409 if body.reason == "name_taken" else 503 if full else 422
            more = {"reason": body.reason, "job": name, **answer}
            raise Problem(status, f"refused:{body.reason}", detail, body.field, **more)
        case _:
            state, status = "unanswered", 202
    if then is not None:
        return as_json({"job": name, "dry_run": True, "state": state, **answer, **then})
    where = f"/v1/jobs/{quote(name, safe='')}"
    return as_json({"job": name, "state": state, **answer}, status, Location=where)


# ---------------------------------------------------------------- streams
_EVENTS: Responses = {
    200: answer(None, "server-sent events; `data` of those of type `job` is a Job"),
    204: answer(None, "the job has ended, and the event named by Last-Event-ID said so"),
    **problems(404, 422),
}
_LOGS: Responses = {
    200: answer(
        None,
        "the output",
        Largesse_Task_State="`live`, or `ended` once the job has",
        Largesse_Output_Attempt="the number of the attempt",
        Largesse_Output_End="the offset at which to go on",
        Largesse_Output_Cut="which bytes were not kept, as FIRST-END; empty where all were",
    ),
    **problems(404, 422),
}
_JOB_LOGS: Responses = {
    200: answer(
        None,
        "lines of JSON, one for each piece of output: `stage`, `index`, and `output`, or `output_base64` where it is no"
        " UTF-8; the first one of a task also has `attempt`, `end` (the offset at which to go on) and, where not all"
        " was kept, `cut` (the first byte that was not, and the first one behind it that was). `problem`: why a"
        " task's output cannot be read",
    ),
    **problems(404, 422),
}

Tail = Annotated[int | None, Query(ge=1, le=TAIL_LINES_MAX, description="only the last so many lines")]
Since = Annotated[int | None, Query(ge=0, le=NUMBER_MAX, description="only what was printed since (Unix milliseconds)")]


def _add_streams(app: FastAPI, api: Api) -> None:
    ready = [Depends(api.is_ready)]

    @app.get(
        "/v1/jobs/{job}/events",
        tags=["jobs"],
        dependencies=ready,
        response_class=EventStream,
        responses=_EVENTS,
    )
    async def watch_job(
        job: str,
        reader: Reader,
        last: Annotated[str, Header(alias="Last-Event-ID", max_length=EVENT_ID_MAX)] = "",
    ) -> Response:
        """The job now, and again whenever it changes, until it ends. Changes in quick succession come as one event; the
        last state always comes. With `Last-Event-ID`, the id of an event, the state that this event showed is not
        repeated; 204 where there is nothing more to come, so that an EventSource does not connect again."""
        document = api.job(job)
        if document["ended_ms"] is not None and was_sent(document, last):
            return Response(status_code=204)
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        with api.watchers.place() as place:
            events = api.door.lasting(reader, "viewer", api.watching.events(job, last))
            return place.streaming(events, media_type=EventStream.media_type, headers=headers)


def _add_logs(app: FastAPI, api: Api) -> None:
    ready = [Depends(api.is_ready)]

    @app.get(
        "/v1/tasks/{job}/{stage}/{index}/logs",
        tags=["jobs"],
        dependencies=ready,
        response_class=PlainTextResponse,
        responses=_LOGS,
    )
    async def get_task_logs(
        job: str,
        stage: str,
        index: int,
        reader: Reader,
        stream: Stream = "stdout",
        attempt: Annotated[int | None, Query(ge=1, le=NUMBER_MAX)] = None,
        offset: Annotated[int, Query(ge=0, le=NUMBER_MAX)] = 0,
        tail: Tail = None,
        since_ms: Since = None,
    ) -> Response:
        """What a task has printed, from a byte on. Without `attempt` the last one. A line in brackets stands for what
        was not kept, and the header Largesse-Output-Cut says from which byte to which, `FIRST-END`."""
        view = api.follower.state
        wanted = Wanted(job, stage, index, stream, attempt, offset, since_ms=since_ms)
        api.check_job(reader, job)
        check_task(view, wanted)
        live = job in view.jobs
        with api.outputs.place() as place:
            wanted, first = await first_of(api.read_output, wanted, tail)
            if first is None:
                api.job(job)
                raise Problem(404, "no_output", await why_nothing(api.read_output, wanted), live=live)
            headers = {STATE_HEADER: "live" if live else "ended", ATTEMPT: str(first.attempt), END: str(first.end)}
            headers[CUT] = "" if first.cut is None else cut_text(first.cut)
            pieces = api.door.lasting(reader, "submitter", printed(api.read_output, wanted, first))
            return place.streaming(pieces, media_type="text/plain", headers=headers)

    @app.get("/v1/jobs/{job}/logs", tags=["jobs"], dependencies=ready, response_class=JsonLines, responses=_JOB_LOGS)
    async def get_job_logs(
        job: str,
        reader: Reader,
        stage: str | None = None,
        stream: Stream = "stdout",
        tail: Tail = None,
        since_ms: Since = None,
    ) -> Response:
        """What all tasks of a job, or of one of its stages, have printed: of each its last attempt, in order. Tasks
        that have not started, or of which nothing is kept, are left out."""
        api.job(job)
        api.check_job(reader, job)
        wanted = wanted_of_job(api.follower.state, job, stage, stream, since_ms)
        with api.stage_outputs.place() as place:
            rows = output_rows(api.read_output, wanted, tail, node_in(lambda: api.follower.state))
            return place.streaming(api.door.lasting(reader, "submitter", rows), media_type=JsonLines.media_type)
