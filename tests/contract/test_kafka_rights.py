"""Rights on a real broker with KRaft's authorizer: every request that the table does not allow is refused by the
broker, and every other one is not.

Requests are sent as they are, past the bus, which would not even ask.
"""

import asyncio
from contextlib import asynccontextmanager

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.client import CoordinationType
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    GroupCoordinatorNotAvailableError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
)
from aiokafka.protocol.admin import DeleteRecordsRequest
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from largesse.bus.kafka import topics_admin
from largesse.bus.kafka.acls import _Create, _Delete, put_rights, rules_there
from largesse.bus.kafka.rights import Rule, compared, group_of, groups, reads, rules, writes
from largesse.bus.kafka.topic_settings import TOPICS
from largesse.bus.kafka.topics_admin import TopicsAdmin
from largesse.bus.port import BusRefused
from schemas.principals import PRINCIPALS
from schemas.topics import LOG
from tests.contract.kafka_rig import put_right_at_once
from tests.contract.secure_rig import secure_broker
from tests.contract.test_kafka_bus import LONG_MS, open_bus, out, tell
from tests.secure_kafka import ADMIN

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.xdist_group("secure broker")]

REFUSED = TopicAuthorizationFailedError.errno
CLUSTER_REFUSED = 31
MORE = Rule("gateway", "topic", "grants", "Write")
SHOWN_SECONDS = 60


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with secure_broker(tmp_path_factory.mktemp("rights"), [each.name for each in PRINCIPALS]) as own:
        asyncio.run(put_right_at_once(own.address, TOPICS.values(), cells=1))
        asyncio.run(given(own))
        yield own


async def given(broker) -> None:
    """Sets the rights, and waits until the broker goes by them."""
    async with TopicsAdmin(broker.cluster(ADMIN)) as admin:
        await put_rights(admin.client, prune=True, check=False)
        await until_shown(admin.client, ([], []))


async def until_shown(client: AIOKafkaAdminClient, wanted: tuple[list[Rule], list[Rule]]) -> None:
    async with asyncio.timeout(SHOWN_SECONDS):
        while compared(await rules_there(client)) != wanted:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


@asynccontextmanager
async def client_of(broker, user: str):
    async with TopicsAdmin(broker.cluster(user)) as admin:
        yield admin.client


def batch() -> bytes:
    """One message, as it crosses the network."""
    built = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1_000)
    assert built.append(0, timestamp=None, key=b"key", value=b"{}", headers=[]) is not None
    return bytes(built.build())


async def written(broker, user: str) -> dict[str, int]:
    """By topic, the error code for a message of this user."""
    async with client_of(broker, user) as client:
        answer = await client._send_request(
            ProduceRequest(None, -1, 10_000, [(name, [(0, batch())]) for name in TOPICS])
        )
        return {name: partitions[0][1] for name, partitions in answer.topics}


async def read(broker, user: str) -> dict[str, int]:
    """By topic, the error code for what this user would read."""
    wanted = [(name, [(0, 0, 1_000)]) for name in TOPICS]
    async with client_of(broker, user) as client:
        answer = await client._send_request(FetchRequest(100, 0, 100_000, 0, wanted))
        return {name: partitions[0][1] for name, partitions in answer.topics}


@pytest.mark.parametrize("principal", PRINCIPALS, ids=lambda each: each.name)
def test_a_principal_writes_and_reads_the_topics_of_the_table_and_no_others(broker, principal):
    wrote = asyncio.run(written(broker, principal.name))
    has_read = asyncio.run(read(broker, principal.name))

    # Each answer is either well or a refusal: nothing else may stand for one.
    assert wrote == {name: 0 if name in writes(principal) else REFUSED for name in TOPICS}
    assert has_read == {name: 0 if name in reads(principal) else REFUSED for name in TOPICS}


async def takes_part(client: AIOKafkaAdminClient, group: str) -> bool:
    """Whether this user is told where a group is kept."""
    async with asyncio.timeout(SHOWN_SECONDS):
        while True:
            try:
                await client._client.coordinator_lookup(CoordinationType.GROUP, group)
            except GroupAuthorizationFailedError:
                return False
            except GroupCoordinatorNotAvailableError:  # The topic in which groups are kept is made for the first one.
                await asyncio.sleep(0.1)
            else:
                return True


