"""No request keeps the loop from others for long, whatever it says, and none leaves anything behind that grows."""

import asyncio
import json
import threading

import pytest

from services.gateway.http import api
from services.gateway.http.api import READ_AT_ONCE
from services.gateway.view.state import ENDED_JOBS_MAX
from tests.gateway_cell import run_in_memory
from tests.http_rig import GUARD_S, JOB, request, run_over_http

LARGE = json.dumps(JOB).encode() + b" " * READ_AT_ONCE


def test_while_a_large_document_is_read_others_are_served(monkeypatch):
    read, begun, gate = api.read_request, threading.Event(), threading.Event()

    def slow(data, *rest):
        if len(data) > READ_AT_ONCE:
            begun.set()
            gate.wait(GUARD_S)
        return read(data, *rest)

    monkeypatch.setattr(api, "read_request", slow)

    async def story(served):
        large = asyncio.ensure_future(served.ask("POST", "/v1/jobs", body=LARGE))
        while not begun.is_set():  # noqa: ASYNC110 - set by a thread
            await asyncio.sleep(0.001)
        small = (await served.submit("small")).status
        waits = not large.done()
        gate.set()
        return small, waits, (await large).status

    assert run_over_http(story) == (201, True, 201)


def test_a_fault_of_a_large_document_is_told_as_that_of_a_small_one_is():
    async def story(cell):
        answers = []
        for spaces in (b"", b" " * READ_AT_ONCE):
            for body in (b'{"job": ', b'{"job": 7}', b'{"cancel": "j"}'):
                answers.append((await cell.http.post("/v1/jobs", content=body + spaces)).json())
        return answers

    answers = run_in_memory(story)
    assert [each["status"] for each in answers] == [400, 422, 422] * 2
    assert [(each["type"], each["field"]) for each in answers[:3]] == [(e["type"], e["field"]) for e in answers[3:]]


def test_while_a_long_list_is_put_into_words_others_get_turns(monkeypatch):
    monkeypatch.setattr(api, "LISTING_S", 0)  # A turn for others after each entry.
    turns = 0

    async def story(cell):
        nonlocal turns
        for number in range(30):
            await cell.post(JOB | {"job": f"j{number}"})
        listing = asyncio.ensure_future(cell.get("/v1/jobs"))
        cancelled = None
        while not listing.done():
            turns += 1
            if turns == 10:
                cancelled = asyncio.ensure_future(cell.http.delete("/v1/jobs/j29"))
            await asyncio.sleep(0)
        await cancelled
        return (await listing).json(), (await cell.get("/v1/nodes")).json()

    jobs, nodes = run_in_memory(story)
    assert turns >= 30
    assert [each["job"] for each in jobs["jobs"]] == [f"j{number}" for number in range(30)]
    assert jobs["ended_kept_max"] == ENDED_JOBS_MAX
    assert [each["node"] for each in nodes["nodes"]] == ["n1"]


def test_a_list_of_nothing_is_a_list():
    async def story(cell):
        return (await cell.get("/v1/jobs")).json(), (await cell.get("/v1/jobs", user="nobody")).json()

    nothing = {"jobs": [], "total": 0, "offset": 0, "ended_kept_max": ENDED_JOBS_MAX}
    assert run_in_memory(story) == (nothing, nothing)


LONG, DIGITS = "x" * 12_000, "9" * 4_000


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", f"/v1/jobs/{LONG}"),
        ("GET", f"/v1/jobs/{LONG}/events"),
        ("DELETE", f"/v1/jobs/{LONG}"),
        ("GET", "/v1/jobs/%00"),
        ("GET", "/v1/jobs/%ff%fe"),
        ("GET", f"/v1/jobs?limit={DIGITS}"),
        ("GET", f"/v1/jobs?queue={LONG}"),
        ("GET", "/v1/jobs?" + "&".join(f"a{number}=1" for number in range(1_500))),
        ("GET", f"/v1/tasks/j/s/{DIGITS}/logs"),
        ("GET", f"/v1/tasks/{LONG}/s/0/logs"),
        ("GET", f"/v1/tasks/j/{LONG}/0/logs"),
        ("GET", f"/v1/tasks/j/s/0/logs?offset={2**63 - 1}"),
        ("GET", f"/v1/tasks/j/s/0/logs?attempt={DIGITS}"),
        ("POST", f"/v1/nodes/{LONG}/drain"),
        ("POST", f"/v1/rounds/{DIGITS}/abandon"),
        ("GET", "/" + "a/" * 6_000),
        ("TRACE", "/livez"),
        ("CONNECT", "evil.example:1"),
    ],
    ids=lambda value: value[:40],
)
def test_odd_questions_get_a_plain_answer(method, path):
    async def story(served):
        await served.submit()
        client = await served.connect()
        await client.say(request(method, path, client.host))
        return (await client.head())[0], (await served.ask("GET", "/readyz")).status

    status, ready = run_over_http(story)
    assert (200 <= status < 500, ready) == (True, 200)


def test_users_jobs_and_addresses_that_come_and_go_leave_no_counters_behind():
    async def story(cell):
        async def ask(number):
            who = {"Largesse-User": f"user-{number}"}
            await cell.http.get(f"/nowhere/{number}", headers=who)
            await cell.http.get(f"/v1/jobs/none-{number}", headers=who)
            await cell.post(JOB | {"job": f"j{number}", "user": f"u{number}", "queue": f"q{number}"}, headers=who)

        async def names():
            return {line.rpartition(" ")[0] for line in (await cell.get("/metrics")).text.splitlines()}

        for number in range(10):
            await ask(number)
        before = await names()
        while not any("largesse_pending_tasks" in name and "no_room" in name for name in before):
            await cell.follower.changed(0.01)  # Until a round has said why they wait: answers alone give nobody a turn.
            before = await names()
        for number in range(10, 50):
            await ask(number)
        return await names() - before

    assert run_in_memory(story) == set()
