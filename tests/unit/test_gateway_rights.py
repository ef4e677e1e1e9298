"""The table of rights: every route has an entry, and every role is tried at every route."""

from fastapi.routing import APIRoute

from schemas.access import ROLES
from services.gateway.access.rights import RIGHTS
from services.gateway.http.openapi import SECURITY
from tests.token_cell import HELD, run_with_tokens

PLACES = {
    "{job}": "nobodys",
    "{stage}": "s",
    "{index}": "0",
    "{node}": "n9",
    "{reservation}": "r",
    "{series}": "s",
    "{number}": "999",
    "{topic}": "jobs",
    "{offset}": "999",
    "{queue:path}": "ads",
    "{path:path}": "index.html",
    "{token}": "nobodys",
}
BODIES = {
    "POST /v1/what-if": {"set": 1},  # Refused for what it says, by whoever may ask.
    "PUT /v1/config": {"set": 1},
    "POST /v1/tokens": {"name": 1},
    "POST /v1/jobs": {"job": 1},
    "POST /v1/reservations": {"reservation": 1},
    "PUT /v1/reservations/{reservation}": {"rdl": 1},
    "POST /v1/series": {"series": 1},
    "PATCH /v1/jobs/{job}": {},
    "POST /v1/jobs/{job}/rerun": {},
}
HOLDERS = {role: next(name for name, (_, roles) in HELD.items() if roles[0]["role"] == role) for role in ROLES}


def routes_of(app):
    """`METHOD path` of everything that the app answers."""
    return {
        f"{method} {route.path}"
        for route in app.routes
        for method in sorted(getattr(route, "methods", None) or ())
        if method != "HEAD"
    }


def address(path):
    for name, value in PLACES.items():
        path = path.replace(name, value)
    assert "{" not in path, path
    return path


def parameters(method, path):
    if path.endswith("/results") and "tasks" in path:
        return {"file": "x"}
    if path == "/v1/why":
        return {"id": "ads"}
    return {"limit": 1} if path == "/v1/changes" else {}


def test_every_route_has_an_entry_and_every_entry_a_route():
    async def story(cell):
        api_routes = {route.path for route in cell.app.routes if isinstance(route, APIRoute)}
        return routes_of(cell.app), api_routes, cell.app.openapi()

    routes, of_api, document = run_with_tokens(story)

    assert routes == set(RIGHTS)
    # What FastAPI does not route has no check: it has to be for everybody.
    assert all(RIGHTS[each].role is None for each in routes if each.partition(" ")[2] not in of_api)
    assert document["components"]["securitySchemes"] == SECURITY
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            named = f"{method.upper()} {path}".replace("{queue}/why", "{queue:path}/why")
            wants = RIGHTS[named].role is not None
            assert ("security" in operation, "401" in operation["responses"] or not wants) == (wants, True), named


def test_every_role_at_every_route_is_let_in_where_the_table_says_so_and_nowhere_else():
    async def story(cell):
        found = {}
        for named, right in sorted(RIGHTS.items()):
            method, _, path = named.partition(" ")
            for dry in (False, True) if right.tries is not None else (False,):
                for role in (None, *ROLES):
                    request = {"params": parameters(method, path) | ({"dry_run": "true"} if dry else {})}
                    if named in BODIES:
                        request["json"] = BODIES[named]
                    answer = await cell.ask(HOLDERS[role] if role else "", method, address(path), **request)
                    found[named, dry, role] = answer
        return found

    found = run_with_tokens(story, following=True)
    wrong = []
    for (named, dry, role), answer in found.items():
        least = RIGHTS[named].least(dry_run=dry)
        session = named.endswith("/v1/session")
        if least is None or RIGHTS[named].local:  # The test's client is on this machine.
            may = True
        else:
            may = role is not None and ROLES.index(role) >= ROLES.index(least)
        refused = answer.status_code in (401, 403) and not session
        if refused == may or (refused and answer.json().get("role") != least):
            wrong.append((named, dry, role, answer.status_code, answer.text[:200]))
        if refused:
            assert answer.status_code == (401 if role is None else 403), named
            assert f"`largesse token make NAME --user USER --role {least}`" in answer.json()["detail"]
            assert ("WWW-Authenticate" in answer.headers) == (role is None)
    assert wrong == []
