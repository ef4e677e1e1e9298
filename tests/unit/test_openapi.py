"""/openapi.json is valid, has every route, and describes what a gateway answers: statuses, media types, fields."""

import json
import re
import time
from typing import Any

import jsonschema
import pytest
from fastapi.routing import APIRoute
from openapi_spec_validator import OpenAPIV31SpecValidator

from largesse.log.reader import LogReader
from largesse.task_output import Piece
from largesse.task_results import Entry, FilePiece, Listed
from schemas import RoundClosed
from schemas.edge.strict_json import INPUT_BYTES_MAX
from services.leftover import core as leftover
from tests.conftest import ROOT
from tests.gateway_cell import JOB, STAGE, YAML, run_in_memory
from tests.token_cell import bearer, request_of

pytestmark = pytest.mark.slow

SAID_OF_ALL = {"400", "401", "403", "408", "429", "500", "503"}
"""Errors that any request may come to; where each is made has tests of its own."""
TREE = {"name": "root", "children": [
    {"name": "ads", "weight": 2.5, "guaranteed": {"cpu": "1"}, "max": {"memory": "2Gi"}, "running_jobs_max": 1,
     "submitters": ["ann"], "children": [{"name": "a"}, {"name": "b", "policy": "fifo"}]}, {"name": "ml"},
]}  # fmt: skip
GANG = {"job": "gang", "stages": [STAGE | {"stage": "one", "gang": True}, STAGE | {"stage": "two", "after": ["one"]}]}
CHECKPOINT = {"checkpoint": {
    "closing": 1, "prefix": "5f" * 32, "positions": [], "file": "9e" * 32,
    "states": [{"service": "admission", "shard": 0, "layout": 1, "sha256": "0a" * 32}],
}}  # fmt: skip
TOO_LARGE = b" " * (INPUT_BYTES_MAX + 1)


async def output(wanted):
    return None if wanted.index else Piece(1, wanted.offset, 5, b"hello"[wanted.offset :])


async def results(wanted):
    if wanted.index:
        return None
    return FilePiece(1, 0, 1, 0, b"x") if wanted.file == "f" else Listed(1, (Entry("f", "file", 1),))


class Recorded:
    """A cell that keeps each exchange: the method, the path and the answer."""

    def __init__(self, cell):
        self.cell, self.exchanges = cell, []

    async def __call__(self, method, path, **more):
        response = await self.cell.http.request(method, path, **more)
        self.exchanges.append((method.lower(), path.partition("?")[0], response))
        return response


async def asked(cell):
    """A story in which every route answers as it mostly does, and errs wherever it can err."""
    ask = Recorded(cell)
    await ask("PUT", "/v1/config", json={"set": {"node_lease_ms": 86_400_000}})  # No agent reports here.
    for path in (
        "/livez",
        "/readyz",
        "/metrics",
        "/v1/cells",
        "/v1/services",
        "/v1/queues",
        "/v1/nodes",
        "/v1/classes",
        "/v1/reservations",
        "/v1/ledger",
        "/v1/config",
        "/v1/summary",
        "/v1/history",
        "/v1/history?points=1",
        "/v1/reasons",
    ):
        await ask("GET", path)
    await jobs(ask)
    await configs(ask)
    await nodes(ask)
    await reservations(ask)
    await series(ask)
    await whys(ask)
    await what_ifs(ask)
    for path in (
        "records?limit=5",
        "records?whole=1&order=desc&limit=3",
        "records?type=Nothing",
        "rounds/1",
        "rounds/0",
    ):
        await ask("GET", f"/v1/{path}")
    for path in ("rounds/99999", "jobs/gang/attempts", "jobs/none/attempts", "jobs/gang/attempts?limit=0"):
        await ask("GET", f"/v1/{path}")
    for path in ("n1/attempts", "none/attempts", "n1/attempts?since_ms=-1"):
        await ask("GET", f"/v1/nodes/{path}")
    for path in ("jobs/gang/spec", "jobs/none/spec", "node-map", "node-map?state=none", "room"):
        await ask("GET", f"/v1/{path}")
    for path in ("/v1/changes?limit=1", "/v1/changes?min_interval_ms=1", "/v1/nodes?limit=0"):
        await ask("GET", path)
    for path in ("/v1/queues", "/v1/jobs?state=waiting", "/v1/jobs?limit=0", "/v1/config", "/v1/jobs?limt=1"):
        await ask("GET", path)
    await ask("GET", "/v1/jobs", headers={"Origin": "http://elsewhere.example"})
    await tokens(ask)
    return ask.exchanges, (await cell.get("/openapi.json")).json()


