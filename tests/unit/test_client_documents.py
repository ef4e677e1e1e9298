"""The library's types are those of /openapi.json and of the published schemas, and both clients have the same calls."""

import dataclasses
import inspect
import json
import subprocess
import sys
import types
import typing

import pytest

from largesse.client import AsyncClient, Client, JobSpec, Stage, documents
from tests.conftest import ROOT
from tests.gateway_cell import run_in_memory

TYPES = {name: each for name, each in vars(documents).items() if typing.is_typeddict(each)}
LINES = {"ResultRow"}
"""Of lines of JSON, which OpenAPI does not describe; tests/live/test_client_live.py reads real ones."""
JSON_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", dict: "object", list: "array"}


@pytest.fixture(scope="module")
def described():
    async def fetched(cell):
        return (await cell.http.get("/openapi.json")).json()

    return run_in_memory(fetched)


@pytest.mark.parametrize("name", sorted(TYPES.keys() - LINES))
def test_a_type_is_as_the_gateway_describes_it(described, name):
    schema = described["components"]["schemas"][name]
    hints = typing.get_type_hints(TYPES[name])

    assert hints.keys() <= schema["properties"].keys()
    assert TYPES[name].__required_keys__ <= set(schema.get("required", ()))
    for field, hint in hints.items():
        assert said(described, schema["properties"][field]) >= kinds(hint), (name, field)
        assert not ("null" in said(described, schema["properties"][field]) and "null" not in kinds(hint)), (name, field)


def kinds(hint):
    """The JSON types that a type of Python stands for."""
    origin = typing.get_origin(hint)
    if origin is typing.Literal:
        return {JSON_TYPES[type(each)] for each in typing.get_args(hint)}
    if origin in (types.UnionType, typing.Union):
        return set().union(*map(kinds, typing.get_args(hint)))
    if hint is type(None):
        return {"null"}
    if typing.is_typeddict(hint):
        return {"object"}
    return {JSON_TYPES[origin or hint]}


def said(described, schema):
    """The JSON types that a schema allows; an integer is a number, too."""
    if "$ref" in schema:
        return said(described, described["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    if "anyOf" in schema:
        return set().union(*(said(described, each) for each in schema["anyOf"]))
    if "const" in schema or "enum" in schema:
        return {JSON_TYPES[type(each)] for each in schema.get("enum", [schema.get("const")])}
    return {schema["type"]}


@pytest.mark.parametrize(
    ("made", "definition"),
    [pytest.param(JobSpec, None, id="a job"), pytest.param(Stage, "StageSubmission", id="a stage")],
)
def test_specs_have_every_field_that_a_cell_takes(made, definition):
    schema = json.loads((ROOT / "schemas/published/JobSubmission.v1.json").read_text())
    if definition is not None:
        schema = schema["$defs"][definition]
    ours = {field.name for field in dataclasses.fields(made)}

    assert ours == schema["properties"].keys() - {"submit_ms"}  # Of workload files alone.


def test_every_path_that_is_asked_is_described(described):
    paths = {
        *("/v1/jobs", "/v1/jobs/{job}", "/v1/jobs/{job}/spec", "/v1/jobs/{job}/rerun", "/v1/jobs/{job}/events"),
        *("/v1/jobs/{job}/logs", "/v1/jobs/{job}/results", "/v1/tasks/{job}/{stage}/{index}/logs", "/v1/why"),
        *("/v1/tasks/{job}/{stage}/{index}/results", "/v1/nodes", "/v1/queues", "/v1/changes", "/v1/what-if"),
        *("/v1/reservations", "/v1/reservations/{reservation}"),
    }
    known = {each["name"] for each in described["paths"]["/v1/jobs"]["get"]["parameters"]}

    assert paths <= described["paths"].keys()
    assert {"state", "queue", "user", "since_ms", "reservation", "q", "sort", "at", "offset", "limit"} <= known


def test_both_clients_have_the_same_calls():
    calls = [
        {name: each for name, each in vars(client).items() if inspect.isfunction(each) and not name.startswith("_")}
        for client in (Client, AsyncClient)
    ]

    assert calls[0].keys() == calls[1].keys()
    for name, call in calls[0].items():
        other = calls[1][name]
        assert inspect.signature(call).parameters == inspect.signature(other).parameters, name
        assert call.__doc__ == other.__doc__, name


def test_importing_the_library_imports_no_command_line():
    code = "import sys, largesse.client; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)

    assert not {"click", "rich", "pygments", "typer", "yaml", "pydantic", "schemas", "services"} & {
        *done.stdout.split()
    }
