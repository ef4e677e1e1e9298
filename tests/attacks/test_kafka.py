"""Each service's principal on a real Kafka broker, where it does what is another's; and who comes as nobody."""

import asyncio

import pytest
import trustme

from largesse.bus.kafka import rights as rights_of
from largesse.bus.kafka.cluster import Access, Cluster
from largesse.bus.kafka.topic_settings import TOPICS
from largesse.bus.port import BusRefused
from schemas.principals import PRINCIPALS
from tests.attacks.listed import Attack, Target, check_names, named
from tests.contract.kafka_rig import put_right_at_once
from tests.contract.secure_rig import secure_broker
from tests.contract.test_kafka_bus import LONG_MS, open_bus, out
from tests.contract.test_kafka_rights import given
from tests.secret_files import keep

TARGET = Target(
    "Kafka",
    "A broker over TLS with a password for each principal and the rights of [this table](kafka-rights.md). What is"
    " refused ends the process that tried it; its last line says so.",
)

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.xdist_group("secure broker")]


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with secure_broker(tmp_path_factory.mktemp("attacked"), [each.name for each in PRINCIPALS]) as own:
        asyncio.run(put_right_at_once(own.address, TOPICS.values(), cells=1))
        asyncio.run(given(own))
        yield own


async def refused(cluster, act):
    async with open_bus(cluster) as bus:
        try:
            await act(bus)
        except BusRefused as why:
            return str(why)
    return "nothing"


def writes(principal, topic):
    async def story(broker, folder):
        return await refused(broker.cluster(principal), lambda bus: bus.writer().send([out(topic, "{}")]))

    may = f"write to topic {topic}" if principal != "reader" else "write to any topic"
    words = f"User:{principal} may not {may if _sees(principal, topic) else f'see topic {topic}'}"
    return Attack(f"`{principal}` writes `{topic}`", story, words)


def _sees(name, topic):
    """Whoever reads or writes a topic sees it. Who writes none is told that first."""
    (principal,) = (each for each in PRINCIPALS if each.name == name)
    return topic in rights_of.reads(principal) or topic in rights_of.writes(principal) or name == "reader"


def reads(principal, topic):
    async def story(broker, folder):
        return await refused(broker.cluster(principal), lambda bus: bus.fetch(topic, 0, 0, wait_ms=LONG_MS))

    return Attack(f"`{principal}` reads `{topic}`", story, f"User:{principal} may not")


def joins(principal, group):
    async def story(broker, folder):
        return await refused(broker.cluster(principal), lambda bus: bus.join(group, print))

    return Attack(
        f"`{principal}` takes the cells of `{group.split('.')[1]}`",
        story,
        f"User:{principal} may not take part in group {group}",
    )


def comes(name, cluster, words):
    """Somebody who is not what they say."""

    async def story(broker, folder):
        return await refused(cluster(broker, folder), lambda bus: bus.bounds("jobs", 0))

    return Attack(name, story, words)


def with_password(user, text):
    def cluster(broker, folder):
        path = keep(folder / "password", text)
        return Cluster(broker.secure, True, Access(user, str(path), str(broker.ca_file)))

    return cluster


def of_another_authority(broker, folder):
    trustme.CA().cert_pem.write_to_path(str(folder / "other.pem"))
    return Cluster(
        broker.secure, True, Access("gateway", broker.access("gateway").password_file, str(folder / "other.pem"))
    )


ATTACKS = [
    writes("gateway", "grants"),  # What starts where.
    writes("gateway", "cluster.log"),  # A forged claim or closing.
    writes("gateway", "shares"),
    writes("gateway", "tasks"),
    writes("gateway", "cells"),
    writes("agent", "cluster.log"),
    writes("agent", "access"),
    writes("agent", "config"),
    writes("agent", "jobs"),
    writes("agent", "grants"),
    writes("bridge", "access"),
    writes("bridge", "cluster.log"),
    writes("client", "access"),
    writes("client", "config"),
    writes("client", "nodes"),
    writes("client", "tasks"),
    writes("client", "cluster.log"),
    writes("reader", "jobs"),
    writes("reader", "cluster.log"),
    writes("fairness", "grants"),
    writes("fairness", "cluster.log"),
    writes("altruism", "shares"),
    writes("leftover", "asks"),
    writes("estimator", "plans"),
    writes("planner", "releases"),
    writes("planner", "access"),
    writes("admission", "grants"),
    writes("operator", "cluster.log"),
    reads("client", "cluster.log"),
    reads("client", "access"),
    reads("agent", "access"),
    reads("agent", "jobs"),
    reads("bridge", "access"),
    joins("fairness", "largesse.leftover.cell"),
    joins("leftover", "largesse.admission.cell"),
    comes("a wrong password", with_password("gateway", "wrong"), "there is no such user, or"),
    comes("a name that nobody has", with_password("mallory", "wrong"), "there is no such user, or"),
    comes(
        "no name",
        lambda broker, _: Cluster(broker.secure, True, Access(ca_file=str(broker.ca_file))),
        "LARGESSE_KAFKA_USER",
    ),
    comes("without TLS", lambda broker, _: Cluster(broker.secure), "speaks TLS: write kafkas://"),
    comes("a broker of another authority", of_another_authority, "certificate"),
]
check_names(ATTACKS)


@pytest.mark.parametrize("attack", ATTACKS, ids=named)
def test_is_refused(broker, tmp_path, attack):
    assert attack.refused in asyncio.run(attack.story(broker, tmp_path))
