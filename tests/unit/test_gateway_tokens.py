"""What the gateway lets through for whom: users' own things, streams, sessions, and the way from an open cell to a
closed one."""

import json
from statistics import median
from time import perf_counter

import pytest
from fastapi import Request
from fastapi.routing import APIRoute

from largesse.hosts import hosts_of, is_loopback, is_loopback_name
from schemas import JobAdmitted, JobCancelled, Record, Role, TokenMade, TokenRevoked
from services.gateway.access import failures, sessions
from services.gateway.access.callers import EVERYTHING, Caller, Callers
from services.gateway.http.app import make_app
from services.gateway.http.callers import COOKIE, Doorkeeper
from services.gateway.view import access
from services.gateway.view.access import fold_token
from services.gateway.view.state import State
from tests.gateway_cell import GUARD_S, run_in_memory, until_ready
from tests.token_cell import QUEUES, bearer, job, request_of, run_with_tokens, secret

OWN = {"origin": "http://127.0.0.1:8642", "sec-fetch-site": "same-origin"}
RDL = {"op": "window", "s": 0, "e": 10, "of": {"op": "atom", "b": {"cpu": "1"}, "g": 1, "h": 1, "l": 1, "w": 1}}


async def bodies(cell, kind):
    """What the log says, record by record."""
    answer = await cell.ask("admin", "GET", "/v1/records", params={"type": kind.__name__, "whole": 1, "limit": 1000})
    return [row["record"]["body"] for row in answer.json()["records"]]


# ---------------------------------------------------------------- from open to closed
def test_an_open_cell_asks_nobody_until_its_first_token_closes_it():
    async def story(cell):
        await until_ready(cell)
        before = (await cell.http.get("/v1/session")).json()
        first = await cell.http.post("/v1/tokens", json=request_of("v", "vera", [{"role": "viewer"}]))
        made = await cell.http.post("/v1/tokens", json=request_of("a", "root", [{"role": "admin"}]))
        after = await cell.http.get("/v1/jobs")
        inside = await cell.http.get("/v1/jobs", headers=bearer("a"))
        return before, first, made, after, inside, (await cell.http.get("/v1/session")).json()

    before, first, made, after, inside, session = run_in_memory(story)
    assert before == {"open": True, "user": None, "role": "admin", "roles": [], "token": None}
    assert (first.status_code, first.json()["field"]) == (409, "make.roles")
    assert made.status_code == 201
    assert made.json()["roles"] == ["admin"]
    assert made.json()["state"] == "live"
    assert secret("a") not in made.text
    assert (after.status_code, inside.status_code) == (401, 200)
    assert after.headers["WWW-Authenticate"] == 'Bearer realm="largesse"'
    assert session == {"open": False, "user": None, "role": None, "roles": [], "token": None}


def test_tokens_are_listed_without_their_text_and_a_revoked_one_lets_nobody_in():
    async def story(cell):
        listed = (await cell.ask("admin", "GET", "/v1/tokens")).json()["tokens"]
        there = await cell.ask("viewer", "GET", "/v1/jobs")
        revoked = await cell.ask("admin", "DELETE", "/v1/tokens/viewer")
        gone = await cell.ask("viewer", "GET", "/v1/jobs")
        missing = await cell.ask("admin", "DELETE", "/v1/tokens/viewer")
        return listed, there, revoked, gone, missing, await bodies(cell, TokenMade), await bodies(cell, TokenRevoked)

    listed, there, revoked, gone, missing, made, ends = run_with_tokens(story)
    assert [each["name"] for each in listed] == ["admin", "operator", "submitter", "anywhere", "viewer"]
    assert listed[2]["roles"] == ["submitter:ads"]
    assert not any("sha256" in each or "lgt_" in json.dumps(each) for each in listed)
    assert (there.status_code, revoked.status_code, gone.status_code, missing.status_code) == (200, 200, 401, 404)
    assert "not known here, or was revoked" in gone.json()["detail"]
    assert len(made) == 5
    assert ends == [{"name": "viewer", "author": "root"}]


