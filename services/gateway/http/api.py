"""What the routes of the API share."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from fastapi import Request
from fastapi.responses import Response
from fastapi.routing import APIRoute

from largesse.bus.port import PositionGap
from largesse.descriptors import connections_within
from largesse.folding import CoreStopped
from largesse.log.decisions import DecisionGap
from largesse.moments import moment_of
from largesse.readers import Readers, ReadersBusy
from largesse.task_output import Piece, Wanted
from largesse.task_results import FilePiece, Listed, WantedResults
from largesse.tls import Peers
from schemas import InputRefused
from schemas.edge.base import at_key, author_of
from schemas.edge.read import Malformed
from schemas.edge.strict_json import INPUT_BYTES_MAX
from schemas.wording import nearest
from services.gateway.access.callers import Caller, Callers
from services.gateway.access.failures import Failures
from services.gateway.answers import Answer
from services.gateway.attempts import AttemptTables
from services.gateway.documents import Document
from services.gateway.documents.jobs import job_document
from services.gateway.documents.metrics import CellMetrics
from services.gateway.documents.promised_waits import moment
from services.gateway.follow import Follower
from services.gateway.http.agents.asking import Way
from services.gateway.http.agents.output import ReadOutput, fetch_output
from services.gateway.http.agents.results import ReadResults, fetch_results
from services.gateway.http.agents.stage_logs import ANSWERS_MAX
from services.gateway.http.callers import Doorkeeper, check_own
from services.gateway.http.cell_choice import CELL_HEADER, no_cell
from services.gateway.http.change_streams import STREAMS_MAX, ChangeStreams
from services.gateway.http.connections import CONNECTIONS_MAX
from services.gateway.http.dry_runs.what_ifs import WHAT_IFS_MAX
from services.gateway.http.problems import Problem, dumped, malformed
from services.gateway.http.reading import read_document, read_request
from services.gateway.http.shared_answers import SharedAnswers
from services.gateway.http.streams import StreamLimit
from services.gateway.http.watching import WATCHERS_MAX, Watching
from services.gateway.instances import Instances
from services.gateway.past import PastBusy
from services.gateway.routed import Routed
from services.gateway.view.state import State

if TYPE_CHECKING:
    from services.gateway.access.jwts import Jwts

ANSWER_WAIT_S = 10.0
"""How long a request waits for the log's answer; after that it is answered with 202."""

DRY_RUNS_MAX = 2
"""Dry runs at a time; each runs in a process of its own."""

LISTS_MAX = 2
"""Long lists that are encoded at a time; further ones wait."""

LOG_READS_MAX = 2
"""Requests that read the log at a time; further ones wait."""

LISTING_S = 0.005
"""Seconds for which a list is encoded before other requests get a turn."""

READ_AT_ONCE = 16 << 10
"""Documents up to this size are parsed in the event loop: about ten milliseconds for YAML."""

OUTPUTS_MAX = 128
"""Answers with task output at a time; each holds a piece of it in memory, and a connection to an agent."""

NEAREST_AMONG = 200
"""So many names of jobs, live ones first, are compared with one that is unknown: some hundredths of a second."""


ListCells = Callable[[], list[Document]]
"""All cells that a gateway serves, each in brief."""


@dataclass(frozen=True, slots=True)
class Routing:
    """`routed`: where jobs are that named no cell. `may_go`: in which cells somebody may submit to a queue."""

    routed: Routed
    may_go: Callable[[Caller, str], list[str]]


