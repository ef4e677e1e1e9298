"""`largesse up` in trouble: a disk that is full, a folder that lacks a file, a service that breaks at every start."""

import asyncio
import json
import time
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from largesse.bus.file.bus import Disk, FileBus
from largesse.bus.file.reading import read_journal
from largesse.folding import CoreStopped
from largesse.log.codec import decode, record_of, unwrap
from largesse.process.ways_out import way_out
from schemas import Record, RoundAbandoned, SequencerAlive
from services.cli import hosting
from services.cli.ending import Broken
from services.cli.hosting import Plan, opened
from tests.live.up_process import GUARD_S, up
from tests.unit.cli_process import Said, largesse

FILE_BYTES_MAX = 200 << 10


def job(name: str, *command: str) -> str:
    stage = {"stage": "run", "tasks": 1, "demand": {"cpu": "10m"}, "command": list(command)}
    return json.dumps({"job": name, "stages": [stage]})


def filled(data: Path) -> list[str]:
    """Submits jobs until the cell ends, since its journal takes no more; the names of those that it took."""
    taken: list[str] = []
    deadline = time.monotonic() + GUARD_S
    with up(data, file_bytes_max=FILE_BYTES_MAX) as cell:
        # A longer line fills the disk with fewer of them.
        many = "".join(f"# {number:04d} {'x' * 5_000}\n" for number in range(4))
        while cell.process.poll() is None and time.monotonic() < deadline:
            name = f"job-{len(taken)}"
            if cell.ask("submit", "-", stdin=job(name, "sh", "-c", f"{many}true")).code == 0:
                taken.append(name)
        out, err = cell.process.communicate(timeout=GUARD_S)

    journal = data / "bus" / "journal-000000000001.jsonl"
    assert cell.process.returncode == 3, out + err
    (problem,) = [line for line in err.splitlines() if line.startswith("largesse: ")]
    assert problem == (
        f"largesse: {journal}: File too large: nothing more is written, and nothing that was acknowledged is lost. "
        "Make room on this file system (or raise the limit, or replace the disk) and start again."
    )
    assert "standing_by" not in err
    return taken


