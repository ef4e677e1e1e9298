"""Kafka that asks who is there: who is let in, what is said to others, and that nobody waits for what waiting does not
mend."""

import asyncio
import os
import subprocess
import sys

import pytest
import trustme

from largesse.bus.kafka.bus import KafkaBus
from largesse.bus.kafka.cluster import CA_FILE, PASSWORD_FILE, USER, Access, Cluster
from largesse.bus.kafka.topic_settings import TOPICS
from largesse.bus.port import BusRefused
from tests.conftest import ROOT
from tests.contract.kafka_rig import put_right_at_once
from tests.contract.secure_rig import secure_broker
from tests.contract.test_kafka_bus import open_bus, out, tell
from tests.secret_files import keep
from tests.secure_kafka import ADMIN

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.xdist_group("secure broker")]

SOON_MS = 60_000
"""Of patience, which no refusal needs."""
PROCESS_SECONDS = 120


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with secure_broker(tmp_path_factory.mktemp("secure"), ["stranger"]) as own:
        asyncio.run(put_right_at_once(own.address, TOPICS.values(), cells=1))
        yield own


def refused(cluster: Cluster, act) -> str:
    """What the bus says to this, in a second or two and not when patience is over."""
    said: list[str] = []

    async def story():
        async with open_bus(cluster, patience_ms=SOON_MS) as bus, asyncio.timeout(SOON_MS / 2_000):
            with pytest.raises(BusRefused) as found:
                await act(bus)
            said.append(str(found.value))

    tell(story)
    return said[0]


async def ask(bus: KafkaBus) -> None:
    await bus.bounds("jobs", 0)


async def write(bus: KafkaBus) -> None:
    await bus.writer().send([out("jobs", "job")])


def test_a_user_with_its_password_writes_and_reads_over_tls(broker):
    async def story():
        async with open_bus(broker.cluster(ADMIN)) as bus:
            (offset,) = await bus.writer().send([out("jobs", "job")])
            assert [each.value for each in await bus.fetch("jobs", 0, offset, wait_ms=SOON_MS)] == [b"job"]

    tell(story)


@pytest.mark.parametrize("act", [ask, write])
@pytest.mark.parametrize("user", [ADMIN, "nobody-knows"])
def test_a_wrong_password_and_an_unknown_user_are_told_alike(broker, tmp_path, act, user):
    keep(tmp_path / "wrong", "wrong")
    said = refused(Cluster(broker.secure, True, Access(user, str(tmp_path / "wrong"), str(broker.ca_file))), act)

    assert f"User:{user}" in said
    assert "no such user" in said
    assert f"{PASSWORD_FILE}={tmp_path / 'wrong'}" in said


@pytest.mark.parametrize("act", [ask, write])
def test_a_certificate_of_somebody_else_is_not_trusted(broker, tmp_path, act):
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "other.pem"))
    access = Access(ADMIN, broker.access(ADMIN).password_file, str(tmp_path / "other.pem"))

    said = refused(Cluster(broker.secure, True, access), act)
    assert CA_FILE in said
    assert "certificate" in said


def test_a_name_that_is_not_in_the_certificate_is_told(broker):
    said = refused(Cluster(f"localhost:{broker.port}", True, broker.access(ADMIN)), ask)

    assert "names that the certificate is for" in said


def test_a_port_with_tls_that_is_asked_without(broker):
    assert "speaks TLS: write kafkas://" in refused(Cluster(broker.secure), ask)


def test_a_port_without_tls_that_is_asked_with_it(broker):
    assert "speaks no TLS: write kafka://" in refused(Cluster(broker.address, True, broker.access(ADMIN)), ask)


def test_who_names_no_user_is_told_which_variable_does(broker):
    said = refused(Cluster(broker.secure, True, Access(ca_file=str(broker.ca_file))), ask)

    assert USER in said
    assert PASSWORD_FILE in said


def test_who_may_not_see_a_topic_is_told_so_and_not_that_it_is_missing(broker):
    said = refused(broker.cluster("stranger"), ask)

    assert "User:stranger may not see topic jobs" in said
    assert "--acls" in said


def test_a_password_that_was_changed_counts_for_the_next_connection(broker, tmp_path):
    file = tmp_path / "password"
    keep(file, broker.users[ADMIN])
    cluster = Cluster(broker.secure, True, Access(ADMIN, str(file), str(broker.ca_file)))

    async def story():
        async with open_bus(cluster, patience_ms=SOON_MS) as bus:
            await bus.bounds("jobs", 0)
            keep(file, "another")
            # What is connected stays so; who connects from now on is asked for the password of now.
            with pytest.raises(BusRefused, match="not its password"):
                await write(bus)
            file.unlink()
            with pytest.raises(BusRefused, match="no password can be read"):
                await write(bus)
            keep(file, broker.users[ADMIN])
            await write(bus)
            await bus.bounds("jobs", 0)

    tell(story)


@pytest.mark.parametrize("service", ["fairness", "altruism", "admission", "gateway", "agent"])
def test_a_service_that_is_not_let_ends_and_says_why(broker, tmp_path, service):
    environment = os.environ | dict(broker.environment("stranger"))
    environment |= {"PYTHONPATH": str(ROOT), "LARGESSE_HTTP": "127.0.0.1:0", "LARGESSE_NODE_DATA": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", f"services.{service}"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PROCESS_SECONDS,
        check=False,
    )

    assert done.returncode == 3, done.stdout + done.stderr
    assert "User:stranger may not" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_topics_are_made_over_tls_and_a_refusal_is_said(broker):
    def topics(user: str, *more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "largesse.bus.kafka.topics_admin", "--check", *more]
        environment = os.environ | dict(broker.environment(user))
        return subprocess.run(
            command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=PROCESS_SECONDS, check=False
        )

    assert topics(ADMIN).returncode == 0
    said = topics("stranger", "--bootstrap", broker.secure)
    assert (said.returncode, "LARGESSE_KAFKA_USER=stranger" in said.stderr) == (2, True), said.stderr