@pytest.mark.parametrize("principal", PRINCIPALS, ids=lambda each: each.name)
def test_a_principal_takes_part_in_groups_of_its_own_service_alone(broker, principal):
    async def story():
        async with client_of(broker, principal.name) as client:
            for other in PRINCIPALS:
                # Which instances serve a cell is what a gateway shows.
                may = principal.party == "gateway" or (bool(groups(principal)) and other is principal)
                assert await takes_part(client, group_of(other.name, "cell")) == may

    tell(story)


@pytest.mark.parametrize("principal", PRINCIPALS, ids=lambda each: each.name)
def test_a_principal_changes_neither_topics_nor_rights(broker, principal):
    async def story():
        async with client_of(broker, principal.name) as client:
            made = await client.create_topics([NewTopic("mine", 1, 1)])
            assert {each[1] for each in made.topic_errors} <= {REFUSED, CLUSTER_REFUSED}
            gone = await client.delete_topics([LOG])
            assert {each[1] for each in gone.topic_error_codes} == {REFUSED}
            cut = await client._send_request(DeleteRecordsRequest([("jobs", [(0, 0)])], 10_000))
            assert [topic[1][0][2] for topic in cut.topics] == [REFUSED]
            right = await client._send_to_controller(_Create([MORE]))
            assert [each[0] for each in right.creation_responses] == [CLUSTER_REFUSED]
            right = await client._send_to_controller(_Delete(rules()[:1]))
            assert [each[0] for each in right.filter_responses] == [CLUSTER_REFUSED]

    tell(story)


def test_a_gateway_that_writes_to_grants_is_told_who_lacks_what(broker):
    async def story():
        async with open_bus(broker.cluster("gateway")) as bus:
            with pytest.raises(BusRefused, match=r"User:gateway may not write to topic grants.*--acls"):
                await bus.writer().send([out("grants", "{}")])
            # A right that is missing on one topic is no reason to lose another.
            await bus.writer().send([out("jobs", "{}")])

    tell(story)


def test_who_writes_a_topic_that_it_may_not_read_is_told_so(broker):
    async def story():
        async with open_bus(broker.cluster("client")) as bus:
            (offset,) = await bus.writer().send([out("jobs", "{}")])
            with pytest.raises(BusRefused, match="User:client may not read topic jobs"):
                await bus.fetch("jobs", 0, offset, wait_ms=LONG_MS)

    tell(story)


def test_a_group_of_another_service_is_told(broker):
    async def story():
        async with open_bus(broker.cluster("fairness")) as bus:
            with pytest.raises(BusRefused, match=r"User:fairness may not take part in group largesse\.leftover\.cell"):
                await bus.join(group_of("leftover", "cell"), print)

    tell(story)


def test_a_client_may_use_transactions_under_its_own_name(broker):
    async def story(name: str) -> None:
        options = broker.cluster("client").options()
        producer = AIOKafkaProducer(**options, transactional_id=name)
        try:
            await producer.start()
            async with producer.transaction():
                await producer.send_and_wait("jobs", b"{}", partition=0)
        finally:
            await producer.stop()

    tell(lambda: story("client-a"))
    with pytest.raises(TransactionalIdAuthorizationFailed):
        tell(lambda: story("another"))


def test_rights_are_set_once_and_what_is_beyond_the_table_goes_only_when_that_is_said(broker, monkeypatch, capsys):
    def ran(*more: str) -> tuple[int, list[str]]:
        code = topics_admin.main(["--acls", *more])
        return code, [line for line in capsys.readouterr().out.splitlines() if line.startswith("right")]

    async def add() -> None:
        async with TopicsAdmin(broker.cluster(ADMIN)) as admin:
            await admin.client._send_to_controller(_Create([MORE]))
            await admin.client._send_to_controller(_Delete(rules()[:1]))
            await until_shown(admin.client, (rules()[:1], [MORE]))

    for name, text in broker.environment(ADMIN).items():
        monkeypatch.setenv(name, text)
    assert ran() == (0, ["rights: right"])
    assert ran("--check", "--prune") == (0, ["rights: right"])
    asyncio.run(add())
    missing = f"right: {rules()[0].text}"
    beyond = "right: gateway may Write topic grants: not in the table: --prune removes it"
    assert ran("--check") == (1, [f"{missing}: missing", beyond])
    assert ran() == (0, [missing, beyond])
    assert ran("--prune")[1] == ["right: gateway may Write topic grants: removed"]
    asyncio.run(given(broker))
    assert ran() == (0, ["rights: right"])
