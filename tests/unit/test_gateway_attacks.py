"""Ways to get in, by name: each is refused, and what is logged of it is harmless."""

import inspect
import json

import pytest
import structlog

from largesse.token_text import TOKEN_CHARACTERS_MAX
from services.gateway.access import callers as access
from tests.http_rig import GUARD_S, run_over_http
from tests.token_cell import bearer, job, request_of, run_with_tokens, secret

SPEC = job()
BEARER = bearer("admin")["Authorization"]


def cookie(value, name="largesse-session-8642"):
    return {"cookie": f"{name}={value}"}


ATTACKS = [
    pytest.param("GET", "/v1/jobs", {"params": {"token": secret("admin")}}, 401, "missing", id="token in the URL"),
    pytest.param(
        "GET", "/v1/jobs", {"params": {"access_token": secret("admin")}}, 401, "missing", id="as RFC 6750 has it"
    ),
    pytest.param(
        "POST", "/v1/jobs", {"json": SPEC | {"token": secret("admin")}}, 401, "missing", id="token in the body"
    ),
    pytest.param("GET", "/v1/jobs", {"headers": {"x-api-key": secret("admin")}}, 401, "missing", id="another header"),
    pytest.param("GET", "/v1/jobs", {"headers": {"authorization": secret("admin")}}, 401, "malformed", id="no scheme"),
    pytest.param(
        "GET",
        "/v1/jobs",
        {"headers": {"authorization": f"Basic {secret('admin')}"}},
        401,
        "malformed",
        id="wrong scheme",
    ),
    pytest.param("GET", "/v1/jobs", {"headers": {"authorization": "Bearer"}}, 401, "malformed", id="no token"),
    pytest.param("GET", "/v1/jobs", {"headers": {"authorization": "Bearer null"}}, 401, "unknown", id="a word for one"),
    pytest.param(
        "GET",
        "/v1/jobs",
        {"headers": {"authorization": f"Bearer {secret('admin')} x"}},
        401,
        "malformed",
        id="and more",
    ),
    pytest.param(
        "GET",
        "/v1/jobs",
        {"headers": {"authorization": "Bearer " + "x" * (TOKEN_CHARACTERS_MAX + 1)}},
        401,
        "malformed",
        id="a long token",
    ),
    pytest.param(
        "GET",
        "/v1/jobs",
        {"headers": [("authorization", f"Bearer {secret('viewer')}"), ("authorization", "Bearer x")]},
        401,
        "malformed",
        id="two of them",
    ),
    pytest.param("GET", "/v1/jobs", {"headers": {"authorization": b"Bearer \xff\xfe"}}, 401, "malformed", id="bytes"),
    pytest.param(
        "GET",
        "/v1/jobs",
        {"headers": {"authorization": "Bearer " + request_of("admin", "", [])["sha256"]}},
        401,
        "unknown",
        id="the hash that the log has",
    ),
    pytest.param(
        "GET",
        "/v1/jobs",
        {"headers": {"authorization": f"Bearer {secret('other-cell')}"}},
        401,
        "unknown",
        id="other cell's token",
    ),
    pytest.param("GET", "/v1/jobs", {"headers": {"largesse-user": "root"}}, 401, "missing", id="a name alone"),
    pytest.param(
        "GET",
        "/v1/jobs",
        {"headers": {"x-forwarded-user": "root", "remote-user": "root"}},
        401,
        "missing",
        id="a proxy's header",
    ),
    pytest.param("GET", "/v1/jobs", {"headers": cookie("A" * 43)}, 401, "unknown", id="a forged cookie"),
    pytest.param("GET", "/v1/jobs", {"headers": cookie(secret("admin"))}, 401, "unknown", id="the token as a cookie"),
    pytest.param("GET", "/v1/jobs", {"headers": cookie("x" * 5_000)}, 401, "unknown", id="a huge cookie"),
    pytest.param(
        "POST",
        "/v1/jobs",
        {"json": SPEC, "headers": {**bearer("submitter"), "largesse-user": "bob"}},
        403,
        "other_user",
        id="Largesse-User with a token",
    ),
    pytest.param(
        "POST",
        "/v1/jobs",
        {"json": SPEC, "headers": {**bearer("admin"), "largesse-user": "bob"}},
        403,
        "other_user",
        id="the same of an admin",
    ),
    pytest.param(
        "POST",
        "/v1/jobs",
        {"json": SPEC | {"user": "bob"}, "headers": bearer("submitter")},
        403,
        "other_user",
        id="user in the body",
    ),
    pytest.param(
        "POST",
        "/v1/jobs",
        {"json": SPEC | {"queue": "ads/../lab"}, "headers": bearer("submitter")},
        422,
        None,
        id="a way out of a queue",
    ),
    pytest.param(
        "PUT",
        "/v1/config?dry_run=false",
        {"json": {"set": {}}, "headers": bearer("operator")},
        403,
        "role",
        id="no dry run",
    ),
    pytest.param(
        "PUT",
        "/v1/config?dry_run=true&dry_run=false",
        {"json": {"set": {"round_gap_ms": 7}}, "headers": bearer("operator")},
        403,
        "role",
        id="a dry run and none",
    ),
    pytest.param(
        "PUT",
        "/v1/config?dry_run=1",
        {"json": {"set": {"round_gap_ms": 7}}, "headers": bearer("operator")},
        403,
        "role",
        id="a dry run otherwise written",
    ),
    pytest.param(
        "POST",
        "/v1/tokens",
        {"json": request_of("mine", "ann", [{"role": "admin"}]), "headers": bearer("operator")},
        403,
        "role",
        id="an operator makes itself an admin",
    ),
    pytest.param(
        "GET", "/v1/records", {"headers": {"host": "evil.example"} | bearer("viewer")}, 403, None, id="DNS rebinding"
    ),
    pytest.param(
        "POST",
        "/v1/jobs",
        {"json": SPEC, "headers": {"origin": "http://evil.example"} | bearer("submitter")},
        403,
        None,
        id="a page of another site",
    ),
    pytest.param("GET", "/v1/jobs/%2e%2e%2ftokens", {"headers": bearer("viewer")}, 404, None, id="path traversal"),
    pytest.param("GET", "//v1/tokens", {"headers": bearer("viewer")}, 404, None, id="two slashes"),
    pytest.param("GET", "/V1/TOKENS", {"headers": {}}, 404, None, id="capitals"),
    pytest.param("TRACE", "/v1/tokens", {"headers": bearer("viewer")}, 405, None, id="another method"),
]


