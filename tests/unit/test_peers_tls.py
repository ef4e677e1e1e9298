"""TLS among gateway and agents: who has no certificate of the cell's authority reads nothing, and is not believed."""

import asyncio
import ssl
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from largesse.agents_http import NoAnswer, asked
from largesse.process.health import CONNECTIONS_MAX, served
from largesse.settings import Settings, SettingWrong
from largesse.task_output import Wanted
from largesse.task_results import WantedResults, path_of
from largesse.tls import Peers, read_peers
from schemas.edge.base import Malformed
from schemas.edge.nodes import check_address
from services.agent.peers import Silent, by_address
from services.agent.settings import read_node_settings
from services.agent.task_output import pages_of
from services.agent.task_results import results_beside
from services.gateway.http.agents.asking import NoConnection, Unanswered, Way, ask, ask_results
from tests.result_folders import left
from tests.tls_files import tls_files
from tests.unit.test_agent_folders import attempt

GUARD_S = 60
WANTED = Wanted("j", "said", 0)
RESULTS = WantedResults("j", "map", 0, 1, 7)


@dataclass
class Cell:
    """Files of a cell's authority: for an agent, a gateway, and whom another authority has signed."""

    agent: object
    gateway: object
    stranger: object


@pytest.fixture(scope="module")
def cell(tmp_path_factory):
    folder = tmp_path_factory.mktemp("peers")
    agent = tls_files(folder / "agent")
    gateway = tls_files(folder / "gateway", "gateway", authority=agent.authority)
    return Cell(agent, gateway, tls_files(folder / "stranger"))


def peers_of(files=None, ca=None, **more) -> Peers | None:
    """TLS of a process with a certificate of these files, which believes the authority of others."""
    cert, key = ("", "") if files is None else (str(files.cert), str(files.key))
    authorities = "" if ca is None else str(ca.ca)
    return read_peers(Settings(peer_cert_file=cert, peer_key_file=key, peer_ca_file=authorities, **more))


async def nothing():
    return ""


def agent_of(data: Path, peers: Peers | None, story, **more):
    """Runs a story with the address of an agent that shows what tasks printed and left."""

    async def run():
        pages = results_beside(pages_of("n1", data), "n1", data)
        tls = None if peers is None else peers.server
        async with (
            asyncio.timeout(GUARD_S),
            served("127.0.0.1", 0, nothing, pages, tls=tls, **({"seconds": GUARD_S} | more)) as port,
        ):
            return await story(f"{'https://' if tls is not None else ''}127.0.0.1:{port}")

    return asyncio.run(run())


@pytest.fixture
def data(tmp_path):
    attempt(tmp_path, stage="said", stdout=b"printed")
    left(tmp_path, {"f": "here"})
    return tmp_path


async def read(address, peers):
    """What a gateway reads there: output, and names of results."""
    way = Way((address,), peers=peers)
    piece, results = await ask(way, "n1", WANTED), await ask_results(way, "n1", RESULTS)
    return piece.data, [each.path for each in results.entries]


def test_a_gateway_reads_over_mutual_tls(cell, data):
    agent, gateway = peers_of(cell.agent, cell.agent), peers_of(cell.gateway, cell.agent)
    assert agent_of(data, agent, lambda address: read(address, gateway)) == (b"printed", ["f"])


def test_another_agent_reads_over_mutual_tls(cell, data):
    agent, other = peers_of(cell.agent, cell.agent), peers_of(cell.gateway, cell.agent)

    async def story(address):
        peer = by_address(lambda _: address, None, other)
        return [each.path for each in (await asyncio.to_thread(peer, "n1", RESULTS)).entries]

    assert agent_of(data, agent, story) == ["f"]


def test_an_agent_without_an_authority_serves_tls_to_everybody(cell, data):
    agent, gateway = peers_of(cell.agent), peers_of(None, cell.agent)
    assert agent_of(data, agent, lambda address: read(address, gateway)) == (b"printed", ["f"])


@pytest.mark.parametrize("path", ["/v1/output/j/said/0", path_of(RESULTS), "/metrics", "/livez"])
@pytest.mark.parametrize("who", ["nobody", "a stranger"])
def test_who_has_no_certificate_of_the_authority_is_refused_in_the_handshake(cell, data, who, path):
    context = cell.agent.trust()
    if who == "a stranger":
        context.load_cert_chain(cell.stranger.cert, cell.stranger.key)

    async def story(address):
        said, ours = b"", peers_of(cell.gateway, cell.agent).client.context()
        with suppress(ConnectionResetError, ssl.SSLError):  # Whether an alert arrives before the end is asyncio's.
            said = await said_by(address, path, context)
        return said, await said_by(address, path, ours)

    refused, answered = agent_of(data, peers_of(cell.agent, cell.agent), story)
    assert refused == b""
    assert answered.startswith(b"HTTP/1.1 ")


