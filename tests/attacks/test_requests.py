"""What a request may hold: names, ways, sizes and times that are meant to do something else."""

import gzip
import json

import pytest

from schemas.edge.strict_json import INPUT_BYTES_MAX
from tests.attacks.gateway import Attacked, asks, attacked, said
from tests.attacks.listed import Attack, Target, check_names, ended, named
from tests.http_rig import GUARD_S, JOB, request, until
from tests.token_cell import bearer

TARGET = Target(
    "The gateway: requests",
    "A gateway of a closed cell over HTTP; who asks holds a token of the role that is needed, unless the attack says"
    " otherwise. Counted is in `largesse_http_refused_total`.",
)
JOBS = "/v1/jobs"
MINE = {**JOB, "queue": "ads/prod"}
YAML = {"content_type": "application/yaml"}
BOMB = "\n".join(
    ["a: &a [x, x]", *(f"{b}: &{b} [*{a}, *{a}, *{a}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True))]
)
GET = "GET /v1/jobs HTTP/1.1\nhost: HOST\nauthorization: KEY\n"
POST = GET.replace("GET", "POST")
ESCAPE = "\x1b]0;PWNED\x07"


@pytest.fixture(scope="module")
def tried():
    with attacked() as found:
        yield found


def submits(name, body, refused="422 malformed", **request):
    """A body, as it stands, of somebody who may submit."""
    data = body.encode() if isinstance(body, str) else body if isinstance(body, bytes) else json.dumps(body).encode()
    return Attack(name, asks("POST", JOBS, "submitter", body=data, **request), refused)


def unread(name, body, **request):
    """The same; it is no document."""
    return submits(name, body, "400 malformed", **request)


def elsewhere(name, path, refused="404 not_found", *, method="GET", token="admin"):
    """A way to something that is not there, or not for this."""

    async def story(cell):
        found = said(await cell.ask(method, path, token))
        assert "root:x:0:0" not in cell.told
        return found

    return Attack(name, story, refused)


def from_afar(name, method="POST", path=JOBS, *, token="submitter", **headers):
    """A page of somebody else asks, or one by another name."""
    body = MINE if method == "POST" else None
    return Attack(name, asks(method, path, token, body=body, **headers), "403 origin", counted="origin")


def with_a_cookie(name, **headers):
    """A browser that is signed in is led to ask."""

    async def story(cell: Attacked):
        here = f"http://127.0.0.1:{cell.served.port}"
        given = {key: value.replace("HERE", here) for key, value in headers.items()}
        return said(await cell.ask("POST", JOBS, body=MINE, cookie=await cell.sign_in("submitter"), **given))

    return Attack(name, story, "403 origin", counted="origin")


def raw(name, head, refused="400", rest=b""):
    """Bytes that are no request as HTTP has it. HOST: the gateway's; KEY: a token."""

    async def story(cell: Attacked):
        host, key = f"127.0.0.1:{cell.served.port}", bearer("submitter")["Authorization"]
        data = head.replace("HOST", host).replace("KEY", key).replace("\n", "\r\n").encode("latin-1")
        return said(await cell.say(data + rest))

    return Attack(name, story, refused)


async def slow_head(cell):
    client = await cell.served.connect()
    await client.say(b"GET /v1/jobs HTTP/1.1\r\nhost: x\r\n")
    await until(lambda: cell.served.door.heads)
    cell.served.ahead_s += GUARD_S + 1
    return said(await client.answer())


async def slow_body(cell):
    client = await cell.served.connect()
    head = {
        "content_length": "1000",
        "content_type": "application/json",
        "authorization": bearer("submitter")["Authorization"],
    }
    await client.say(request("POST", JOBS, client.host, **head) + b"{")
    await until(lambda: cell.served.door.bodies)
    cell.served.ahead_s += GUARD_S + 1
    return said(await client.answer())


async def header_in_a_name(cell):
    answer = await cell.ask("DELETE", f"{JOBS}/x%0d%0aSet-Cookie:%20a=b", "submitter")
    assert "set-cookie" not in answer.headers
    return said(answer)


async def forged_log_line(cell):
    return said(await cell.ask("GET", f"{JOBS}/x%0a2026-01-01%20[info]%20all%20is%20well%1b[2J", "guess"))


async def escapes_for_an_address(cell):
    text = f"{ESCAPE}root"
    return said(await cell.ask("GET", JOBS, "guess", x_forwarded_for=text))


ATTACKS = [
    from_afar("DNS rebinding", "GET", "/v1/records", host="evil.example"),
    from_afar("DNS rebinding, with the port", "GET", "/v1/records", host="evil.example:8642"),
    from_afar("DNS rebinding by a name that ends as its own", "GET", "/v1/records", host="evil-127.0.0.1"),
    from_afar("a page of another site, with a token", origin="http://evil.example"),
    from_afar("a page of another site, as browsers say it", sec_fetch_site="cross-site"),
    from_afar("a page of another port of this machine", origin="http://127.0.0.1:3000"),
    from_afar("a page that hides where it is from", origin="null"),
    with_a_cookie("CSRF with the cookie of a session", origin="http://evil.example"),
    with_a_cookie("CSRF with the cookie, by a program that names no origin"),
    with_a_cookie("CSRF with the cookie, from another port", sec_fetch_site="same-site"),
    with_a_cookie("CSRF with the cookie, by an address that was typed", sec_fetch_site="none"),
    with_a_cookie("CSRF with the cookie, two words", origin="HERE", sec_fetch_site="same-site"),
    with_a_cookie("CSRF with the cookie, as a form", content_type="text/plain"),
    Attack(
        "CSRF without a cookie",
        asks("POST", JOBS, body=MINE, sec_fetch_site="same-site"),
        "401 unauthenticated",
        counted="missing",
    ),
    elsewhere("path traversal in a job's name", f"{JOBS}/%2e%2e%2ftokens"),
    elsewhere("path traversal as it stands", f"{JOBS}/../tokens"),
    elsewhere("path traversal in a file of the page", "/page/../../../../../../../../etc/passwd"),
    elsewhere("path traversal in a file of the page, encoded", "/page/%2e%2e/%2e%2e/%2e%2e/%2e%2e/%2e%2e/etc/passwd"),
    elsewhere("path traversal by an absolute file of the page", "/page//etc/passwd"),
    elsewhere("path traversal with a zero byte", "/page/index.html%00/../../../etc/passwd"),
    elsewhere("path traversal in a cell's name", "/cells/..%2f..%2fv1/jobs"),
    elsewhere("an address with two slashes", "//v1/tokens"),
    elsewhere("an address in capitals", "/V1/TOKENS"),
    elsewhere("TRACE", "/v1/tokens", "405 method", method="TRACE"),
    elsewhere("CONNECT", "/v1/tokens", "405 method", method="CONNECT"),
    Attack("header injection by a name", header_in_a_name, "404 unknown_job"),
    submits("header injection by a job's name", {**MINE, "job": "x\r\nSet-Cookie: a=b"}),
    submits("terminal escapes in a job's name", {**MINE, "job": f"x{ESCAPE}"}),
    submits("terminal escapes in a label", {**MINE, "labels": {ESCAPE: "x"}}),
    submits("path traversal in a job's name that is submitted", {**MINE, "job": "../../etc"}),
    submits("a job's name that is an option of commands", {**MINE, "job": "--all"}),
    raw(
        "request smuggling: two lengths",
        "POST /v1/jobs HTTP/1.1\nhost: HOST\nauthorization: KEY\ncontent-length: 3\ncontent-length: 4\n\n",
        rest=b"{}  ",
    ),
    raw(
        "request smuggling: a space before the colon",
        "POST /v1/jobs HTTP/1.1\nhost: HOST\ncontent-length : 2\n\n",
        rest=b"{}",
    ),
    raw(
        "request smuggling: an encoding that nobody knows",
        "POST /v1/jobs HTTP/1.1\nhost: HOST\ntransfer-encoding: xchunked\n\n",
        "400",
    ),
    raw("two Host headers", "GET /v1/jobs HTTP/1.1\nhost: HOST\nhost: evil.example\nauthorization: KEY\n\n"),
    raw("no Host header", "GET /v1/jobs HTTP/1.1\nauthorization: KEY\n\n"),
    raw("a header that a zero byte ends", "GET /v1/jobs HTTP/1.1\nhost: HOST\nauthorization: KEY\x00x\n\n"),
    raw("1 MB of headers", "GET /v1/jobs HTTP/1.1\nhost: HOST\n" + "x: y\n" * 200_000 + "\n"),
    raw("1 MB of address", "GET /" + "x" * 1_000_000 + " HTTP/1.1\nhost: HOST\n\n"),
    Attack("a head that does not end", slow_head, "408 too_slow"),
    Attack("a body that does not end", slow_body, "408 too_slow"),
    submits("a body of 2 MB", b" " * (2 * INPUT_BYTES_MAX + 100_000), "413 too_large"),
    unread("a decompression bomb", gzip.compress(b" " * 50_000_000), content_encoding="gzip"),
    unread("JSON: 100,000 brackets", b"[" * 100_000),
    unread("JSON: a number of 800,000 digits", b'{"job": ' + b"9" * 800_000 + b"}"),
    unread("JSON: an exponent of a million", b'{"job": 1e1000000}'),
    unread("JSON: NaN", b'{"job": NaN}'),
    unread("JSON: one key twice", b'{"job": "x", "user": "ann", "user": "bob"}'),
    unread("JSON: half a character", b'{"job": "\\ud800"}'),
    unread("JSON: bytes that are no text", b'{"job": "\xff\xfe"}'),
    submits("JSON: a field that nobody knows", {**MINE, "__proto__": {"admin": True}}),
    unread("YAML: a billion laughs", BOMB, **YAML),
    unread("YAML: an object of Python", "job: !!python/object/apply:os.system ['id']", **YAML),
    unread("YAML: a tag", "job: !secret x", **YAML),
    unread("YAML: two documents", "job: x\n---\njob: y\n", **YAML),
    unread("YAML: one key twice", "job: x\njob: y\n", **YAML),
    unread("YAML: 10,000 levels", "[" * 10_000, **YAML),
    Attack("log injection by an address", forged_log_line, "401 unauthenticated", "token refused: unknown", "unknown"),
    Attack(
        "log injection by X-Forwarded-For",
        escapes_for_an_address,
        "401 unauthenticated",
        "token refused: unknown",
        "unknown",
    ),
]
check_names(ATTACKS)


@pytest.mark.parametrize("attack", ATTACKS, ids=named)
def test_is_refused(tried, attack):
    assert ended(tried(attack)) == ended(attack)
