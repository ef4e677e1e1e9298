"""Logs and archives of them, for tests."""

from pathlib import Path

from hypothesis import strategies as st

from largesse.archive.archiver import SEGMENT_BYTES, Archived
from largesse.archive.store import FolderStore
from largesse.bus.port import Message
from services.replay.archiving import Limits, archive_log
from services.replay.source import Source, open_source
from tests.unit.cli_here import largesse

WORKLOAD = "examples/workloads/small.jsonl"
CLUSTER = "examples/clusters/small.json"

SIZES = st.sampled_from([25_000, 60_000, 300_000, SEGMENT_BYTES])
"""Bytes with which a segment is full."""


def recorded(path: Path, seed: int = 0) -> Path:
    """The export of a simulated log."""
    said = largesse("simulate", "--workload", WORKLOAD, "--cluster", CLUSTER, "--seed", seed, "--log", path)
    assert said.code == 0, said.err
    return path


def up_to(source: Source, seq: int) -> Source:
    """A log as it was when record `seq` was its last."""

    def read(hear):
        for step in source.steps(hear):
            if step.accepted.record.seq > seq:
                return
            yield step

    return Source(source.name, read, source.shards_max)


def archived(log: Path | Source, folder: Path, segment_bytes: int = SEGMENT_BYTES) -> Archived:
    """Puts a log into the archive in a folder."""
    source = log if isinstance(log, Source) else open_source(log)
    return archive_log(source, FolderStore(folder), Limits(segment_bytes), lambda _: None, lambda _: None)


class Writer:
    """Keeps what is sent as a bus would show it."""

    def __init__(self):
        self.messages = []
        self.ends = {}

    async def send(self, batch, *, durable=True):
        for each in batch:
            offset = self.ends.get((each.topic, each.partition), 0)
            self.messages.append(Message(each.topic, each.partition, offset, each.value))
            self.ends[each.topic, each.partition] = offset + 1

    async def drop(self):
        pass
