"""Puts a recorded log into an archive: what the archive has of it is compared, the rest is written behind that."""

from collections.abc import Callable

from largesse.archive.archiver import AnotherLog, Archived, Archiver, Overtaken
from largesse.archive.store import Store
from largesse.ids import PREFIX_OF_NOTHING, chain
from schemas import RoundClosed
from services.replay.source import Source, Step, winning


def archive_log(source: Source, store: Store, segment_bytes: int, told: Callable[[int], None]) -> Archived:
    """Archives a log up to the last round that is over. `told`: hears the seq of each record. Raises AnotherLog,
    ArchiveDamaged, StoreError, DecisionGap, and what reading the source raises.
    """
    while True:
        try:
            return _archived(source, Archiver(store, segment_bytes), told)
        except Overtaken:
            continue


def _archived(source: Source, archiver: Archiver, told: Callable[[int], None]) -> Archived:
    end, prefix, seq = archiver.end, PREFIX_OF_NOTHING, 0
    for step in source.steps():
        seq = step.accepted.record.seq
        told(seq)
        if seq <= end.seq:
            prefix = chain(prefix, step.accepted.content)
            if seq == end.seq and prefix.hex() != end.prefix:
                raise AnotherLog(f"{source.name}: up to record {seq:,} it is another log than {archiver.store.url} has")
        elif archiver.take(step.accepted, _winners(step)):
            archiver.close()
    if seq < end.seq:
        has = f"{archiver.store.url} has records up to {end.seq:,}"
        raise AnotherLog(f"{source.name}: ends with record {seq:,}, and {has}: it is another log, or it was cut")
    if archiver.since_ms is not None:
        archiver.close()
    return archiver.archived


def _winners(step: Step) -> list[tuple[str, bytes]]:
    record = step.accepted.record
    return list(winning(step, record)) if isinstance(record.body, RoundClosed) else []
