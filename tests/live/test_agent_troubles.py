"""Nodes with troubles of their own: no job pays for them, the node says why it takes nothing, and comes back."""

import asyncio
import os
import subprocess
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from schemas import JobEnded, NodeRegistered, NodeReported, RoundClosed, TaskFailed, TaskStarted
from schemas.edge.base import BATCH_MAX
from services.agent import outbox, shell, troubles
from services.agent.documents import CHILD, read_json
from services.agent.folders import JOBS
from services.agent.found import attempt_folders
from services.agent.shell import run
from services.agent.troubles import Room
from tests.live.agent_cell import agent_on, end_tasks, eventually, is_alive, settings
from tests.live.cuttable import CuttableBus

ANY_ROOM = Room(bytes=0, inodes=0)
SLEEP = {"command": ["sleep", "1000"]}


@pytest.fixture(autouse=True)
def looks_often(monkeypatch):
    monkeypatch.setattr(troubles, "PROBE_MS", 50)
    monkeypatch.setattr(shell, "LOOK_MS", 50)


def outcomes(cell):
    return {end.job: end.outcome for body in cell.bodies(JobEnded) for end in body.jobs}


def reasons(cell, node="n"):
    """What the log has of whether the node takes tasks, in order."""
    reported = [body.unschedulable for body in cell.bodies(NodeReported) if body.node == node]
    return [body.unschedulable for body in cell.bodies(NodeRegistered) if body.node == node] + reported


def granted_to(cell, node):
    return sum(grant.count for body in cell.bodies(RoundClosed) for grant in body.grants if grant.node == node)


def test_a_start_that_fails_for_the_node_costs_the_job_no_retry_and_the_node_offers_nothing_until_it_is_well(
    tell, tmp_path
):
    async def story(cell):
        async with agent_on(cell, settings(tmp_path / "n", room=ANY_ROOM)):
            await cell.until(lambda: cell.bodies(NodeRegistered))
            (tmp_path / "n" / JOBS).write_text("in the way")
            await cell.submit("j", {"command": ["true"]})

            (failed,) = await cell.until(lambda: cell.items(TaskFailed))
            assert (failed.reason, failed.detail) == ("lost", "the agent could not start it: Not a directory")
            # The log had it that the node takes nothing before it had the loss, so the task was lost only once.
            assert reasons(cell)[-1] == "it could not start a task: Not a directory"
            at = [record.body for record in cell.records]
            assert at.index(cell.bodies(NodeReported)[0]) < at.index(cell.bodies(TaskFailed)[0])

            (tmp_path / "n" / JOBS).unlink()
            await cell.until(lambda: outcomes(cell))
            assert outcomes(cell) == {"j": "succeeded"}
            assert len(cell.items(TaskFailed)) == 1
            assert reasons(cell) == ["", "it could not start a task: Not a directory", ""]

    tell(story)


def test_an_attempt_that_ends_without_a_result_on_a_node_that_is_well_is_lost_and_run_again(tell, tmp_path):
    async def story(cell):
        async with agent_on(cell, settings(tmp_path / "n", room=ANY_ROOM)):
            await cell.submit("j", {"command": ["sh", "-c", 'test "$LARGESSE_ATTEMPT" = 2 || kill -9 $PPID']})
            await cell.until(lambda: outcomes(cell))
            assert outcomes(cell) == {"j": "succeeded"}
            assert [failed.reason for failed in cell.items(TaskFailed)] == ["lost"]
            assert reasons(cell) == [""]

    tell(story)


SPOILS = 'cd ../../../../..; [ "$(basename "$PWD")" = jobs ] && mv bad gone && {}; sleep 0.2; exit 1'


@pytest.mark.parametrize("instead", ["ln -s /nowhere bad", "ln -s bad bad", "echo > bad"])
def test_a_job_that_spoils_its_own_folder_pays_with_its_retries_and_closes_no_node(tell, tmp_path, instead):
    async def story(cell):
        async with agent_on(cell, settings(tmp_path / "n", room=ANY_ROOM)):
            await cell.submit("bad", {"command": ["sh", "-c", SPOILS.format(instead)], "retries": 2})
            await cell.submit("good", {"command": ["true"]})
            await cell.until(lambda: len(outcomes(cell)) == 2)
            assert outcomes(cell) == {"bad": "failed", "good": "succeeded"}
            assert [failed.reason for failed in cell.items(TaskFailed)] == ["exit_code", "cannot_start", "cannot_start"]
            assert "has spoilt its folder: bad" in cell.items(TaskFailed)[-1].detail
            assert reasons(cell) == [""]

    tell(story)


