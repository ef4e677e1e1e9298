"""However a log is cut into segments, and whoever cuts it, its archive reads back as the same export."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import strategies as st

from largesse.archive.archiver import Archiver, Overtaken
from largesse.archive.manifest import read_all
from largesse.archive.reader import check_archive, standing
from largesse.archive.segment import unpack
from largesse.archive.store import FolderStore
from largesse.log.export import read_export
from schemas import RoundAbandoned, RoundClosed
from services.replay.archiving import _winners
from services.replay.source import open_source, write_export
from services.replay.verify import verify
from tests.archives import SIZES, archived, recorded, up_to
from tests.strategies import for_all


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return recorded(tmp_path_factory.mktemp("archives") / "log")


@pytest.fixture(scope="module")
def steps(log):
    return [(each.accepted, _winners(each)) for each in open_source(log).steps()]


def exported(folder, path):
    """The archive in a folder as an export, byte for byte."""
    write_export(open_source(f"archive:{folder}"), path)
    return path.read_bytes()


def ends_of(log):
    """The records with which rounds are over."""
    steps = open_source(log).steps()
    return [
        each.accepted.record.seq
        for each in steps
        if isinstance(each.accepted.record.body, RoundClosed | RoundAbandoned)
    ]


def joined_segments(folder):
    """What `zstdcat segments/*` shows."""
    return b"".join(unpack(path.read_bytes()) for path in sorted((folder / "segments").iterdir()))


@pytest.mark.slow
@for_all(st.lists(st.tuples(SIZES, st.integers(1, 500)), min_size=1, max_size=4))
def test_any_cut_of_a_log_reads_back_as_the_same_export(log, runs):
    whole, ends = log.read_bytes(), ends_of(log)
    with TemporaryDirectory() as place:
        folder, seen = Path(place, "archive"), 0
        for segment_bytes, seq in runs:
            seen = max(seen, seq)
            archived(up_to(open_source(log), seen), folder, segment_bytes)
        there = max((end for end in ends if end <= seen), default=0)

        if there:
            manifests = read_all(FolderStore(folder))
            assert manifests[-1].manifest.end.seq == there
            found = joined_segments(folder)
            assert whole.startswith(found)
        archived(log, folder)
        assert exported(folder, Path(place, "export")) == whole
        assert standing(FolderStore(folder)).orphans == []


@pytest.mark.slow
@for_all(st.lists(st.tuples(st.booleans(), st.integers(1, 60)), max_size=40), SIZES, SIZES)
def test_two_archivers_at_once_do_no_harm(log, steps, turns, first_bytes, second_bytes):
    with TemporaryDirectory() as place:
        store = FolderStore(Path(place, "archive"))
        archivers = {True: Archiver(store, first_bytes), False: Archiver(store, second_bytes)}
        sizes, at = {True: first_bytes, False: second_bytes}, {True: 0, False: 0}

        def go(who, records):
            for _ in range(records):
                if at[who] == len(steps):
                    return
                is_full = archivers[who].take(*steps[at[who]])
                at[who] += 1
                try:
                    if is_full or (at[who] == len(steps) and archivers[who].since_ms is not None):
                        archivers[who].close()
                except Overtaken:
                    archivers[who] = Archiver(store, sizes[who])
                    at[who] = archivers[who].end.seq

        for who, records in turns:
            go(who, records)
        for who in (True, False):
            while at[who] < len(steps):
                go(who, 1)

        assert exported(store.url, Path(place, "export")) == log.read_bytes()


def test_an_archive_is_decided_again_like_its_log(log, tmp_path):
    archived(log, tmp_path / "archive", 60_000)

    assert verify(open_source(f"archive:{tmp_path / 'archive'}")).document() == {
        **verify(open_source(log)).document(),
        "source": f"archive:{tmp_path / 'archive'}",
    }


def test_all_of_it_is_verified_by_several_processes(log, tmp_path):
    archived(log, tmp_path / "archive", 60_000)
    store, heard = FolderStore(tmp_path / "archive"), []

    assert check_archive(store, read_all(store), heard.append, 2) == []
    assert heard[-1] == len([each for each in read_export(log) if each.topic == "cluster.log"])
