"""`largesse checkpoint` on the data folder of a cell that does not run: make, list, verify, trim."""

import json
import shutil

import pytest

from largesse.archive import state_file
from largesse.archive.store import FolderStore
from largesse.bus.file.bus import FileBus
from largesse.bus.file.compacted import DIRECTORY
from largesse.bus.file.reading import read_journal
from largesse.bus.file.trimming import ASKED_NAME, read_trimmed
from schemas import Checkpoint
from schemas.topics import LOG
from services.cli.abandoning import note_checkpoint
from services.replay.checkpoint_logs import in_folder, noted
from services.replay.checkpointing import agree, told
from services.replay.source import open_source
from tests.simulation.trimmed_cells import Told
from tests.unit.cli_here import largesse

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return Told(tmp_path_factory.mktemp("cell"))


@pytest.fixture
def copy(whole, tmp_path):
    """The cell, for one test alone."""
    return whole.copied(tmp_path)


def earlier(cell):
    """A checkpoint behind the snapshots before the last, made and noted as the command does."""
    store, last = FolderStore(cell.archive), max(each.order.seq for each in cell.snapshots)
    file = agree(read_journal(cell.folder), 0, [each for each in cell.snapshots if each.order.seq < last]).file
    document = told(file, state_file.put(store, file))
    # A sequencer that begins with the last snapshot would not know this closing.
    (cell.folder / DIRECTORY).rename(aside := cell.folder / "aside")
    assert note_checkpoint(str(cell.folder.parent), document, file.order.seq, "ann")
    shutil.rmtree(cell.folder / DIRECTORY, ignore_errors=True)
    aside.rename(cell.folder / DIRECTORY)
    return file


def said(*words):
    done = largesse(*map(str, words))
    assert done.code == 0, done.err
    return done.out


def refused(*words, code=1):
    done = largesse(*map(str, words))
    assert done.code == code
    return done.err


def test_make_list_verify_and_trim(copy):
    data = copy.folder.parent
    first = earlier(copy)
    only = refused("checkpoint", "trim", copy.archive, "--log", data, "--unarchived")
    assert "the log has noted 1 of the checkpoints in" in only

    made = json.loads(said("checkpoint", "make", copy.archive, "--log", data, "--json"))
    assert made["noted"] is True
    assert made["closing"] > first.order.seq
    assert set(made["second_fold_behind"].values()) == {made["closing"]}
    records = [step.accepted.record for step in open_source(copy.folder).steps()]
    (_, body) = [record.body for record in records if isinstance(record.body, Checkpoint)]
    assert body.closing == made["closing"]
    assert "no service has written a snapshot behind" in refused("checkpoint", "make", copy.archive, "--log", data)

    listed = json.loads(said("checkpoint", "list", copy.archive, "--json"))["checkpoints"]
    assert [each["closing"] for each in listed] == [first.order.seq, made["closing"]]
    assert "SEQ" in said("checkpoint", "list", copy.archive)
    both = "2 as they were written; the log has noted 2 of them"
    assert both in said("checkpoint", "verify", copy.archive, "--log", data)

    assert "there is no archive" in refused("checkpoint", "trim", copy.archive, "--log", data)
    assert read_trimmed(copy.folder).line == 0
    said("archive", "run", copy.archive, "--log", data)
    trimmed = json.loads(said("checkpoint", "trim", copy.archive, "--log", data, "--json"))
    assert trimmed["closing"] == first.order.seq
    assert 0 < trimmed["first_offset"] < first.order.offset
    assert read_trimmed(copy.folder).firsts[LOG, 0] == trimmed["first_offset"]
    for words in (("replay", data), ("export", data, data / "out"), ("audit", data)):
        text = refused(*words, code=2)
        assert f"this log begins at offset {trimmed['first_offset']}; what was before it has been trimmed" in text
    again = said("checkpoint", "trim", copy.archive, "--log", data, "--unarchived")
    assert "nothing to let go of" in again
    assert both in said("checkpoint", "verify", copy.archive, "--log", data)


