"""Who watches over a service is told whether it lives, whether it is ready, and what it has counted."""

import asyncio

import pytest

from largesse.bus.memory import MemoryBus
from largesse.bus.port import BusError
from largesse.hosts import hosts_of
from largesse.process.health import CONNECTIONS_MAX, REQUEST_BYTES_MAX, AddressTaken, Page, readiness, served
from largesse.telemetry import CAUGHT_UP

HOST = "127.0.0.1"


def tell(story) -> None:
    asyncio.run(asyncio.wait_for(story(), 60))


async def ask(port: int, request: bytes) -> tuple[str, bytes]:
    """Status and body of the answer to these bytes; ("", b"") where there is none."""
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return head.partition(b"\r\n")[0].decode().removeprefix("HTTP/1.1 "), body


def get(path: str, method: str = "GET") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def test_who_has_not_folded_what_the_log_had_is_not_ready():
    async def story():
        why_not = readiness(MemoryBus(), 0, asyncio.Event())
        assert await why_not() == ""
        CAUGHT_UP.labels("leftover").set(0)
        try:
            assert await why_not() == "catching up: leftover"
            CAUGHT_UP.labels("leftover").set(1)
            assert await why_not() == ""
        finally:
            CAUGHT_UP.remove("leftover")

    tell(story)


async def ready() -> str:
    return ""


async def not_ready() -> str:
    return "the log has a gap"


@pytest.mark.parametrize(
    ("request_bytes", "status", "body"),
    [
        pytest.param(get("/livez"), "200 OK", b"live\n", id="it lives"),
        pytest.param(get("/livez?verbose"), "200 OK", b"live\n", id="a query is no other path"),
        pytest.param(get("/livez", "HEAD"), "200 OK", b"", id="a head has no body"),
        pytest.param(get("/readyz"), "200 OK", b"ready\n", id="it is ready"),
        pytest.param(get("/"), "404 Not Found", b"/livez, /readyz or /metrics\n", id="nothing else is there"),
        pytest.param(get("/livez", "POST"), "405 Method Not Allowed", b"only GET and HEAD\n", id="nothing changes"),
        pytest.param(b"\r\n\r\n", "405 Method Not Allowed", b"only GET and HEAD\n", id="no words"),
        pytest.param(b"x" * (2 * REQUEST_BYTES_MAX), "", b"", id="an endless line gets no answer"),
    ],
)
def test_a_question_gets_its_answer(request_bytes, status, body):
    async def story():
        async with served(HOST, 0, ready) as port:
            assert await ask(port, request_bytes) == (status, body)

    tell(story)


def test_counters_are_told_as_prometheus_reads_them():
    async def story():
        async with served(HOST, 0, ready) as port:
            status, body = await ask(port, get("/metrics"))
            assert status == "200 OK"
            assert b"\n# TYPE largesse_records_folded_total counter\n" in body

    tell(story)


def test_who_is_not_ready_says_why():
    async def story():
        async with served(HOST, 0, not_ready) as port:
            assert await ask(port, get("/readyz")) == ("503 Service Unavailable", b"the log has a gap\n")

    tell(story)


def test_one_who_asks_and_goes_away_does_no_harm():
    async def story():
        async with served(HOST, 0, ready) as port:
            _, writer = await asyncio.open_connection(HOST, port)
            writer.write(b"GET /li")
            writer.close()
            assert (await ask(port, get("/livez")))[0] == "200 OK"

    tell(story)


def test_a_port_that_somebody_has_is_named():
    async def story():
        async with served(HOST, 0, ready) as port:
            with pytest.raises(AddressTaken, match=f"{HOST}:{port}"):
                async with served(HOST, port, ready):
                    pass

    tell(story)


def test_a_service_is_ready_while_the_bus_answers_and_nobody_has_asked_it_to_end():
    async def story():
        bus, stop = MemoryBus(), asyncio.Event()
        why_not = readiness(bus, 0, stop)
        assert await why_not() == ""
        stop.set()
        assert await why_not() == "ending"
        stop.clear()
        await bus.close()
        assert await why_not() == "the bus is closed"

    tell(story)


def test_a_bus_that_does_not_answer_makes_a_service_unready(monkeypatch):
    class Silent(MemoryBus):
        async def bounds(self, topic: str, partition: int) -> tuple[int, int]:
            await asyncio.Event().wait()
            raise BusError("never")

    async def story():
        monkeypatch.setattr("largesse.process.health.READY_SECONDS", 0.01)
        assert "not answered" in await readiness(Silent(), 0, asyncio.Event())()

    tell(story)


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        pytest.param(["Host: localhost"], "200 OK", id="its own name"),
        pytest.param([], "200 OK", id="no name at all, as a check of HTTP/1.0 asks"),
        pytest.param(["Host: node-7.example:9464"], "200 OK", id="a name that it was given"),
        pytest.param(["Host: evil.example"], "403 Forbidden", id="a name that was pointed at it"),
        pytest.param(["Host: localhost", "HOST: evil.example"], "403 Forbidden", id="two names"),
        pytest.param(["Host: localhost", "Origin: http://evil.example"], "403 Forbidden", id="a page of somebody else"),
        pytest.param(["Host: localhost", "Sec-Fetch-Site: cross-site"], "403 Forbidden", id="a page of another site"),
    ],
)
def test_pages_of_other_sites_get_neither_health_nor_what_a_service_shows_beside_it(lines, status):
    async def pages(path, query):
        return Page("200 OK", b"what a task printed\n")

    async def story():
        hosts = hosts_of("0.0.0.0", more=["node-7.example"])
        async with served(HOST, 0, ready, pages, hosts) as port:
            for path in ("/livez", "/v1/output/j/s/0"):
                question = "\r\n".join([f"GET {path} HTTP/1.0", *lines, "", ""]).encode()
                answer, body = await ask(port, question)
                assert answer == status
                assert status == "200 OK" or b"LARGESSE_HTTP_HOSTS" in body

    tell(story)


def test_connections_that_ask_nothing_keep_nobody_from_asking():
    async def story():
        async with served(HOST, 0, ready) as port:
            idle = [await asyncio.open_connection(HOST, port) for _ in range(3 * CONNECTIONS_MAX)]
            assert await ask(port, get("/livez")) == ("200 OK", b"live\n")
            ended = sum([await is_over(reader) for reader, _ in idle[:CONNECTIONS_MAX]])
            for _, writer in idle:
                writer.close()
            assert ended == CONNECTIONS_MAX

    tell(story)


async def is_over(reader) -> bool:
    """Waits until the server has ended the connection."""
    try:
        return not await reader.read()
    except ConnectionResetError:
        return True


def test_who_asks_nothing_or_takes_no_answer_is_not_waited_for():
    released = asyncio.Event()

    async def pages(path, query):
        released.set()
        return Page("200 OK", b"x" * (8 << 20))

    async def story():
        async with served(HOST, 0, ready, pages, seconds=0.1) as port:
            # The one whose time begins first is looked at last.
            deaf, silent = await asyncio.open_connection(HOST, port), await asyncio.open_connection(HOST, port)
            deaf[1].write(get("/output"))
            await released.wait()
            assert await is_over(silent[0])
            # It is cut off before all of it was taken.
            received = 0
            try:
                while part := await deaf[0].read(1 << 16):
                    received += len(part)
            except ConnectionResetError:
                pass
            assert received < 8 << 20
            for _, writer in (silent, deaf):
                writer.close()

    tell(story)
