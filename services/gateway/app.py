"""HTTP API of one cell: submit, look, cancel, drain, configure. It reads the view, sends inputs and waits for the log.

Who asks is what the header Largesse-User says: a name for the log, no proof. Without a proxy that proves it, the
gateway belongs on the loopback interface.
"""

import asyncio
from collections.abc import Iterable
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import Depends, FastAPI, Path, Query, Request
from fastapi.responses import Response
from fastapi.routing import APIRoute
from prometheus_client import CONTENT_TYPE_LATEST, Gauge, generate_latest

from largesse.descriptors import connections_within
from largesse.hosts import Hosts, hosts_of
from largesse.readers import Readers, ReadersBusy
from largesse.task_output import ATTEMPT, END, NUMBER_MAX, Piece, Stream, Wanted
from schemas import ConfigChanged, InputRefused, InputRepeated, JobAdmitted, JobRejected
from schemas.edge.base import DURATION_MS_MAX, at_key, author_of
from schemas.edge.config import SKIP_REASON_MAX
from schemas.edge.nodes import DRAIN_REASON_MAX
from schemas.edge.read import ConfigPatch, Malformed, read_input, warnings_of
from schemas.edge.strict_json import INPUT_BYTES_MAX
from schemas.quantities import QUANTITY_MAX
from schemas.wording import nearest
from services.gateway import documents
from services.gateway import dry_run as dry
from services.gateway.answers import Answer
from services.gateway.connections import CONNECTIONS_MAX
from services.gateway.follow import Follower
from services.gateway.guard import Budget, Guard
from services.gateway.openapi import add_bodies
from services.gateway.output import ReadOutput, check_task, fetch_output, printed, why_nothing
from services.gateway.problems import Problem, dumped, install, malformed
from services.gateway.queue_documents import queue_document
from services.gateway.reading import message_of, read_request
from services.gateway.streams import Places
from services.gateway.view_state import ENDED_JOBS_MAX
from services.gateway.watching import WATCHERS_MAX, Watching

ANSWER_WAIT_S = 10.0
"""How long a request waits for the log's answer; after that it is told that there is none yet."""

DRY_RUNS_MAX = 2
"""Dry runs at once: each has a process of its own."""

LISTS_MAX = 2
"""Long lists that are put into words at once; more wait."""
LISTING_S = 0.005
"""So long a list is put into words before others get a turn."""
READ_AT_ONCE = 16 << 10
"""Bytes of a document that are read without giving others a turn: some ten milliseconds of YAML."""

OUTPUTS_MAX = 128
"""Answers with output under way at once: each holds a piece of it, and a connection to an agent."""

JOBS_MAX = 10_000
JOBS_DEFAULT = 1_000

USER_HEADER = "Largesse-User"
STATE_HEADER = "Largesse-Task-State"

JobState = Literal["waiting", "running", "succeeded", "failed", "cancelled", "rejected"]

_JOBS = Gauge("largesse_jobs", "Jobs in the gateway's view", ["state"])
_NODES = Gauge("largesse_nodes", "Nodes in the gateway's view", ["state"])


