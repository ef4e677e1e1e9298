"""Which answers a round waits for, and the record that an answer becomes. Free of bus and metrics: a simulation, which
needs neither, imports it.
"""

from collections.abc import Iterable
from typing import NamedTuple

from largesse.ids import decision_id
from largesse.log.codec import encode, record_of
from schemas import Record
from schemas.topics import SHARDED


class Wanted(NamedTuple):
    """An answer that is waited for."""

    topic: str
    shard: int
    of: int


def wanted_of(topics: Iterable[str], shards: int) -> list[Wanted]:
    """All answers of these topics to a round with this number of altruism shards, in shard order."""
    return [
        Wanted(topic, shard, of)
        for topic in topics
        for of in (shards if topic in SHARDED else 1,)
        for shard in range(of)
    ]


def answer(opening: Record, wanted: Wanted, body: object) -> tuple[Record, bytes]:
    """The decision record that answers an opening, and its content."""
    topic, shard, of = wanted
    cause = opening.id
    record = record_of(
        body,
        cell=opening.cell,
        seq=opening.seq,
        round_number=opening.round,
        time=opening.time,
        id_=decision_id(topic, shard, of, cause),
        cause=cause,
    )
    return record, encode(record)
