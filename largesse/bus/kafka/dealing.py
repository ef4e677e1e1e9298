"""How a consumer group deals out cells: each partition of the log to several members, so that each cell has standbys.

Highest random weight hashing with a bound: a partition ranks all members, and is given to the first of them that have
not got their part yet. So a member that comes or goes moves little that is not its own.
"""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b

from aiokafka.cluster import ClusterMetadata
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata


def dealt(members: Iterable[str], partitions: Iterable[int], copies: int) -> dict[str, list[int]]:
    """By member, the partitions that it serves: each partition is served by `copies` members, or by all if there are
    fewer, and all members have about as many."""
    names, places = sorted(members), sorted(partitions)
    if not names:
        return {}
    each = min(copies, len(names))
    most = -(-len(places) * each // len(names))
    shares: dict[str, list[int]] = {name: [] for name in names}
    for place in places:
        ranked = sorted(names, key=lambda name: (_weight(name, place), name))
        free = [name for name in ranked if len(shares[name]) < most]
        # At the end too few may have room: then those that have least.
        full = sorted((name for name in ranked if name not in free), key=lambda name: len(shares[name]))
        for name in [*free, *full][:each]:
            shares[name].append(place)
    return shares


def _weight(member: str, partition: int) -> bytes:
    return blake2b(f"{member}\0{partition}".encode(), digest_size=8).digest()


class CellAssignor(AbstractPartitionAssignor):  # type: ignore[misc]
    """The group's leader deals as `dealt` does. Kafka itself does not care that a partition has several owners."""

    name = "largesse-cells"
    version = 0
    copies = 2

    @classmethod
    def assign(
        cls, cluster: ClusterMetadata, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        """See AbstractPartitionAssignor. All members subscribe to the same topic."""
        topics = sorted({topic for member in members.values() for topic in member.subscription})
        shares = {topic: dealt(members, cluster.partitions_for_topic(topic) or (), cls.copies) for topic in topics}
        return {
            member: ConsumerProtocolMemberAssignment(
                cls.version, [(topic, shares[topic][member]) for topic in topics if shares[topic][member]], b""
            )
            for member in members
        }

    @classmethod
    def metadata(cls, topics: Sequence[str]) -> ConsumerProtocolMemberMetadata:
        """See AbstractPartitionAssignor."""
        return ConsumerProtocolMemberMetadata(cls.version, list(topics), b"")

    @classmethod
    def on_assignment(cls, assignment: ConsumerProtocolMemberAssignment) -> None:
        """See AbstractPartitionAssignor: nothing is kept."""


def assignor_of(copies: int) -> type[CellAssignor]:
    """An assignor with this number of copies."""
    return type("CellAssignor", (CellAssignor,), {"copies": copies})
