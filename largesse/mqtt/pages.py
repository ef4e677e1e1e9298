"""What an agent answers over HTTP, carried over MQTT instead: a question has the path, a reply what came of it."""

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping

from largesse.mqtt.parts import dumps
from largesse.process.health import OCTETS, TEXT, Page
from largesse.task_output import NODE, named
from schemas.edge.base import Malformed
from schemas.edge.mqtt import REPLY_BYTES_MAX, NodeAsk, NodeReply

PHRASES = {200: "OK", 400: "Bad Request", 404: "Not Found", 503: "Service Unavailable"}


def reply_of(ask: NodeAsk, page: Page) -> bytes:
    """The message that carries an answer. Raises ValueError for one that has no room."""
    headers = {name: text for name, text in page.headers.items() if name != NODE}
    return dumps(reply_to(ask.cell, ask.node, ask.id, int(page.status[:3]), headers, page.body))


def reply_to(cell: str, node: str, number: str, status: int, headers: Mapping[str, str], body: bytes) -> NodeReply:
    """The answer of a node to question `number`. Raises ValueError for one that has no room, or cannot be carried."""
    if len(body) > REPLY_BYTES_MAX:
        raise ValueError(f"an answer of {len(body)} bytes; {REPLY_BYTES_MAX} at most have room in a reply")
    return NodeReply(
        cell=cell,
        node=node,
        id=number,
        status=status,  # type: ignore[arg-type]  # Checked by the model.
        headers=dict(headers),
        content=b64encode(body).decode(),
    )


def page_of(reply: NodeReply) -> Page:
    """The answer that a reply carries, under the name of the node that sent it. Raises Malformed."""
    try:
        body = b64decode(reply.content, validate=True)
    except (Base64Error, ValueError):
        raise Malformed("content", "is no base64") from None
    status = f"{reply.status} {PHRASES[reply.status]}"
    return Page(status, body, OCTETS if reply.status == 200 else TEXT, {**reply.headers, **named(reply.node)})
