"""The beginning of a cell's topics on Kafka that is let go: brokers delete what lies before an offset."""

from collections.abc import Mapping

from aiokafka import TopicPartition
from aiokafka.admin import RecordsToDelete
from aiokafka.errors import KafkaError

from largesse import failpoints
from largesse.bus.kafka.cluster import Cluster
from largesse.bus.kafka.topics_admin import TopicsAdmin
from largesse.bus.port import BusError
from schemas.topics import BY_NAME

KINDS = ("log", "decision", "input")
"""Topics that are trimmed: the others are compacted, soon gone, or an operator's own to read."""


async def delete_before(cluster: Cluster, needed: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
    """Has the brokers delete what lies before these offsets; returns where each partition begins then. The log goes
    first: who is stopped behind that has left more than is needed, and nothing that anybody misses. Raises BusError.
    """
    places = sorted(
        ((place, first) for place, first in needed.items() if BY_NAME[place[0]].kind in KINDS and first > 0),
        key=lambda each: (BY_NAME[each[0][0]].kind != "log", each),
    )
    found: dict[tuple[str, int], int] = {}
    async with TopicsAdmin(cluster) as admin:
        for (topic, partition), first in places:
            failpoints.hit("trimming", "before_trim")
            wanted = {TopicPartition(topic, partition): RecordsToDelete(before_offset=first)}
            try:
                answered = await admin.client.delete_records(wanted)
            except KafkaError as error:
                text = f"{topic} partition {partition}: nothing before offset {first} was deleted"
                raise BusError(f"{text}: {type(error).__name__}: {error}") from error
            found[topic, partition] = answered[TopicPartition(topic, partition)]
    return found
