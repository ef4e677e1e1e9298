"""A what-if that goes on from a checkpoint's states answers as one that folds its log from the first record."""

import shutil
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import settings
from hypothesis import strategies as st

from largesse.archive import state_file
from largesse.archive.state_file import pack, unpack
from largesse.archive.store import FolderStore, open_store
from largesse.beginning import LogTrimmed
from largesse.bus.file.trim import trim
from services.replay.archiving import Limits, archive_log
from services.replay.joined import joined
from services.replay.live import hindsight
from services.replay.source import NotItsLog, open_source
from services.replay.taken_up import taken_up
from services.replay.whatif.answer import document_of
from services.replay.whatif.run import Question, ask, ask_from
from tests.simulation.checkpointed import Checkpointed
from tests.simulation.test_what_if import drawn
from tests.strategies import for_all

CHECKPOINTS = 4
JOBS = 24


@cache
def recorded(jobs=JOBS):
    """A log in which nodes fail, gangs wait and tasks fail, with checkpoints."""
    folder = Path(mkdtemp(prefix="checkpointed-"))
    drawn(folder / "log", 8, "largesse", outages=True, jobs=jobs)
    return Checkpointed(folder, folder / "log", CHECKPOINTS)


@cache
def asked(**question):
    """The slow way: the log folded from its first record."""
    return told(recorded().log, Question(**question))


def told(source, question, archive=""):
    answer = ask_from(source, str(archive), question) if archive else ask(source, question)
    return document_of(answer, question)


def same(begun, slow, file):
    """Nothing differs but where it began."""
    assert (slow["begun_seq"], begun["begun_seq"]) == (0, file.order.seq)
    assert {**begun, "begun_seq": 0} == slow


@settings(max_examples=5)
@for_all(st.data())
def test_the_answer_is_that_of_a_fold_from_the_first_record(data):
    cell = recorded()
    file = data.draw(st.sampled_from(cell.files))
    fork = data.draw(st.integers(file.order.seq, cell.records[-1].seq))
    question = Question(data.draw(st.sampled_from([{}, {"preset": "drf"}])), fork=fork)
    if data.draw(st.booleans()):
        question.fork, question.fork_ms = 0, max(file.order.time, cell.records[fork - 1].time)
    if data.draw(st.booleans()):
        question.until = data.draw(st.integers(fork, cell.records[-1].seq))
    source = data.draw(st.sampled_from([cell.log, cell.live]))

    same(told(taken_up(source, unpack(pack(file), "here")), question), told(cell.log, question), file)


def test_it_goes_on_from_the_newest_checkpoint_before_the_fork_and_without_one_from_the_first_record():
    cell = recorded()
    first, *_, last = cell.files
    fork = last.order.seq
    same(told(cell.live, Question(fork=fork), cell.archive), asked(fork=fork), last)
    assert (
        hindsight.what_if(
            cell.live, {"from_seq": fork}, cell.records[-1].seq, lambda done, of: None, str(cell.archive)
        )["begun_seq"]
        == last.order.seq
    )
    early = Question(fork=first.order.seq - 1, until=first.order.seq)
    assert told(cell.live, early, cell.archive)["begun_seq"] == 0


@pytest.fixture
def trimmed(tmp_path):
    """The same cell, with its log let go of behind the third checkpoint."""
    cell = recorded()
    shutil.copytree(cell.folder, tmp_path / "bus")
    trim(tmp_path / "bus", cell.files[2].needed(0))
    return open_source(tmp_path / "bus")


def test_of_a_log_that_was_trimmed_behind_its_checkpoint(trimmed):
    cell, fork = recorded(), recorded().files[-1].order.seq - 5
    with pytest.raises(LogTrimmed):
        ask(trimmed, Question(fork=fork))
    same(told(trimmed, Question(fork=fork), cell.archive), asked(fork=fork), cell.files[2])


@pytest.mark.parametrize("at", [1, 2])
def test_of_an_archive_and_of_an_archive_with_the_live_log_behind_it(trimmed, at, tmp_path):
    cell, store = recorded(), open_store(str(tmp_path / "archive"))
    archive_log(cell.live, store, Limits(segment_bytes=200_000), lambda done: None, lambda segment: None)
    for file in cell.files[: at + 1]:
        state_file.put(store, file)
    fork = cell.files[at].order.seq + 7
    archived = open_source(f"archive:{store.url}")
    for source in (archived, joined(archived, trimmed), joined(archived, cell.live)):
        same(told(source, Question(fork=fork), store.url), asked(fork=fork), cell.files[at])


def test_a_checkpoint_of_another_log_is_none(tmp_path):
    cell = recorded()
    (file,) = [unpack(pack(cell.files[-1]), "here")]
    file.landmark, file.order.prefix = "5f" * 32, "5f" * 32
    state_file.put(FolderStore(tmp_path), file)
    for source in (cell.live, cell.log):
        with pytest.raises(NotItsLog, match="is of another log than"):
            ask(taken_up(source, file), Question(fork=file.order.seq))
    fork = file.order.seq
    assert told(cell.live, Question(fork=fork), tmp_path) == asked(fork=fork)


def test_without_what_records_said_before_a_checkpoint_serves_no_what_if(tmp_path):
    cell = recorded()
    file = unpack(pack(cell.files[-1]), "here")
    del file.states["past", 0]
    state_file.put(FolderStore(tmp_path), file)
    fork = file.order.seq
    assert told(cell.live, Question(fork=fork), tmp_path)["begun_seq"] == 0
