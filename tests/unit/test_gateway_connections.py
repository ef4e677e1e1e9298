"""Whoever connects to the gateway can hold little of it and for a short time, and others are served meanwhile."""

import asyncio
import json
from dataclasses import replace

import pytest

from largesse.hosts import hosts_of
from schemas.edge.strict_json import INPUT_BYTES_MAX
from services.gateway.http import guard
from services.gateway.http.connections import PIPELINED_BYTES_MAX, TURNED_AWAY_MAX
from services.gateway.http.guard import Budget
from tests.http_rig import GUARD_S, HOST, JOB, PATIENT, request, run_over_http, until

HOUR_S = 3_600
"""Longer than any limit."""
BODY = json.dumps(JOB).encode()


def unfinished(host, length=INPUT_BYTES_MAX, said=b"{"):
    """A submission whose body does not end."""
    return request("POST", "/v1/jobs", host, content_length=str(length), content_type="application/json") + said


def test_more_idle_connections_than_there_may_be_keep_nobody_out():
    async def story(served):
        idle = [await served.connect() for _ in range(50)]
        answers = [(await served.submit(f"j{number}")).status for number in range(5)]
        ended = sum([client.reader.at_eof() for client in idle])
        return answers, ended

    answers, ended = run_over_http(story, limits=replace(PATIENT, connections=10))
    assert answers == [201] * 5
    assert ended >= 40


def test_the_connection_that_has_waited_longest_gives_way_and_none_that_is_at_work():
    async def story(served):
        await served.submit()
        first, second = await served.connect(), await served.connect()
        await first.say(request("GET", "/v1/jobs/j/events", first.host))
        assert (await first.head())[0] == 200
        assert (await second.ask("GET", "/livez")).status == 200
        third = await served.connect()
        await second.is_closed()
        assert (await third.ask("GET", "/livez")).status == 200
        return first.reader.at_eof()

    assert run_over_http(story, limits=replace(PATIENT, connections=2)) is False


def test_where_all_connections_are_at_work_a_new_one_is_told_to_come_again():
    async def story(served):
        await served.submit()
        for _ in range(3):
            busy = await served.connect()
            await busy.say(request("GET", "/v1/jobs/j/events", busy.host))
            assert (await busy.head())[0] == 200
        refused = await served.ask("GET", "/livez")
        busy.close()
        while (answer := await served.ask("GET", "/livez")).status != 200:
            pass
        return refused, answer

    refused, answer = run_over_http(story, limits=replace(PATIENT, connections=3))
    assert (refused.status, refused.document["type"]) == (503, "urn:largesse:busy")
    assert refused.headers["retry-after"] == "1"
    assert answer.status == 200


def test_of_many_beyond_the_limit_those_that_came_last_are_heard():
    async def story(served):
        await served.submit()
        busy = await served.connect()
        await busy.say(request("GET", "/v1/jobs/j/events", busy.host))
        assert (await busy.head())[0] == 200
        first, *_ = [await served.connect() for _ in range(2 * TURNED_AWAY_MAX)]
        last = await served.connect()
        refused = await last.ask("GET", "/livez")
        await first.is_closed()
        return refused

    refused = run_over_http(story, limits=replace(PATIENT, connections=1))
    assert (refused.status, refused.document["type"]) == (503, "urn:largesse:busy")


@pytest.mark.parametrize(
    ("grace_s", "status"), [pytest.param(0, 200, id="old"), pytest.param(GUARD_S, 503, id="young")]
)
def test_bodies_that_do_not_end_make_room_once_they_had_their_time(grace_s, status):
    async def story(served):
        for _ in range(3):
            client = await served.connect()
            await client.say(unfinished(client.host))
        await until(lambda: len(served.door.bodies) == 3)
        return (await served.ask("GET", "/livez")).status

    assert run_over_http(story, limits=replace(PATIENT, connections=3, body_grace_s=grace_s)) == status


