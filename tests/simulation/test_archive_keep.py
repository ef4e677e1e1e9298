"""A keeper on the data folder of a cell: it archives, has checkpoints made, signs and trims; killed anywhere, or beside
another one, it loses nothing.
"""

import os
import shutil
import signal
from itertools import count
from threading import Thread

import pytest

from largesse import failpoints
from largesse.archive import state_file
from largesse.archive.manifest import read_all
from largesse.archive.reader import check_archive
from largesse.archive.store import FolderStore
from largesse.bus.file.reading import read_journal
from largesse.bus.file.trimming import read_trimmed
from schemas.topics import LOG
from services.cli.abandoning import note_checkpoint
from services.cli.ending import Ending
from services.replay.archiving import Limits
from services.replay.checkpoint_logs import in_folder, noted
from services.replay.keeping import Keeper, NotNoted, Terms
from services.replay.source import open_source, write_export
from tests.simulation.test_checkpoint_commands import earlier
from tests.simulation.trimmed_cells import Told
from tests.unit.cli_here import largesse

pytestmark = pytest.mark.slow

GUARD_S = 300
SEGMENT_BYTES = 200_000
KILLED_AT = [
    *("archive:before_segment:1", "archive:after_segment:1", "archive:after_segment:2"),
    *("archive:before_manifest:1", "archive:after_manifest:1", "archive:after_manifest:2"),
    *("keep:before_states:1", "keep:after_states:1", "keep:after_note:1", "keep:before_trim:1", "keep:after_trim:1"),
]


def keeper(folder, store, said, **terms):
    """Of the cell in a folder, which does not run: its sequencer notes checkpoints. Everything is due at once."""

    def note(document, seq):
        try:
            return note_checkpoint(str(folder.parent), document, seq, "keep")
        except Ending as why:  # The sequencer of the other one has the folder.
            raise NotNoted(str(why), is_final=False) from None

    own = Terms(Limits(SEGMENT_BYTES, follow=True), **{"checkpoint_ms": 0, "keep_log_ms": 0, **terms})
    ticks = count(1 << 45, 600_000)  # Nothing has to be waited for that is tried again after a while.
    source, log = open_source(folder), in_folder(folder)
    return Keeper(source, log, FolderStore(store), own, note, said.append, clock=lambda: next(ticks))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A cell whose log has noted one checkpoint."""
    cell = Told(tmp_path_factory.mktemp("cell"))
    earlier(cell)
    return cell


@pytest.fixture
def cell(whole, tmp_path):
    """The same, for one test alone."""
    copy = whole.copied(tmp_path)
    shutil.copytree(whole.archive, copy.archive)
    return copy


def turn(cell, failpoint=""):
    """One turn in a process of its own; its exit code, negative for a signal."""
    child = os.fork()
    if not child:
        code = 1
        try:
            failpoints._armed = failpoints.parse(failpoint)
            one = keeper(cell.folder, cell.archive, [])
            one.once()
            code = one.failures
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def done(cell):
    """What there is in the end."""
    store = FolderStore(cell.archive)
    manifests = read_all(store)
    assert check_archive(store, manifests, lambda _: None, 1) == []
    found = noted(store, in_folder(cell.folder))
    first = read_trimmed(cell.folder).firsts.get((LOG, 0), 0)
    assert len(found) >= 1
    assert manifests[-1].manifest.end.seq > found[-1].file.order.seq
    assert 0 < first <= found[0].file.order.offset
    said = largesse("replay", str(cell.folder), "--archive", str(cell.archive), "--verify")
    assert said.code == 0, said.err
    return manifests[-1].manifest.end, [each.file.order.seq for each in found], state_file.seqs_in(store)


def exported(location, path):
    write_export(open_source(location), path)
    return path.read_bytes()


def test_one_turn_archives_checkpoints_and_trims_and_the_next_finds_nothing_to_do(cell, tmp_path):
    shutil.copytree(cell.folder, tmp_path / "before")
    said = []
    keeper(cell.folder, cell.archive, said).once()

    assert [event.what for event in said if event.what != "archived"] == ["checkpoint", "trimmed"]
    assert state_file.seqs_in(FolderStore(cell.archive))[0] == said[-1].seq, "behind the older of the two"
    again = []
    one = keeper(cell.folder, cell.archive, again)
    one.once()
    assert {event.what for event in again} <= {"archived", "trimmed", "waits"}
    assert one.failures == 0
    done(cell)
    before = exported(tmp_path / "before", tmp_path / "a")
    assert exported(f"archive:{cell.archive}", tmp_path / "b").startswith(before[: len(before) // 2])


@pytest.mark.parametrize("failpoint", KILLED_AT)
def test_killed_anywhere_the_next_one_comes_to_the_same(cell, failpoint):
    assert turn(cell, failpoint) == -signal.SIGKILL
    assert [turn(cell), turn(cell)] == [0, 0]

    _, known, kept = done(cell)
    assert known[-1] == kept[-1]
    assert len(kept) == 2


def test_two_at_once_do_no_harm(cell):
    said = [[], []]
    threads = [Thread(target=keeper(cell.folder, cell.archive, each).once) for each in said]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(GUARD_S)

    keeper(cell.folder, cell.archive, []).once()
    done(cell)


def test_nothing_is_trimmed_that_is_younger_than_is_kept(cell):
    said = []
    one = keeper(cell.folder, cell.archive, said, keep_log_ms=None)
    one.once()

    assert "trimmed" not in {event.what for event in said}
    one = keeper(cell.folder, cell.archive, said, keep_log_ms=1 << 50)
    one.once()
    assert "trimmed" not in {event.what for event in said}
    assert read_trimmed(cell.folder).firsts.get((LOG, 0), 0) == 0


def test_a_damaged_archive_keeps_the_log_as_it_is(cell):
    keeper(cell.folder, cell.archive, [], keep_log_ms=None).once()
    store = FolderStore(cell.archive)
    path = cell.archive / read_all(store)[0].manifest.segment.name
    path.write_bytes(path.read_bytes()[:-9] + b"otherwise")
    said = []
    one = keeper(cell.folder, cell.archive, said)
    one.look()

    assert [event.what for event in said] == ["failed"]
    assert said[0].text.startswith("trim: ")
    assert one.failures == 1
    assert read_trimmed(cell.folder).firsts.get((LOG, 0), 0) == 0


def test_a_cell_that_does_not_answer_is_asked_again_and_one_that_refuses_gets_another_checkpoint(cell):
    said = []
    one = keeper(cell.folder, cell.archive, said)
    asked = []

    def silent(document, seq):
        asked.append(document)
        raise NotNoted("nobody answers", is_final=len(asked) == 2)

    note, one._note = one._note, silent
    one.once()
    one.look()
    assert [each["checkpoint"]["closing"] for each in asked] == [asked[0]["checkpoint"]["closing"]] * 2
    assert asked[0] == asked[1], "what was kept already is told again"
    assert len(state_file.seqs_in(FolderStore(cell.archive))) == 1, "what is refused is of no use"
    one._note = note
    one.look()
    assert [event.what for event in said if event.what != "archived"] == ["failed", "failed", "checkpoint", "trimmed"]


def test_a_dry_run_says_what_is_due_and_does_nothing(cell):
    store = FolderStore(cell.archive)
    before = [each.name for each in store.names()], [*read_journal(cell.folder)]
    said = keeper(cell.folder, cell.archive, []).planned()

    assert [event.what for event in said] == ["archived", "checkpoint"]
    assert said[0].text.startswith("records 1 to ")
    assert ([each.name for each in store.names()], [*read_journal(cell.folder)]) == before