async def tokens(ask):
    """At the end: from the first one on the cell wants one."""
    made = request_of("first", "root", [{"role": "admin"}])
    for method in ("GET", "POST", "DELETE"):
        await ask(method, "/v1/session", headers={"Origin": "http://127.0.0.1:8642"})
    for body in (made | {"sha256": ""}, made | {"roles": [{"role": "viewer"}]}, made):
        await ask("POST", "/v1/tokens", json=body)
    await ask("POST", "/v1/tokens", content=TOO_LARGE, headers=bearer("first"))
    for method, path in (("GET", "tokens"), ("DELETE", "tokens/none"), ("POST", "session"), ("GET", "session")):
        await ask(method, f"/v1/{path}", headers=bearer("first"))
    ask.cell.http.cookies.clear()
    await ask("GET", "/v1/jobs", headers=bearer("none"))
    await ask("DELETE", "/v1/tokens/first", headers=bearer("first"))


async def jobs(ask):
    for job in (JOB, JOB, JOB | {"priority": 1}, JOB | {"stages": []}, GANG):
        await ask("POST", "/v1/jobs", json=job, headers={"Largesse-User": "ann"})
    huge = {"job": "huge", "stages": [STAGE | {"demand": {"cpu": "64"}}]}
    await ask("POST", "/v1/jobs", json=huge)
    for job in (JOB | {"job": "tried"}, JOB, huge | {"job": "huger"}):
        await ask("POST", "/v1/jobs?dry_run=true", json=job)
    await ask(
        "POST", "/v1/jobs", content="job: by-yaml\nstages: [{stage: s, demand: {cpu: 1}, command: [x]}]\n", headers=YAML
    )
    for patch in ({"hold": True}, {"queue": "elsewhere"}, {"hold": 7}):
        await ask("PATCH", "/v1/jobs/gang", json=patch)
    await ask("PATCH", "/v1/jobs/nobody", json={"hold": True})
    await ask("PATCH", "/v1/jobs/gang", content=TOO_LARGE)
    await ask("POST", "/v1/jobs", content=b"{")
    await ask("POST", "/v1/jobs", content=TOO_LARGE)
    for job in ("j", "gang", "huge", "none"):
        await ask("GET", f"/v1/jobs/{job}")
    for path in ("j/logs", "nosuch/logs", "j/logs?stage=nosuch", "j/logs?tail=0"):
        await ask("GET", f"/v1/jobs/{path}")
    for path in ("j/s/0/logs", "j/s/1/logs", "j/s/0/logs?offset=-1"):
        await ask("GET", f"/v1/tasks/{path}")
    for path in ("j/results", "none/results", "j/results?index=0"):
        await ask("GET", f"/v1/jobs/{path}")
    for path in ("j/s/0/results?file=f", "j/s/1/results?file=f", "j/s/0/results"):
        await ask("GET", f"/v1/tasks/{path}")
    await ask("POST", "/v1/jobs/j/rerun", json={})
    for job in ("j", "j", "none"):
        await ask("DELETE", f"/v1/jobs/{job}")
    await ask("PATCH", "/v1/jobs/j", json={"hold": True})  # It has ended.
    await ask("POST", "/v1/jobs", json=JOB | {"job": "again", "hold": True})
    await ask("DELETE", "/v1/jobs/again")
    for job, body in (("again", {"from_stage": "nosuch"}), ("none", {}), ("again", {})):
        await ask("POST", f"/v1/jobs/{job}/rerun", json=body)
    await ask("POST", "/v1/jobs/again/rerun", content=TOO_LARGE)
    await ask("DELETE", "/v1/jobs/again")
    events = await ask("GET", "/v1/jobs/j/events")
    last = next(line for line in events.text.splitlines() if line.startswith("id: ")).removeprefix("id: ")
    await ask("GET", "/v1/jobs/j/events", headers={"Last-Event-ID": last})
    await ask("GET", "/v1/jobs/j/events", headers={"Last-Event-ID": "9" * 1_000})
    await ask("GET", "/v1/jobs/none/events")
    await ask("GET", "/v1/jobs")


ATOM = {"op": "atom", "b": {"cpu": "1"}, "g": 1, "h": 1, "l": 60, "w": 60}
TERMS: dict[str, Any] = {
    "user": "ann",
    "rdl": {"op": "window", "s": int(time.time()), "e": int(time.time()) + 86_400, "of": ATOM},
}


