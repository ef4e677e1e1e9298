"""Who asks the gateway: tokens and sessions of others, old ones, and what is none."""

import asyncio
import time

import pytest

from largesse.token_text import TOKEN_CHARACTERS_MAX
from services.gateway.access.failures import FAILURES_MAX
from services.gateway.access.sessions import SESSION_S
from tests.attacks.gateway import HOUR_MS, asks, attacked, said
from tests.attacks.listed import Attack, Target, check_names, ended, named
from tests.token_cell import bearer, request_of, secret

TARGET = Target(
    "The gateway: who asks", "A gateway of a closed cell over HTTP. Counted is in `largesse_http_refused_total`."
)
JOBS = "/v1/jobs"
HASH = request_of("admin", "", [])["sha256"]
NOT_TOLD, KNOWN = "401 unauthenticated", "token refused"


@pytest.fixture(scope="module")
def tried():
    with attacked() as found:
        yield found


def missing(name, story):
    """Nobody asks: what was sent stands nowhere where a token would."""
    return Attack(name, story, NOT_TOLD, counted="missing")


def faulty(name, reason, story):
    """What was sent is no token that counts."""
    return Attack(name, story, NOT_TOLD, f"{KNOWN}: {reason}", reason)


def jobs(**request):
    return asks("GET", JOBS, **request)


async def twice(cell):
    lines = [f"authorization: Bearer {secret(name)}" for name in ("viewer", "admin")]
    head = "\r\n".join([f"GET {JOBS} HTTP/1.1", f"host: 127.0.0.1:{cell.served.port}", *lines, "", ""])
    return said(await cell.say(head.encode()))


async def expired(cell):
    callers, real = cell.served.callers, cell.served.callers._clock
    assert (await cell.ask("GET", JOBS, "short")).status == 200
    callers._clock = lambda: time.time() + 2 * HOUR_MS / 1_000
    try:
        return said(await cell.ask("GET", JOBS, "short"))
    finally:
        callers._clock = real


async def after_sign_out(cell):
    cookie = await cell.sign_in("viewer")
    assert (await cell.ask("GET", JOBS, cookie=cookie)).status == 200
    own = {"cookie": cookie, "origin": f"http://127.0.0.1:{cell.served.port}"}
    assert (await cell.ask("DELETE", "/v1/session", **own)).status == 200
    return said(await cell.ask("GET", JOBS, cookie=cookie))


async def yesterdays(cell):
    cookie, sessions = await cell.sign_in("viewer"), cell.served.callers.sessions
    real = sessions.clock
    sessions.clock = lambda: time.time() + SESSION_S + 1
    try:
        return said(await cell.ask("GET", JOBS, cookie=cookie))
    finally:
        sessions.clock = real


def forged(value):
    async def story(cell):
        return said(await cell.ask("GET", JOBS, cookie=f"largesse-session-{cell.served.port}={value}"))

    return story


async def streams_on(cell):
    client = await cell.served.connect()
    try:
        lines = ["GET /v1/changes HTTP/1.1", f"host: {client.host}", "connection: close"]
        lines.append(f"authorization: {bearer('watching')['Authorization']}")
        await client.say("\r\n".join([*lines, "", ""]).encode())
        status, _ = await client.head()
        assert status == 200
        await cell.send("access", {"revoke": {"name": "watching"}})
        await client.is_closed()
    finally:
        client.close()
    return "stream ended"


async def guesses(cell, **request):
    """As many as are answered, and one more."""
    answers = [await cell.ask("GET", JOBS, f"guess-{number}", **request) for number in range(FAILURES_MAX + 1)]
    assert {said(each) for each in answers[:-1]} == {NOT_TOLD}
    assert int(answers[-1].headers["retry-after"]) <= 61
    assert (await cell.ask("GET", JOBS, "viewer")).status == 200  # Who has a token is not kept out.
    return said(answers[-1])


async def guesses_under_names(cell):
    """From another address than the machine's own proxy, with an address that is made up each time."""
    found = []
    for number in range(FAILURES_MAX + 1):
        asked = {"source": "127.0.0.2", "x_forwarded_for": f"10.0.0.{number}", "x_real_ip": f"10.0.1.{number}"}
        found.append(said(await cell.ask("GET", JOBS, f"guess-{number}", **asked)))
    return found[-1]


