"""Routes of queues, nodes and config: what there is, and what an operator changes."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import Depends, FastAPI, Path, Query, Request
from fastapi.responses import Response

from largesse.task_output import NUMBER_MAX
from schemas import ConfigChanged
from schemas.edge.base import DURATION_MS_MAX
from schemas.edge.config import SKIP_REASON_MAX
from schemas.edge.nodes import DRAIN_REASON_MAX
from schemas.edge.read import ConfigPatch, Malformed, read_input, warnings_of
from schemas.quantities import QUANTITY_MAX
from services.gateway.access.callers import Caller
from services.gateway.documents import Document
from services.gateway.documents.cell import config_document
from services.gateway.documents.classes import classes_document
from services.gateway.documents.ledger import ledger_document
from services.gateway.documents.models.cell import (
    Abandoned,
    CheckpointNoted,
    Classes,
    Node,
    NodeMap,
    Nodes,
    NodeState,
    QueueStatus,
    Skipped,
    Summary,
)
from services.gateway.documents.models.config import Config, ConfigApplied, DryRun
from services.gateway.documents.models.reservations import Ledger
from services.gateway.documents.node_map import node_map_document
from services.gateway.documents.nodes import each_node_document, listed_nodes, node_document, unheard
from services.gateway.documents.queues import queue_document
from services.gateway.documents.summary import summary_document
from services.gateway.documents.tally import Tally
from services.gateway.http.api import as_of
from services.gateway.http.callers import Asker
from services.gateway.http.dry_runs import config as dry
from services.gateway.http.dry_runs.what_ifs import the_answer
from services.gateway.http.openapi import TEXT_MAX, At, Behind, Offset, Responses, answer, problems
from services.gateway.http.problems import Problem, as_json, dumped, malformed
from services.gateway.http.reading import message_of
from services.gateway.view.state import State

if TYPE_CHECKING:
    from services.gateway.http.api import Api

NodeSort = Literal["name", "state", "running", "used", "-name", "-state", "-running", "-used"]
NODES_MAX = 100_000
MAPPED_MAX = 10_000

NodeStates = Annotated[list[NodeState] | None, Query(description="may be given several times")]

_UNANSWERED = "the log has not answered within 10 s"
_ABANDONED: Responses = {
    200: answer(Abandoned, "the round is given up"),
    202: answer(Abandoned, _UNANSWERED),
    **problems(409, 422),
}
_NOTED: Responses = {
    200: answer(CheckpointNoted, "the log has the checkpoint"),
    202: answer(CheckpointNoted, _UNANSWERED),
    **problems(409, 422),
}
_SKIPPED: Responses = {
    200: answer(Skipped, "the input is skipped"),
    202: answer(Skipped, _UNANSWERED),
    **problems(409, 422),
}
_NODES: Responses = {200: answer(Nodes, "nodes"), **problems(422)}
_MAP: Responses = {200: answer(NodeMap, "nodes in columns"), **problems(422)}
_REMOVED: Responses = {
    200: answer(Node, "the node as it was, in state `removed`"),
    202: answer(Node, _UNANSWERED),
    **problems(404, 409),
}
_DRAINED: Responses = {
    200: answer(Node, "the node as it is now"),
    202: answer(Node, _UNANSWERED),
    **problems(404, 409),
}
_CONFIGURED: Responses = {
    200: answer(None, "what is in force now, or what a dry run found") | {"model": ConfigApplied | DryRun},
    202: answer(ConfigApplied, _UNANSWERED),
    **problems(409, 413, 422),
}


def add_cluster(app: FastAPI, api: "Api") -> None:
    """The cell, its queues, classes and accounts."""
    ready = [Depends(api.is_ready)]

    @app.get("/v1/queues", tags=["cluster"], dependencies=ready, responses={200: answer(QueueStatus, "the root queue")})
    async def get_queues(at: At = None, behind: Behind = None) -> Response:
        """The queue tree: weights, limits, shares, jobs."""

        async def make(state: State) -> Document:
            return queue_document(state)

        if at is None:
            return await api.shared_answer("queues", behind, make)
        view = await api.view(at)
        return as_json(as_of(queue_document(view), view, at))

    @app.get("/v1/summary", tags=["cluster"], dependencies=ready, responses={200: answer(Summary, "the cell")})
    async def get_summary(at: At = None, behind: Behind = None) -> Response:
        """The cell at a glance, at one record of its log: jobs, nodes, what waits for what, and the queue tree."""

        async def make(state: State) -> Document:
            return summary_document(state, await api.metrics.tally.look(state))

        if at is None:
            return await api.shared_answer("summary", behind, make)
        state = await api.view(at)
        return as_json(as_of(summary_document(state, await Tally().look(state)), state, at))

    @app.get("/v1/classes", tags=["cluster"], dependencies=ready, responses={200: answer(Classes, "all classes")})
    async def get_classes(at: At = None) -> Response:
        """Classes of jobs: their pools, also over time, what is to come of them, and how far forecasts were off."""
        state = await api.view(at)
        tally = api.metrics.tally if at is None else Tally()
        return as_json(as_of(classes_document(state, await tally.look(state)), state, at))

    @app.get("/v1/ledger", tags=["cluster"], dependencies=ready, responses={200: answer(Ledger, "all accounts")})
    async def get_ledger(at: At = None) -> Response:
        """What queues and jobs have given away and received, where jobs are planned (preset `carbyne`)."""
        view = await api.view(at)
        return as_json(as_of(ledger_document(view), view, at))


def add_repairs(app: FastAPI, api: "Api") -> None:
    """Ways past what stops a cell."""
    ready = [Depends(api.is_ready)]

    @app.post("/v1/rounds/{number}/abandon", tags=["cluster"], dependencies=ready, responses=_ABANDONED)
    async def abandon_round(number: Annotated[int, Path(ge=1)], asker: Asker) -> Response:
        """Gives up the open round, which a stopped service cannot answer; all that waited goes to the next."""
        found = await api.send("config", dumped({"abandon_round": number}), asker.user)
        return as_json({"round": number, "abandoned": found.answered}, 200 if found.answered else 202)

    @app.post("/v1/checkpoints", tags=["cluster"], dependencies=ready, responses=_NOTED)
    async def note_checkpoint(request: Request, asker: Asker) -> Response:
        """Has the log say which states of its cores are kept elsewhere: `largesse checkpoint make` sends it."""
        document, patch = await api.body(request, "config")
        if patch.checkpoint is None:
            raise malformed(Malformed("checkpoint", "is missing, and nothing else may be sent here"))
        found = await api.send("config", message_of(document), asker.user)
        answer = {"closing": patch.checkpoint.closing, "noted": found.answered}
        return as_json(answer, 200 if found.answered else 202)

    @app.post("/v1/inputs/{topic}/{offset}/skip", tags=["cluster"], dependencies=ready, responses=_SKIPPED)
    async def skip_input(
        topic: str,
        offset: Annotated[int, Path(ge=0, le=QUANTITY_MAX)],
        asker: Asker,
        reason: Annotated[str, Query(max_length=SKIP_REASON_MAX)] = "",
    ) -> Response:
        """Has the sequencer refuse an input that it cannot read, without looking at it."""
        document = {"skip_input": {"topic": topic, "offset": offset, "reason": reason}}
        try:
            read_input("config", document, "")
        except Malformed as fault:
            raise malformed(fault) from None
        found = await api.send("config", dumped(document), asker.user)
        answer = {"topic": topic, "offset": offset, "skipped": found.answered}
        return as_json(answer, 200 if found.answered else 202)


def add_node_list(app: FastAPI, api: "Api") -> None:
    """Nodes, in windows."""

    @app.get("/v1/nodes", tags=["cluster"], dependencies=[Depends(api.is_ready)], responses=_NODES)
    async def list_nodes(
        q: Annotated[str, Query(max_length=TEXT_MAX, description="part of the name, or of a label as KEY=VALUE")] = "",
        sort: Annotated[NodeSort | None, Query(description="`-` before it: the highest first")] = None,
        state: NodeStates = None,
        offset: Offset = 0,
        limit: Annotated[int | None, Query(ge=1, le=NODES_MAX, description="by default all")] = None,
        at: At = None,
    ) -> Response:
        """Nodes with their capacity, what is free, and their state, in the order in which they came, or as `sort` says
        (`used`: by the largest part of a resource that is in use). `total`: how many there are."""
        view = await api.view(at)
        names = listed_nodes(view, q, sort or "", state or ())
        more = {"total": len(names), "offset": offset}
        shown = names[offset : None if limit is None else offset + limit]
        each = each_node_document(view, api.follower.heard.of if at is None else unheard, shown)
        return await api.listed("nodes", each, **as_of(more, view, at))

    @app.get("/v1/node-map", tags=["cluster"], dependencies=[Depends(api.is_ready)], responses=_MAP)
    async def get_node_map(
        q: Annotated[str, Query(max_length=TEXT_MAX, description="part of the name, or of a label as KEY=VALUE")] = "",
        state: NodeStates = None,
        limit: Annotated[int, Query(ge=1, le=MAPPED_MAX)] = MAPPED_MAX,
        at: At = None,
    ) -> Response:
        """How full nodes are, in columns, in the order in which they came: a twentieth of what `/v1/nodes` says of
        them. `total`: how many there are."""
        view = await api.view(at)
        names = listed_nodes(view, q, "", state or ())
        document = {**node_map_document(view, names[:limit]), "total": len(names)}
        return as_json(as_of(document, view, at))


def add_nodes(app: FastAPI, api: "Api") -> None:
    """Single nodes: draining, removal."""
    ready = [Depends(api.is_ready)]

    def known(node: str) -> Document:
        if (document := node_document(api.follower.state, node, api.follower.heard.of)) is None:
            raise Problem(404, "unknown_node", f'node "{node}" is not known here', "node")
        return document

    async def drain(node: str, asker: Caller, **said: Any) -> Response:
        known(node)
        found = await api.send("nodes", dumped({"drain": {"node": node, **said}}), asker.user)
        return as_json(known(node), 200 if found.answered else 202)

    @app.delete("/v1/nodes/{node}", tags=["cluster"], dependencies=ready, responses=_REMOVED)
    async def remove_node(node: str, asker: Asker) -> Response:
        """Removes a node that is lost and does not come back. 409: it is alive."""
        document = known(node)
        found = await api.send("nodes", dumped({"remove": {"node": node}}), asker.user)
        over = found.answered and await api.until(lambda view: node not in view.nodes)
        return as_json({**document, "state": "removed"} if over else document, 200 if over else 202)

    @app.post("/v1/nodes/{node}/drain", tags=["cluster"], dependencies=ready, responses=_DRAINED | problems(422))
    async def drain_node(
        node: str,
        asker: Asker,
        reason: Annotated[str, Query(max_length=DRAIN_REASON_MAX)] = "",
        within_ms: Annotated[int | None, Query(ge=0, le=DURATION_MS_MAX)] = None,
    ) -> Response:
        """Stops new placements on a node. What runs there runs on, or, with `within_ms`, ends after so long and runs
        elsewhere. The last call counts, whole."""
        return await drain(node, asker, draining=True, reason=reason, within_ms=within_ms)

    @app.post("/v1/nodes/{node}/resume", tags=["cluster"], dependencies=ready, responses=_DRAINED)
    async def resume_node(node: str, asker: Asker) -> Response:
        """Takes new placements on a node again."""
        return await drain(node, asker, draining=False)


ReplayMs = Annotated[
    int | None, Query(ge=1, le=NUMBER_MAX, description="with `dry_run`: over how much of the log it is tried")
]


async def _replayed(api: "Api", document: Document, replay_ms: int | None) -> Document:
    """What a config would have done over the end of the log. Raises Problem."""
    if replay_ms is None:
        return {}
    asked = {name: document[name] for name in ("set", "queues") if document.get(name) is not None}
    with api.what_ifs.place():
        since_ms = max(0, api.follower.state.time - replay_ms)
        return {"replay": await the_answer(api.follower, {**asked, "from_ms": since_ms}, api.log)}


def add_config(app: FastAPI, api: "Api") -> None:
    """Knobs and queue tree."""
    ready = [Depends(api.is_ready)]

    @app.get("/v1/config", tags=["cluster"], dependencies=ready, responses={200: answer(Config, "what is in force")})
    async def get_config(at: At = None) -> Response:
        """Knobs and queue tree in force."""
        view = await api.view(at)
        return as_json(as_of(config_document(view), view, at))

    @app.put("/v1/config", tags=["cluster"], dependencies=ready, responses=_CONFIGURED)
    async def apply_config(
        request: Request, asker: Asker, dry_run: bool = False, replay_ms: ReplayMs = None
    ) -> Response:
        """Sets knobs (`set`), the whole queue tree (`queues`), or both. `changed`: whether anything is different now.

        `notes`: what the cell takes and yet may not be meant. `dry_run`: nothing is changed; the answer says which
        shares would change, and the errors are the same. `replay_ms`: and in `replay` what it would have done over
        the end of the log, as the answer of `/v1/what-if`.
        """
        document, patch = await api.body(request, "config")
        warnings = warnings_of(document)
        if dry_run:
            assert isinstance(patch, ConfigPatch)
            async with api.dry_runs:
                effect = await dry.dry_run(api.follower.state, patch) | {"warnings": warnings}
            return as_json(effect | await _replayed(api, document, replay_ms))
        if replay_ms is not None:
            raise malformed(Malformed("replay_ms", "goes with dry_run=true"))
        found = await api.send("config", message_of(document), asker.user)
        changed = found.record is not None and isinstance(found.record.body, ConfigChanged)
        state = api.follower.state
        answer = {"changed": changed, **config_document(state), "warnings": warnings}
        answer["notes"] = dry.notes(state, state.policy, state.queues) if changed else []
        return as_json(answer, 200 if found.answered else 202)
