"""What every executor does for the agent's table of attempts, whatever it runs. One suite, run once for each in RIGS.

An executor joins with one Work: stages that end, that go on and that do not listen. Stories use the table, as the agent
does; "the agent has gone" is a table that is closed, and another one that looks at the same folder.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from largesse.lifecycle.node_work import HeldAttempt, Start
from largesse.task_output import Wanted
from schemas import Container, Stage
from services.agent import processes
from services.agent.attempts import Attempts
from services.agent.container_settings import ContainerSettings
from services.agent.documents import CHILD, CLAIM, RESULT, STOP, TASK, claim, read_json, write_json
from services.agent.executors.choice import kind_of
from services.agent.executors.container import CONTAINER
from services.agent.executors.process import PROCESS
from services.agent.executors.timed import TIMED
from services.agent.found import StopReason, result_in
from services.agent.local import Local, mono_ms
from services.agent.proc import boot_id
from services.agent.settings import NodeSettings
from services.agent.task_output import read_piece
from tests.engine import IMAGE, engine_missing

GUARD_S = 240
"""Ends a story that hangs."""
LASTING_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Work:
    """What an executor is given to run. `brief` ends by itself, in a moment; `lasting` does not in this story;
    `stubborn` neither, nor when it is asked to. `leaves`: what `brief` adds to a file beside its folder, or in
    it. `prints`: what `lasting` prints at once. `measured`: whether it is known what was used. `claims`: what a claim
    says beside the boot.
    """

    kind: str
    brief: dict[str, Any]
    lasting: dict[str, Any]
    stubborn: dict[str, Any]
    leaves: str
    prints: bytes
    measured: bool
    claims: dict[str, Any]


COMMANDS = Work(
    PROCESS,
    brief={"command": ["sh", "-c", "echo ran >> ../../ran"]},
    lasting={"command": ["sh", "-c", "echo hello; exec sleep 1000"]},
    stubborn={"command": ["sh", "-c", "trap '' TERM; echo hello; while true; do sleep 1000; done"]},
    leaves="ran\n",
    prints=b"hello\n",
    measured=True,
    claims={"pid": 1 << 22, "start": 1},
)
SIMULATED = Work(
    TIMED,
    brief={"durations_ms": [5]},
    lasting={"durations_ms": [LASTING_MS]},
    stubborn={"durations_ms": [LASTING_MS]},
    leaves="",
    prints=b"",
    measured=False,
    claims={"mono_ms": 1, "wall_ms": 1},
)
CONTAINERS = Work(
    CONTAINER,
    brief={"command": ["sh", "-c", "echo ran >> ran"], "container": Container(IMAGE)},
    lasting={"command": ["sh", "-c", "echo hello; exec sleep 1000"], "container": Container(IMAGE)},
    stubborn={**COMMANDS.stubborn, "container": Container(IMAGE)},
    leaves="ran\n",
    prints=b"hello\n",
    measured=True,
    claims=COMMANDS.claims,
)
RIGS = {work.kind: work for work in (COMMANDS, SIMULATED, CONTAINERS)}


class Agents:
    """Agents on one data folder, one after the other. `table`: of the present one. `told`: what it has said, in order:
    attempts with the phase that they were in when they were heard of.
    """

    def __init__(self, data: Path, engine: str) -> None:
        self.data, self.engine = data, engine
        self.told: list[tuple[str, str]] = []
        self.table = self._begin()

    def _begin(self) -> Attempts:
        containers = ContainerSettings(self.engine)
        table = Attempts(NodeSettings("n", self.data, cgroup="off", cpu_limit="none", containers=containers))
        table.open_events()
        table.scan()
        return table

    def again(self) -> Attempts:
        """The agent goes, and another one comes."""
        self.table.close()
        self.told.clear()
        self.table = self._begin()
        return self.table

    def start(self, *works: dict[str, Any], run: int = 5) -> list[Local]:
        """One attempt of each."""
        starts = [start_of(work, index, run) for index, work in enumerate(works)]
        prepared = self.table.prepare(starts)
        self.note(self.table.launched(self.table.launch(prepared)))
        return [local for local, _ in prepared]

    def stop(self, local: Local, reason: StopReason, grace_ms: int = 0) -> None:
        self.note(self.table.stop(local, reason, grace_ms))

    def watch(self) -> None:
        """Whatever there is to hear and to see."""
        self.note(self.table.hear())
        self.note(self.table.look(mono_ms()))

    def until(self, holds: Callable[[], bool]) -> None:
        over_s = time.monotonic() + GUARD_S
        while not holds():
            assert time.monotonic() < over_s
            self.watch()
            time.sleep(0.01)

    def until_ended(self, *locals_: Local) -> None:
        self.until(lambda: all(local.phase == "ended" for local in locals_))

    def until_running(self, *locals_: Local) -> None:
        self.until(lambda: all(local.phase == "running" for local in locals_))

    def note(self, changed: list[Local]) -> None:
        for local in {local.key: local for local in changed}.values():
            self.told.append((local.key, local.phase))
            if local.phase == "ended":
                assert kept(local) == local.result, "an end was told of before it was written down"


def start_of(work: dict[str, Any], index: int = 0, run: int = 5) -> Start:
    return Start(f"j/s/{index}/1", HeldAttempt("j", "s", index, 1, run, "e.1"), Stage("s", 10, {"cpu": 1}, **work))


def kept(local: Local):
    """The result in an attempt's folder."""
    folder = os.open(local.folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return result_in(folder)
    finally:
        os.close(folder)


def traces(local: Local) -> str:
    """What attempts of its stage have left by running."""
    stage = local.folder.parent
    return "".join(place.read_text() for place in [stage / "ran", *stage.glob("*/work/ran")] if place.exists())


def forgotten(folder: Path, *names: str) -> None:
    """Takes documents out of an attempt's folder, as if they had not been written yet."""
    for name in names:
        (folder / name).unlink(missing_ok=True)


@pytest.fixture(params=[COMMANDS.kind, SIMULATED.kind, pytest.param(CONTAINERS.kind, marks=pytest.mark.docker)])
def work(request) -> Work:
    if request.param == CONTAINERS.kind and (why := engine_missing()):
        pytest.skip(why)
    return RIGS[request.param]


@pytest.fixture
def agents(work, tmp_path):
    (tmp_path / "data").mkdir()
    agents = Agents(tmp_path / "data", "auto" if work is CONTAINERS else "off")
    yield agents
    for local in agents.table.by_key.values():
        agents.table.stop(local, "killed", 0)
    agents.until(lambda: not agents.table.alive)
    agents.table.close()


# ---------------------------------------------------------------- starting


def test_a_stage_is_run_by_its_executor(work):
    for each in (work.brief, work.lasting, work.stubborn):
        assert kind_of(Stage("s", 1, {"cpu": 1}, **each)) == work.kind


def test_an_attempt_begins_and_ends_once(work, agents):
    started = agents.start(*[work.brief] * 5)
    agents.until_ended(*started)
    for _ in range(3):
        agents.watch()

    assert [local.result.reason for local in started] == [None] * 5
    assert sorted(key for key, phase in agents.told if phase == "ended") == sorted(local.key for local in started)
    assert all(agents.told.count((local.key, "running")) <= 1 for local in started)
    assert traces(started[0]) == work.leaves * 5


def test_what_goes_on_is_said_to_have_begun_once(work, agents):
    (local,) = agents.start(work.lasting)
    agents.until_running(local)
    for _ in range(3):
        agents.watch()

    assert agents.told == [(local.key, "running")]


def test_what_was_started_is_not_started_again(work, agents):
    (first,) = agents.start(work.lasting)
    agents.until_running(first)
    before = read_json(first.folder / CLAIM)
    beside = Attempts(agents.table.settings)
    beside.found[first.folder] = True

    (second,) = beside.launched(beside.launch(beside.prepare([start_of(work.lasting)])))
    beside.close()

    assert second.result.reason == "lost"
    assert read_json(first.folder / CLAIM) == before
    agents.watch()
    assert first.phase == "running"
    assert kept(first) is None


def test_what_somebody_has_claimed_does_not_begin(work, agents):
    ((local, start),) = agents.table.prepare([start_of(work.brief)])
    local.folder.mkdir(parents=True)
    claim(local.folder, {})
    executor = agents.table.executors[work.kind]
    about = {"key": local.key, "job": "j", "stage": "s", "index": 0, "attempt": 1, "admitted": 5}
    folder = os.open(local.folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        handle = executor.start(local, start, folder, about)
    except FileExistsError:
        del agents.table.by_key[local.key]
    else:
        executor.watch(local, handle)
        agents.until_ended(local)
        assert local.result.reason == "lost"
    finally:
        os.close(folder)

    assert (local.key, "running") not in agents.told
    assert traces(local) == ""
    assert read_json(local.folder / CLAIM) == {}


# ---------------------------------------------------------------- stopping


@pytest.mark.parametrize("reason", ["killed", "revoked"])
@pytest.mark.parametrize("manner", ["lasting", "stubborn"])
def test_what_is_stopped_ends_for_that_reason(work, agents, reason, manner):
    (local,) = agents.start(getattr(work, manner))
    agents.until(lambda: has_printed(agents, local, work))
    agents.stop(local, reason)
    agents.stop(local, "superseded")
    agents.until_ended(local)

    assert local.result.reason == reason
    assert agents.told[-1] == (local.key, "ended")
    agents.again()
    assert [each.result.reason for each in agents.table.by_key.values()] == [reason]


def test_what_is_stopped_while_it_is_launched_ends_for_that_reason(work, agents):
    ((local, start),) = agents.table.prepare([start_of(work.lasting)])
    outcomes = agents.table.launch([(local, start)])
    agents.stop(local, "revoked")

    agents.note(agents.table.launched(outcomes))
    agents.until_ended(local)

    assert local.result.reason == "revoked"


def test_a_stop_concerns_one_attempt(work, agents):
    stopped, other = agents.start(work.lasting, work.lasting)
    agents.until_running(stopped, other)

    agents.stop(stopped, "killed")
    agents.until_ended(stopped)
    agents.watch()

    assert other.phase == "running"


def test_what_has_ended_is_not_stopped(work, agents):
    (local,) = agents.start(work.brief)
    agents.until_ended(local)

    agents.stop(local, "killed")

    assert local.result.reason is None
    assert kept(local).reason is None


def test_what_has_the_name_of_one_that_was_forgotten_is_another(work, agents):
    (first,) = agents.start(work.lasting)
    agents.until_running(first)
    agents.stop(first, "killed")
    agents.until_ended(first)
    agents.table.forget(first.key)
    time.sleep(0.01)  # The first would have ended a little before the second one.
    just_before_ms = mono_ms() + LASTING_MS - 1

    (second,) = agents.start(work.lasting, run=6)
    agents.until_running(second)
    agents.note(agents.table.look(just_before_ms))

    assert second.phase == "running"


# ---------------------------------------------------------------- another agent


def test_what_runs_goes_on_under_the_next_agent(work, agents):
    (begun,) = agents.start(work.lasting)
    agents.until_running(begun)
    before = read_json(begun.folder / CLAIM)

    table = agents.again()

    (local,) = table.by_key.values()
    assert (local.key, local.phase) == (begun.key, "running")
    for _ in range(3):
        agents.watch()
    assert agents.told == [], "it has begun long ago"
    agents.stop(local, "revoked")
    agents.until_ended(local)
    assert local.result.reason == "revoked"
    assert read_json(local.folder / CLAIM) == before


def test_the_next_agent_is_told_of_the_end_of_what_had_begun(work, agents):
    (begun,) = agents.start(work.brief)
    agents.until(lambda: (begun.folder / CLAIM).exists())

    table = agents.again()  # It may have ended by now.
    (local,) = table.by_key.values()
    agents.until_ended(local)

    assert local.result.reason is None
    assert kept(local) == local.result
    assert agents.told in ([], [(begun.key, "ended")])
    assert traces(local) == work.leaves


def test_every_agent_finds_the_same_end(work, agents):
    (ended,) = agents.start(work.brief)
    agents.until_ended(ended)

    for _ in range(2):
        (local,) = agents.again().by_key.values()
        assert local.result == ended.result
        agents.watch()
        assert agents.told == []


def test_what_never_was_claimed_may_not_begin_any_more(work, agents):
    (ended,) = agents.start(work.brief)
    agents.until_ended(ended)
    forgotten(ended.folder, CLAIM, RESULT, CHILD)

    (local,) = agents.again().by_key.values()

    assert (local.phase, local.result.reason) == ("ended", "lost")
    assert kept(local) == local.result
    assert not claim(local.folder, {"boot": boot_id(), **work.claims})


def test_what_was_to_stop_and_left_no_result_was_stopped(work, agents):
    (ended,) = agents.start(work.brief)
    agents.until_ended(ended)
    forgotten(ended.folder, CLAIM, RESULT, CHILD)
    write_json(ended.folder / STOP, {"reason": "revoked", "grace_ms": 0})

    (local,) = agents.again().by_key.values()

    assert local.result.reason == "revoked"


# ---------------------------------------------------------------- what lies in the folder


def spoil(place: Path, how: str, foreign: dict[str, Any]) -> None:
    place.unlink(missing_ok=True)
    match how:
        case "pipe":
            os.mkfifo(place)
        case "link":
            place.symlink_to("/etc/passwd")
        case "text":
            place.write_text("nonsense")
        case "another's claim":
            write_json(place, {"boot": boot_id(), **foreign})
        case "wrong numbers":
            write_json(place, {"boot": boot_id(), **dict.fromkeys(("pid", "start", "mono_ms", "wall_ms"), -1)})


SPOILT = [(name, how) for name in (TASK, CLAIM, RESULT, STOP) for how in ("pipe", "link", "text")]


@pytest.mark.timeout(GUARD_S)  # What waits for a pipe's other end hangs.
@pytest.mark.parametrize(("name", "how"), [*SPOILT, (CLAIM, "another's claim"), (CLAIM, "wrong numbers")])
def test_what_is_spoilt_in_a_folder_ends_that_attempt_alone(work, agents, name, how):
    spoilt, other = agents.start(work.brief, work.lasting)
    agents.until_ended(spoilt)
    agents.until_running(other)
    forgotten(spoilt.folder, RESULT, *([CLAIM] if name == STOP else []))
    foreign = next(each.claims for each in RIGS.values() if each.claims.keys() != work.claims.keys())
    spoil(spoilt.folder / name, how, foreign)

    table = agents.again()

    local = table.by_key[spoilt.key]
    assert (local.phase, local.result.reason) == ("ended", "exit_code")
    assert local.result.detail.startswith(f"its folder was tampered with: {name}")
    assert table.by_key[other.key].phase == "running"


def left_running(agents: Agents) -> set[str]:
    """Names of the folders of attempts of which processes run, shims included."""
    keys = processes.carriers(processes.seen(), processes.node_key(agents.data))
    return {Path(key).name for key in keys}


def test_of_an_attempt_whose_folder_was_moved_away_nothing_runs_under_the_next_agent(work, agents, tmp_path):
    moved, other = agents.start(work.lasting, work.lasting)
    agents.until_running(moved, other)
    before = left_running(agents)
    moved.folder.rename(tmp_path / "away")

    table = agents.again()

    assert [local.key for local in table.by_key.values()] == [other.key]
    assert left_running(agents) == before - {moved.folder.name}


# ---------------------------------------------------------------- usage, output, company


def test_what_was_used_is_part_of_the_result_where_it_is_measured(work, agents):
    (local,) = agents.start(work.brief)
    agents.until_ended(local)

    assert (local.result.cpu_ms is not None) == work.measured
    assert ({"cpu", "memory"} <= {*local.result.peak}) == work.measured


def has_printed(agents: Agents, local: Local, work: Work) -> bool:
    piece = read_piece(agents.data, Wanted("j", "s", local.name.index))
    return local.phase == "running" and piece is not None and piece.data == work.prints


def test_what_is_printed_is_read_from_the_folder_while_it_goes_on(work, agents):
    first, second = agents.start(work.lasting, work.lasting)
    agents.until(lambda: has_printed(agents, first, work) and has_printed(agents, second, work))

    table = agents.again()

    assert all(has_printed(agents, local, work) for local in table.by_key.values())
    assert len(table.by_key) == 2


def test_an_executor_leaves_what_others_run_alone(work, agents):
    foreign = next(each for each in RIGS.values() if each is not work)
    mine, lasting, other = agents.start(work.brief, work.lasting, foreign.lasting)
    agents.until_ended(mine)
    agents.until_running(lasting, other)
    agents.stop(lasting, "killed")
    agents.until_ended(lasting)
    agents.watch()
    assert other.phase == "running"

    table = agents.again()

    assert {local.key: local.phase for local in table.by_key.values()} == {
        mine.key: "ended",
        lasting.key: "ended",
        other.key: "running",
    }


def test_what_runs_goes_on_while_no_agent_is_there_and_nothing_more_is_heard(work, agents):
    (begun,) = agents.start(work.lasting)
    agents.until_running(begun)
    agents.table.close()

    assert agents.table.hear() == []
    (local,) = agents.again().by_key.values()
    assert local.phase == "running"