async def said_by(address, path, context):
    """All that is answered there."""
    reader, writer = await asyncio.open_connection("127.0.0.1", address.rpartition(":")[2], ssl=context)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    said = await reader.read()
    writer.close()
    return said


def test_who_speaks_http_to_it_gets_nothing(cell, data):
    async def story(address):
        reader, writer = await asyncio.open_connection("127.0.0.1", address.rpartition(":")[2])
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        said = b""
        with suppress(ConnectionResetError):
            said = await reader.read()
        writer.close()
        return said

    said = agent_of(data, peers_of(cell.agent, cell.agent), story)
    assert b"HTTP" not in said
    assert b"largesse" not in said


@pytest.mark.parametrize(
    ("serves", "asks"),
    [
        pytest.param("stranger", "gateway", id="an agent of another authority"),
        pytest.param("gateway", "gateway", id="the certificate of another host"),
        pytest.param(None, "gateway", id="plain HTTP"),
    ],
)
def test_an_agent_that_does_not_prove_itself_is_not_believed(cell, data, serves, asks):
    agent = None if serves is None else peers_of(getattr(cell, serves))
    gateway = peers_of(getattr(cell, asks), cell.agent)

    async def story(address):
        with pytest.raises(NoConnection):
            await ask(Way((address,), peers=gateway), "n1", WANTED)
        with pytest.raises(Silent):
            await asyncio.to_thread(by_address(lambda _: address, None, gateway), "n1", RESULTS)
        with pytest.raises(NoAnswer):
            await asyncio.to_thread(asked, address, "n1", path_of(RESULTS), gateway)

    agent_of(data, agent, story)


def test_a_gateway_without_a_certificate_is_refused_and_says_so(cell, data):
    async def story(address):
        with pytest.raises(Unanswered) as why:
            await ask(Way((address,), peers=peers_of(None, cell.agent)), "n1", WANTED)
        with pytest.raises(NoAnswer) as silent:
            await asyncio.to_thread(asked, address, "n1", path_of(RESULTS), peers_of(None, cell.agent))
        return str(why.value), str(silent.value)

    for said in agent_of(data, peers_of(cell.agent, cell.agent), story):
        assert said.endswith("it asks for a certificate that is not shown (LARGESSE_PEER_CERT_FILE)")


def test_a_renewed_certificate_and_authority_count_without_a_restart(tmp_path, data, monkeypatch):
    monkeypatch.setattr("largesse.tls.LOOK_SECONDS", 0)
    first, second = tls_files(tmp_path / "first"), tls_files(tmp_path / "second")
    agent, gateway = peers_of(first, first), peers_of(first, first)

    async def story(address):
        before = await read(address, gateway)
        first.authority = second.authority
        second.authority.cert_pem.write_to_path(first.ca)
        first.renew()
        return before == await read(address, gateway) == await read(address, peers_of(second, second))

    assert agent_of(data, agent, story)


def test_a_long_answer_arrives_whole_although_it_is_read_slowly(cell, tmp_path):
    attempt(tmp_path, stage="said", stdout=bytes(range(256)) * 2_000)
    agent, gateway = peers_of(cell.agent, cell.agent), peers_of(cell.gateway, cell.agent)

    async def story(address):
        context = gateway.client.context()
        port = address.rpartition(":")[2]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, limit=4_096)
        writer.write(b"GET /v1/output/j/said/0 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        await asyncio.sleep(0.2)
        said = await reader.read()
        writer.close()
        head, _, body = said.partition(b"\r\n\r\n")
        length = next(line for line in head.decode().lower().split("\r\n") if line.startswith("content-length"))
        return len(body) == int(length.partition(": ")[2]) > 100_000

    assert agent_of(tmp_path, agent, story)


def test_handshakes_that_do_not_go_on_are_limited_as_connections_are(cell, data):
    agent, gateway = peers_of(cell.agent, cell.agent), peers_of(cell.gateway, cell.agent)

    async def story(address):
        port = address.rpartition(":")[2]
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(CONNECTIONS_MAX + 10)]
        found = await read(address, gateway)
        ended = 0
        for reader, writer in silent[:5]:
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
            ended += 1
            writer.close()
        for _, writer in silent:
            writer.close()
        return found, ended

    assert agent_of(data, agent, story) == ((b"printed", ["f"]), 5)


