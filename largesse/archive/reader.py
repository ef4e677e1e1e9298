"""Reads an archive back: its records one after the other, or all of it verified by several processes at a time."""

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

from largesse.archive.manifest import SEGMENTS, ArchiveDamaged, Manifest, Noted, read_all
from largesse.archive.segment import check_segment, records_of
from largesse.archive.store import NameUnknown, Store, Stored, open_store
from largesse.log.export import Exported

AHEAD = 2
"""Segments that are fetched before they are needed."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What there is in a store. `orphans`: segments that no manifest names. `unfinished`: what killed writers left."""

    manifests: list[Noted]
    orphans: list[Stored]
    unfinished: list[Stored]


def standing(store: Store) -> Standing:
    """Looks at names and manifests, not into segments. Raises NoArchive, ArchiveDamaged, StoreError."""
    manifests = read_all(store)
    named = {each.manifest.segment.name for each in manifests}
    segments = store.names(SEGMENTS)
    there = {each.name: each.size for each in segments}
    for each in manifests:
        segment = each.manifest.segment
        if segment.name not in there:
            raise ArchiveDamaged(_missing(store, each.manifest))
        if there[segment.name] != segment.bytes:
            has = f"has {there[segment.name]:,} bytes, and {segment.bytes:,} belong there"
            raise ArchiveDamaged(f"{store.url}/{segment.name}: {has}")
    return Standing(manifests, [each for each in segments if each.name not in named], store.unfinished())


def fetch_segment(store: Store, manifest: Manifest) -> bytes:
    """Raises ArchiveDamaged where it is missing; StoreError."""
    try:
        return store.get(manifest.segment.name)
    except NameUnknown:
        raise ArchiveDamaged(_missing(store, manifest)) from None


def _missing(store: Store, manifest: Manifest) -> str:
    first, last = manifest.start.seq + 1, manifest.end.seq
    return f"{store.url}/{manifest.segment.name}: is missing; it has records {first:,} to {last:,} of the log"


def read_archive(store: Store, manifests: list[Noted]) -> Iterator[Exported]:
    """The records of an archive in order, as an export has them, each verified as it comes. Raises ArchiveDamaged,
    StoreError.
    """
    with ThreadPoolExecutor(1) as pool:
        waiting = deque[tuple[Manifest, Future[bytes]]]()
        for each in manifests:
            waiting.append((each.manifest, pool.submit(fetch_segment, store, each.manifest)))
            if len(waiting) > AHEAD:
                yield from _records(store, *waiting.popleft())
        while waiting:
            yield from _records(store, *waiting.popleft())


def _records(store: Store, manifest: Manifest, data: "Future[bytes]") -> Iterator[Exported]:
    yield from records_of(manifest, data.result(), store.url)


def check_archive(store: Store, manifests: list[Noted], told: Callable[[int], None], processes: int = 0) -> list[str]:
    """Verifies every segment; returns what is wrong, a line for each. `told`: hears how many records were verified.
    `processes`: 0 for as many as there are processors. Raises StoreError.
    """
    wrong, done = list[str](), 0
    spawned = get_context("spawn")  # A client of an object store does not outlive a fork.
    with ProcessPoolExecutor(processes or len(os.sched_getaffinity(0)), mp_context=spawned) as pool:
        for manifest, problem in zip(
            (each.manifest for each in manifests),
            pool.map(_checked, ((store.url, each.manifest) for each in manifests)),
            strict=True,
        ):
            if problem:
                wrong.append(problem)
            done += manifest.end.seq - manifest.start.seq
            told(done)
    return wrong


def _checked(asked: tuple[str, Manifest]) -> str:
    """What is wrong with one segment, or nothing; in a process of its own. Raises StoreError."""
    url, manifest = asked
    store = open_store(url)
    try:
        check_segment(manifest, fetch_segment(store, manifest), store.url)
    except ArchiveDamaged as damaged:
        return str(damaged)
    return ""