def test_nothing_goes_that_the_archive_does_not_have_as_it_was_written(copy):
    data = copy.folder.parent
    earlier(copy)
    said("archive", "run", copy.archive, "--log", data)
    said("checkpoint", "make", copy.archive, "--log", data)
    (segment,) = (copy.archive / "segments").iterdir()
    whole = segment.read_bytes()
    segment.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert segment.name in refused("checkpoint", "trim", copy.archive, "--log", data)
    assert read_trimmed(copy.folder).line == 0

    segment.write_bytes(whole)
    assert "the log begins at offset" in said("checkpoint", "trim", copy.archive, "--log", data)


def test_a_folder_that_a_process_holds_is_asked_to_be_trimmed(copy):
    earlier(copy)
    said("checkpoint", "make", copy.archive, "--log", copy.folder.parent)
    bus = FileBus(copy.folder)
    try:
        assert "asked for: process" in said(
            "checkpoint", "trim", copy.archive, "--log", copy.folder.parent, "--unarchived"
        )
    finally:
        bus._lock.release()
    assert (copy.folder / ASKED_NAME).exists()


def test_a_checkpoint_whose_states_are_others_than_the_log_noted_does_not_count(copy):
    first = earlier(copy)
    store = FolderStore(copy.archive)
    assert [each.file for each in noted(store, in_folder(copy.folder))] == [first]
    store.delete(first.name)
    layout, data = first.states["fairness", 0]
    first.states["fairness", 0] = layout, data + b" "
    state_file.put(store, first)

    assert noted(store, in_folder(copy.folder)) == []
    (seq,) = state_file.seqs_in(store)
    text = largesse("checkpoint", "verify", str(copy.archive), "--log", str(copy.folder.parent))
    assert f"the log does not note those behind {seq:,}" in text.err


def test_without_a_log_or_a_store_it_says_so(tmp_path):
    assert (
        "there is no journal in this folder"
        in largesse("checkpoint", "make", str(tmp_path / "a"), "--log", str(tmp_path)).err
    )
    assert "is no store" in largesse("checkpoint", "list", "ftp://there").err
    assert "there is none" in largesse("checkpoint", "list", str(tmp_path)).out


def test_a_store_with_the_checkpoints_of_another_log_is_refused_by_name(copy):
    file = earlier(copy)
    store = FolderStore(copy.archive)
    store.delete(file.name)
    file.landmark, file.cell = "5f" * 32, "south"
    state_file.put(store, file)

    text = refused("checkpoint", "make", copy.archive, "--log", copy.folder.parent)

    assert "has checkpoints of another log than" in text
    assert f"the last behind record {file.order.seq} of cell south: each log has a store of its own" in text
    assert state_file.seqs_in(store) == [file.order.seq]
    unknown = refused("checkpoint", "verify", copy.archive, "--log", copy.folder.parent)
    assert f"the log does not note those behind {file.order.seq}" in unknown


def test_one_damaged_file_hides_no_other(copy):
    first, data = earlier(copy), copy.folder.parent
    said("checkpoint", "make", copy.archive, "--log", data)
    path = copy.archive / first.name
    path.write_bytes(path.read_bytes()[:-9])

    for words in (("list",), ("verify",)):
        done = largesse("checkpoint", *words, copy.archive, "--json")
        document = json.loads(done.out)
        assert done.code == 1
        assert first.name in done.err
        assert len(document["checkpoints"]) == len(document["wrong"]) == 1
    text = refused("checkpoint", "trim", copy.archive, "--log", data)
    assert f"{first.name}: it cannot be unpacked" in text
    assert "the log has noted 1 of the checkpoints" in text


@pytest.mark.parametrize("words", [("list",), ("verify",), ("trim", "--log", "bus")], ids=" ".join)
def test_a_folder_that_is_not_there_is_named(copy, words):
    (command, *more) = [str(copy.folder) if word == "bus" else word for word in words]
    text = refused("checkpoint", command, copy.folder / "nowhere", *more, code=2)
    assert "nowhere: there is no such folder" in text