@pytest.mark.parametrize(
    ("said", "status"),
    [
        pytest.param(b"", None, id="nothing"),
        pytest.param(b"GET /livez HT", 408, id="half a line"),
        pytest.param(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: ", 408, id="half a head"),
        pytest.param(unfinished("localhost"), 408, id="half a body"),
        pytest.param(
            unfinished("localhost").replace(b"/v1/jobs", b"/v1/nodes/n1/drain"), 200, id="a body nobody asked for"
        ),
    ],
)
def test_a_request_that_does_not_come_in_time_ends_its_connection(said, status):
    async def story(served):
        client = await served.connect()
        await client.say(said)
        await served.ask("GET", "/livez")  # What was said before has come to the server by then.
        answer = await client.answer() if status == 200 else None
        served.ahead_s = HOUR_S
        answer = answer or await client.answer()
        await client.is_closed()
        return answer

    answer = run_over_http(story)
    assert (answer and answer.status) == status
    assert status != 408 or answer.document["type"] == "urn:largesse:too_slow"


def test_bytes_that_dribble_in_win_no_time():
    async def story(served):
        client = await served.connect()
        await client.say(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: ")
        closed = asyncio.ensure_future(client.is_closed())
        while not closed.done():
            client.writer.write(b"x")
            await asyncio.wait((closed,), timeout=0.01)
            served.ahead_s += 10
        return True

    assert run_over_http(story)


def test_a_connection_is_used_again():
    async def story(served):
        client = await served.connect()
        return [(await client.ask("GET", "/livez")).status for _ in range(3)]

    assert run_over_http(story) == [200] * 3


def test_a_connection_ends_when_it_stays_idle():
    async def story(served):
        client = await served.connect()
        answer = await client.ask("GET", "/livez")
        return answer.status, await client.is_closed()

    assert run_over_http(story, limits=replace(PATIENT, idle_s=0.1)) == (200, True)


def test_bodies_that_do_not_end_hold_a_limited_number_of_bytes_together(monkeypatch):
    budgets = []

    class Watched(Budget):
        def __init__(self):
            super().__init__(most=1_000_000)
            budgets.append(self)

    monkeypatch.setattr("services.gateway.http.app.Budget", Watched)

    async def story(served):
        clients = [await served.connect() for _ in range(8)]
        for client in clients:
            await client.say(unfinished(client.host, said=b" " * 300_000))
        # Three fit, and each that is refused gives back what it held.
        await until(lambda: sum(bool(client.reader._buffer) for client in clients) >= 5)
        refused = [(await client.answer()).status for client in clients if client.reader._buffer]
        held = budgets[0].held
        small = (await served.submit("small")).status
        for client in clients:
            client.close()
        await until(lambda: budgets[0].held == 0)
        return refused, held, small, (await served.submit("after")).status

    refused, held, small, after = run_over_http(story)
    assert refused == [503] * 5
    assert held <= 1_000_000
    assert (small, after) == (201, 201)


def test_a_body_counts_until_its_request_is_answered():
    budget = Budget(most=10)
    seen = []

    async def app(scope, receive, send):
        await receive()
        seen.append(budget.held)

    async def receive():
        return {"type": "http.request", "body": b"x" * 10}

    async def story():
        behind = guard.Guard(app, hosts_of(HOST), budget)
        await behind({"type": "http", "method": "POST", "headers": [(b"host", b"localhost")]}, receive, None)

    asyncio.run(story())
    assert (seen, budget.held) == ([10], 0)


def test_a_client_that_does_not_take_its_answer_is_cut_off():
    async def story(served):
        await many_jobs(served, 100)
        deaf = await served.connect_deaf()
        deaf.send(request("GET", "/v1/jobs", HOST))
        await until(lambda: any(each.unsent for each in served.door.open))

        def is_cut_off_later():
            served.ahead_s += HOUR_S  # Each time: the kernel may still take some, and that begins the wait anew.
            return not served.door.open

        await until(is_cut_off_later)
        return (await served.ask("GET", "/livez")).status

    assert run_over_http(story, send_buffer=4_096) == 200


def test_what_all_clients_together_leave_untaken_has_a_limit():
    limits = replace(PATIENT, unsent_bytes=100_000, stall_s=HOUR_S)

    async def story(served):
        await many_jobs(served, 100)
        deaf = [await served.connect_deaf() for _ in range(10)]
        for each in deaf:
            each.send(request("GET", "/v1/jobs", HOST))
        await until(lambda: sum(unsent(served)) > 0)
        size = len((await served.ask("GET", "/v1/jobs")).body)
        # Some of them, and not for their slowness: that comes much later.
        await until(lambda: len(served.door.open) < len(deaf) and sum(unsent(served)) <= 100_000)
        return size, unsent(served)

    def unsent(served):
        return [each.unsent_bytes() for each in served.door.open]

    size, left = run_over_http(story, limits=limits, send_buffer=4_096)
    assert 10 * size > 200_000
    assert left
    assert sum(left) <= 100_000


async def many_jobs(served, count):
    stage = JOB["stages"][0] | {"tasks": 1}
    await asyncio.gather(*(served.submit(f"job-{number}", stages=[stage]) for number in range(count)))


def test_requests_sent_before_the_last_is_answered_are_taken_in_order_and_not_without_end():
    async def story(served):
        client = await served.connect()
        await client.say(b"".join(request("GET", "/livez", client.host) for _ in range(20)))
        answers = [(await client.answer()).status for _ in range(20)]
        await served.submit()
        await client.say(request("GET", "/v1/jobs/j/events", client.host))
        assert (await client.head())[0] == 200
        client.writer.write(request("GET", "/livez", client.host) * (PIPELINED_BYTES_MAX // 10))
        await client.is_closed()
        return answers

    assert run_over_http(story) == [200] * 20


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n", id="an endless address"),
        pytest.param(b"GET /livez HTTP/1.1\r\n" + b"X: y\r\n" * 50_000, id="endless headers"),
        pytest.param(b"\x16\x03\x01" * 1_000, id="another protocol"),
    ],
)
def test_what_is_no_request_ends_its_connection_and_no_other(said, capfd):
    async def story(served):
        client = await served.connect()
        client.writer.write(said)
        await client.is_closed()
        return (await served.ask("GET", "/livez")).status

    assert run_over_http(story) == 200
    assert "Invalid HTTP" not in capfd.readouterr().err


def test_an_answer_before_the_end_of_a_body_is_read_by_who_still_writes():
    async def story(served):
        client = await served.connect()
        length = 8 * INPUT_BYTES_MAX
        await client.say(
            request("POST", "/v1/jobs", client.host, content_length=str(length), connection="close")
            + b"x" * (2 * INPUT_BYTES_MAX)
        )
        head = await client.head()
        for _ in range(6):
            await client.say(b"x" * INPUT_BYTES_MAX)
        return head

    status, headers = run_over_http(story)
    assert (status, headers["connection"]) == (413, "close")