class Api:
    """What the routes share. `author`: recorded for requests that do not say who makes them. `bridges`: who asks nodes
    over MQTT, as HOST:PORT. `recorded`: the log is not a cell's own: nobody answers inputs, and none is taken.
    `issued`: JWTs that count. `peers`: TLS among gateway and agents. `cells`: by default this one alone.
    `routing`: of jobs that name no cell."""

    def __init__(
        self,
        follower: Follower,
        read_output: ReadOutput | None,
        read_results: ReadResults | None,
        author: str,
        bridges: tuple[str, ...] = (),
        *,
        recorded: bool = False,
        log: str = "",
        issued: "Jwts | None" = None,
        peers: Peers | None = None,
        cells: ListCells | None = None,
        routing: Routing | None = None,
    ) -> None:
        self.follower = follower
        self.routed = None if routing is None else routing.routed
        self.may_go = (lambda caller, queue: []) if routing is None else routing.may_go
        self.peers = peers
        self.cells = cells or (lambda: [{"cell": follower.cell, "ready": follower.ready}])
        callers = Callers(lambda: follower.state, is_open=recorded, issued=issued)
        self.door = Doorkeeper(callers, Failures(time.monotonic))
        self.recorded = recorded
        self.log = log
        self.read_output = read_output or self._ask_agent
        self.read_results = read_results or self._ask_for_results
        self.author = author
        self.bridges = bridges
        self.lists = asyncio.Semaphore(LISTS_MAX)
        self.log_reads = asyncio.Semaphore(LOG_READS_MAX)
        self.attempts = AttemptTables(lambda: follower.places)
        self.reading = Readers(threads=1)
        self.dry_runs = asyncio.Semaphore(DRY_RUNS_MAX)
        self.what_ifs = StreamLimit(WHAT_IFS_MAX, "what-ifs")
        self.outputs = StreamLimit(OUTPUTS_MAX, "answers with output")
        self.stage_outputs = StreamLimit(ANSWERS_MAX, "answers with output of whole jobs or stages")
        # Watchers must leave connections to others.
        connections = connections_within(CONNECTIONS_MAX)
        self.watchers = StreamLimit(min(WATCHERS_MAX, connections // 2), "watchers")
        self.watching = Watching(follower)
        self.change_places = StreamLimit(min(STREAMS_MAX, connections // 4), "streams of changes")
        self.changes = ChangeStreams(follower)
        self.metrics = CellMetrics()
        self.shared = SharedAnswers()
        self.instances = Instances(follower.bus, follower.cell, lambda: follower.state.policy.altruism_shards)

    async def _ask_agent(self, wanted: Wanted) -> Piece | None:
        self.job(wanted.job)
        return await fetch_output(self.follower.state, wanted, self._way_to)

    async def _ask_for_results(self, wanted: WantedResults) -> Listed | FilePiece | None:
        return await fetch_results(self.follower.state, wanted, self._way_to)

    def _way_to(self, node: str, address: str) -> Way | None:
        """Where to ask for what tasks on a node printed or left. A node that speaks over MQTT may have an address which
        only its neighbours reach."""
        heard = self.follower.heard.of(node)
        if self.bridges and (not address or (heard is not None and heard[0] == "bridge")):
            return Way(self.bridges, by_bridge=True, peers=self.peers)
        return Way((address,), peers=self.peers) if address else None

    async def admit(self, request: Request) -> None:
        """Finds out who makes a request, which routes then know. Raises Problem where they may not make it, and where
        it is for another cell."""
        for name in request.headers.getlist(CELL_HEADER):
            if name != self.follower.cell:
                raise no_cell(name)
        await self.door.look_up(request)
        request.state.caller = self.door.admit(request, is_ready=self.follower.ready)

    async def check_parameters(self, request: Request) -> None:
        """Refuses query parameters that the route does not have: most likely they are misspelt. Raises Problem."""
        route = request.scope.get("route")
        if not isinstance(route, APIRoute) or not route.path.startswith("/v1/"):
            return
        known = sorted(parameter.alias for parameter in route.dependant.query_params)
        for name in request.query_params:
            if name not in known:
                close = nearest(name, known)
                text = f'did you mean "{close}"? ' if close else ""
                text += f"known here: {', '.join(known)}" if known else "none is known here"
                raise malformed(Malformed(at_key(name), f"unknown parameter; {text}"), 400)

    async def is_ready(self) -> None:
        """Raises Problem until the view has read what the log had at the start."""
        if not self.follower.ready:
            raise Problem(503, "not_ready", "the gateway has not read the whole log yet")

    async def view(self, at: str | None) -> State:
        """The cell now, or as it was. Raises Problem where the log has no such moment, or it cannot be shown yet."""
        now = self.follower.state
        if at is None:
            return now
        try:
            moment = moment_of(at)
        except ValueError as error:
            raise malformed(Malformed("at", str(error))) from None
        if moment.seq is not None and moment.seq > now.seq:
            raise malformed(Malformed("at", f"the log ends at record {now.seq}"))
        try:
            found = await self.follower.past.at(moment)
        except PastBusy as busy:
            raise Problem(503, "busy", str(busy), "at") from None
        except PositionGap as gap:
            raise malformed(Malformed("at", f"the log begins later: {gap}")) from None
        except (CoreStopped, DecisionGap) as error:
            raise Problem(500, "internal", f"the log cannot be folded up to there: {error}", "at") from None
        if not found.seq:
            raise malformed(Malformed("at", "the log begins later"))
        return found

    async def shared_answer(
        self, name: str, behind: int | None, make: Callable[[State], Awaitable[Document]]
    ) -> Response:
        """A document of now, made once for all who ask for it at a time."""

        async def made() -> bytes:
            return dumped(await make(self.follower.state))

        content = await self.shared.of(name, behind, self.follower.state.seq, made)
        return Response(content, media_type="application/json")

    def job(self, name: str, view: State | None = None) -> Document:
        """The job's document, of now unless a view is given. Raises Problem."""
        view = self.follower.state if view is None else view
        document = job_document(view, name)
        if document is None:
            text = self._why_unknown(name, view)
            raise Problem(404, "unknown_job", f'job "{name}" is unknown; {text}')
        return document

    def _why_unknown(self, name: str, view: State) -> str:
        """What to say of a job that a view does not have."""
        now = self.follower.state
        if view is not now and (document := job_document(now, name)) is not None:
            submitted_ms = int(document["submitted_ms"])
            if submitted_ms > view.time:
                return f"it was submitted later, at {moment(submitted_ms)}"
        if close := _nearest_job(view, name):
            return f'did you mean "{close}"?'
        return "ended jobs are remembered for a while only"

    def check_job(self, caller: Caller, name: str, view: State | None = None) -> None:
        """Raises Problem for a job that is not the caller's, or whose queue is not, unless they may act for others."""
        if caller.may("operator"):
            return
        view = self.follower.state if view is None else view
        live, ended = view.jobs.get(name), view.ended.get(name)
        if live is not None:
            check_own(caller, f'job "{name}"', live.spec.user or live.author, live.spec.queue)
        elif ended is not None:
            check_own(caller, f'job "{name}"', ended.user or ended.author, ended.queue)
        else:
            self.job(name, view)  # It is not known, and so nobody's.

    async def listed(self, name: str, each: Iterable[Document], **more: Any) -> Response:
        """A document with a long list under `name`, and `more` beside it. Others get turns meanwhile."""
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
        found: tuple[Any, Any] = await self._read(request, lambda data, kind: read_request(data, kind, topic))
        return found

    async def document(self, request: Request) -> Any:
        """The document that the request carries. Raises Problem."""
        return await self._read(request, read_document)

    async def _read(self, request: Request, read: Callable[[bytes, str], Any]) -> Any:
        data = bytearray()
        async for chunk in request.stream():
            data += chunk
            if len(data) > INPUT_BYTES_MAX:
                raise Problem(
                    413, "too_large", f"at most {INPUT_BYTES_MAX} bytes are accepted", "", limit=INPUT_BYTES_MAX
                )
        kind = request.headers.get("content-type", "")
        if len(data) <= READ_AT_ONCE:
            return read(bytes(data), kind)
        try:
            # Parsing a large one may take a second: in a thread, one at a time, while others are served.
            return await self.reading.read(lambda: read(bytes(data), kind))
        except ReadersBusy:
            raise Problem(503, "busy", "too many large documents wait to be parsed: try again") from None

    def check_lives(self) -> None:
        """Raises Problem where there is no cell, but only its log."""
        if self.recorded:
            raise Problem(409, "recorded", "this is a recorded log, not a cell: nothing can be changed here")

    async def send(self, topic: str, data: bytes, asker: str) -> Answer:
        """Publishes an input and waits for its answer. `asker`: "" where the request has no name. Raises Problem where
        it is refused."""
        self.check_lives()
        found = await self.follower.send(topic, data, author_of(asker or self.author), ANSWER_WAIT_S)
        check_taken(found)
        return found

    async def until(self, holds: Callable[[State], bool]) -> bool:
        """Waits until the view shows what is asked for; False where it does not within ANSWER_WAIT_S."""
        return await self.follower.until(holds, ANSWER_WAIT_S)


def check_taken(found: Answer) -> None:
    """Raises Problem where the cell refused the input."""
    refused = found.record.body if found.record is not None else None
    if isinstance(refused, InputRefused):
        raise Problem(409, "refused:input", refused.reason, refused.field, reason=refused.reason)


def as_of(document: Document, state: State, at: str | None) -> Document:
    """A document, if it shows the past with the moment that it shows: its last record, and log time then."""
    return document if at is None else {**document, "at": {"seq": state.seq, "time": state.time}}


def _nearest_job(state: State, name: str) -> str | None:
    """The job whose name one is a slip for. A name with other digits is none: they count jobs that are alike."""
    digits = _digits(name)
    names = islice(chain(state.jobs, reversed(state.ended)), NEAREST_AMONG)
    return nearest(name, (each for each in names if _digits(each) == digits))


def _digits(name: str) -> str:
    return "".join(filter(str.isdigit, name))