def test_tokens_that_have_ended_are_listed_where_that_is_asked_for_with_when_and_by_whom():
    async def story(cell):
        await cell.ask("admin", "DELETE", "/v1/tokens/viewer")
        await cell.make("viewer", "vera", [{"role": "viewer"}])  # Its name is free again.
        ended = (await cell.ask("admin", "GET", "/v1/tokens", params={"ended": "true"})).json()["tokens"]
        live = (await cell.ask("admin", "GET", "/v1/tokens")).json()["tokens"]
        wrong = await cell.ask("admin", "GET", "/v1/tokens", params={"ended": "maybe"})
        return ended, live, wrong.status_code

    ended, live, wrong = run_with_tokens(story)
    assert [each["name"] for each in live] == ["admin", "operator", "submitter", "anywhere", "viewer"]
    assert ended[1:] == live
    gone = ended[0]
    assert (gone["name"], gone["user"], gone["state"], gone["ended_by"]) == ("viewer", "vera", "revoked", "root")
    assert gone["ended_ms"] >= gone["made_ms"]
    assert "sha256" not in gone
    assert wrong == 422


def test_ended_tokens_are_kept_up_to_a_limit_and_what_expired_ended_when_it_did(monkeypatch):
    monkeypatch.setattr(access, "TOKENS_ENDED_MAX", 2)
    state = State()

    def put(body, seq, time):
        body_of = {TokenMade: fold_token, TokenRevoked: access.fold_revoked}
        body_of[type(body)](state, Record(type(body).__name__, 1, "default", seq, 0, time, "", "", body))

    for number in range(3):
        put(TokenMade(f"t{number}", "ann", [Role("admin")], f"{number}" * 64, None, "root"), 2 * number, 10)
        put(TokenRevoked(f"t{number}", "olga"), 2 * number + 1, 20 + number)
    assert [(each.token.name, each.ended_ms, each.by) for each in state.tokens_ended] == [
        ("t1", 21, "olga"),
        ("t2", 22, "olga"),
    ]
    put(TokenMade("short", "ann", [Role("admin")], "a" * 64, 30, "root"), 8, 25)
    put(TokenMade("next", "ann", [Role("admin")], "b" * 64, None, "root"), 9, 50)
    assert (state.tokens_ended[-1].token.name, state.tokens_ended[-1].ended_ms, state.tokens_ended[-1].by) == (
        "short",
        30,
        "",
    )
    assert set(state.token_names.values()) == {"next"}


def test_an_expired_token_lets_nobody_in_by_the_gateways_clock():
    async def story(cell):
        now = [1_000.0]
        cell.door.callers._clock = lambda: now[0]
        await cell.make("soon", "ann", [{"role": "viewer"}], expires_ms=2**52)
        row = cell.follower.state.tokens["soon"]
        now[0] = (row.expires_ms - 1) / 1_000
        before = await cell.ask("soon", "GET", "/v1/jobs")
        now[0] = row.expires_ms / 1_000
        return before, await cell.ask("soon", "GET", "/v1/jobs")

    before, after = run_with_tokens(story)
    assert (before.status_code, after.status_code) == (200, 401)
    assert "has expired" in after.json()["detail"]


def test_a_recorded_log_asks_nobody_whatever_tokens_its_cell_had():
    assert Callers(lambda: State(tokens_made=True), is_open=True).is_open
    assert not Callers(lambda: State(tokens_made=True)).is_open

    async def story(cell):
        recorded = make_app(cell.follower, recorded=True)
        return recorded.state.api.door.callers.is_open, cell.door.callers.is_open

    assert run_with_tokens(story) == (True, False)


