"""From the body of a request to a message: bytes, a document, a validated input, a message."""

from typing import Any

from largesse.bodies import read_body
from schemas.edge.read import Malformed, read_input
from schemas.edge.strict_json import INPUT_BYTES_MAX
from schemas.topics import ROUTER_JOBS
from services.gateway.http.problems import Problem, dumped, malformed

JOBS = "jobs"
YAML_HINT = "send YAML with Content-Type: application/yaml"


def read_document(data: bytes, content_type: str) -> Any:
    """The document of a request. Raises Problem."""
    try:
        return read_body(data, content_type)
    except Malformed as fault:
        if fault.reason.startswith("is no JSON") and "json" not in content_type.lower():
            fault = Malformed(fault.field, f"{fault.reason}; {YAML_HINT}")
        raise malformed(fault, 400) from None


def read_request(data: bytes, content_type: str, topic: str) -> tuple[Any, Any]:
    """The document of a request, and what it is as an input of the topic. Raises Problem."""
    document = read_document(data, content_type)
    if topic in (JOBS, ROUTER_JOBS) and isinstance(document, dict) and "cancel" in document:
        raise Problem(422, "malformed", "cancel: unknown field; to cancel, DELETE /v1/jobs/{id}", "cancel")
    if topic == JOBS and isinstance(document, dict) and "change" in document:
        raise Problem(422, "malformed", "change: unknown field; to change a job, PATCH /v1/jobs/{id}", "change")
    if topic == JOBS and isinstance(document, dict) and "route" in document:
        raise Problem(422, "malformed", "route: unknown field; it is the router's, and names nobody's user", "route")
    try:
        return document, read_input(topic, document, "")
    except Malformed as fault:
        raise malformed(fault) from None


def message_of(document: Any) -> bytes:
    """A document as it is sent. Raises Problem where it is too large for a message."""
    # Decimals that the edge takes have 6 digits behind the point at most: a float's shortest text keeps them.
    data = dumped(document, default=float)
    if len(data) > INPUT_BYTES_MAX:
        # Its text was within the limit: YAML leaves out quotes, and JSON may write one character for six.
        text = f"takes {len(data)} bytes as JSON, which is how it is sent; at most {INPUT_BYTES_MAX} are accepted"
        raise Problem(413, "too_large", text, "", size=len(data), limit=INPUT_BYTES_MAX)
    return data