@pytest.mark.parametrize(("method", "path", "request_", "status", "reason"), ATTACKS)
def test_is_refused(method, path, request_, status, reason):
    async def story(cell):
        before = cell.follower.state.policy.round_gap_ms
        with structlog.testing.capture_logs() as logged:
            headers = request_.get("headers", {})
            answer = await cell.http.request(method, path, **{**request_, "headers": headers})
        metrics = (await cell.ask("viewer", "GET", "/metrics")).text
        assert cell.follower.state.policy.round_gap_ms == before
        assert "mine" not in cell.follower.state.tokens
        return answer, logged, metrics

    answer, logged, metrics = run_with_tokens(story)
    assert answer.status_code == status, answer.text
    said = [each for each in logged if each["event"] in ("token refused", "too many refused tokens")]
    if reason in ("malformed", "unknown", "expired"):
        assert [(each["reason"], each["route"], each["log_level"]) for each in said] == [
            (reason, "GET /v1/jobs", "warning")
        ]
    else:
        assert said == []
    if reason is not None:
        assert f'largesse_http_refused_total{{reason="{reason}"}}' in metrics
    everything = json.dumps(logged, default=str) + answer.text + str(answer.headers)
    assert not any(secret(name) in everything for name in ("admin", "viewer", "submitter", "other-cell"))


CROSS = [
    pytest.param({}, 403, id="no word of where it comes from"),
    pytest.param({"origin": "http://127.0.0.1:8642"}, 201, id="its own page"),
    pytest.param({"sec-fetch-site": "same-origin"}, 201, id="its own page, as browsers say it"),
    pytest.param({"origin": "http://127.0.0.1:3000"}, 403, id="another port of the same machine"),
    pytest.param({"sec-fetch-site": "same-site"}, 403, id="another port, as browsers say it"),
    pytest.param({"sec-fetch-site": "none"}, 403, id="an address that was typed"),
    pytest.param({"origin": "http://127.0.0.1:8642", "sec-fetch-site": "cross-site"}, 403, id="two words"),
    pytest.param({"origin": "null"}, 403, id="a page that hides its origin"),
]