# ---------------------------------------------------------------- a user's own
def test_a_job_is_its_token_holders_and_a_body_that_names_another_is_refused():
    async def story(cell):
        mine = await cell.ask("submitter", "POST", "/v1/jobs", json=job("mine"))
        named = await cell.ask("submitter", "POST", "/v1/jobs", json=job("named", user="ann"))
        other = await cell.ask("submitter", "POST", "/v1/jobs", json=job("other", user="bob"))
        placed = await cell.ask("operator", "POST", "/v1/jobs", json=job("placed", user="bob"))
        operators = await cell.ask("operator", "POST", "/v1/jobs", json=job("operators"))
        dry = await cell.ask("submitter", "POST", "/v1/jobs?dry_run=true", json=job("dry", user="bob"))
        answers = mine, named, other, placed, operators, dry
        admitted = await bodies(cell, JobAdmitted)
        return answers, [(each["spec"]["job"], each["spec"]["user"], each["author"]) for each in admitted]

    answers, admitted = run_with_tokens(story)
    assert [each.status_code for each in answers] == [201, 201, 403, 201, 201, 403]
    assert answers[2].json()["type"] == "urn:largesse:other_user"
    assert (answers[2].json()["field"], answers[2].json()["role"]) == ("user", "operator")
    assert admitted == [
        ("mine", "ann", "ann"),
        ("named", "ann", "ann"),
        ("placed", "bob", "olga"),
        ("operators", "olga", "olga"),
    ]


@pytest.mark.parametrize(
    ("token", "queue", "status"),
    [
        pytest.param("submitter", "ads/prod", 201, id="below its queue"),
        pytest.param("submitter", "lab", 403, id="beside it"),
        pytest.param("submitter", None, 403, id="the default queue"),
        pytest.param("submitter", "adsx", 403, id="a name that only begins like it"),
        pytest.param("anywhere", "lab", 201, id="of all queues"),
        pytest.param("anywhere", None, 201, id="of all queues, the default one"),
        pytest.param("operator", "lab", 201, id="an operator"),
    ],
)
def test_a_submitter_is_kept_to_its_queues(token, queue, status):
    answer = run_with_tokens(lambda cell: cell.ask(token, "POST", "/v1/jobs", json=job(queue=queue)))

    assert answer.status_code == status
    if status == 403:
        assert (answer.json()["field"], answer.json()["role"]) == ("queue", "submitter")
        assert "is for ads and the queues below" in answer.json()["detail"]


def test_queues_that_name_submitters_go_by_the_user_of_the_token():
    tree = {**QUEUES, "children": [{"name": "ads", "submitters": ["bob"]}, {"name": "lab"}]}

    async def story(cell):
        assert (await cell.ask("admin", "PUT", "/v1/config", json={"queues": tree})).status_code == 200
        return [
            await cell.ask(token, "POST", "/v1/jobs", json=job(token, "ads")) for token in ("submitter", "anywhere")
        ]

    ann, bob = run_with_tokens(story)
    assert (ann.status_code, ann.json()["type"]) == (422, "urn:largesse:refused:not_allowed")
    assert bob.status_code == 201


CHANGES = [
    pytest.param("DELETE", "", None, id="cancel"),
    pytest.param("PATCH", "", {"priority": 5}, id="change"),
    pytest.param("POST", "/rerun", {}, id="rerun"),
    pytest.param("GET", "/logs", None, id="output of the job"),
    pytest.param("GET", "/results", None, id="results of the job"),
]


@pytest.mark.parametrize(("method", "rest", "body"), CHANGES)
def test_anothers_job_is_left_alone_but_by_operators(method, rest, body):
    async def story(cell):
        await cell.ask("submitter", "POST", "/v1/jobs", json=job("j", "ads/prod"))
        request = {} if body is None else {"json": body}
        return [
            (await cell.ask(token, method, f"/v1/jobs/j{rest}", **request)).status_code
            for token in ("anywhere", "viewer", "submitter", "operator")
        ]

    other, viewer, own, operator = run_with_tokens(story)
    assert (other, viewer) == (403, 403)
    assert own in (200, 202, 409)
    assert operator in (200, 202, 409)


