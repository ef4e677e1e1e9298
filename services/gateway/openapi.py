"""The bodies of requests in /openapi.json: the models of the strict edge, which the routes read by themselves."""

from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from schemas.edge.config import ConfigInput
from schemas.edge.jobs import JobSubmission

_BODIES: dict[tuple[str, str], type[BaseModel]] = {
    ("/v1/jobs", "post"): JobSubmission,
    ("/v1/config", "put"): ConfigInput,
}
_PROBLEM = {
    "type": "object",
    "description": "RFC 9457; `field` is the path of what is wrong",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "field": {"type": "string"},
    },
}


def add_bodies(app: FastAPI) -> None:
    """Makes the app's OpenAPI document say what its requests carry and how its errors look."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _completed(generate())
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _completed(document: dict[str, Any]) -> dict[str, Any]:
    components = document.setdefault("components", {}).setdefault("schemas", {})
    components["Problem"] = _PROBLEM
    for (path, method), model in _BODIES.items():
        schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
        components.update(schema.pop("$defs", {}))
        components[model.__name__] = schema
        named = {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}}
        content = {"application/json": named, "application/yaml": named}
        document["paths"][path][method]["requestBody"] = {"required": True, "content": content}
    problem = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for path in document["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)
            operation["responses"]["default"] = {"description": "A problem", "content": problem}
    return document
