"""What a Kafka cluster is like for a cell: its topics, its brokers, and who takes part in its groups."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from aiokafka.errors import KafkaError

from largesse.bus.kafka.client import Client, said
from largesse.bus.kafka.cluster import Cluster
from largesse.bus.kafka.rights import group_of
from largesse.bus.kafka.topic_settings import TOPICS
from largesse.bus.kafka.topics_admin import TopicsAdmin, put_right


@dataclass(slots=True)
class Checkup:
    """`wrong`: what is not right with topics, a line each, of `topics` that were looked at. `members`: how many
    instances of each service take part; `refused`: why the cluster does not say, empty where it does.
    """

    topics: int
    wrong: list[str]
    brokers: int = 0
    members: dict[str, int] = field(default_factory=dict)
    refused: str = ""


async def checkup(cluster: Cluster, cell: str, partition: int, services: Iterable[str], within_ms: int) -> Checkup:
    """Looks, and changes nothing. Raises BusError where the cluster does not answer in time."""
    client = Client(cluster, "largesse-doctor", within_ms)
    lines, _ = await client.patiently(
        "topics", lambda: put_right(cluster, TOPICS.values(), cells=partition + 1, check=True)
    )
    found = Checkup(len(TOPICS), [line for line in lines if not line.endswith(": right")])
    try:
        async with TopicsAdmin(cluster) as admin:
            found.brokers = await admin.brokers()
            groups = {service: group_of(service, cell) for service in services}
            members = await admin.members(groups.values())
            found.members = {service: members[group] for service, group in groups.items()}
    except KafkaError as error:
        found.refused = said(error)
    return found