def test_a_full_disk_ends_the_cell_by_name_and_what_was_acknowledged_goes_on_with_room(tmp_path):
    data = tmp_path / "data"
    taken = filled(data)
    assert len(taken) >= 3
    size = (data / "bus" / "journal-000000000001.jsonl").stat().st_size
    with pytest.raises(AssertionError, match="File too large"), up(data, file_bytes_max=size // 2):
        pass  # No room at all, also where a torn line is cut off first: it does not start.

    with up(data) as again:
        for name in taken:
            assert again.ask("watch", name).code == 0
        assert again.end()[0] == 0

    assert largesse("replay", data, "--verify").code == 0


def test_a_journal_that_stops_for_any_other_reason_ends_the_cell_as_well(tmp_path, monkeypatch):
    """The sequencer alone would take it for a passing trouble of the bus, and stand by."""

    class Odd(Disk):
        def write(self, file, data):
            raise RuntimeError("odd")

    async def run():
        stop = asyncio.Event()
        host = await opened(Plan(tmp_path, [], port=0), stop)
        async with asyncio.timeout(GUARD_S) as guard:
            with pytest.raises(Broken, match=f"{tmp_path}/bus: the journal's writer stopped .*odd.* Start again"):
                await host.run(lambda: None)
        assert not guard.expired()

    monkeypatch.setattr(hosting, "FileBus", partial(FileBus, disk=Odd()))
    asyncio.run(run())
    asyncio.run(FileBus(tmp_path / "bus").close())  # Nobody holds it any more.


def test_a_folder_without_its_head_is_refused_alike_by_all_who_read_it(tmp_path):
    data = tmp_path / "data"
    with up(data) as cell:
        cell.end()
    (data / "bus" / "head.json").unlink()

    for words in (["up", "--http", 0, "--data"], ["replay"]):
        said = largesse(*words, data)
        assert (said.code, said.out) == (2, "")
        assert f"{data}/bus/head.json, line 1: this file is missing" in said.err
        assert "put it back from a copy of this folder" in said.err


def broken(data: Path, rounds: int) -> None:
    """Starts a cell whose placement breaks at the nth round that it is asked for, and submits jobs until then."""
    try:
        with up(data, LARGESSE_FAILPOINT=f"leftover:before_decide:{rounds}:raise") as cell:
            err = cell.submit_until_it_ends(lambda name: job(name, "true"))
    except AssertionError as early:
        err = str(early)  # It ended before it took requests.
    assert "leftover: Failpoint" in err


def records(data: Path, topic: str = "cluster.log") -> list[Record]:
    messages = [message for message in read_journal(data / "bus") if message.topic == topic]
    return [decode(unwrap(message.value)[1]) for message in messages]


@pytest.mark.whole
def test_a_round_that_breaks_a_service_at_every_start_is_given_up_in_the_folder(tmp_path):
    data = tmp_path / "data"
    broken(data, 4)
    number = largesse("replay", data, "--json").json["round"]
    broken(data, 1)
    assert records(data)[-1].round == number

    def abandoned(which: int, *more: str) -> Said:
        return largesse("admin", "abandon-round", which, "--data", data, *more, LARGESSE_USER="ops")

    before = list(read_journal(data / "bus"))
    slip = abandoned(number + 1)
    assert (slip.code, slip.out) == (1, "")
    assert f"round {number + 1} is not open; round {number} is" in slip.err
    assert list(read_journal(data / "bus")) == before

    said = abandoned(number)
    assert (said.code, said.err) == (0, "")
    assert said.out == f"round {number} is abandoned; the next `largesse up` here goes on with what waited\n"
    (given_up,) = [record for record in records(data) if isinstance(record.body, RoundAbandoned)]
    assert (given_up.round, given_up.body) == (number, RoundAbandoned("operator", "ops"))
    again = abandoned(number, "--json")
    assert (again.code, json.loads(again.out)["error"]["exit_code"]) == (1, 1)

    with up(data) as cell:
        assert cell.ask("watch", "a").code == 0
        held = largesse("admin", "abandon-round", number, "--data", data)
        assert held.code == 2
        assert f"is held by process {cell.process.pid}" in held.err
        assert "omit --data" in held.err
        refused = cell.ask("admin", "abandon-round", number)
        assert (refused.code, refused.out) == (1, "")
        assert f"round {number} is not open" in refused.err
        cell.end()

    grants = Counter(record.round for record in records(data, "grants"))
    assert grants[number] == 0
    assert grants[number + 1] == 1
    assert largesse("replay", data, "--verify").code == 0


def test_a_round_cannot_be_given_up_where_there_is_no_journal_or_for_two_cells_at_once(tmp_path):
    (tmp_path / "bus").mkdir()
    for words, problem in [
        (["--data", tmp_path / "none"], f"--data: {tmp_path}/none: there is no journal in this folder"),
        (["--data", tmp_path], f"--data: {tmp_path}: there is no journal in this folder"),
        (["--data", tmp_path, "--url", "http://127.0.0.1:9"], "use only one of them"),
    ]:
        said = largesse("admin", "abandon-round", 1, *words)
        assert (said.code, said.out) == (2, "")
        assert problem in said.err
    assert [path.name for path in tmp_path.rglob("*")] == ["bus"]


@pytest.mark.parametrize("what", ["deciding", "closing a round with"])
def test_who_stopped_over_a_round_is_told_how_to_give_it_up(tmp_path, what):
    opening = record_of(SequencerAlive([]), cell="c", seq=9, round_number=7, time=0, id_="c/9", cause="")
    error = CoreStopped("leftover", what, opening)

    data = str(tmp_path)
    assert f"`largesse admin abandon-round 7 --data {data}`" in way_out(error, data, data)
    assert "`largesse admin abandon-round 7`" in way_out(error, "kafka://broker:9092/c")
