"""What a core is asked to answer. Apart from the protocol of cores (core.py), which cannot be compiled."""

from dataclasses import dataclass

from schemas.envelope import Record


@dataclass(slots=True, eq=False)
class OpenRound:
    """An opening with the upstream decisions that answer the same round: topic -> records in shard order. `time`: log
    time of the opening, in milliseconds.
    """

    record: Record
    upstream: dict[str, list[Record]]
    time: int

    def __init__(self, record: Record, upstream: dict[str, list[Record]] | None = None) -> None:
        self.record = record
        self.upstream = upstream if upstream is not None else {}
        self.time = record.time