class Api:
    """What the routes share. `author`: who asks where the request does not say."""

    def __init__(self, follower: Follower, read_output: ReadOutput | None, author: str) -> None:
        self.follower = follower
        self.read_output = read_output or self._ask_agent
        self.author = author
        self.lists = asyncio.Semaphore(LISTS_MAX)
        self.reading = Readers(threads=1)
        self.dry_runs = asyncio.Semaphore(DRY_RUNS_MAX)
        self.outputs = Places(OUTPUTS_MAX, "answers with output")
        # Watchers may not have all connections to themselves.
        self.watchers = Places(min(WATCHERS_MAX, connections_within(CONNECTIONS_MAX) // 2), "watchers")
        self.watching = Watching(follower)

    async def _ask_agent(self, wanted: Wanted) -> Piece | None:
        self.job(wanted.job)
        return await fetch_output(self.follower.state, wanted)

    def author_of(self, request: Request) -> str:
        return author_of(request.headers.get(USER_HEADER, "") or self.author)

    def check_parameters(self, request: Request) -> None:
        """A parameter that a route does not know is a slip, and no wish to be passed over. Raises Problem."""
        route = request.scope.get("route")
        if not isinstance(route, APIRoute) or not route.path.startswith("/v1/"):
            return
        known = sorted(parameter.alias for parameter in route.dependant.query_params)
        for name in request.query_params:
            if name not in known:
                close = nearest(name, known)
                told = f'did you mean "{close}"? ' if close else ""
                told += f"known here: {', '.join(known)}" if known else "none is known here"
                raise malformed(Malformed(at_key(name), f"unknown parameter; {told}"), 400)

    def is_ready(self) -> None:
        """Raises Problem until the view has caught up with the log."""
        if not self.follower.ready:
            raise Problem(503, "not_ready", "the view has not caught up with the log yet")

    def job(self, name: str) -> documents.Document:
        """The job's document. Raises Problem."""
        document = documents.job_document(self.follower.state, name)
        if document is None:
            raise Problem(404, "unknown_job", f'job "{name}" is not known here; ended jobs stay in view for a while')
        return document

    async def listed(self, name: str, each: Iterable[documents.Document], **more: Any) -> Response:
        """A long list under a name, with `more` beside it. Others get turns while it is put into words."""
        parts: list[bytes] = []
        clock = asyncio.get_running_loop().time
        async with self.lists:
            begun = clock()
            for document in each:
                parts.append(dumped(document))
                if clock() - begun >= LISTING_S:
                    await asyncio.sleep(0)
                    begun = clock()
        whole = b'{"%b":[%b]%b' % (name.encode(), b",".join(parts), b"," if more else b"}")
        return Response(whole + dumped(more)[1:] if more else whole, media_type="application/json")

    async def body(self, request: Request, topic: str) -> tuple[Any, Any]:
        """The document that the request carries, and what it is as an input of the topic. Raises Problem."""
        data = bytearray()
        async for chunk in request.stream():
            data += chunk
            if len(data) > INPUT_BYTES_MAX:
                raise Problem(413, "too_large", f"at most {INPUT_BYTES_MAX} bytes are taken", "", limit=INPUT_BYTES_MAX)
        kind = request.headers.get("content-type", "")
        if len(data) <= READ_AT_ONCE:
            return read_request(bytes(data), kind, topic)
        try:
            # A large one may take a second: in a thread, and one at a time, so that others get on meanwhile.
            return await self.reading.read(lambda: read_request(bytes(data), kind, topic))
        except ReadersBusy:
            raise Problem(503, "busy", "as many large documents as may wait already: try again") from None

    async def send(self, topic: str, data: bytes, request: Request) -> Answer:
        """Publishes an input. Raises Problem where the log refuses it."""
        answer = await self.follower.send(topic, data, self.author_of(request), ANSWER_WAIT_S)
        refused = answer.record.body if answer.record is not None else None
        if isinstance(refused, InputRefused):
            raise Problem(409, "refused:input", refused.reason, refused.field, reason=refused.reason)
        return answer


def make_app(
    follower: Follower,
    read_output: ReadOutput | None = None,
    *,
    author: str = "unknown",
    hosts: Hosts | None = None,
) -> FastAPI:
    """The API over one cell. `read_output`: how what tasks print is read; without it their nodes' agents are asked.
    `hosts`: the names that it answers to; by default this machine's alone."""
    api = Api(follower, read_output, author)
    app = FastAPI(
        title="Largesse",
        summary="An altruistic, fair and deadline-aware scheduler for shared clusters",
        docs_url=None,  # Its pages load scripts from elsewhere.
        redoc_url=None,
        redirect_slashes=False,  # An address that is not known is 404, not another place to ask.
        dependencies=[Depends(api.check_parameters)],
    )
    app.state.api = api
    app.add_middleware(Guard, hosts=hosts or hosts_of("127.0.0.1"), budget=Budget())
    install(app)
    _add_health(app, api)
    _add_jobs(app, api)
    _add_streams(app, api)
    _add_cluster(app, api)
    _add_nodes(app, api)
    _add_config(app, api)
    add_bodies(app)
    return app


def _json(document: Any, status: int = 200, **headers: str) -> Response:
    return Response(dumped(document), status_code=status, headers=headers, media_type="application/json")


# ---------------------------------------------------------------- health
def _add_health(app: FastAPI, api: Api) -> None:
    @app.get("/livez", tags=["health"])
    async def livez() -> Response:
        """200 as long as the process answers."""
        return _json({"status": "live"})

    @app.get("/readyz", tags=["health"])
    async def readyz() -> Response:
        """200 once the view has caught up with the log, with where it stands; else 503."""
        api.is_ready()
        return _json({"status": "ready", **documents.standing_document(api.follower.state)})

    @app.get("/metrics", tags=["health"])
    async def metrics() -> Response:
        """Counters for Prometheus."""
        for gauge, counts in zip((_JOBS, _NODES), documents.counts(api.follower.state), strict=True):
            gauge.clear()
            for state, count in counts.items():
                gauge.labels(state).set(count)
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)


# ---------------------------------------------------------------- jobs
def _add_jobs(app: FastAPI, api: Api) -> None:
    ready = [Depends(api.is_ready)]

    @app.post("/v1/jobs", tags=["jobs"], status_code=201, dependencies=ready)
    async def submit(request: Request) -> Response:
        """Submits a job spec (JSON, or YAML by content type). 201: admitted, 200: a repeat of what the cell has, 202:
        no answer of the log within 10 s; the id in all three. A problem of type `refused:...`: refused by the cell.
        `job_state` of a repeat, and where the name is taken: what that job is now, or null where that is forgotten."""
        document, _ = await api.body(request, "jobs")
        data, name, warnings = message_of(document), document.get("job"), warnings_of(document)
        del document  # It takes ten times the bytes, and is not needed while the log is waited for.
        answer = await api.send("jobs", data, request)
        # The sequencer names a job that was not named after its place.
        place = f"jobs-{api.follower.partition}-{answer.offset}"
        return _submitted(name or place, answer, warnings, documents.state_of(api.follower.state, name or place))

    @app.get("/v1/jobs", tags=["jobs"], dependencies=ready)
    async def jobs(
        state: JobState | None = None,
        queue: str | None = None,
        user: str | None = None,
        limit: Annotated[int, Query(ge=1, le=JOBS_MAX)] = JOBS_DEFAULT,
    ) -> Response:
        """Jobs in brief: those that have not ended first, then ended ones, latest first."""
        view = api.follower.state
        each = documents.each_job_document(view, wanted=state, queue=queue, user=user, limit=limit)
        return await api.listed("jobs", each, ended_kept_max=ENDED_JOBS_MAX)

    @app.get("/v1/jobs/{job}", tags=["jobs"], dependencies=ready)
    async def job(job: str) -> Response:
        """One job with its stages, why tasks wait, on which nodes they run, and the attempts that failed."""
        return _json(api.job(job))

    @app.delete("/v1/jobs/{job}", tags=["jobs"], dependencies=ready)
    async def cancel(job: str, request: Request) -> Response:
        """Cancels a job. 200: it has ended, 202: the log has not said so within 10 s, 409: it was over before."""
        before = api.job(job)
        if before["ended_ms"] is not None:
            raise Problem(409, "refused:ended", f'job "{job}" has ended: {before["state"]}', "job")
        answer = await api.send("jobs", dumped({"cancel": job}), request)
        over = answer.answered and await api.follower.until(lambda view: job not in view.jobs, ANSWER_WAIT_S)
        return _json(api.job(job), 200 if over else 202)


def _submitted(name: str, answer: Answer, warnings: list[str], before: str | None) -> Response:
    """`before`: the state of the job that has the name."""
    body = answer.record.body if answer.record is not None else None
    told: documents.Document = {"warnings": warnings}
    match body:
        case JobAdmitted():
            state, status = "waiting", 201
        case InputRepeated():
            state, status = "repeated", 200
            told["job_state"] = before
        case JobRejected():
            detail = f"{body.field}: {body.detail}"
            if body.reason == "name_taken":
                told["job_state"] = before
                detail += f"; that job has ended: {documents.HOW[before]}" if before in documents.HOW else ""
            full = body.reason == "too_many_jobs" or (body.reason == "too_many_tasks" and body.field != "stages")
            status = 409 if body.reason == "name_taken" else 503 if full else 422
            more = {"reason": body.reason, "job": name, **told}
            raise Problem(status, f"refused:{body.reason}", detail, body.field, **more)
        case _:
            state, status = "unanswered", 202
    where = f"/v1/jobs/{quote(name, safe='')}"
    return _json({"job": name, "state": state, **told}, status, Location=where)


# ---------------------------------------------------------------- what goes on
def _add_streams(app: FastAPI, api: Api) -> None:
    ready = [Depends(api.is_ready)]

    @app.get("/v1/jobs/{job}/events", tags=["jobs"], dependencies=ready)
    async def events(job: str) -> Response:
        """The job's document whenever it changes, as server-sent events of type `job`; the stream ends with the job."""
        api.job(job)
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        with api.watchers.place() as place:
            return place.streaming(api.watching.events(job), media_type="text/event-stream", headers=headers)

    @app.get("/v1/tasks/{job}/{stage}/{index}/logs", tags=["jobs"], dependencies=ready)
    async def logs(
        job: str,
        stage: str,
        index: int,
        stream: Stream = "stdout",
        attempt: Annotated[int | None, Query(ge=1, le=NUMBER_MAX)] = None,
        offset: Annotated[int, Query(ge=0, le=NUMBER_MAX)] = 0,
    ) -> Response:
        """What a task has printed, from a byte on. Headers: Largesse-Task-State says whether the job has ended,
        Largesse-Output-Attempt which attempt this is, Largesse-Output-End the offset at which to go on."""
        view = api.follower.state
        wanted = Wanted(job, stage, index, stream, attempt, offset)
        check_task(view, wanted)
        live = job in view.jobs
        with api.outputs.place() as place:
            first = await api.read_output(wanted)
            if first is None:
                api.job(job)
                raise Problem(404, "no_output", await why_nothing(api.read_output, wanted), live=live)
            headers = {STATE_HEADER: "live" if live else "ended", ATTEMPT: str(first.attempt), END: str(first.end)}
            return place.streaming(printed(api.read_output, wanted, first), media_type="text/plain", headers=headers)


# ---------------------------------------------------------------- nodes, queues, config
def _add_cluster(app: FastAPI, api: Api) -> None:
    ready = [Depends(api.is_ready)]

    @app.get("/v1/queues", tags=["cluster"], dependencies=ready)
    async def queues() -> Response:
        """The tree: weights, shares held and entitled to, jobs."""
        return _json(queue_document(api.follower.state))

    @app.get("/v1/nodes", tags=["cluster"], dependencies=ready)
    async def nodes() -> Response:
        """Nodes with capacity, what is free, and their state."""
        return await api.listed("nodes", documents.each_node_document(api.follower.state))

    @app.get("/v1/reservations", tags=["cluster"], dependencies=ready)
    async def reservations() -> Response:
        """Reservations and what the planner has promised them."""
        return _json({"reservations": documents.reservation_documents(api.follower.state)})

    @app.post("/v1/rounds/{number}/abandon", tags=["cluster"], dependencies=ready)
    async def abandon_round(number: Annotated[int, Path(ge=1)], request: Request) -> Response:
        """Gives up the open round, which a stopped service cannot answer; all that waited goes to the next."""
        answer = await api.send("config", dumped({"abandon_round": number}), request)
        return _json({"round": number, "abandoned": answer.answered}, 200 if answer.answered else 202)

    @app.post("/v1/inputs/{topic}/{offset}/skip", tags=["cluster"], dependencies=ready)
    async def skip_input(
        topic: str,
        offset: Annotated[int, Path(ge=0, le=QUANTITY_MAX)],
        request: Request,
        reason: Annotated[str, Query(max_length=SKIP_REASON_MAX)] = "",
    ) -> Response:
        """Has an input refused unread, over which the sequencer stops."""
        document = {"skip_input": {"topic": topic, "offset": offset, "reason": reason}}
        try:
            read_input("config", document, "")
        except Malformed as fault:
            raise malformed(fault) from None
        answer = await api.send("config", dumped(document), request)
        told = {"topic": topic, "offset": offset, "skipped": answer.answered}
        return _json(told, 200 if answer.answered else 202)


def _add_nodes(app: FastAPI, api: Api) -> None:
    ready = [Depends(api.is_ready)]

    def known(node: str) -> documents.Document:
        if (document := documents.node_document(api.follower.state, node)) is None:
            raise Problem(404, "unknown_node", f'node "{node}" is not known here', "node")
        return document

    async def drain(node: str, request: Request, **said: Any) -> Response:
        known(node)
        answer = await api.send("nodes", dumped({"drain": {"node": node, **said}}), request)
        return _json(known(node), 200 if answer.answered else 202)

    @app.delete("/v1/nodes/{node}", tags=["cluster"], dependencies=ready)
    async def remove_node(node: str, request: Request) -> Response:
        """Removes a node that is lost and does not come back. 200: it is gone, 202: the log has not said so
        within 10 s, 409: it is alive."""
        document = known(node)
        answer = await api.send("nodes", dumped({"remove": {"node": node}}), request)
        over = answer.answered and await api.follower.until(lambda view: node not in view.nodes, ANSWER_WAIT_S)
        return _json({**document, "state": "removed"} if over else document, 200 if over else 202)

    @app.post("/v1/nodes/{node}/drain", tags=["cluster"], dependencies=ready)
    async def drain_node(
        node: str,
        request: Request,
        reason: Annotated[str, Query(max_length=DRAIN_REASON_MAX)] = "",
        within_ms: Annotated[int | None, Query(ge=0, le=DURATION_MS_MAX)] = None,
    ) -> Response:
        """Stops new placements on a node. What runs there runs on, or, with `within_ms`, ends after so long and runs
        elsewhere. The last call counts, whole."""
        return await drain(node, request, draining=True, reason=reason, within_ms=within_ms)

    @app.post("/v1/nodes/{node}/resume", tags=["cluster"], dependencies=ready)
    async def resume_node(node: str, request: Request) -> Response:
        """Takes new placements on a node again."""
        return await drain(node, request, draining=False)


def _add_config(app: FastAPI, api: Api) -> None:
    ready = [Depends(api.is_ready)]

    @app.get("/v1/config", tags=["cluster"], dependencies=ready)
    async def config() -> Response:
        """Knobs and queue tree in force."""
        return _json(documents.config_document(api.follower.state))

    @app.put("/v1/config", tags=["cluster"], dependencies=ready)
    async def configure(request: Request, dry_run: bool = False) -> Response:
        """Sets knobs (`set`), the whole queue tree (`queues`), or both. `changed`: whether that was any news.

        `notes`: what the cell takes, and yet somebody may not mean. `dry_run`: nothing is changed; the answer says
        which shares would be others, and the errors are the same.
        """
        document, patch = await api.body(request, "config")
        warnings = warnings_of(document)
        if dry_run:
            assert isinstance(patch, ConfigPatch)
            async with api.dry_runs:
                return _json(await dry.dry_run(api.follower.state, patch) | {"warnings": warnings})
        answer = await api.send("config", message_of(document), request)
        changed = answer.record is not None and isinstance(answer.record.body, ConfigChanged)
        state = api.follower.state
        told = {"changed": changed, **documents.config_document(state), "warnings": warnings}
        told["notes"] = dry.notes(state, state.policy, state.queues) if changed else []
        return _json(told, 200 if answer.answered else 202)
