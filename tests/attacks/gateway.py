"""A gateway to attack: a closed cell on a port of this machine, with tokens, an issuer, and what belongs to others."""

import asyncio
import json
import logging
import re
import time
from contextlib import AsyncExitStack, contextmanager

import structlog

from largesse.telemetry import HTTP_REFUSED
from schemas.topics import INPUTS
from services.gateway.access.jwts import begun
from services.gateway.access.oidc import read_oidc
from tests.attacks.listed import Attack
from tests.http_rig import GUARD_S, JOB, Answer, gateway, request, until
from tests.issuer import an_issuer
from tests.token_cell import HELD, QUEUES, bearer, request_of, secret

OTHERS = {**JOB, "job": "bobs", "user": "bob"}
"""A job of somebody else."""
HOUR_MS = 3_600_000
ATOM = {"op": "atom", "b": {"cpu": "1"}, "g": 1, "h": 1, "l": 1, "w": 1}
RDL = {"op": "window", "s": 3_600, "e": 7_200, "of": ATOM}
SECRETS = [*HELD, "revoked", "short", "watching", "other-cell"]


class Attacked:
    """What the stories of attacks are told. `told`: everything that was answered, as text."""

    def __init__(self, served, stub):
        self.served, self.stub = served, stub
        self.told, self.meant = "", 0

    async def ask(self, method, path, token="", *, body=None, source=None, **headers):
        """One request on a connection of its own, with the token of this name; `body`: a document, or bytes."""
        if token:
            headers.setdefault("authorization", bearer(token)["Authorization"])
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        client = await self.served.connect(source=source)
        try:
            answer = await client.ask(method, path, body=data, **headers)
        finally:
            client.close()
        if answer is not None:
            self.told += f"{answer.headers}{answer.body.decode(errors='replace')}"
        return answer

    async def say(self, *parts, host=None):
        """Bytes as they are, in parts; returns the first answer, None where there is none."""
        client = await self.served.connect(host)
        try:
            for part in parts:
                await client.say(part)
            head = await client.head()
            if head is None:
                return None
            # What is no HTTP is answered without a length.
            return Answer(*head, await client.reader.readexactly(int(head[1].get("content-length", 0))))
        finally:
            client.close()

    async def sign_in(self, token):
        """The cookie of a session."""
        client = await self.served.connect()
        try:
            await client.say(request("POST", "/v1/session", client.host, **bearer(token)))
            head = (await client.reader.readuntil(b"\r\n\r\n")).decode()
        finally:
            client.close()
        (cookie,) = re.findall("(?i)^set-cookie: ([^;]+);", head, re.MULTILINE)
        return cookie

    async def send(self, topic, document):
        """What an honest operator does meanwhile."""
        self.meant += 1
        await self.served.follower.send(topic, document, "tester", GUARD_S)

    async def inputs(self):
        """How many messages the bus has of what can be asked for."""
        ends = [await self.served.bus.bounds(topic, 0) for topic in INPUTS]
        return sum(end for _, end in ends)


def said(answer):
    """What the page says of an answer: its status, and the end of the problem's type."""
    if answer is None:
        return "connection closed"
    kind = ""
    if answer.body and answer.headers.get("content-type") == "application/problem+json":
        kind = " " + answer.document["type"].removeprefix("urn:largesse:")
    return f"{answer.status}{kind}"


def asks(method, path, token="", **request):
    """The story of one request."""

    async def story(cell):
        return said(await cell.ask(method, path, token, **request))

    return story


def counts():
    """Requests that were not let in, by reason."""
    found = {}
    for metric in HTTP_REFUSED.collect():
        for sample in metric.samples:
            if sample.name.endswith("_total"):
                found[sample.labels["reason"]] = int(sample.value)
    return found


async def _furnish(served):
    """Tokens, one of which was revoked and one expires soon, and what is bob's and root's."""
    follower = served.follower
    await follower.send("config", {"queues": QUEUES}, "tester", GUARD_S)
    for name, (user, roles) in HELD.items():
        await follower.send("access", {"make": request_of(name, user, roles)}, "tester", GUARD_S)
    for name in ("revoked", "watching"):
        made = request_of(name, "vera", [{"role": "viewer"}])
        await follower.send("access", {"make": made}, "tester", GUARD_S)
    until_ms = int(time.time() * 1_000) + HOUR_MS
    made = request_of("short", "vera", [{"role": "viewer"}], expires_ms=until_ms)
    await follower.send("access", {"make": made}, "tester", GUARD_S)
    await follower.send("access", {"revoke": {"name": "revoked"}}, "tester", GUARD_S)
    await follower.send("jobs", OTHERS, "bob", GUARD_S)
    wanted = {"reservation": "bobs-room", "user": "bob", "rdl": RDL}
    await follower.send("reservations", {"request": wanted}, "bob", GUARD_S)
    await until(lambda: "bobs" in follower.state.jobs)


@contextmanager
def attacked(tls=None):
    """Runs one gateway for a module of attacks; yields what tries one and returns what came of it."""
    with an_issuer() as stub, asyncio.Runner() as runner:
        stack = AsyncExitStack()

        async def start():
            async with asyncio.timeout(GUARD_S):
                served = await stack.enter_async_context(gateway(issued=await begun(read_oidc(stub.env)), tls=tls))
                await _furnish(served)
                return served

        served = runner.run(start())
        try:
            yield lambda attack: runner.run(tried(attack, served, stub))
        finally:
            runner.run(stack.aclose())


async def tried(attack, served, stub) -> Attack:
    """The attack as it went. Nothing of it reached the bus, and no answer or log line has the text of a token."""
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    cell = Attacked(served, stub)
    served.failures.seen.clear()
    before, begun_at = counts(), await cell.inputs()
    with structlog.testing.capture_logs() as logged:
        async with asyncio.timeout(GUARD_S):
            refused = await attack.story(cell)
    assert await cell.inputs() == begun_at + cell.meant, "it reached the bus"
    lines = [each for each in logged if each["log_level"] != "info"]
    assert all(str(value).isprintable() for each in logged for value in each.values())
    everything = cell.told + json.dumps(logged, default=str)
    assert not [name for name in SECRETS if secret(name) in everything]
    went = {reason: count - before.get(reason, 0) for reason, count in counts().items()}
    return Attack(
        attack.name,
        attack.story,
        refused,
        logged="; ".join(f"{each['event']}: {each.get('reason', each.get('error'))}" for each in lines),
        counted=", ".join(f"{reason}{f' x {count}' if count > 1 else ''}" for reason, count in went.items() if count),
    )