async def reservations(ask):
    wide = {"user": "ann", "rdl": TERMS["rdl"] | {"of": ATOM | {"b": {"cpu": "64"}}}}
    one = "/v1/reservations/r"
    for document in (TERMS | {"reservation": "r"}, TERMS | {"reservation": "r"}, wide | {"reservation": "w"}, TERMS):
        await ask("POST", "/v1/reservations", json=document)
    await ask("POST", "/v1/reservations", content=TOO_LARGE)
    await ask("GET", one)
    for document in (TERMS, wide, TERMS | {"rdl": ATOM | {"g": 2}}):
        await ask("PUT", one, json=document)
    await ask("PUT", one, content=TOO_LARGE)
    for user in ("bob", "", "ann"):
        await ask("DELETE", one, params={"user": user})
    for method, more in (("GET", {}), ("PUT", {"json": TERMS}), ("DELETE", {"params": {"user": "ann"}})):
        await ask(method, "/v1/reservations/none", **more)


EVERY_DAY = {"user": "ann", "every": 86_400, "start_s": TERMS["rdl"]["s"] + 172_800,
             "rdl": {"op": "window", "s": 0, "e": 3_600, "of": ATOM}}  # fmt: skip


async def series(ask):
    await ask("GET", "/v1/series")
    daily = EVERY_DAY | {"series": "daily"}
    for document in (daily, daily, daily | {"every": 172_800}, daily | {"every": 60}, [daily]):
        await ask("POST", "/v1/series", json=document)
    await ask("POST", "/v1/series?dry_run=true", json=daily | {"series": "dry"})
    await ask("POST", "/v1/series", content=TOO_LARGE)
    for name in ("daily", "none"):
        await ask("GET", f"/v1/series/{name}")
    await ask("GET", "/v1/series")
    for name, user in (("none", "ann"), ("daily", "bob"), ("daily", ""), ("daily", "ann")):
        await ask("DELETE", f"/v1/series/{name}", params={"user": user})


async def whys(ask):
    for path in ("jobs/gang", "queues/root", "nodes/n1", "reservations/r"):
        kind = path.partition("/")[0]
        await ask("GET", f"/v1/{path}/why")
        await ask("GET", f"/v1/{kind}/none/why")
    for name in ("gang", "none"):
        await ask("GET", "/v1/why", params={"id": name})
    await ask("GET", "/v1/jobs/gang/why?at=1")
    await ask("GET", "/v1/jobs?at=soon")


async def what_ifs(ask):
    for document in ({}, {"from": 1}):
        await ask("POST", "/v1/what-if", json=document)
    await ask("POST", "/v1/what-if", content=TOO_LARGE)


async def configs(ask):
    await ask("PUT", "/v1/config?dry_run=true", json={"queues": TREE, "set": {"headroom": "off"}})
    await ask("PUT", "/v1/config", json={"queues": TREE})
    for name in ("one", "two"):
        await ask("POST", "/v1/jobs", json=JOB | {"job": name, "queue": "ads/a", "user": "ann"})
    dropped = {"name": "root", "children": [{"name": "ml"}]}
    await ask("PUT", "/v1/config", json={"queues": dropped})  # `ads/a` has jobs.
    moved = {"name": "root", "children": [{"name": "ads", "weight": 7, "children": [{"name": "a"}, {"name": "c"}]}]}
    await ask("PUT", "/v1/config?dry_run=true", json={"queues": moved})
    await ask("PUT", "/v1/config", json={"set": {"no_knob": 1}})
    await ask("PUT", "/v1/config", content=b"{")
    await ask("PUT", "/v1/config", content=TOO_LARGE)


async def nodes(ask):
    await ask("POST", "/v1/nodes/n1/drain?reason=disk&within_ms=60000")
    await ask("GET", "/v1/nodes")
    await ask("POST", "/v1/nodes/n1/drain?within_ms=-1")
    for path in ("n1/resume", "none/resume", "none/drain"):
        await ask("POST", f"/v1/nodes/{path}")
    for node in ("n1", "none"):
        await ask("DELETE", f"/v1/nodes/{node}")
    for path in ("rounds/999/abandon", "rounds/0/abandon", "inputs/jobs/0/skip", "inputs/jobs/-1/skip"):
        await ask("POST", f"/v1/{path}")
    await ask("POST", "/v1/inputs/jobs/5000/skip?reason=broken")
    for told in (await noted(ask.cell), CHECKPOINT, {"set": {"headroom": "off"}}):
        await ask("POST", "/v1/checkpoints", json=told)


