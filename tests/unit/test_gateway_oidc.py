"""A gateway that takes JWTs of an issuer: who is let in, for how long, and what the issuer is not asked for."""

import asyncio
import time

import pytest

from services.gateway.access.issuer import Issuer
from services.gateway.access.jwts import LEEWAY_SECONDS, Jwts
from services.gateway.access.oidc import read_oidc
from services.gateway.http.callers import USER_HEADER
from tests.gateway_cell import GUARD_S, a_cell, until_ready
from tests.issuer import an_issuer
from tests.token_cell import QUEUES, TokenCell, job, request_of
from tests.unit.test_gateway_open import served


class IssuedCell(TokenCell):
    """`issuer`: whose JWTs count. `wall`: Unix time, which a story may move."""

    def __init__(self, cell, issuer, jwts, wall):
        super().__init__(cell)
        self.issuer, self.jwts, self.wall = issuer, jwts, wall

    async def with_jwt(self, method, path, *, text=None, headers=None, **request):
        """A request with a JWT, by default ann's, who submits to `ads` and `lab`."""
        text = text or self.issuer.sign()
        headers = {"Authorization": f"Bearer {text}"} | (headers or {})
        return await self.ask("", method, path, headers=headers, **request)


def run_with_issuer(story, **given):
    async def told(stub):
        wall = [time.time()]
        oidc = read_oidc(stub.env)
        jwts = Jwts(oidc, Issuer(oidc), lambda: wall[0])
        async with asyncio.timeout(GUARD_S), a_cell(issued=jwts, **given) as cell:
            await until_ready(cell)
            await cell.follower.send("config", {"queues": QUEUES}, "tester", GUARD_S)
            return await story(IssuedCell(cell, stub, jwts, wall))

    with an_issuer() as stub:
        return asyncio.run(told(stub))


def statuses(answers):
    return [each.status_code for each in answers]


def test_a_cell_with_an_issuer_is_closed_although_nobody_has_made_a_token():
    async def story(cell):
        none = await cell.ask("", "GET", "/v1/jobs")
        return none, await cell.with_jwt("GET", "/v1/jobs"), (await cell.ask("", "GET", "/v1/session")).json()

    none, known, session = run_with_issuer(story)
    assert statuses([none, known]) == [401, 200]
    assert (session["open"], session["user"]) == (False, None)


def test_the_holder_is_the_user_of_what_it_asks_for_in_the_queues_that_its_roles_name():
    async def story(cell):
        answers = [
            await cell.with_jwt("POST", "/v1/jobs", json=job("mine", "ads/prod")),
            await cell.with_jwt("POST", "/v1/jobs", json=job("other", "default")),
            await cell.with_jwt("POST", "/v1/jobs", json=job("his", "ads", user="bob")),
            await cell.with_jwt("POST", "/v1/nodes/n1/drain"),
            await cell.with_jwt("GET", "/v1/jobs", headers={USER_HEADER: "bob"}),
        ]
        return answers, cell.follower.state.jobs["mine"].spec.user

    answers, user = run_with_issuer(story)
    assert statuses(answers) == [201, 403, 403, 403, 403]
    assert user == "ann"


def test_each_role_of_an_issuer_may_do_its_part():
    async def story(cell):
        def text(role):
            return cell.issuer.sign(roles=[role], sub=role)

        asked = [("GET", "/v1/jobs"), ("POST", "/v1/nodes/n1/drain"), ("GET", "/v1/tokens")]
        return {
            role: statuses([await cell.with_jwt(*each, text=text(role)) for each in asked])
            for role in ("readers", "data", "ops", "admins", "strangers")
        }

    assert run_with_issuer(story) == {
        "readers": [200, 403, 403],
        "data": [200, 403, 403],
        "ops": [200, 200, 403],
        "admins": [200, 200, 200],
        "strangers": [403, 403, 403],
    }


def test_an_administrator_of_the_issuer_makes_the_first_token():
    async def story(cell):
        made = request_of("first", "root", [{"role": "admin"}])
        text = cell.issuer.sign(roles=["admins"])
        return await cell.with_jwt("POST", "/v1/tokens", text=text, json=made), await cell.ask(
            "first", "GET", "/v1/jobs"
        )

    assert statuses(run_with_issuer(story)) == [201, 200]


