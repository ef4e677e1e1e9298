"""The documents that a node and the cell exchange over MQTT, on the topics largesse/CELL/node/NAME/up and .../down,
what a bridge asks a node for on .../ask, and is answered on .../reply/BRIDGE, and what a node asks the bridges for on
.../fetch, and is answered on .../fetched.

A report, or what a node is told, that a single message has no room for comes in parts: each has the fields that stand
around, and instead of what they hold (`messages`, `work`) a piece of its JSON text. largesse/mqtt/parts.py cuts
and joins them.
"""

from typing import Annotated, Literal, TypeVar

from pydantic import ConfigDict, Field

from schemas.edge.base import REASON_MAX, Epoch, Input, Malformed, Whole
from schemas.edge.strict_json import loads
from schemas.edge.validated import validated
from schemas.quantities import QUANTITY_MAX

PARTS_MAX = 64
"""Messages that one document may come in: it bounds what is kept of one that is not yet whole."""
MESSAGES_MAX = 1_000
LEVEL_PATTERN = r"^[^/+#\x00-\x1f\x7f-\x9f]+$"
DIGEST_PATTERN = r"^[0-9a-f]{64}$"
ID_PATTERN = r"^[0-9a-f]{32}$"
PATH_PATTERN = r"^/[\x21-\x7e]*$"
PATH_MAX = 8_192
WITHIN_MS_MAX = 60_000
REPLY_BYTES_MAX = 160 << 10
"""Of the content of one reply: as base64 it has room in a message."""

Level = Annotated[str, Field(min_length=1, max_length=253, pattern=LEVEL_PATTERN)]
"""A name that is one level of an MQTT topic."""
Number = Annotated[int, Field(ge=1, le=QUANTITY_MAX)]
Seq = Annotated[int, Field(ge=-1, le=QUANTITY_MAX)]
Part = Annotated[int, Field(ge=0, lt=PARTS_MAX)]
Parts = Annotated[int, Field(ge=1, le=PARTS_MAX)]
QuestionId = Annotated[str, Field(max_length=32, pattern=ID_PATTERN)]
ReplyHeader = Annotated[str, Field(max_length=60, pattern=r"^Largesse-[A-Za-z-]+$")]
ReplyNumbers = Annotated[str, Field(max_length=40, pattern=r"^[0-9-]*$")]
Digest = Annotated[str, Field(max_length=64, pattern=DIGEST_PATTERN)]


class NodeUpMessage(Input):
    """What the cell is to be told: a message of the topic `nodes` or `tasks`, as agents with a bus write it there."""

    topic: Literal["nodes", "tasks"]
    document: dict[str, object]


class NodeUp(Input):
    """Report `number` of a node under its agent's epoch; the next one follows when this one was answered. `seq`: the
    last place of the log that the node has been told of; -1: none. A part of a report that comes in several has `text`,
    a piece of the JSON text of `messages`, and `digest`, the SHA-256 of that whole text, instead of `messages`.
    """

    cell: Level
    node: Level
    epoch: Epoch
    number: Number
    seq: Seq
    part: Part = 0
    parts: Parts = 1
    messages: Annotated[list[NodeUpMessage], Field(max_length=MESSAGES_MAX, fail_fast=True)] | None = None
    text: Annotated[str, Field(min_length=1)] | None = None
    digest: Digest | None = None


class NodeAnswered(Input):
    """The report that the cell has, with all before it."""

    model_config = ConfigDict(extra="ignore", strict=True)

    epoch: Epoch
    number: Number


class NodeDown(Input):
    """What a node has to do as of place `seq` of the log, which was written at `time`: all of it, in place of what it
    was told before. `answered`: the newest report that the cell has of the node. `refused`: why that report, or the
    node, was not taken. `in_round`: a round is open, which no report becomes a part of any more. A part of a document
    that comes in several has `text`, a piece of the JSON text of `work`, and `digest`, the SHA-256 of that whole text,
    instead of `work`.

    Fields that a node does not know are ignored: a newer bridge may have more to say.
    """

    model_config = ConfigDict(extra="ignore", strict=True)

    cell: Level
    node: Level
    epoch: Epoch
    number: Number
    seq: Seq
    time: Whole
    part: Part = 0
    parts: Parts = 1
    answered: NodeAnswered | None = None
    refused: Annotated[str, Field(max_length=REASON_MAX)] | None = None
    in_round: bool = False
    work: dict[str, object] | None = None
    text: Annotated[str, Field(min_length=1)] | None = None
    digest: Digest | None = None