async def noted(cell):
    """What tells of a checkpoint at the last closing of the log."""
    reader, told = LogReader(cell.bus), CHECKPOINT
    while more := await reader.read(most=1):
        if isinstance(more[0].record.body, RoundClosed):
            at = {"closing": more[0].record.seq, "prefix": reader.order.prefix}
            told = {"checkpoint": CHECKPOINT["checkpoint"] | at}
    return told


async def stood_still(cell):
    """A cell whose round is not answered, and is given up."""
    ask = Recorded(cell)
    await ask("POST", "/v1/jobs", json=JOB)
    await cell.follower.until(lambda view: view.open, 60)
    number = cell.follower.state.round
    await ask("POST", f"/v1/rounds/{number}/abandon")
    return ask.exchanges


@pytest.fixture(scope="module")
def recorded():
    """(What was asked and answered, the document)."""
    exchanges, document = run_in_memory(asked, read_output=output, read_results=results)
    exchanges += run_in_memory(stood_still, without=leftover)
    exchanges += run_in_memory(silent, answer_wait_s=0.01)
    return exchanges, document


async def silent(cell):
    """Nobody writes the log any more: 202 wherever its answer is waited for."""
    ask = Recorded(cell)
    await cell.post(JOB)
    await cell.follower.until(lambda view: "j" in view.jobs, 60)
    await cell.http.post("/v1/jobs", json=JOB | {"job": "over", "hold": True})
    await cell.follower.until(lambda view: "over" in view.jobs, 60)
    await cell.http.delete("/v1/jobs/over")
    await cell.follower.until(lambda view: "over" in view.ended, 60)
    await cell.http.post("/v1/reservations", json=TERMS | {"reservation": "r"})
    await cell.follower.until(lambda view: view.reservations and not view.reservations["r"].unanswered, 60)
    await cell.http.post("/v1/series", json=EVERY_DAY | {"series": "daily"})
    await cell.follower.until(lambda view: "daily" in view.series, 60)
    made = request_of("first", "root", [{"role": "admin"}])
    await cell.http.post("/v1/tokens", json=made)
    cell.http.headers.update(bearer("first"))
    await cell.stop_sequencer()
    await ask("POST", "/v1/tokens", json=made | {"name": "late"})
    await ask("DELETE", "/v1/tokens/first")
    await ask("POST", "/v1/series", json=EVERY_DAY | {"series": "late"})
    await ask("DELETE", "/v1/series/daily", params={"user": "ann"})
    await ask("POST", "/v1/reservations", json=TERMS | {"reservation": "late"})
    await ask("PUT", "/v1/reservations/r", json=TERMS | {"queue": "default"})
    await ask("DELETE", "/v1/reservations/r", params={"user": "ann"})
    await ask("POST", "/v1/jobs", json=JOB | {"job": "late"})
    await ask("PUT", "/v1/config", json={"set": {"headroom": "off"}})
    await ask("PATCH", "/v1/jobs/j", json={"hold": True})
    await ask("POST", "/v1/jobs/over/rerun", json={})
    await ask("DELETE", "/v1/jobs/j")
    for path in ("nodes/n1/drain", "nodes/n1/resume", "rounds/1/abandon", "inputs/jobs/7/skip"):
        await ask("POST", f"/v1/{path}")
    await ask("POST", "/v1/checkpoints", json=CHECKPOINT)
    await ask("DELETE", "/v1/nodes/n1")
    return ask.exchanges


def operation_of(document, method, path):
    """The template of the path that was asked for, and its operation."""
    for template, operations in document["paths"].items():
        parts, wanted = template.split("/"), path.split("/")
        if len(parts) == len(wanted) and all(a == b or a.startswith("{") for a, b in zip(parts, wanted, strict=True)):
            if method in operations:
                return template, operations[method]
    raise AssertionError(f"{method} {path} is not in the document")