def test_nothing_is_asked_of_the_issuer_for_requests_without_a_jwt():
    async def story(cell):
        await cell.make("admin", "root", [{"role": "admin"}])
        answers = [
            await cell.ask("", "GET", "/v1/jobs"),
            await cell.ask("admin", "GET", "/v1/jobs"),
            await cell.ask("wrong", "GET", "/v1/jobs"),
            await cell.ask("", "GET", "/v1/jobs", headers={"Authorization": "Basic eyJh.eyJh.eyJh"}),
            await cell.ask("", "GET", "/v1/jobs", headers={"Authorization": "Bearer a.b.c"}),
            await cell.ask("", "GET", "/v1/jobs?access_token=eyJh.eyJh.eyJh"),
            await cell.ask("", "GET", "/livez"),
        ]
        before = list(cell.issuer.asked)
        after = await cell.with_jwt("GET", "/v1/jobs")
        return statuses(answers), before, after.status_code, len(cell.issuer.asked)

    assert run_with_issuer(story) == ([401, 200, 401, 401, 401, 401, 200], [], 200, 2)


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        ({"iss": "https://evil.example"}, "this JWT is of another issuer"),
        ({"aud": "other"}, "this JWT is made for somebody else (`aud`)"),
        ({"exp": 1}, "this token has expired"),
        ({"nbf": 2**40}, "this JWT is not valid yet"),
    ],
)
def test_why_one_does_not_count_is_told_and_counted(spoil, text):
    async def story(cell):
        return await cell.with_jwt("GET", "/v1/jobs", text=cell.issuer.sign(**spoil))

    answer = run_with_issuer(story)
    assert answer.status_code == 401
    assert answer.json()["detail"].startswith(f"{text}: ")
    assert 'error="invalid_token"' in answer.headers["www-authenticate"]


def test_wrong_ones_are_limited_by_address_and_right_ones_are_not():
    async def story(cell):
        wrong = [await cell.with_jwt("GET", "/v1/jobs", text=cell.issuer.sign(aud="other")) for _ in range(11)]
        return statuses(wrong), (await cell.with_jwt("GET", "/v1/jobs")).status_code

    assert run_with_issuer(story) == ([401] * 10 + [429], 200)


def test_an_issuer_whose_keys_are_not_known_is_no_fault_of_who_asks():
    async def story(cell):
        cell.issuer.fails = True
        return await cell.with_jwt("GET", "/v1/jobs")

    answer = run_with_issuer(story)
    assert (answer.status_code, answer.json()["type"]) == (503, "urn:largesse:issuer_silent")
    assert int(answer.headers["retry-after"]) > 0


def test_two_headers_are_none():
    async def story(cell):
        text = cell.issuer.sign()
        headers = [("Authorization", f"Bearer {text}"), ("Authorization", f"Bearer {text}")]
        return await cell.http.get("/v1/jobs", headers=headers)

    assert run_with_issuer(story).status_code == 401


def test_a_browser_exchanges_one_for_a_session_that_ends_with_it():
    async def story(cell):
        signed_in = await cell.with_jwt("POST", "/v1/session")
        cookie = signed_in.headers["set-cookie"].partition(";")[0]
        held = {"headers": {"Cookie": cookie}}
        during = await cell.ask("", "GET", "/v1/session", **held)
        cell.wall[0] += 600 + LEEWAY_SECONDS + 1
        return during.json(), await cell.ask("", "GET", "/v1/jobs", **held)

    during, after = run_with_issuer(story)
    assert (during["user"], during["roles"]) == ("ann", ["submitter:ads,lab"])
    assert after.status_code == 401


def test_a_stream_ends_with_the_jwt_that_opened_it():
    async def story(cell):
        text = cell.issuer.sign()
        caller = await cell.jwts.look_up(text)

        async def parts():
            yield b"first"
            cell.wall[0] += 600 + LEEWAY_SECONDS + 1
            yield b"second"

        return [part async for part in cell.door.lasting(caller, "viewer", parts())]

    assert run_with_issuer(story) == [b"first"]


def test_where_there_is_no_issuer_a_jwt_is_a_wrong_token():
    async def story(stub):
        async with asyncio.timeout(GUARD_S), a_cell() as each:
            await until_ready(each)
            cell = TokenCell(each)
            await cell.make("admin", "root", [{"role": "admin"}])
            headers = {"Authorization": f"Bearer {stub.sign()}"}
            return (await cell.ask("", "GET", "/v1/jobs", headers=headers)).status_code, stub.asked

    with an_issuer() as stub:
        assert asyncio.run(story(stub)) == (401, [])


# ---------------------------------------------------------------- the start
def start(monkeypatch, env):
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    return served(monkeypatch, "0.0.0.0")


def test_a_gateway_with_an_issuer_listens_anywhere_without_a_token(monkeypatch):
    with an_issuer() as stub:
        assert start(monkeypatch, stub.env) == (True, "", [])
        assert stub.asked == ["/.well-known/openid-configuration", "/keys"]


def test_a_gateway_does_not_start_with_something_else_than_its_issuer(monkeypatch):
    with an_issuer() as stub:
        stub.discovery = {"issuer": "https://other.example"}
        listens, said, _ = start(monkeypatch, stub.env)

    assert not listens
    assert "what answers there calls itself 'https://other.example'" in said