def test_output_and_files_of_a_task_are_its_users():
    async def story(cell):
        await cell.ask("submitter", "POST", "/v1/jobs", json=job("j", "ads/prod"))
        found = {}
        for token in ("anywhere", "viewer", "submitter", "operator"):
            for rest in ("logs", "results?file=x"):
                answer = await cell.ask(token, "GET", f"/v1/tasks/j/s/0/{rest}")
                found.setdefault(token, []).append(answer.status_code)
        unknown = await cell.ask("submitter", "GET", "/v1/tasks/nobodys/s/0/logs")
        return found, unknown

    found, unknown = run_with_tokens(story)
    assert found["anywhere"] == found["viewer"] == [403, 403]
    assert 403 not in found["submitter"] + found["operator"]
    assert unknown.status_code == 404


def test_a_job_can_be_moved_only_to_a_queue_of_its_submitter():
    async def story(cell):
        await cell.ask("submitter", "POST", "/v1/jobs", json=job("j", "ads/prod", hold=True))
        out = await cell.ask("submitter", "PATCH", "/v1/jobs/j", json={"queue": "lab"})
        within = await cell.ask("submitter", "PATCH", "/v1/jobs/j", json={"queue": "ads/test"})
        away = await cell.ask("operator", "PATCH", "/v1/jobs/j", json={"queue": "lab"})
        back = await cell.ask("submitter", "DELETE", "/v1/jobs/j")
        return [each.status_code for each in (out, within, away, back)], await bodies(cell, JobCancelled)

    assert run_with_tokens(story) == ([403, 200, 200, 403], [])


def test_reservations_and_series_follow_the_user_of_the_token():
    series = {"series": "night", "queue": "ads/prod", "rdl": RDL, "every": 3600, "start_s": 4_000_000_000}

    async def story(cell):
        kept = await cell.ask("submitter", "POST", "/v1/series", json=series)
        found = {
            "user": kept.json()["user"],
            "other user": await cell.ask("submitter", "POST", "/v1/series", json={**series, "user": "bob"}),
            "other queue": await cell.ask("submitter", "POST", "/v1/series", json={**series, "queue": "lab"}),
            "another's": await cell.ask("anywhere", "DELETE", "/v1/series/night"),
            "for another": await cell.ask("submitter", "DELETE", "/v1/series/night?user=bob"),
            "a request": await cell.ask(
                "submitter", "POST", "/v1/reservations", json={"reservation": "r", "rdl": RDL, "user": "bob"}
            ),
            "own": await cell.ask("submitter", "DELETE", "/v1/series/night"),
        }
        return kept.status_code, {name: getattr(each, "status_code", each) for name, each in found.items()}

    status, found = run_with_tokens(story)
    assert status == 201
    assert found == {
        "user": "ann",
        "other user": 403,
        "other queue": 403,
        "another's": 403,
        "for another": 403,
        "a request": 403,
        "own": 200,
    }


# ---------------------------------------------------------------- streams
def test_a_long_answer_ends_once_its_token_was_revoked_or_has_expired():
    async def story(cell):
        now = [1_000.0]
        callers = cell.door.callers
        callers._clock = lambda: now[0]
        given = []

        async def parts():
            for number in range(10):
                given.append(number)
                yield b"x"

        await cell.make("soon", "ann", [{"role": "viewer"}], expires_ms=2**52)
        found = []
        for end in ("revoke", "expire"):
            name = "viewer" if end == "revoke" else "soon"
            caller = callers.by_token(secret(name))
            stream = callers.lasting(caller, "viewer", parts())
            read = [await anext(stream), await anext(stream)]
            if end == "revoke":
                await cell.revoke(name)
            else:
                now[0] = 2**52 / 1_000
            read += [each async for each in stream]
            found.append(len(read))
        return found

    assert run_with_tokens(story) == [2, 2]