@pytest.mark.parametrize(("headers", "status"), CROSS)
def test_a_change_by_a_cookie_comes_from_a_page_of_the_gateway_alone(headers, status):
    async def story(cell):
        signed_in = await cell.ask("submitter", "POST", "/v1/session")
        name, _, rest = signed_in.headers["Set-Cookie"].partition("=")
        given = {"cookie": f"{name}={rest.partition(';')[0]}"}
        changed = await cell.ask("", "POST", "/v1/jobs", headers=given | headers, json=SPEC)
        out = await cell.ask("", "DELETE", "/v1/session", headers=given | headers)
        return changed, out, await cell.ask("", "GET", "/v1/jobs", headers=given)

    changed, out, after = run_with_tokens(story)
    assert changed.status_code == status
    assert out.status_code == (200 if status == 201 else 403)
    assert after.status_code == (401 if status == 201 else 200)


def test_a_session_of_one_gateway_is_none_of_another():
    async def sign_in(cell):
        signed_in = await cell.ask("admin", "POST", "/v1/session")
        return signed_in.headers["Set-Cookie"].partition(";")[0]

    mine = run_with_tokens(sign_in)
    answer = run_with_tokens(lambda cell: cell.ask("", "GET", "/v1/jobs", headers={"cookie": mine}))

    assert answer.status_code == 401


def test_a_huge_header_is_refused_and_not_repeated():
    async def story(served):
        made = request_of("admin", "root", [{"role": "admin"}])
        await served.follower.send("access", {"make": made}, "tester", GUARD_S)
        return [await served.ask("GET", "/v1/jobs", authorization="Bearer " + "x" * (size << 10)) for size in (8, 64)]

    answers = run_over_http(story)
    assert [each.status for each in answers] in ([401, 401], [401, 400])  # 400: it came in parts.
    assert all(len(each.body) < 1_000 for each in answers)


@pytest.mark.parametrize("said", ["10.0.0.7", "127.0.0.1, 10.0.0.7"])
def test_metrics_through_a_proxy_of_this_machine_are_for_viewers(said):
    """The address that counts is the last one that no trusted proxy has, whatever the client wrote before it."""

    async def story(served):
        made = request_of("admin", "root", [{"role": "admin"}])
        await served.follower.send("access", {"make": made}, "tester", GUARD_S)
        return [
            (await served.ask("GET", "/metrics", **headers)).status
            for headers in ({}, {"x_forwarded_for": said}, {"x_forwarded_for": said, "authorization": BEARER})
        ]

    assert run_over_http(story) == [200, 401, 200]


@pytest.mark.parametrize("field", ["name", "user"])
@pytest.mark.parametrize("text", ["a\x1b[2J", "a\nb", "a\u202eb", "\x9b31m"], ids=["escape", "line", "bidi", "c1"])
def test_names_with_terminal_escapes_are_refused(field, text):
    made = request_of("new", "ann", [{"role": "viewer"}]) | {field: text}

    answer = run_with_tokens(lambda cell: cell.ask("admin", "POST", "/v1/tokens", json=made))

    assert (answer.status_code, answer.json()["field"]) == (422, field)
    assert text not in answer.text


def test_an_attempt_that_is_repeated_is_logged_twice_at_most():
    async def story(cell):
        with structlog.testing.capture_logs() as logged:
            for _ in range(50):
                await cell.ask("nobodys", "GET", "/v1/jobs")
        return [each["event"] for each in logged if "refused" in each["event"]]

    assert run_with_tokens(story) == ["token refused", "too many refused tokens"]


def test_a_token_is_found_by_its_hash_and_compared_with_nothing():
    """How long it takes says nothing of a token, since nobody can choose a text by the beginning of its hash."""
    source = inspect.getsource(access.Callers.by_token) + inspect.getsource(access.Callers.by_hash)

    assert "sha256(text.encode()).hexdigest()" in source
    assert "==" not in source


def test_no_text_of_a_token_is_in_the_log_or_in_what_is_kept():
    async def story(cell):
        await cell.ask("submitter", "POST", "/v1/jobs", json=SPEC)
        await cell.ask("viewer", "POST", "/v1/session")
        records = await cell.ask("admin", "GET", "/v1/records", params={"whole": 1, "limit": 1000})
        kept = repr(cell.follower.state) + repr(cell.door.callers.sessions)
        inputs = [message.value for message in await cell.cell.bus.fetch("access", 0, 0)]
        return records.text + kept + repr(inputs)

    everything = run_with_tokens(story)
    assert "TokenMade" in everything
    assert "lgt_" not in everything
