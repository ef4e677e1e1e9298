"""The table of ports: everybody who may ask is tried at every page of a port that is set up in every way."""

import asyncio
import re
import ssl
from contextlib import suppress

import pytest

from largesse.process.port_rights import ANSWERED, CALLERS, MODES, PAGES, is_answered
from largesse.task_results import WantedResults, path_of
from services.bridge.asking import PREFIX
from services.cli.rights_page import rights_page
from tests.conftest import ROOT
from tests.result_folders import left
from tests.tls_files import tls_files
from tests.unit.test_agent_folders import attempt
from tests.unit.test_peers_tls import agent_of, peers_of

OF_AGENTS = [page for page in PAGES if page.services in ((), ("agent",))]
TARGETS = {
    "/v1/output/{job}/{stage}/{index}": "/v1/output/j/said/0",
    "/v1/results/{job}/{stage}/{index}": path_of(WantedResults("j", "map", 0, 1, 7)),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ports")
    peer = tls_files(folder / "peer")
    return {"peer": peer, "stranger": tls_files(folder / "stranger")}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    attempt(folder, stage="said", stdout=b"printed")
    left(folder, {"f": "here"})
    return folder


def context_of(caller, files):
    if caller == "http":
        return None
    context = files["peer"].trust()
    if caller in files:
        context.load_cert_chain(files[caller].cert, files[caller].key)
    return context


async def status(address, target, context):
    """What it answers; None where the connection comes to nothing."""
    said = b""
    with suppress(ConnectionResetError, ssl.SSLError):
        reader, writer = await asyncio.open_connection("127.0.0.1", address.rpartition(":")[2], ssl=context)
        writer.write(f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        said = await reader.read()
        writer.close()
    return int(said.split()[1]) if said.startswith(b"HTTP/") else None


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("caller", CALLERS)
def test_a_port_answers_whom_the_table_says_and_nobody_else(files, data, mode, caller):
    peers = {
        "plain": None,
        "tls": peers_of(files["peer"]),
        "mutual": peers_of(files["peer"], files["peer"]),
    }[mode]

    async def story(address):
        context = context_of(caller, files)
        return [await status(address, TARGETS.get(page.path, page.path), context) for page in OF_AGENTS]

    # A port without TLS waits for the head of a request, which a handshake is not.
    seconds = 0.5 if mode == "plain" and caller != "http" else 60
    found = agent_of(data, peers, story, seconds=seconds)
    assert found == [200 if is_answered(mode, caller) else None] * len(OF_AGENTS)


def test_the_pages_of_tasks_are_those_of_agents_and_bridges():
    """No other service adds any to its health."""
    mains = {path.parent.name: path.read_text() for path in ROOT.glob("services/*/__main__.py")}
    adds = {name for name, text in mains.items() if re.search(r"serve\(USAGE|return serve\(", text) and "pages" in text}

    assert adds == {service for page in PAGES for service in page.services}
    assert set(ANSWERED) == set(MODES)
    assert all(page.path.startswith(PREFIX) for page in PAGES if page.services == ("bridge",))


def test_the_page_has_every_row():
    text = rights_page()

    for caller, how in CALLERS.items():
        cells = ["answered" if is_answered(mode, caller) else "refused" for mode in MODES]
        assert f"| {how} | {' | '.join(cells)} |" in text
    for page in PAGES:
        assert f"| `{page.path}` |" in text
    assert "| NODE | say | `largesse/default/node/NODE/up` |" in text
    assert "| `bridge` | say and hear | `largesse/default/#` |" in text
