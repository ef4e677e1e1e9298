"""The health check of the image asks the port of its service as that wants: over HTTP, TLS, or mutual TLS."""

import asyncio
import os
import shutil

import pytest

from largesse.process.health import served
from tests.conftest import ROOT
from tests.tls_files import tls_files
from tests.unit.test_peers_tls import peers_of

HEALTHY = ROOT / "infra" / "image" / "healthy"

pytestmark = pytest.mark.skipif(
    not (shutil.which("bash") and shutil.which("openssl")), reason="there is no bash, or no openssl here"
)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return tls_files(tmp_path_factory.mktemp("peer") / "tls")


def asked(peers, environment, why_not=""):
    """The exit code of the check while a service is served so."""

    async def answer():
        return why_not

    async def run():
        tls = None if peers is None else peers.server
        async with asyncio.timeout(120), served("127.0.0.1", 0, answer, tls=tls, seconds=60) as port:
            given = {"PATH": os.environ["PATH"], "LARGESSE_METRICS_PORT": str(port), **environment}
            process = await asyncio.create_subprocess_exec("bash", str(HEALTHY), env=given)
            return await process.wait()

    return asyncio.run(run())


def set_up(files, mode):
    """TLS of the service, and what both are told in their environment."""
    pair = {"LARGESSE_PEER_CERT_FILE": str(files.cert), "LARGESSE_PEER_KEY_FILE": str(files.key)}
    return {
        "plain": (None, {}),
        "tls": (peers_of(files), pair),
        "mutual": (peers_of(files, files), pair | {"LARGESSE_PEER_CA_FILE": str(files.ca)}),
    }[mode]


@pytest.mark.parametrize("mode", ["plain", "tls", "mutual"])
@pytest.mark.parametrize(("why_not", "is_healthy"), [("", True), ("catching up", False)])
def test_a_service_is_healthy_once_it_is_ready(files, mode, why_not, is_healthy):
    peers, environment = set_up(files, mode)

    assert (asked(peers, environment, why_not) == 0) is is_healthy


def test_one_that_speaks_otherwise_or_is_not_there_is_not_healthy(files):
    peers, environment = set_up(files, "mutual")

    assert asked(None, environment) != 0
    assert asked(peers, {"LARGESSE_METRICS_PORT": "1"}) != 0


def test_the_image_asks_so():
    dockerfile = (ROOT / "Dockerfile").read_text()

    assert 'CMD ["healthy"]' in dockerfile
    assert "COPY infra/image/healthy /usr/local/bin/healthy" in dockerfile
    assert os.access(HEALTHY, os.X_OK)
    assert "!infra/image" in (ROOT / ".dockerignore").read_text().splitlines()
