"""`largesse replay --verify --jobs N`: what lies between the checkpoints of a log verified side by side."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing import get_context

from largesse.archive.state_file import StateFile, StateFileDamaged, get
from largesse.archive.store import Store, StoreError, StoreUrlWrong, open_store
from largesse.beginning import VARIABLE
from services.cli.ending import Wrong
from services.cli.progress import Tell
from services.cli.replaying import reading, source_of, store_of
from services.replay.source import NotItsLog
from services.replay.spans import SPANS_EACH, Part, begins, chosen, put_together, verify_span
from services.replay.taken_up import files_in, is_of_this_version
from services.replay.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Asked:
    """One span: by seq the checkpoints with which it begins and ends; None: the log's beginning, or its end."""

    log: str
    store: str
    start: int | None
    end: int | None
    until: int | None
    shards: int
    across_rules: bool


def verified(log: str, until: int | None, across_rules: bool, jobs: int, tell: Tell | None) -> Verdict:
    """What the log's verification comes to. Raises Wrong, and what reading its beginning does."""
    source, store = source_of(log), store_of(log)
    if not store:
        raise Wrong(f"--jobs: goes with checkpoints: name their store with --archive STORE, or {VARIABLE}")
    with _storing():
        files = [file for file in files_in(open_store(store)) if is_of_this_version(file, told=False)]
    files = [file for file in reversed(files) if until is None or file.order.seq < until]
    start, behind = begins(source, files)
    first = 0 if start is None else start.order.seq
    cuts = [start, *chosen(behind, first, SPANS_EACH * jobs), None]
    seqs = [None if file is None else file.order.seq for file in cuts]
    shards = source.shards_max()
    asked = [Asked(log, store, *ends, until, shards, across_rules) for ends in pairwise(seqs)]
    with _parts(asked, jobs) as parts:
        verdict, failed = put_together(source.name, parts, lambda done: tell(done, None) if tell is not None else None)
    if failed:
        raise Wrong(failed)
    verdict.unseen = first
    return verdict


@contextmanager
def _parts(asked: list[Asked], jobs: int) -> Iterator[Iterable[Part]]:
    """What each span comes to, in order."""
    if jobs == 1:
        yield map(part_of, asked)
        return
    # Not forked: whatever threads this process has would be missing there.
    pool = ProcessPoolExecutor(min(jobs, len(asked)), mp_context=get_context("spawn"))
    try:
        yield pool.map(part_of, asked)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def part_of(asked: Asked) -> Part:
    """Verifies one span."""
    try:
        with reading(), _storing():
            store = open_store(asked.store)
            start, end = (_file(store, seq) for seq in (asked.start, asked.end))
            return verify_span(source_of(asked.log), start, end, asked.until, asked.shards, asked.across_rules)
    except Wrong as wrong:
        return Part(failed=str(wrong))


def _file(store: Store, seq: int | None) -> StateFile | None:
    return None if seq is None else get(store, seq)[0]


@contextmanager
def _storing() -> Iterator[None]:
    """Around what reads checkpoints. Raises Wrong."""
    try:
        yield
    except (StoreUrlWrong, StoreError, StateFileDamaged, NotItsLog) as error:
        raise Wrong(str(error)) from None