def test_a_job_that_makes_the_folders_of_its_next_attempts_pays_with_its_retries(tell, tmp_path):
    forges = "cd ../..; for i in 0 1 2 3 4 5 6 7; do for a in 1 2 3; do mkdir -p $i.$a; done; done; sleep 0.2; exit 1"

    async def story(cell):
        async with agent_on(cell, settings(tmp_path / "n", room=ANY_ROOM)):
            await cell.submit("bad", {"command": ["sh", "-c", forges], "retries": 1, "tasks": 8})
            await cell.until(lambda: outcomes(cell))
            await cell.submit("good", {"command": ["true"]})
            await cell.until(lambda: len(outcomes(cell)) == 2)
            assert outcomes(cell) == {"bad": "failed", "good": "succeeded"}
            assert "lost" not in [failed.reason for failed in cell.items(TaskFailed)]
            assert reasons(cell) == [""]

    tell(story)


@pytest.fixture
def small_disk(tmp_path):
    """Mounts a disk of a few hundred KiB or so many inodes."""
    places = []

    def mounted(name, options):
        place = tmp_path / name
        place.mkdir()
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], capture_output=True, check=False)
        if done.returncode:
            pytest.skip(f"no disk can be mounted here: {done.stderr.decode().strip()}")
        places.append(place)
        return place

    yield mounted
    for place in places:
        end_tasks(place)
        subprocess.run(["umount", "-l", place], check=True)


@pytest.mark.rotating(3)
@pytest.mark.parametrize(
    ("options", "room"),
    [
        pytest.param("size=2m", ANY_ROOM, id="no bytes are left"),
        pytest.param("size=64m,nr_inodes=60", ANY_ROOM, id="no inodes are left"),
        pytest.param("size=64m", Room(bytes=16 << 20, inodes=0), id="less than it keeps free"),
    ],
)
def test_no_job_fails_for_one_node_whose_disk_is_full_and_the_node_comes_back(
    tell, tmp_path, small_disk, options, room
):
    disk = small_disk("n0", options)
    ballast = disk / "ballast"

    async def story(cell):
        async with AsyncExitStack() as agents:
            for index in range(3):
                node = settings(tmp_path / f"n{index}", name=f"n{index}", room=room if index == 0 else ANY_ROOM)
                await agents.enter_async_context(agent_on(cell, replace(node, kept=replace(node.kept, runs=0))))
            await cell.until(lambda: len(cell.bodies(NodeRegistered)) == 3)
            _fill(disk, ballast)
            for number in range(40):
                await cell.submit(f"j{number}", {"command": ["true"], "demand": {"cpu": "1"}})
            await cell.until(lambda: len(outcomes(cell)) == 40)
            assert set(outcomes(cell).values()) == {"succeeded"}
            assert {failed.reason for failed in cell.items(TaskFailed)} <= {"lost"}
            (full,) = [reason for reason in reasons(cell, "n0") if reason]
            assert full
            assert all(reason == "" for name in ("n1", "n2") for reason in reasons(cell, name))

            _empty(disk, ballast)
            await cell.until(lambda: reasons(cell, "n0")[-1] == "")
            had = granted_to(cell, "n0")
            await cell.submit("late", {"command": ["true"], "tasks": 12, "demand": {"cpu": "1"}})
            await cell.until(lambda: "late" in outcomes(cell))
            assert outcomes(cell)["late"] == "succeeded"
            assert granted_to(cell, "n0") > had

    tell(story)


def _fill(disk, ballast):
    """Takes all that is left of a disk."""
    ballast.mkdir()
    left = os.statvfs(disk)
    if left.f_files and left.f_favail < 1_000:
        for number in range(left.f_favail):
            (ballast / str(number)).touch()
    else:
        with (ballast / "file").open("wb") as file:
            file.write(bytes(left.f_bavail * left.f_frsize - (8 << 10)))