class NodeAsk(Input):
    """A question of a bridge to a node: what its agent answers at `path` over HTTP (what a task has printed or left).
    Nobody waits for the answer `within_ms` after the question came.

    Fields that a node does not know are ignored.
    """

    model_config = ConfigDict(extra="ignore", strict=True)

    cell: Level
    node: Level
    bridge: Level
    id: QuestionId
    path: Annotated[str, Field(max_length=PATH_MAX, pattern=PATH_PATTERN)]
    within_ms: Annotated[int, Field(ge=1, le=WITHIN_MS_MAX)]


class NodeFetch(Input):
    """A question of a node to the bridges: what the agent of node `of` answers at `path` over HTTP, a list or a file of
    the results of a task that was handed on to one of its attempts. Nobody waits for the answer `within_ms` after the
    question came.
    """

    cell: Level
    node: Level
    id: QuestionId
    of: Level
    path: Annotated[str, Field(max_length=PATH_MAX, pattern=PATH_PATTERN)]
    within_ms: Annotated[int, Field(ge=1, le=WITHIN_MS_MAX)]


class NodeReply(Input):
    """The answer of `node` to question `id`, on the way to who has asked. `status`, `headers`: as over HTTP.
    `content`: in base64.
    """

    model_config = ConfigDict(extra="ignore", strict=True)

    cell: Level
    node: Level
    id: QuestionId
    status: Literal[200, 400, 404, 503]
    headers: Annotated[dict[ReplyHeader, ReplyNumbers], Field(max_length=10)] = {}
    content: Annotated[str, Field(max_length=REPLY_BYTES_MAX // 3 * 4 + 4, pattern=r"^[A-Za-z0-9+/]*={0,2}$")] = ""


NodeDocument = TypeVar("NodeDocument", NodeUp, NodeDown)

CONTENT: dict[type[Input], str] = {NodeUp: "messages", NodeDown: "work"}
"""What parts of a document are pieces of, by its model."""


def read_up(payload: bytes) -> NodeUp:
    """A report, or a part of one. Raises Malformed."""
    return checked(NodeUp, loads(payload))


def read_down(payload: bytes) -> NodeDown:
    """What a node is told, or a part of it. Raises Malformed."""
    return checked(NodeDown, loads(payload))


def read_ask(payload: bytes) -> NodeAsk:
    """A question to a node. Raises Malformed."""
    return validated(NodeAsk, loads(payload))


def read_fetch(payload: bytes) -> NodeFetch:
    """A node's question. Raises Malformed."""
    return validated(NodeFetch, loads(payload))


def read_reply(payload: bytes) -> NodeReply:
    """A node's answer. Raises Malformed."""
    return validated(NodeReply, loads(payload))


def checked(model: type[NodeDocument], document: object) -> NodeDocument:
    """The document as a model, with either its content or a piece of it. Raises Malformed."""
    found = validated(model, document)
    content = CONTENT[model]
    if found.part >= found.parts:
        raise Malformed("part", f"is {found.part}, but there are {found.parts}: the first one is 0")
    if found.parts == 1:
        if getattr(found, content) is None:
            raise Malformed(content, "is missing")
        for field in ("text", "digest"):
            if getattr(found, field) is not None:
                raise Malformed(field, "belongs to a document that comes in parts")
        return found
    if getattr(found, content) is not None:
        raise Malformed(content, f'does not stand in a document of {found.parts} parts: each has its piece in "text"')
    for field in ("text", "digest"):
        if getattr(found, field) is None:
            raise Malformed(field, "is missing")
    return found
