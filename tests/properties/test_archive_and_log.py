"""An archive and the live log behind it are read as one log, wherever the one ends and the other begins."""

import asyncio
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest
from hypothesis import example
from hypothesis import strategies as st

from largesse.bus.file.bus import FileBus
from largesse.bus.port import Message
from largesse.log.fencing import read_piece
from schemas.topics import LOG
from services.gateway import view
from services.replay.joined import SeamBroken, _begun, joined
from services.replay.onto_bus import put_onto
from services.replay.source import NoLog, Source, Step, open_source, steps_of, write_export
from services.replay.verify import verify
from tests.archives import Writer, archived, recorded, up_to
from tests.strategies import for_all
from tests.unit.cli_here import largesse

RECORDS = 431


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return recorded(tmp_path_factory.mktemp("joined") / "log")


@pytest.fixture(scope="module")
def messages(path):
    return messages_of(with_two_writers(path))


@pytest.fixture(scope="module")
def log(messages):
    return live(messages)


@pytest.fixture(scope="module")
def other_log(tmp_path_factory):
    return live(messages_of(with_two_writers(recorded(tmp_path_factory.mktemp("joined") / "other", seed=1))))


def with_two_writers(path):
    """A log whose writer changes at record 200, as a sequencer's successor claims it."""
    steps = list(open_source(path).steps())
    for each in steps:
        accepted = each.accepted
        accepted.header = replace(accepted.header, token="first" if accepted.record.seq < 200 else "second")
    return Source("log", lambda _: (Step(each.accepted, dict(each.decisions)) for each in steps), lambda: 1)


def messages_of(log):
    writer = Writer()
    asyncio.run(put_onto(log, writer, view.NAME, lambda _: None))
    return writer.messages


def live(messages, first=1):
    """The live log, whose messages before record `first` are gone."""
    begins = next(
        at
        for at, each in enumerate(messages)
        if each.topic == LOG and ((_begun(each) or (0,))[0] >= first or first == 1)
    )
    kept = messages[begins:]
    return Source("live", lambda hear: steps_of(iter(kept), 0, hear), lambda: 1, messages=lambda: iter(kept))


def exported(source, path):
    write_export(source, path)
    return path.read_bytes()


@pytest.mark.slow
@for_all(st.integers(30, RECORDS), st.one_of(st.integers(1, RECORDS), st.just(RECORDS)))
@example(199, 200)  # The claim of the second writer is in neither.
def test_both_read_as_the_whole_log(fixed, seen, first):
    log, messages, whole = fixed
    with TemporaryDirectory() as place:
        folder = Path(place, "archive")
        archived(up_to(log, seen), folder, 60_000)
        archive = open_source(f"archive:{folder}")
        *_, last = archive.steps()
        end = last.accepted.record.seq
        both = joined(archive, live(messages, min(first, end + 1)))

        assert exported(both, Path(place, "export")) == whole, (seen, first)


class Fixed(NamedTuple):
    """In a tuple of its own, so that a failing example does not print a log."""

    log: Source
    messages: list[Message]
    whole: bytes

    def __repr__(self):
        return "Fixed"


@pytest.fixture(scope="module")
def fixed(log, messages, tmp_path_factory):
    return Fixed(log, messages, exported(log, tmp_path_factory.mktemp("joined") / "whole"))


def test_records_that_neither_has_are_named(log, messages, tmp_path):
    archived(up_to(log, 250), tmp_path / "archive")
    archive = open_source(f"archive:{tmp_path / 'archive'}")
    *_, last = archive.steps()
    end = last.accepted.record.seq

    with pytest.raises(SeamBroken, match=f"records {end + 1} to {end + 5} are in neither"):
        list(joined(archive, live(messages, end + 6)).steps())


def test_both_are_decided_again_alike(log, messages, tmp_path):
    archived(up_to(log, 250), tmp_path / "archive", 60_000)
    both = joined(open_source(f"archive:{tmp_path / 'archive'}"), live(messages, 190))

    assert {**verify(both).document(), "source": ""} == {**verify(log).document(), "source": ""}


def test_another_log_behind_an_archive_is_refused(log, other_log, tmp_path):
    archived(log, tmp_path / "archive")
    archive = open_source(f"archive:{tmp_path / 'archive'}")

    with pytest.raises(SeamBroken, match="it is another log than archive:"):
        list(joined(archive, other_log).steps())


def test_a_log_that_begins_as_another_one_goes_on_is_refused(log, messages, other_log, tmp_path):
    archived(up_to(other_log, 250), tmp_path / "archive")
    archive = open_source(f"archive:{tmp_path / 'archive'}")
    *_, last = archive.steps()

    with pytest.raises(SeamBroken, match="it is another log than archive:"):
        list(joined(archive, live(messages, last.accepted.record.seq - 20)).steps())


def test_a_live_log_that_was_cut_before_the_archives_end_is_refused(log, messages, tmp_path):
    archived(log, tmp_path / "archive")
    cut = live(messages[: len(messages) // 2])

    with pytest.raises(SeamBroken, match="it is another log, or was cut"):
        list(joined(open_source(f"archive:{tmp_path / 'archive'}"), cut).steps())


def test_an_export_is_no_live_log(path, tmp_path):
    archived(path, tmp_path / "archive")

    with pytest.raises(NoLog, match="is not the live log of a cell"):
        joined(open_source(f"archive:{tmp_path / 'archive'}"), open_source(path))


def test_parts_of_records_begin_none(messages):
    parts = [each for each in messages if each.topic == LOG and (found := read_piece(each.value)) and found.header.part]

    assert [_begun(each) for each in parts] == [None] * len(parts)


async def onto_folder(source, folder):
    bus = FileBus(folder)
    await put_onto(source, bus.writer(), view.NAME, lambda _: None)
    await bus.close()


def test_commands_read_both_as_one(log, path, tmp_path):
    archived(up_to(log, 250), tmp_path / "archive")
    asyncio.run(onto_folder(log, tmp_path / "data" / "bus"))
    both = (tmp_path / "data", "--archive", tmp_path / "archive")

    assert largesse("export", tmp_path / "data", tmp_path / "alone").code == 0
    said = largesse("export", tmp_path / "data", tmp_path / "export", *both[1:])
    assert said.code == 0, said.err
    assert (tmp_path / "export").read_bytes() == (tmp_path / "alone").read_bytes()
    verified = largesse("replay", *both, "--verify", columns=200)
    assert (verified.code, verified.out.partition(": ")[2]) == (0, "same: 86 rounds compared, 431 records\n")
    assert (
        largesse("bisect", *both[:1], "pending() > 5", *both[1:]).out == largesse("bisect", path, "pending() > 5").out
    )
    assert largesse("tail", tmp_path / "data", "--last", 3, *both[1:]).out == largesse("tail", path, "--last", 3).out
    assert largesse("replay", *both, "--json").json["seq"] == RECORDS
    refused = largesse("replay", path, "--archive", tmp_path / "archive")
    assert (refused.code, "is not the live log of a cell" in refused.err) == (2, True)
