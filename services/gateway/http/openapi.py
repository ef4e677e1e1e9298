"""/openapi.json: what each route answers, with which status and media type, and what its requests carry.

FastAPI makes the document from the routes. Added here is what it cannot know: bodies that the routes read themselves,
in JSON or YAML, and that errors are problem documents (RFC 9457).
"""

from typing import Annotated, Any

from fastapi import FastAPI, Query
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode

from largesse.task_output import NUMBER_MAX
from schemas.edge.config import ConfigInput
from schemas.edge.jobs import JobPatch, JobRerunRequest, JobSubmission
from schemas.edge.reservations import ReservationRequest, ReservationTerms, SeriesRequest
from schemas.edge.routes import RouteSubmission
from schemas.edge.what_ifs import WhatIfRequest
from services.gateway.access.rights import RIGHTS, Right
from services.gateway.documents import Document
from services.gateway.documents.models.cell import Changes, Problem
from services.gateway.http.callers import COOKIE
from services.gateway.http.problems import MEDIA_TYPE, TITLES

Responses = dict[int | str, dict[str, Any]]

AT_CHARACTERS_MAX = 64

Behind = Annotated[
    int | None,
    Query(ge=0, le=NUMBER_MAX, description="an answer as of this record, or later, will do: clients share one"),
]
At = Annotated[
    str | None,
    Query(
        max_length=AT_CHARACTERS_MAX,
        description="as it was: behind this record of the log (its seq), or at this time (ISO 8601; UTC unless it has"
        " an offset)",
    ),
]

TEXT_MAX = 200
"""Characters of a text that is searched for."""

OFFSET_MAX = 1_000_000
Offset = Annotated[int, Query(ge=0, le=OFFSET_MAX, description="of the first one, counted from 0")]

Owner = Annotated[str | None, Query(description="whose it is; by default the one who asks")]

EVERYWHERE = (400, 403, 408, 500, 503)
"""Statuses of errors that any request may get: malformed, not allowed, too slow, internal, unavailable."""

BY_RIGHT = (401, 429)
"""Those of requests that need a role: nobody known asks, or too many attempts of that address have failed."""

SECURITY: dict[str, Document] = {
    "token": {"type": "http", "scheme": "bearer", "description": "made by `largesse token make`"},
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": f"{COOKIE}-8642",
        "description": "of a browser that has signed in (`POST /v1/session`); its name ends with the gateway's port",
    },
}

_BODIES: dict[tuple[str, str], type[BaseModel]] = {
    ("/v1/jobs", "post"): JobSubmission,
    ("/v1/jobs/{job}", "patch"): JobPatch,
    ("/v1/jobs/{job}/rerun", "post"): JobRerunRequest,
    ("/v1/routes", "post"): RouteSubmission,
    ("/v1/config", "put"): ConfigInput,
    ("/v1/checkpoints", "post"): ConfigInput,
    ("/v1/reservations", "post"): ReservationRequest,
    ("/v1/reservations/{reservation}", "put"): ReservationTerms,
    ("/v1/series", "post"): SeriesRequest,
    ("/v1/what-if", "post"): WhatIfRequest,
}
_BODY_TYPES = ("application/json", "application/yaml")
_PROBLEM = {"$ref": f"#/components/schemas/{Problem.__name__}"}
_VALIDATION = ("HTTPValidationError", "ValidationError")
"""FastAPI's own error documents; a Problem is sent instead."""


def answer(model: type[BaseModel] | None, description: str, **headers: str) -> dict[str, Any]:
    """One answer of a route: its JSON document (None: another media type, or nothing), and its headers with what they
    say (`Task_State` for `Task-State`)."""
    said: dict[str, Any] = {"description": description}
    if model is not None:
        said["model"] = model
    if headers:
        said["headers"] = {
            name.replace("_", "-"): {"description": text, "schema": {"type": "string"}, "required": True}
            for name, text in headers.items()
        }
    return said


def problems(*statuses: int) -> Responses:
    """Errors that a route may answer with, beside those that any may."""
    # A model would have FastAPI make a validator for each error of each route, which took most of a start.
    content = {MEDIA_TYPE: {"schema": _PROBLEM}}
    found: Responses = {status: {"description": TITLES[status], "content": content} for status in statuses}
    for status in (429, 503):
        if status in found:
            found[status] |= answer(None, TITLES[status], Retry_After="seconds after which to try again")
    return found


def operation_id(route: APIRoute) -> str:
    """Names an operation for generated clients: as the route's function is called."""
    return route.name


def complete(app: FastAPI) -> None:
    """Has the app's OpenAPI document completed when it is first asked for."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _completed(generate())
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _completed(document: dict[str, Any]) -> dict[str, Any]:
    components = document["components"]["schemas"]
    for said in (Problem, Changes):  # No route answers with these alone.
        _add_schemas(components, said, "serialization")
    for (path, method), model in _BODIES.items():
        _add_schemas(components, model, "validation")
        named = {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}}
        content = dict.fromkeys(_BODY_TYPES, named)
        document["paths"][path][method]["requestBody"] = {"required": True, "content": content}
    document["components"]["securitySchemes"] = SECURITY
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            _complete(operation["responses"])
            _say_right(operation, _right_of(method, path))
    for name in _VALIDATION:
        components.pop(name, None)
    return document


def _add_schemas(components: Document, model: type[BaseModel], mode: JsonSchemaMode) -> None:
    schema = model.model_json_schema(mode=mode, ref_template="#/components/schemas/{model}")
    for name, part in {**schema.pop("$defs", {}), model.__name__: schema}.items():
        assert components.setdefault(name, part) == part, f"{name} names two schemas"


def _right_of(method: str, path: str) -> Right:
    """OpenAPI does not say which parameters have slashes in them."""
    return RIGHTS[f"{method.upper()} {path}".replace("{queue}/why", "{queue:path}/why")]


def _say_right(operation: Document, right: Right) -> None:
    """What a request has to carry, and how it is refused otherwise. In a cell without tokens: nothing."""
    if right.role is None:
        return
    operation["security"] = [{}, {"token": []}, {"session": []}]
    dry = f", with `dry_run` {right.tries}" if right.tries is not None else ""
    own = "; a submitter what is its user's, in its queues" if right.own else ""
    operation["x-largesse-role"] = f"{right.role}{dry}{own}"
    operation["responses"] |= {str(status): said for status, said in problems(*BY_RIGHT).items()}


def _complete(responses: dict[str, Any]) -> None:
    for status, response in list(responses.items()):
        if int(status) >= 400 and MEDIA_TYPE not in response.get("content", {}):
            del responses[status]  # FastAPI adds a 422 of its own wherever there is a parameter, a free text too.