def test_a_stream_of_changes_ends_by_the_record_that_revokes_its_token():
    async def story(cell):
        stream = cell.app.state.api.changes.events(None, 0.0)
        caller = cell.door.callers.by_token(secret("viewer"))
        lasting = cell.door.lasting(caller, "viewer", stream)
        await anext(lasting)
        await cell.revoke("viewer")
        return [each async for each in lasting]  # Without an end it would never come to one.

    assert run_with_tokens(story) == []


def test_a_stream_of_an_open_cell_ends_once_the_cell_is_closed():
    async def story(cell):
        await until_ready(cell)
        api = cell.http._transport.app.state.api
        assert api.door.callers.is_open
        lasting = api.door.lasting(Caller("", EVERYTHING), "viewer", api.changes.events(None, 0.0))
        await anext(lasting)
        made = request_of("a", "root", [{"role": "admin"}])
        await cell.follower.send("access", {"make": made}, "tester", GUARD_S)
        return [each async for each in lasting]

    assert run_in_memory(story) == []


# ---------------------------------------------------------------- sessions
def cookie_of(answer):
    name, _, rest = answer.headers["Set-Cookie"].partition("=")
    value, _, attributes = rest.partition("; ")
    return name, value, attributes


def test_a_browser_exchanges_a_token_for_a_cookie_signs_out_and_is_out():
    async def story(cell):
        signed_in = await cell.ask("submitter", "POST", "/v1/session", headers=OWN)
        name, value, attributes = cookie_of(signed_in)
        with_cookie = {"cookie": f"{name}={value}"}
        found = [
            await cell.ask("", "GET", "/v1/jobs", headers=with_cookie),
            await cell.ask("", "POST", "/v1/jobs", headers=with_cookie | OWN, json=job()),
            await cell.ask("", "GET", "/v1/session", headers=with_cookie),
            await cell.ask("", "DELETE", "/v1/session", headers=with_cookie | OWN),
            await cell.ask("", "GET", "/v1/jobs", headers=with_cookie),
        ]
        return signed_in, (name, attributes), found

    signed_in, (name, attributes), found = run_with_tokens(story)
    assert signed_in.json() == {
        "open": False,
        "user": "ann",
        "role": "submitter",
        "roles": ["submitter:ads"],
        "token": "submitter",
    }
    assert name.startswith(COOKIE)
    assert attributes == f"Path=/; Max-Age={sessions.SESSION_S}; HttpOnly; SameSite=Strict"
    assert [each.status_code for each in found] == [200, 201, 200, 200, 401]
    assert found[2].json()["user"] == "ann"
    assert cookie_of(found[3])[2].startswith("Path=/; Max-Age=0")


def test_the_cookie_of_a_gateway_that_is_not_on_loopback_is_secure():
    async def story(cell):
        return await cell.ask("viewer", "POST", "/v1/session", headers={"host": "cell.example"})

    answer = run_with_tokens(story, hosts=hosts_of("127.0.0.1", "cell.example"))
    assert cookie_of(answer)[2].endswith("; HttpOnly; SameSite=Strict; Secure")


def test_a_session_ends_with_its_token_and_after_twelve_hours():
    now = [0.0]
    kept = sessions.Sessions(lambda: now[0])
    text = kept.begin("digest")
    now[0] = sessions.SESSION_S - 1
    assert kept.find(text) == "digest"
    now[0] = sessions.SESSION_S
    assert kept.find(text) is None
    assert text not in json.dumps({key: each.token for key, each in kept.open.items()})

    async def story(cell):
        signed_in = await cell.ask("viewer", "POST", "/v1/session")
        name, value, _ = cookie_of(signed_in)
        await cell.revoke("viewer")
        return await cell.ask("", "GET", "/v1/jobs", headers={"cookie": f"{name}={value}"})

    assert run_with_tokens(story).status_code == 401


def test_the_oldest_session_gives_way(monkeypatch):
    monkeypatch.setattr(sessions, "SESSIONS_MAX", 2)
    kept = sessions.Sessions(lambda: 0.0)
    first, second, third = (kept.begin(each) for each in "abc")

    assert [kept.find(each) for each in (first, second, third)] == [None, "b", "c"]


