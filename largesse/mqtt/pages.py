"""What an agent answers over HTTP, carried over MQTT instead: a question has the path, a reply what came of it."""

from base64 import b64decode, b64encode
from binascii import Error as Base64Error

from largesse.mqtt.parts import dumps
from largesse.process.health import OCTETS, TEXT, Page
from largesse.task_output import NODE, named
from schemas.edge.base import Malformed
from schemas.edge.mqtt import REPLY_BYTES_MAX, NodeAsk, NodeReply

PHRASES = {200: "OK", 400: "Bad Request", 404: "Not Found", 503: "Service Unavailable"}


def reply_of(ask: NodeAsk, page: Page) -> bytes:
    """The message that carries an answer. Raises ValueError for one that has no room."""
    if len(page.body) > REPLY_BYTES_MAX:
        raise ValueError(f"an answer of {len(page.body)} bytes; {REPLY_BYTES_MAX} at most have room in a reply")
    reply = NodeReply(
        cell=ask.cell,
        node=ask.node,
        id=ask.id,
        status=int(page.status[:3]),  # type: ignore[arg-type]  # Checked by the model.
        headers={name: text for name, text in page.headers.items() if name != NODE},
        content=b64encode(page.body).decode(),
    )
    return dumps(reply)


def page_of(reply: NodeReply) -> Page:
    """The answer that a reply carries, under the name of the node that sent it. Raises Malformed."""
    try:
        body = b64decode(reply.content, validate=True)
    except (Base64Error, ValueError):
        raise Malformed("content", "is no base64") from None
    status = f"{reply.status} {PHRASES[reply.status]}"
    return Page(status, body, OCTETS if reply.status == 200 else TEXT, {**reply.headers, **named(reply.node)})
