"""A gateway whose cell has tokens: one for each role, and what is asked for with them."""

import asyncio
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any

from tests.gateway_cell import GUARD_S, STAGE, a_cell, until_ready

HELD: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "admin": ("root", [{"role": "admin"}]),
    "operator": ("olga", [{"role": "operator"}]),
    "submitter": ("ann", [{"role": "submitter", "queues": ["ads"]}]),
    "anywhere": ("bob", [{"role": "submitter"}]),
    "viewer": ("vera", [{"role": "viewer"}]),
}
"""By the name of a token, whose it is and what it may do. The first one is made first."""

QUEUES = {
    "name": "root",
    "children": [{"name": "ads", "children": [{"name": "prod"}, {"name": "test"}]}, {"name": "lab"}],
}


def secret(name):
    return f"lgt_{name}-0123456789"


def request_of(name, user, roles, **more):
    return {"name": name, "user": user, "roles": roles, "sha256": sha256(secret(name).encode()).hexdigest(), **more}


def bearer(name):
    return {"Authorization": f"Bearer {secret(name)}"}


class TokenCell:
    """`ask`: a request with the token of this name, "" with none."""

    def __init__(self, cell):
        self.cell, self.http, self.follower = cell, cell.http, cell.follower
        self.app = cell.http._transport.app
        self.door = self.app.state.api.door

    async def ask(self, token, method, path, **request):
        headers = {**(bearer(token) if token else {}), **request.pop("headers", {})}
        answer = await self.http.request(method, path, headers=headers, **request)
        self.http.cookies.clear()  # A test says itself which it sends.
        return answer

    async def make(self, name, user, roles, **more):
        await self.follower.send("access", {"make": request_of(name, user, roles, **more)}, "tester", GUARD_S)

    async def revoke(self, name):
        await self.follower.send("access", {"revoke": {"name": name}}, "tester", GUARD_S)


@asynccontextmanager
async def a_token_cell(**given):
    async with a_cell(**given) as cell:
        await until_ready(cell)
        await cell.follower.send("config", {"queues": QUEUES}, "tester", GUARD_S)
        found = TokenCell(cell)
        for name, (user, roles) in HELD.items():
            await found.make(name, user, roles)
        yield found


def run_with_tokens(story, **given):
    """Runs a story with such a cell and returns what it returns."""

    async def run():
        async with asyncio.timeout(GUARD_S), a_token_cell(**given) as cell:
            return await story(cell)

    return asyncio.run(run())


def job(name="j", queue="ads/prod", **more):
    return {"job": name, "queue": queue, "stages": [STAGE], **more}