def _empty(disk, ballast):
    for file in ballast.iterdir():
        file.unlink()


def test_an_agent_waits_for_a_disk_that_is_full_at_its_start(tell, tmp_path, small_disk):
    disk = small_disk("n", "size=64k,nr_inodes=40")
    ballast = disk / "ballast"
    _fill(disk, ballast)

    async def story(cell):
        async with agent_on(cell, settings(disk, room=ANY_ROOM)) as agent:
            await asyncio.wait((agent,), timeout=0.2)
            assert not agent.done()
            _empty(disk, ballast)
            await cell.until(lambda: cell.bodies(NodeRegistered))

    tell(story)


# ---------------------------------------------------------------- cut off
def children(data):
    found = [read_json(folder / CHILD) for folder in attempt_folders(data)]
    return [child["pid"] for child in found if child]


@pytest.fixture
def spares_pauses(monkeypatch):
    """An agent that has not run for a moment knows that, as it does after longer pauses: this machine may stall."""
    monkeypatch.setattr(shell, "PAUSE_MS", 500)


@pytest.mark.parametrize(("cut_off_ms", "ends"), [(1_500, True), (0, False), (3_600_000, False)])
def test_an_agent_that_is_cut_off_for_too_long_ends_what_runs(tell, tmp_path, spares_pauses, cut_off_ms, ends):
    async def story(cell):
        bus, stop = CuttableBus(cell.bus), asyncio.Event()
        node = settings(tmp_path / "n", room=ANY_ROOM, cut_off_ms=cut_off_ms, stop_grace_ms=100, heartbeat_ms=50)
        agent = asyncio.ensure_future(run(bus, node, stop))
        await cell.submit("j", SLEEP)
        await cell.until(lambda: cell.items(TaskStarted))
        (task,) = await eventually(lambda: children(node.data))
        bus.cut = True
        if ends:
            await eventually(lambda: not is_alive(task))
            bus.cut = False
            # It was not declared lost meanwhile, so it is run again under the same epoch.
            (failed,) = await cell.until(lambda: cell.items(TaskFailed))
            assert failed.reason == "lost"
            await cell.until(lambda: len(cell.items(TaskStarted)) == 2)
        else:
            await asyncio.wait((agent,), timeout=1)
            assert is_alive(task)
            bus.cut = False
        stop.set()
        await agent

    tell(story)


def test_while_the_bus_takes_its_heartbeats_an_agent_keeps_what_runs(tell, tmp_path, spares_pauses):
    async def story(cell):
        node = settings(tmp_path / "n", room=ANY_ROOM, cut_off_ms=1_500, heartbeat_ms=100)
        async with agent_on(cell, node):
            await cell.submit("j", SLEEP)
            await cell.until(lambda: cell.items(TaskStarted))
            before = cell.heard["nodes"]
            await cell.until(lambda: cell.heard["nodes"] > before)
            await eventually(lambda: cell.heard["nodes"] > before + 20)
            assert cell.items(TaskFailed) == []

    tell(story)


# ---------------------------------------------------------------- many attempts
@pytest.mark.parametrize(
    ("jobs", "in_a_message"), [(250, 100), pytest.param(4_000, BATCH_MAX, marks=pytest.mark.whole)]
)
def test_a_restart_with_more_attempts_than_a_message_holds_loses_none(tell, tmp_path, monkeypatch, jobs, in_a_message):
    monkeypatch.setattr(outbox, "BATCH_MAX", in_a_message)

    async def story(cell):
        node = settings(tmp_path / "n", capacity={"cpu": 100 * jobs}, room=ANY_ROOM)
        async with agent_on(cell, node):
            for number in range(jobs):
                await cell.submit(f"j{number}", {"durations_ms": [3_600_000]})
            await cell.until(lambda: len(cell.items(TaskStarted)) == jobs)
        async with agent_on(cell, node):
            await cell.until(lambda: len(cell.bodies(NodeRegistered)) == 2)
        registered = cell.bodies(NodeRegistered)[1]
        assert registered.parts > 0
        assert registered.lost == []
        assert sum(known.count for known in registered.attempts) == jobs

    tell(story)