async def guesses_behind_a_proxy(cell):
    """The proxy adds the address from which it was asked to what the client has said."""
    found = []
    for number in range(FAILURES_MAX + 1):
        spoofed = f"10.0.0.{number}, 127.0.0.1, 192.0.2.7"
        found.append(said(await cell.ask("GET", JOBS, f"guess-{number}", x_forwarded_for=spoofed)))
    return found[-1]


async def metrics_as_the_machine(cell):
    return said(await cell.ask("GET", "/metrics", x_forwarded_for="127.0.0.1, 192.0.2.7"))


async def races(cell):
    """Guesses all at once, so that none waits for another's answer."""
    answers = await asyncio.gather(*(cell.ask("GET", JOBS, f"guess-{n}") for n in range(2 * FAILURES_MAX)))
    kinds = [said(each) for each in answers]
    assert kinds.count(NOT_TOLD) == FAILURES_MAX
    return max(kinds)


TOO_MANY = {
    "refused": "429 too_many_failures",
    "logged": f"{KNOWN}: unknown; too many refused tokens: unknown",
    "counted": f"unknown x {FAILURES_MAX + 1}",
}

ATTACKS = [
    missing("no token", jobs()),
    missing("token in the URL", asks("GET", f"{JOBS}?token={secret('admin')}")),
    missing("token in the URL, as RFC 6750 has it", asks("GET", f"{JOBS}?access_token={secret('admin')}")),
    missing("token in the body", asks("POST", JOBS, body={"job": "x", "token": secret("admin")})),
    missing("token in a header of another name", jobs(x_api_key=secret("admin"))),
    missing("a user's name without a token", jobs(largesse_user="root")),
    missing("headers of a proxy that signs users in", jobs(x_forwarded_user="root", remote_user="root")),
    faulty("token without a scheme", "malformed", jobs(authorization=secret("admin"))),
    faulty("token as a password (Basic)", "malformed", jobs(authorization=f"Basic {secret('admin')}")),
    faulty("a scheme without a token", "malformed", jobs(authorization="Bearer")),
    faulty("two words for a token", "malformed", jobs(authorization=f"Bearer {secret('admin')} x")),
    faulty("a token that is too long", "malformed", jobs(authorization="Bearer " + "x" * (TOKEN_CHARACTERS_MAX + 1))),
    faulty("two Authorization headers", "malformed", twice),
    faulty("the word null for a token", "unknown", jobs(authorization="Bearer null")),
    faulty("the hash that the log shows, as a token", "unknown", jobs(authorization=f"Bearer {HASH}")),
    faulty("the token of another cell", "unknown", jobs(token="other-cell")),
    faulty("a revoked token", "unknown", jobs(token="revoked")),
    faulty("an expired token, replayed", "expired", expired),
    faulty("a forged cookie", "unknown", forged("A" * 43)),
    faulty("a token as a cookie", "unknown", forged(secret("admin"))),
    faulty("a huge cookie", "unknown", forged("x" * 5_000)),
    faulty("the cookie of a session that was ended", "unknown", after_sign_out),
    faulty("the cookie of a session of yesterday", "unknown", yesterdays),
    Attack("a stream that goes on behind its token's end", streams_on, "stream ended"),
    Attack("guessing tokens", guesses, **TOO_MANY),
    Attack("guessing tokens, all at once", races, **(TOO_MANY | {"counted": f"unknown x {2 * FAILURES_MAX}"})),
    Attack("guessing under another X-Forwarded-For each time", guesses_under_names, **TOO_MANY),
    Attack("guessing behind a proxy, likewise", guesses_behind_a_proxy, **TOO_MANY),
    missing("metrics as if from the machine itself, by X-Forwarded-For", metrics_as_the_machine),
]
check_names(ATTACKS)


@pytest.mark.parametrize("attack", ATTACKS, ids=named)
def test_is_refused(tried, attack):
    assert ended(tried(attack)) == ended(attack)
