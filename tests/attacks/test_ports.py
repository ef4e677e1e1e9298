"""The ports of agents, bridges and services: metrics, health, and what tasks printed and left."""

import asyncio
import os
import ssl
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from largesse.agents_http import NoAnswer, asked
from largesse.process.health import served
from largesse.task_results import WantedResults, path_of
from largesse.telemetry import PORT_REFUSED
from largesse.tls import Peers
from services.agent.task_output import pages_of
from services.agent.task_results import results_beside
from tests.attacks.listed import Attack, Target, check_names, named
from tests.result_folders import left
from tests.tls_files import tls_files
from tests.unit.test_agent_folders import attempt
from tests.unit.test_peers_tls import nothing, peers_of

TARGET = Target(
    "Ports of agents and services",
    "The port of an agent (`LARGESSE_METRICS_PORT`) with what a task has printed and left; over mutual TLS where it is"
    " about certificates. Counted is in `largesse_port_refused_total`.",
)
GUARD_S = 60
CLASSIFIED = "classified"
OUTPUT, RESULTS = "/v1/output/j/said/0", WantedResults("j", "map", 0, 1, 7)
HANDSHAKE = {"refused": "handshake refused", "counted": "handshake"}


@dataclass
class Port:
    """`mutual`, `plain`: addresses of one agent. Certificates: of an agent, a gateway, and others."""

    folder: Path
    mutual: str
    plain: str
    files: dict
    gateway: Peers

    async def get(self, target, *, context=None, address=None, **headers):
        """The answer of the port as text; what is not answered is a handshake that was refused."""
        address = address or (self.plain if context is None else self.mutual)
        said = b""
        with suppress(ConnectionResetError, ssl.SSLError):
            host, port = address.removeprefix("https://").split(":")
            reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
            fields = {"Host": host} | {name.replace("_", "-"): value for name, value in headers.items()}
            lines = [f"GET {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
            writer.write("\r\n".join(lines).encode())
            said = await reader.read()
            writer.close()
        assert CLASSIFIED.encode() not in said
        return said.split()[1].decode() if said.startswith(b"HTTP") else "handshake refused"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("peers")
    agent = tls_files(folder / "agent")
    return {
        "agent": agent,
        "gateway": tls_files(folder / "gateway", "gateway", authority=agent.authority),
        "expired": tls_files(folder / "expired", authority=agent.authority, days=-1, since_days=-9),
        "stranger": tls_files(folder / "stranger"),
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    data = tmp_path_factory.mktemp("data")
    (data / "secret").write_text(CLASSIFIED)
    attempt(data, stage="said", stdout=b"printed")
    work = left(data, {"f": "here"})
    (work / "link").symlink_to(data / "secret")
    (work / "folder").symlink_to(data)
    os.mkfifo(work / "pipe")
    (data / "hidden").write_text(CLASSIFIED)
    (data / "hidden").chmod(0o600)
    (work / "hidden").hardlink_to(data / "hidden")
    if os.geteuid() == 0:
        for each in (work, work / "f"):
            os.chown(each, 1_234, 1_234)
    return data


def tried(attack, files, folder):
    """What came of an attack, and what was counted of it."""

    async def run():
        peers, gateway = peers_of(files["agent"], files["agent"]), peers_of(files["gateway"], files["agent"])
        pages = results_beside(pages_of("n1", folder), "n1", folder)
        async with (
            asyncio.timeout(GUARD_S),
            served("127.0.0.1", 0, nothing, pages, tls=peers.server, seconds=GUARD_S) as mutual,
            served("127.0.0.1", 0, nothing, pages, seconds=GUARD_S) as plain,
        ):
            port = Port(folder, f"https://127.0.0.1:{mutual}", f"127.0.0.1:{plain}", files, gateway)
            assert await port.get(OUTPUT, context=gateway.client.context()) == "200"
            before = counts()
            refused = await attack.story(port)
            for _ in range(200):  # The port may see the end of a handshake later than its client.
                if counts() != before or not attack.counted:
                    break
                await asyncio.sleep(0.01)
            if attack in BY_THE_GATEWAY:  # The port that it asks is the attacker's, and what that counts is his.
                return refused, attack.counted
            return refused, ", ".join(key for key, value in counts().items() if value > before.get(key, 0))

    return asyncio.run(run())


def counts():
    samples = [sample for metric in PORT_REFUSED.collect() for sample in metric.samples]
    return {sample.labels["reason"]: sample.value for sample in samples if sample.name.endswith("_total")}


def reads(target, **headers):
    """Without TLS: whoever reaches the port."""

    async def story(port):
        return await port.get(target, **headers)

    return story


def file_of(path):
    return path_of(WantedResults("j", "map", 0, 1, 7, file=path))


def with_certificate(whose, target, *, version=None):
    """Mutual TLS, with a certificate of somebody; None: with none."""

    async def story(port):
        context = port.files["agent"].trust()
        if whose is not None:
            context.load_cert_chain(port.files[whose].cert, port.files[whose].key)
        if version is not None:
            context.set_ciphers("ALL:@SECLEVEL=0")
            context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, version
        return await port.get(target, context=context)

    return story


async def plain_to_mutual(port):
    return await port.get("/metrics", address=port.mutual)


def impostor(whose):
    """Another process answers in the agent's place: a gateway asks it."""

    async def story(port):
        peers = None if whose is None else peers_of(port.files[whose])
        pages = results_beside(pages_of("n1", port.folder), "n1", port.folder)
        tls = None if peers is None else peers.server
        async with served("127.0.0.1", 0, nothing, pages, tls=tls, seconds=GUARD_S) as number:
            address = f"{'' if tls is None else 'https://'}127.0.0.1:{number}"
            try:
                await asyncio.to_thread(asked, address, "n1", path_of(RESULTS), port.gateway)
            except NoAnswer as why:
                return str(why).partition(": ")[2].partition(" (")[0].rpartition("] ")[2]
        return "believed"

    return story


async def another_node(port):
    try:
        await asyncio.to_thread(asked, port.plain, "n2", path_of(RESULTS), None)
    except NoAnswer as why:
        return str(why).partition(": ")[2]
    return "believed"


BY_THE_GATEWAY = [
    Attack(
        "an agent of another authority",
        impostor("stranger"),
        "certificate verify failed: unable to get local issuer certificate",
    ),
    Attack(
        "an agent with the certificate of another host",
        impostor("gateway"),
        "certificate verify failed: IP address mismatch, certificate is not valid for '127.0.0.1'.",
    ),
    Attack(
        "an agent that speaks plain HTTP",
        impostor(None),
        "it speaks no TLS, and nobody is believed here without a certificate",
    ),
]
ATTACKS = [
    *(
        Attack(f"{what} without a certificate", with_certificate(None, target), **HANDSHAKE)
        for what, target in (
            ("metrics", "/metrics"),
            ("health", "/livez"),
            ("a task's output", OUTPUT),
            ("a task's files", path_of(RESULTS)),
        )
    ),
    Attack(
        "a task's output with a certificate of another authority", with_certificate("stranger", OUTPUT), **HANDSHAKE
    ),
    Attack("output, with an expired certificate", with_certificate("expired", OUTPUT), **HANDSHAKE),
    Attack(
        "down to TLS 1.1, with a certificate",
        with_certificate("gateway", OUTPUT, version=ssl.TLSVersion.TLSv1_1),
        **HANDSHAKE,
    ),
    Attack("plain HTTP to the port with TLS", plain_to_mutual, **HANDSHAKE),
    *BY_THE_GATEWAY,
    Attack("an agent that answers for another node", another_node, "the agent of another node answers there"),
    Attack("DNS rebinding", reads(OUTPUT, host="evil.example"), "403", counted="origin"),
    Attack("a page of another site", reads(OUTPUT, origin="http://evil.example"), "403", counted="origin"),
    Attack("path traversal as it stands", reads("/v1/output/../../secret/0"), "404"),
    Attack("path traversal in a name", reads("/v1/output/..%2F..%2Fsecret/map/0"), "404"),
    Attack("path traversal by names of dots", reads("/v1/output/%2E%2E/%2E%2E/0"), "404"),
    Attack("a pattern for a name", reads("/v1/output/*/map/0"), "404"),
    Attack("path traversal in a file's name", reads(file_of("../../../../secret")), "400"),
    Attack("an absolute file", reads(file_of("/etc/passwd")), "400"),
    Attack("a symbolic link that a task has left", reads(file_of("link")), "404"),
    Attack("a symbolic link to a folder", reads(file_of("folder/secret")), "404"),
    Attack("a pipe that a task has left", reads(file_of("pipe")), "404"),
    Attack("a hard link to a file that the task's user cannot read", reads(file_of("hidden")), "404"),
]
check_names(ATTACKS)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
@pytest.mark.parametrize("attack", ATTACKS, ids=named)
def test_is_refused(attack, files, folder):
    if "hard link" in attack.name and os.geteuid() != 0:
        pytest.skip("only root can give a task's files away")
    assert tried(attack, files, folder) == (attack.refused, attack.counted)