def closed(schema):
    """The schema, by which an object may have no field that is not named."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: closed(value) for key, value in schema.items()}
    if "properties" in found and "additionalProperties" not in found:
        found["additionalProperties"] = False
    return found


@pytest.mark.slow
def test_the_document_is_valid_openapi(recorded):
    OpenAPIV31SpecValidator(recorded[1]).validate()


def test_every_route_is_in_it_under_a_name_of_its_own(recorded):
    async def routes(cell):
        app = cell.http._transport.app
        return [
            (route.path.replace(":path}", "}"), method.lower())
            for route in app.routes
            if isinstance(route, APIRoute)
            for method in route.methods
        ]

    paths = recorded[1]["paths"]
    operations = {(path, method): said for path, each in paths.items() for method, said in each.items()}

    assert sorted(operations) == sorted(run_in_memory(routes))
    assert len({said["operationId"] for said in operations.values()}) == len(operations)


def test_every_address_is_on_the_page_about_http(recorded):
    page = re.sub(r"\{[^}]*\}", "{}", (ROOT / "docs" / "http.md").read_text(encoding="utf-8"))
    addresses = [re.sub(r"\{[^}]*\}", "{}", path) for path in recorded[1]["paths"]]

    assert [path for path in addresses if not re.search(re.escape(path) + r"(?![/\w])", page)] == []


def test_each_answer_has_a_status_a_media_type_headers_and_a_body_that_the_document_names(recorded):
    exchanges, document = recorded
    for method, path, response in exchanges:
        template, operation = operation_of(document, method, path)
        where = f"{method} {template} {response.status_code}: {response.text[:300]}"
        said = operation["responses"].get(str(response.status_code))
        assert said is not None, where
        for name, header in said.get("headers", {}).items():
            assert not header["required"] or name in response.headers, f"{name}: {where}"
        if "content" not in said:
            assert not response.content, where
            continue
        kind = response.headers["content-type"].partition(";")[0]
        assert kind in said["content"], f"{kind}: {where}"
        if kind.endswith("json"):
            schema = {**said["content"][kind]["schema"], "components": document["components"]}
            jsonschema.Draft202012Validator(closed(schema)).validate(response.json())


def test_each_event_of_a_job_is_a_job(recorded):
    exchanges, document = recorded
    lines = [line for _, path, response in exchanges if path.endswith("/events") for line in response.text.splitlines()]
    data = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]

    assert data
    for job in data:
        schema = {"$ref": "#/components/schemas/Job", "components": document["components"]}
        jsonschema.Draft202012Validator(closed(schema)).validate(job)


def test_each_event_of_changes_is_one(recorded):
    exchanges, document = recorded
    (stream,) = [response for _, path, response in exchanges if path == "/v1/changes" and response.status_code == 200]
    data = [json.loads(line.removeprefix("data: ")) for line in stream.text.splitlines() if line.startswith("data: ")]

    assert len(data) == 1
    schema = {"$ref": "#/components/schemas/Changes", "components": document["components"]}
    jsonschema.Draft202012Validator(closed(schema)).validate(data[0])


def test_every_status_that_the_document_names_was_seen(recorded):
    """So that it promises nothing that cannot happen, and the checks above have looked at everything."""
    exchanges, document = recorded
    seen = {(*_named(document, method, path), str(response.status_code)) for method, path, response in exchanges}
    said = {
        (method, template, status)
        for template, operations in document["paths"].items()
        for method, operation in operations.items()
        for status in operation["responses"]
        if status not in SAID_OF_ALL and not template.startswith("/v1/routes")  # tests/unit/test_gateway_routed.py
    }

    assert said - seen == {
        ("delete", "/v1/nodes/{node}", "200"),  # For a lost node alone: tests/live/test_up_nodes.py.
        # For an input that was not read: tests/live/test_skip_input.py.
        ("post", "/v1/inputs/{topic}/{offset}/skip", "200"),
        # Where the node is forgotten between the look and the log.
        ("post", "/v1/nodes/{node}/drain", "409"),
        ("post", "/v1/nodes/{node}/resume", "409"),
    }


def _named(document, method, path):
    return method, operation_of(document, method, path)[0]


def test_whoever_changes_something_may_say_who_they_are(recorded):
    for path, operations in recorded[1]["paths"].items():
        for method, operation in operations.items():
            headers = {each["name"] for each in operation.get("parameters", []) if each["in"] == "header"}
            changes = method != "get" and path not in ("/v1/what-if", "/v1/session")
            assert ("Largesse-User" in headers) == changes, (method, path)


@pytest.mark.parametrize(("path", "methods"), [
    ("/v1/jobs", "GET, POST"),
    ("/v1/jobs/j", "DELETE, GET, PATCH"),
    ("/v1/nodes/n1", "DELETE"),
    ("/v1/config", "GET, PUT"),
    ("/v1/rounds/1/abandon", "POST"),
    ("/openapi.json", "GET, HEAD"),
])  # fmt: skip
def test_a_method_that_a_path_does_not_take_is_answered_with_all_that_it_takes(path, methods):
    async def story(cell):
        return await cell.http.request("TRACE", path)

    refused = run_in_memory(story)
    assert (refused.status_code, refused.headers["allow"]) == (405, methods)
    assert refused.headers["content-type"] == "application/problem+json"
