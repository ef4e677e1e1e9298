"""A gateway with a certificate: HTTPS alone, renewed while it runs, and what browsers are told over it."""

import asyncio
import ssl
from contextlib import suppress
from dataclasses import replace

import pytest
import structlog

from largesse import tls
from largesse.hosts import hosts_of
from largesse.settings import Settings, SettingWrong
from services.gateway import shell
from services.gateway.http.guard import HSTS
from services.gateway.http.handshakes import SHARE
from tests.http_rig import GUARD_S, HOST, PATIENT, request, run_over_http, until
from tests.tls_files import tls_files
from tests.token_cell import request_of, secret

CELL = "cell.example"
HEADER, YEAR = (each.decode() for each in HSTS)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return tls_files(tmp_path_factory.mktemp("gateway") / "tls", "127.0.0.1", "localhost", CELL)


def test_it_serves_https_and_who_speaks_http_gets_nothing(files):
    async def story(served):
        reader, writer = await asyncio.open_connection(HOST, served.port)
        writer.write(request("GET", "/livez", served_host(served)))
        with suppress(ConnectionResetError):
            said = await reader.read(1_000)
            assert not said.startswith(b"HTTP")
        writer.close()
        return (await served.ask("GET", "/livez")).status, (await served.submit()).status

    assert run_over_http(story, tls=files) == (200, 201)


def served_host(served):
    return f"{HOST}:{served.port}"


def test_a_request_that_comes_with_the_end_of_the_handshake_is_answered(files):
    """In one packet with it, so that it is there before anybody could have asked for it."""

    async def story(served):
        reader, writer = await asyncio.open_connection(HOST, served.port)
        said, heard = ssl.MemoryBIO(), ssl.MemoryBIO()
        ours = files.trust().wrap_bio(heard, said, server_hostname=HOST)
        with suppress(ssl.SSLWantReadError):
            ours.do_handshake()
        writer.write(said.read())
        while True:
            heard.write(await reader.read(1 << 16))
            try:
                ours.do_handshake()
                break
            except ssl.SSLWantReadError:
                writer.write(said.read())
        ours.write(request("GET", "/livez", served_host(served)))
        writer.write(said.read())
        while data := await reader.read(1 << 16):
            heard.write(data)
            with suppress(ssl.SSLWantReadError):
                return ours.read(12)
        return b""

    assert run_over_http(story, tls=files) == b"HTTP/1.1 200"


def test_a_renewed_certificate_counts_for_new_connections_and_old_ones_go_on(tmp_path, monkeypatch):
    monkeypatch.setattr(tls, "LOOK_SECONDS", 0)
    files = tls_files(tmp_path / "tls")

    async def story(served):
        before = await served.connect()
        shown = [serial(before)]
        files.renew()
        shown.append(serial(await served.connect()))
        files.key.write_text("nonsense")
        shown.append(serial(await served.connect()))
        return shown, (await before.ask("GET", "/livez")).status

    with structlog.testing.capture_logs() as logged:
        (first, second, third), status = run_over_http(story, tls=files)
    assert first != second == third
    assert status == 200
    wrong = [each for each in logged if "cannot be used" in each["event"]]
    assert len(wrong) == 1
    assert wrong[0]["error"].startswith(f"LARGESSE_TLS_KEY_FILE={files.key}: has no PRIVATE KEY in PEM")


def serial(client):
    return client.writer.get_extra_info("peercert")["serialNumber"]


def test_handshakes_that_do_not_go_on_keep_nobody_out_and_are_limited(files):
    limits = replace(PATIENT, connections=4 * SHARE)

    async def story(served):
        silent = [await asyncio.open_connection(HOST, served.port) for _ in range(40)]
        answers = [(await served.ask("GET", "/livez")).status for _ in range(3)]
        await until(lambda: len(served.door.shaking) <= 4)
        ended = sum(reader.at_eof() or reader.exception() is not None for reader, _ in silent)
        for _, writer in silent:
            writer.close()
        return answers, ended

    answers, ended = run_over_http(story, limits=limits, tls=files)
    assert answers == [200] * 3
    assert ended >= 36


def test_a_handshake_has_the_time_of_a_head(files):
    async def story(served):
        reader, writer = await asyncio.open_connection(HOST, served.port)
        await until(lambda: len(served.door.shaking) == 1)
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
        return len(served.door.shaking)

    assert run_over_http(story, limits=replace(PATIENT, head_s=0.2), tls=files) == 0


def test_handshakes_end_with_the_gateway(files):
    async def story(served):
        reader, _ = await asyncio.open_connection(HOST, served.port)
        await until(lambda: len(served.door.shaking) == 1)
        return reader

    assert run_over_http(story, tls=files) is not None


# ---------------------------------------------------------------- browsers
@pytest.mark.parametrize(
    ("host", "is_told"),
    [
        pytest.param(CELL, True, id="a name of its own"),
        pytest.param(f"{CELL}:8642", False, id="a port: others may serve other ports of the name"),
        pytest.param(HOST, False, id="an address"),
        pytest.param("localhost", False, id="the machine itself"),
    ],
)
def test_only_what_has_a_host_name_to_itself_asks_browsers_for_tls(files, host, is_told):
    hosts = hosts_of(HOST, CELL)
    answer = run_over_http(lambda served: served.ask("GET", "/", host=host), tls=files, hosts=hosts)
    assert answer.status == 200
    assert answer.headers.get(HEADER) == (YEAR if is_told else None)
    assert "script-src 'self'" in answer.headers["content-security-policy"]


def test_without_tls_it_asks_for_nothing():
    answer = run_over_http(lambda served: served.ask("GET", "/", host=CELL), hosts=hosts_of(HOST, CELL))
    assert (answer.status, HEADER in answer.headers) == (200, False)


def test_a_session_over_tls_is_bound_to_the_host_and_to_tls(files):
    async def story(served):
        made = request_of("admin", "root", [{"role": "admin"}])
        await served.follower.send("access", {"make": made}, "tester", GUARD_S)
        host = served_host(served)
        signed_in = await served.ask("POST", "/v1/session", authorization=f"Bearer {secret('admin')}")
        cookie = signed_in.headers["set-cookie"]
        name = f"__host-largesse-session-{served.port}"
        assert cookie.startswith(f"{name}=")
        assert cookie.endswith("; path=/; max-age=43200; httponly; samesite=strict; secure")

        # The rig has headers in lower case, and so not the text of the cookie.
        held = f"__Host-largesse-session-{served.port}={served.callers.sessions.begin(made['sha256'])}"
        plain = held.removeprefix("__Host-")
        said = [
            await served.ask("GET", "/v1/session", cookie=held),
            await served.ask("GET", "/v1/session", cookie=plain),
        ]
        drains = [
            (await served.ask("POST", "/v1/nodes/n1/drain", cookie=held, origin=f"{scheme}://{host}")).status
            for scheme in ("https", "http")
        ]
        return [each.document["user"] for each in said], drains

    assert run_over_http(story, tls=files) == (["root", None], [200, 403])


# ---------------------------------------------------------------- the start
def test_a_gateway_does_not_start_with_files_that_cannot_be_used(files, monkeypatch):
    monkeypatch.setenv("LARGESSE_TLS_CERT_FILE", str(files.cert))
    monkeypatch.setenv("LARGESSE_TLS_KEY_FILE", str(files.folder / "missing.pem"))

    with pytest.raises(SettingWrong, match=r"LARGESSE_TLS_KEY_FILE=.*missing\.pem: there is no such file"):
        asyncio.run(shell.run(None, Settings(), stop=asyncio.Event()))