def test_a_handshake_has_the_time_of_a_request(cell, data):
    async def story(address):
        reader, writer = await asyncio.open_connection("127.0.0.1", address.rpartition(":")[2])
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
        return True

    assert agent_of(data, peers_of(cell.agent, cell.agent), story, seconds=0.2)


# ---------------------------------------------------------------- settings and addresses
def test_certificates_for_one_name_count_at_whatever_address_they_are_asked(tmp_path, data):
    """As of containers, whose addresses nobody knows when certificates are made."""
    agent = tls_files(tmp_path / "agent", "peer.cell")
    gateway = tls_files(tmp_path / "gateway", "peer.cell", authority=agent.authority)
    elsewhere = tls_files(tmp_path / "elsewhere", authority=agent.authority)
    asks = peers_of(gateway, agent, peer_name="peer.cell")

    async def story(address):
        peer = by_address(lambda _: address, None, asks)
        names = [each.path for each in (await asyncio.to_thread(peer, "n1", RESULTS)).entries]
        return await read(address, asks), names

    async def unnamed(address):
        with pytest.raises(NoConnection):
            await ask(Way((address,), peers=peers_of(gateway, agent)), "n1", WANTED)
        with pytest.raises(NoAnswer):
            await asyncio.to_thread(asked, address, "n1", path_of(RESULTS), peers_of(gateway, agent))

    async def of_another_name(address):
        with pytest.raises(NoConnection):
            await ask(Way((address,), peers=asks), "n1", WANTED)
        with pytest.raises(NoAnswer):
            await asyncio.to_thread(asked, address, "n1", path_of(RESULTS), asks)

    assert agent_of(data, peers_of(agent, agent), story) == ((b"printed", ["f"]), ["f"])
    agent_of(data, peers_of(agent, agent), unnamed)
    agent_of(data, peers_of(elsewhere, agent), of_another_name)


def test_a_name_without_an_authority_of_the_cells_own_is_refused(cell):
    with pytest.raises(SettingWrong, match=r"LARGESSE_PEER_NAME=peer: .*set LARGESSE_PEER_CA_FILE, too"):
        peers_of(cell.agent, peer_name="peer")


def test_without_files_there_is_no_tls():
    assert peers_of() is None


def test_what_is_wrong_with_files_is_told(cell):
    with pytest.raises(SettingWrong, match="LARGESSE_PEER_KEY_FILE=/nowhere: there is no such file"):
        read_peers(Settings(peer_cert_file=str(cell.agent.cert), peer_key_file="/nowhere"))
    with pytest.raises(SettingWrong, match="LARGESSE_PEER_CA_FILE=/nowhere: there is no such file"):
        read_peers(Settings(peer_ca_file="/nowhere"))
    with pytest.raises(SettingWrong, match=r"LARGESSE_PEER_CA_FILE=.*: has no CERTIFICATE in PEM"):
        read_peers(Settings(peer_ca_file=str(cell.agent.key)))


def test_a_port_that_asks_for_certificates_has_one(cell):
    with pytest.raises(SettingWrong) as caught:
        peers_of(None, cell.agent, metrics_port=9_464)
    assert "needs one: set LARGESSE_PEER_CERT_FILE and LARGESSE_PEER_KEY_FILE, too" in str(caught.value)


@pytest.mark.parametrize(
    ("advertised", "address"),
    [("", "https://127.0.0.1:9464"), ("n1:1", "https://n1:1"), ("https://n1:1", "https://n1:1")],
)
def test_an_agent_that_serves_tls_announces_it(cell, advertised, address):
    settings = Settings(metrics_port=9_464, peer_cert_file=str(cell.agent.cert), peer_key_file=str(cell.agent.key))
    node = read_node_settings(settings, {"LARGESSE_NODE": "n1", "LARGESSE_ADVERTISE": advertised})
    assert node.address == address


@pytest.mark.parametrize("address", ["https://n1:9464", "https://[::1]:1", "n1:9464", ""])
def test_an_address_may_say_that_tls_is_spoken_there(address):
    check_address(address, "address")


@pytest.mark.parametrize("address", ["http://n1:1", "https://", "https://n1", "https://https://n1:1", "https://a/b:1"])
def test_other_addresses_are_refused(address):
    with pytest.raises(Malformed, match=r"has to be \[https://\]HOST:PORT"):
        check_address(address, "address")