# ---------------------------------------------------------------- failed attempts
def test_an_address_that_fails_too_often_is_told_to_wait_and_who_has_a_token_is_not_kept_out():
    async def story(cell):
        now = [0.0]
        cell.door.failures.clock = lambda: now[0]
        wrong = [await cell.ask("nobodys", "GET", "/v1/jobs") for _ in range(failures.FAILURES_MAX + 1)]
        right = await cell.ask("viewer", "GET", "/v1/jobs")
        without = await cell.ask("", "GET", "/v1/jobs")
        now[0] = failures.WINDOW_S
        return wrong, right, without, await cell.ask("nobodys", "GET", "/v1/jobs")

    wrong, right, without, later = run_with_tokens(story)
    assert [each.status_code for each in wrong] == [401] * failures.FAILURES_MAX + [429]
    assert wrong[-1].headers["Retry-After"] == str(failures.WINDOW_S + 1)
    assert (right.status_code, without.status_code, later.status_code) == (200, 401, 401)


def test_failures_are_counted_by_address_of_ipv6_by_network_and_of_a_limited_number(monkeypatch):
    monkeypatch.setattr(failures, "ADDRESSES_MAX", 3)
    kept = failures.Failures(lambda: 0.0)

    assert [kept.note(each)[0] for each in ("10.0.0.1", "10.0.0.2", "10.0.0.1")] == [1, 1, 2]
    assert [kept.note(each)[0] for each in ("2001:db8::1", "2001:db8::2")] == [1, 2]
    assert kept.note("::ffff:10.0.0.2")[0] == 1
    assert len(kept.seen) == 3
    assert kept.note("10.0.0.1")[0] == 1


# ---------------------------------------------------------------- metrics, and where it listens
@pytest.mark.parametrize(
    ("address", "local"),
    [
        *[pytest.param(each, True, id=each) for each in ("127.0.0.1", "127.9.9.9", "::1", "localhost")],
        *[pytest.param(each, False, id=each or "none") for each in ("0.0.0.0", "10.0.0.7", "::", "cell.example", "")],
        pytest.param("::ffff:127.0.0.1", True, id="mapped"),
    ],
)
def test_what_is_a_loopback_address(address, local):
    assert is_loopback(address) is local
    assert is_loopback_name(f"[{address}]:8642" if ":" in address else f"{address}:8642") is local


def test_metrics_are_for_viewers_and_for_this_machine():
    async def story(cell):
        cell.http._transport.client = ("10.0.0.7", 4711)
        far = [(await cell.ask(token, "GET", "/metrics")).status_code for token in ("", "viewer")]
        cell.http._transport.client = ("127.0.0.1", 4711)
        near = await cell.ask("", "GET", "/metrics")
        return far, near

    far, near = run_with_tokens(story)
    assert (far, near.status_code) == ([401, 200], 200)
    assert 'largesse_http_refused_total{reason="missing"}' in near.text


def test_finding_out_who_asks_takes_less_than_a_tenth_of_a_millisecond():
    state = State(tokens_made=True)
    for number in range(1_000):
        request = request_of(f"t{number}", "ann", [])
        body = TokenMade(request["name"], "ann", [Role("submitter", ["ads"])], request["sha256"])
        fold_token(state, Record("TokenMade", 1, "default", 1, 0, 0, "", "", body))
    door = Doorkeeper(Callers(lambda: state), failures.Failures(perf_counter))
    route = APIRoute("/v1/jobs/{job}", lambda: None, methods=["DELETE"])
    took = []
    for number in range(1_000):
        headers = [(b"host", b"127.0.0.1:8642"), (b"authorization", bearer(f"t{number}")["Authorization"].encode())]
        scope = {"type": "http", "method": "DELETE", "headers": headers, "query_string": b"", "route": route}
        begun = perf_counter()
        assert door.admit(Request(scope), is_ready=True).token == f"t{number}"
        took.append(perf_counter() - begun)

    assert median(took) < 0.0001
