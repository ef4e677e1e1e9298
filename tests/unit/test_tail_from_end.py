"""The last records of a log, read from its end: the same as a whole reading shows, or none where only that can say."""

import asyncio
from functools import partial
from itertools import product
from pathlib import Path
from shutil import copy, copytree

import pytest

from benchmarks.loads import short
from largesse.bus.file.bus import FileBus
from largesse.log.export import ExportWriter
from largesse.log.record_lines import WantedRecords
from schemas import JobCancelled
from schemas.topics import LOG
from services.cli import tailing
from services.replay.source import open_source, write_export
from services.simulator.run import Options, simulate
from tests.bus_stories import Scribe, append_raw

SEGMENT = 4_000


def whole(source):
    return [(each.accepted.record, each.accepted.content) for each in source.steps()]


def agrees(source, expected, **wanted):
    """For every number of records: what is found from the end is what a whole reading ends with."""
    wanted = WantedRecords(**wanted)
    rows = [each for each in expected if wanted.has(each[0], tailing.JobPlaces().names_in(each[0]))]
    for last in range(1, len(rows) + 3):
        found = tailing.from_end(source, wanted, last)
        assert found is not None
        assert found == rows[-last:]


@pytest.fixture(autouse=True)
def _few_at_once(monkeypatch):
    monkeypatch.setattr(tailing, "FROM_END_LEAST", 2)


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("logs")
    with ExportWriter(folder / "log.gz") as writer:
        simulate(*short(40), Options({"preset": "fifo"}, listener=writer))
    write_export(open_source(folder / "log.gz"), folder / "log.jsonl")
    return folder


@pytest.fixture(params=["log.jsonl", "log.gz"])
def exported(request, simulated, tmp_path):
    return Path(copy(simulated / request.param, tmp_path))


def test_an_export(exported):
    source = open_source(exported)
    expected = whole(source)
    for last in (1, 2, 3, 20, len(expected) - 1, len(expected), len(expected) + 1):
        assert tailing.from_end(source, WantedRecords(types=["TimeReached", *TYPES]), last) == expected[-last:]
    assert source.last(3).all is False
    assert source.last(len(expected)).all is True


TYPES = (
    *("JobAdmitted", "JobEnded", "NodeRegistered", "TaskStarted", "TaskFinished", "ConfigChanged", "Releases", "Plans"),
    *("RoundOpened", "RoundClosed", "SequencerAlive", "TaskFailed", "JobRejected", "JobCancelled"),
)


@pytest.mark.parametrize("at", [1, -1, -2, -3])
def test_an_export_that_is_damaged_is_left_to_a_whole_reading(exported, at):
    if exported.suffix == ".gz":
        exported.write_bytes(exported.read_bytes()[:-9])
    else:
        lines = exported.read_bytes().splitlines(keepends=True)
        lines[at] = lines[at].replace(b"1", b"2", 1)
        exported.write_bytes(b"".join(lines))
    source = open_source(exported)

    assert source.last(10**6) is None
    if at < 0:
        assert source.last(10) is None


def test_an_export_without_its_last_line_is_left_to_a_whole_reading(simulated, tmp_path):
    path = Path(copy(simulated / "log.jsonl", tmp_path))
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))

    assert open_source(path).last(5) is None


def journal(folder, story):
    async def write():
        bus = FileBus(folder, segment_bytes=SEGMENT)
        await story(bus)
        await bus.close()

    asyncio.run(write())
    return open_source(folder)


async def claims(bus, writers, records):
    """Several writers, one after the other; between their records lie other topics, and large ones in parts."""
    for name in range(writers):
        scribe = await Scribe(bus).claim(f"writer-{name}")
        for number in range(records):
            await append_raw(bus, "jobs", b'{"x":1}')
            await scribe.write(JobCancelled("j" * (1_500_000 if number == 1 and name == 0 else 3)))


@pytest.mark.parametrize(("writers", "records"), [(1, 1), (1, 30), (3, 5), (4, 1)])
def test_a_folder(tmp_path, writers, records):
    source = journal(tmp_path / "log", partial(claims, writers=writers, records=records))
    expected = whole(source)
    assert len(expected) == writers * records
    agrees(source, expected)


def test_void_records_are_left_to_a_whole_reading(tmp_path):
    async def story(bus):
        await claims(bus, 1, 5)
        value = (await bus.fetch(LOG, 0, 2))[0].value
        for message in (b"{}", value, value.replace(b"writer-0", b"writer-9")):
            await append_raw(bus, LOG, message)
        await claims(bus, 2, 3)

    source = journal(tmp_path / "log", story)
    expected = whole(source)
    found = [source.last(messages) for messages in range(1, 30)]
    assert None in found
    for each in found:
        if each is not None:
            rows = [(one.record, one.content) for one in each.records]
            assert rows == expected[len(expected) - len(rows) :]
    export = tmp_path / "log.gz"
    write_export(source, export)
    assert whole(open_source(export)) == expected


def test_a_folder_that_is_cut_or_changed_is_left_to_a_whole_reading(tmp_path):
    journal(tmp_path / "log", partial(claims, writers=1, records=30))
    for change, at in product(("cut", "changed", "torn"), (-1, -2)):
        folder = copytree(tmp_path / "log", tmp_path / f"{change}{at}")
        path = sorted(folder.glob("journal-*"))[-1]
        lines = path.read_bytes().splitlines(keepends=True)
        if change == "cut":
            del lines[at:]
        elif change == "changed":
            lines[at] = lines[at].replace(b'"x":1', b'"x":2').replace(b"jjj", b"jjk")
        else:
            lines.append(b'{"line":')
        path.write_bytes(b"".join(lines))

        assert open_source(folder).last(10) is None
