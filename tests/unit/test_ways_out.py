"""Whatever stops a service says what an operator does next, and commands that it names can be typed as they stand."""

import asyncio
import json
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from largesse.bus.file.bus import DirectoryHeld, FileBus, JournalDamaged
from largesse.bus.port import BusError, PositionGap
from largesse.folding import FOLDING, CoreStopped
from largesse.log.codec import Undecodable, record_of
from largesse.log.decisions import DecisionGap
from largesse.log.inputs import InputStopped
from largesse.log.reader import LogReader, publish_input
from largesse.process.ways_out import way_out
from schemas import InputRefused, InputSkipped, SequencerAlive
from services.admission import sequencer as admission
from services.cli.commands import app as cli
from tests.gateway_cell import JOB, a_cell, until_ready
from tests.http_rig import GUARD_S
from tests.unit.cli_here import largesse

OPENING = record_of(SequencerAlive([]), cell="c", seq=9, round_number=7, time=0, id_="c/9", cause="")
LOG = "kafka://broker:9092/c"
PLACES = [pytest.param("", id="processes of their own"), pytest.param("/data of mine", id="an embedded cell")]


def commands_in(text):
    return [shlex.split(each) for each in text.split("`")[1::2]]


STOPS = [
    pytest.param(InputStopped("reading", "tasks", 0, 12), ["admin", "skip-input", "tasks", "12"], id="an input"),
    pytest.param(CoreStopped("leftover", "deciding", OPENING), ["admin", "abandon-round", "7"], id="deciding"),
    pytest.param(
        CoreStopped("admission", "closing a round with", OPENING), ["admin", "abandon-round", "7"], id="closing"
    ),
]


@pytest.mark.parametrize("data", PLACES)
@pytest.mark.parametrize(("error", "words"), STOPS)
def test_a_stop_that_comes_again_names_the_command_that_ends_it(error, words, data):
    advice = way_out(error, data or LOG, data)
    assert advice.startswith("if every start ends here: ")
    (command,) = commands_in(advice)
    assert command == ["largesse", *words, *(["--data", data] if data else [])]
    said = CliRunner().invoke(cli, [*command[1:3], "--help"])
    assert said.exit_code == 0, "the command is one that there is"


def test_a_record_that_cannot_be_folded_is_shown_again_by_replay():
    advice = way_out(CoreStopped("leftover", FOLDING, OPENING), LOG)
    assert commands_in(advice) == [["largesse", "replay", LOG, "--until", "9"]]
    assert "start the version that ran before" in advice


OTHERS = [
    pytest.param(PositionGap("jobs partition 0: position 5 is before the start"), "restore the topic", id="a gap"),
    pytest.param(Undecodable("cluster.log, offset 4"), f"`largesse replay {LOG}` names the record", id="the log"),
    pytest.param(DecisionGap("missing: grants"), "restore the topic", id="an answer"),
    pytest.param(DirectoryHeld(Path("/data"), 7), "end that process, or choose another folder", id="a folder in use"),
    pytest.param(
        JournalDamaged(Path("/data/head.json"), 1, "missing"), "put it back from a copy of this folder", id="a journal"
    ),
]


@pytest.mark.parametrize(("error", "advice"), OTHERS)
def test_every_other_stop_says_what_mends_it(error, advice):
    assert advice in way_out(error, LOG)


def test_an_error_that_passes_by_itself_needs_no_way_out():
    assert way_out(BusError("the broker is away"), LOG) == ""


# ---------------------------------------------------------------- in the folder of a cell that does not run
@dataclass
class Folder:
    """A data folder with inputs that nobody has read."""

    data: Path

    def write(self, *messages):
        async def run():
            bus = FileBus(self.data / "bus")
            try:
                for topic, document in messages:
                    await publish_input(bus.writer(), topic, document, "ann")
            finally:
                await bus.close()

        asyncio.run(run())

    def records(self):
        async def run():
            bus, found = FileBus(self.data / "bus"), []
            try:
                reader = LogReader(bus)
                while more := await reader.read():
                    found += more
                return [each.record.body for each in found]
            finally:
                await bus.close()

        return asyncio.run(run())

    def skip(self, topic, offset, *more):
        return largesse("admin", "skip-input", topic, offset, "--data", self.data, *more, LARGESSE_USER="ops")


def test_an_input_is_skipped_in_the_folder_of_a_cell_that_does_not_run(tmp_path):
    folder = Folder(tmp_path / "data")
    folder.write(("jobs", JOB), ("jobs", {**JOB, "job": "k"}))

    said = folder.skip("jobs", 0, "--reason", "it hangs")

    assert (said.code, said.out, said.err) == (0, "jobs 0 is skipped\n", "")
    skipped = [body for body in folder.records() if isinstance(body, InputSkipped)]
    assert skipped == [InputSkipped("jobs", 0, 0, "it hangs", "ops")]
    again = folder.skip("jobs", 0, "--json")
    assert (again.code, json.loads(again.out)) == (0, {"topic": "jobs", "offset": 0, "skipped": True})
    refused = [body for body in folder.records() if isinstance(body, InputRefused)]
    assert [(body.topic, body.offset) for body in refused] == [("jobs", 0)]


def test_what_cannot_be_skipped_is_said_and_nothing_is_written(tmp_path):
    folder = Folder(tmp_path / "data")
    folder.write(("jobs", JOB))
    for words, code, problem in [
        (("jobs", 1), 1, "jobs ends before offset 1: there is nothing at 1 yet"),
        (("grants", 0), 2, "TOPIC: has to be one of access, config, nodes, tasks, jobs, reservations; is grants"),
        (("jobs", 0, "--reason", "x" * 201), 2, "--reason: has to be one line of at most 200 characters"),
        (("jobs", 0, "--url", "http://127.0.0.1:9"), 2, "use only one of them"),
    ]:
        said = folder.skip(*words)
        assert (said.code, said.out) == (code, "")
        assert problem in said.err
    assert folder.records() == []


# ---------------------------------------------------------------- over HTTP
def test_an_input_is_skipped_over_http_as_soon_as_a_sequencer_runs():
    async def story():
        async with asyncio.timeout(GUARD_S), a_cell(answering=False) as cell:
            await until_ready(cell)
            await publish_input(cell.bus.writer(), "jobs", JOB, "ann")
            path = "/v1/inputs/{}/{}/skip"
            odd = await cell.http.post(path.format("grants", 0))
            asked = asyncio.ensure_future(cell.http.post(path.format("jobs", 0), params={"reason": "it hangs"}))
            assert await cell.bus.wait_any({("config", 0): 0}, 60_000)
            stop = asyncio.Event()
            running = asyncio.ensure_future(admission.run(cell.bus, cell.follower._settings, stop=stop))
            answer = await asked
            late = await cell.http.post(path.format("jobs", 5))
            stop.set()
            await running
            return odd, answer, late

    odd, answer, late = asyncio.run(story())
    assert (odd.status_code, odd.json()["field"]) == (422, "skip_input.topic")
    assert (answer.status_code, answer.json()) == (200, {"topic": "jobs", "offset": 0, "skipped": True})
    assert (late.status_code, late.json()["field"]) == (409, "skip_input.offset")
