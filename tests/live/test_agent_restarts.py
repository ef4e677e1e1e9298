"""Agents that die, come back, are replaced, or cannot be heard: nothing starts twice, nothing is lost or left."""

import asyncio
import json
import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from largesse.bus.file.lock import DirectoryHeld
from largesse.log.reader import LogReader
from schemas import (
    NodeLost,
    NodeRegistered,
    Revocation,
    RoundClosed,
    TaskFailed,
    TaskFinished,
    TaskStarted,
)
from services.agent import checkpoint, log_follower, shell
from services.agent.documents import CLAIM, RESULT, read_json
from services.agent.found import attempt_folders
from services.agent.shell import TakenOver
from tests.live.agent_cell import (
    AgentProcess,
    ScriptedCell,
    agent_on,
    eventually,
    is_alive,
    outcome_of,
    settings,
)
from tests.printed import read_output

HOUR_MS = 3_600_000

ONCE = """
set -C
cd "$FOLDER" || exit 8
echo $$ > "ran-$LARGESSE_TASK_INDEX-$LARGESSE_ATTEMPT" || exit 9
while ! test -e "go-$LARGESSE_TASK_INDEX"; do sleep 0.02; done
"""
"""A task that proves that no attempt of it starts twice (`set -C` opens with O_EXCL), and waits for a word."""


def once(folder: Path, tasks: int, **stage: Any) -> dict[str, Any]:
    """A stage of tasks of the kind ONCE, in `folder`."""
    return {"command": ["sh", "-c", ONCE], "env": {"FOLDER": str(folder)}, "tasks": tasks, **stage}


def go(folder: Path, *indexes: int) -> None:
    """Lets tasks end well."""
    for index in indexes:
        (folder / f"go-{index}").touch()


def ran(folder: Path) -> list[str]:
    """Which attempts have run: index-attempt."""
    return sorted(path.name.removeprefix("ran-") for path in folder.glob("ran-*"))


def pid_in(path: Path) -> int:
    """The pid that a task has written, or 0 as long as it has not."""
    return int(path.read_text() or 0) if path.exists() else 0


async def started(cell: ScriptedCell, count: int) -> None:
    """Until the log has so many starts. A task's command has been executed then; it need not have done anything yet."""
    await cell.until(lambda: len(cell.items(TaskStarted)) >= count)


async def running(folder: Path, *names: str) -> list[int]:
    """The pids of tasks of the kind ONCE, by index and attempt, when each has left its mark."""
    return [await eventually(partial(pid_in, folder / f"ran-{name}")) for name in names]


# ---------------------------------------------------------------- death and return
def test_tasks_outlive_a_killed_agent_and_are_reported_once(tell, tmp_path):
    async def story(cell):
        async with AgentProcess(cell.bus, tmp_path) as agent:
            await agent.start()
            await cell.submit("j", once(tmp_path, 3), {"stage": "t", "duration_ms": 700, "tasks": 1})
            await started(cell, 4)
            await agent.kill()
            go(tmp_path, 0)
            # The simulated task may have ended long before.
            (first,) = [f for f in attempt_folders(agent.data) if (f.parent.name, f.name) == ("s", "0.1")]
            await eventually((first / RESULT).exists)
            await agent.start()
            await cell.until(lambda: len(cell.bodies(NodeRegistered)) == 2)
            go(tmp_path, 1, 2)

            assert await outcome_of(cell) == "succeeded"
            again = cell.bodies(NodeRegistered)[1]
            reported = [(k.stage, k.first + task, k.state) for k in again.attempts for task in range(k.count)]
            assert [known for known in reported if known[0] == "s"] == [
                ("s", 1, "running"),
                ("s", 2, "running"),
                ("s", 0, "succeeded"),
            ]
            assert again.lost == []
            assert ran(tmp_path) == ["0-1", "1-1", "2-1"]
            assert cell.items(TaskFailed) == []
            assert len(cell.items(TaskStarted)) == 4
            ends = [(item.stage, item.first) for item in cell.items(TaskFinished)]
            assert sorted([*ends, *(known[:2] for known in reported if known[2] == "succeeded")]) == [
                ("s", 0),
                ("s", 1),
                ("s", 2),
                ("t", 0),
            ]

    tell(story)


@pytest.mark.rotating(3)
@pytest.mark.parametrize(
    "failpoint",
    [
        "before_task_start:1",
        "before_task_start:3",
        "after_task_start:1",
        "after_task_start:4",
        "before_publish:1",
        "after_publish:1",
        "before_publish:3",
        "after_publish:3",
        "before_consume:3",
        "after_consume:3",
    ],
)
def test_wherever_an_agent_dies_no_attempt_starts_twice(tell, tmp_path, failpoint):
    async def story(cell):
        async with AgentProcess(cell.bus, tmp_path) as agent:
            go(tmp_path, 0, 1, 2, 3)
            await cell.submit("j", once(tmp_path, 4))
            await agent.start(f"agent:{failpoint}")
            await agent.gone()
            await agent.start()

            assert await outcome_of(cell) == "succeeded"
            assert {item.reason for item in cell.items(TaskFailed)} <= {"lost"}
            # Each attempt that ran is one that the log knows of.
            succeeded = {index: attempt for index, _, attempt in (text.partition("-") for text in ran(tmp_path))}
            assert sorted(succeeded) == ["0", "1", "2", "3"]

    tell(story)


async def ends_though_killed(cell, agent, folder, counts, *, tasks):
    """The agent dies each time that as many attempts have run as `counts` says; all tasks end well all the same."""
    for count in counts:
        await agent.start()
        await eventually(partial(lambda least: len(ran(folder)) >= least, count))
        await agent.kill()
    await agent.start()
    assert await outcome_of(cell) == "succeeded"
    assert {item.reason for item in cell.items(TaskFailed)} <= {"lost"}
    assert sorted({name.partition("-")[0] for name in ran(folder)}, key=int) == [str(i) for i in range(tasks)]


def test_a_job_ends_well_though_its_agent_dies_again_and_again(tell, tmp_path):
    async def story(cell):
        go(tmp_path, *range(12))
        await cell.submit("j", once(tmp_path, 12, demand={"cpu": "1"}))
        async with AgentProcess(cell.bus, tmp_path) as agent:
            await ends_though_killed(cell, agent, tmp_path, (1, 3, 6, 9), tasks=12)

    tell(story)


def test_an_agent_that_is_asked_to_end_leaves_its_tasks_to_the_next(tell, tmp_path):
    async def story(cell):
        await cell.submit("j", once(tmp_path, 1))
        async with agent_on(cell, settings(tmp_path / "data")):
            await started(cell, 1)
        go(tmp_path, 0)
        async with agent_on(cell, settings(tmp_path / "data")):
            assert await outcome_of(cell) == "succeeded"
        assert ran(tmp_path) == ["0-1"]

    tell(story)


async def end_with_tasks(cell, tmp_path, **given):
    """An agent runs both tasks of a job, ends, and takes them with it."""
    await cell.submit("j", once(tmp_path, 2))
    async with agent_on(cell, settings(tmp_path / "data", keep_running=False, **given)):
        await started(cell, 2)
        pids = await running(tmp_path, "0-1", "1-1")
    assert not any(is_alive(pid) for pid in pids)


def test_an_agent_can_be_told_to_take_its_tasks_with_it(tell, tmp_path):
    async def story(cell):
        await end_with_tasks(cell, tmp_path)
        go(tmp_path, 0, 1)
        async with agent_on(cell, settings(tmp_path / "data")):
            assert await outcome_of(cell) == "succeeded"
        assert ran(tmp_path) == ["0-1", "0-2", "1-1", "1-2"]

    tell(story)


def test_an_agent_can_leave_so_that_its_tasks_are_run_elsewhere_at_once(tell, tmp_path):
    async def story(cell):
        await end_with_tasks(cell, tmp_path, leaves=True)
        (lost,) = await cell.until(lambda: cell.bodies(NodeLost))
        assert (lost.node, lost.left, [item.first for item in lost.lost]) == ("n", True, [0, 1])
        go(tmp_path, 0, 1)
        async with agent_on(cell, settings(tmp_path / "other", name="m")):
            assert await outcome_of(cell) == "succeeded"
        assert {(end.node, end.attempt) for end in cell.items(TaskFinished)} == {("m", 2)}
        assert ran(tmp_path) == ["0-1", "0-2", "1-1", "1-2"]

    tell(story)


def test_an_agent_that_left_comes_back_as_one_that_knows_nothing(tell, tmp_path):
    async def story(cell):
        await cell.submit("j", once(tmp_path, 1))
        async with agent_on(cell, settings(tmp_path / "data", keep_running=False, leaves=True)):
            await started(cell, 1)
            await running(tmp_path, "0-1")
        go(tmp_path, 0)
        async with agent_on(cell, settings(tmp_path / "data")):
            assert await outcome_of(cell) == "succeeded"
        assert ran(tmp_path) == ["0-1", "0-2"]
        assert cell.items(TaskFailed) == []

    tell(story)


def test_a_simulated_task_goes_on_while_no_agent_looks(tell, tmp_path):
    async def story(cell):
        await cell.submit("j", {"duration_ms": HOUR_MS, "tasks": 1})
        async with agent_on(cell, settings(tmp_path / "data")):
            await started(cell, 1)
        (folder,) = attempt_folders(tmp_path / "data")
        assert not (folder / RESULT).exists()
        # An hour passes: its claim says when it began, on a boot of which only the wall clock tells the time.
        begun = read_json(folder / CLAIM) or {}
        (folder / CLAIM).write_text(json.dumps({**begun, "boot": "another", "wall_ms": begun["wall_ms"] - HOUR_MS}))
        async with agent_on(cell, settings(tmp_path / "data")):
            assert await outcome_of(cell) == "succeeded"
        (known,) = cell.bodies(NodeRegistered)[1].attempts
        (item,) = cell.items(TaskFinished) or [known]
        assert (item.attempt, item.run_ms) == (1, [HOUR_MS])

    tell(story)


def test_an_attempt_whose_guardian_was_killed_is_lost_and_run_again(tell, tmp_path):
    async def story(cell):
        await cell.submit("j", once(tmp_path, 1))
        async with agent_on(cell, settings(tmp_path / "data")):
            await started(cell, 1)
            (pid,) = await running(tmp_path, "0-1")
            (folder,) = attempt_folders(tmp_path / "data")
            os.kill((read_json(folder / "claim.json") or {})["pid"], signal.SIGKILL)
            go(tmp_path, 0)

            assert await outcome_of(cell) == "succeeded"
        (lost,) = cell.items(TaskFailed)
        assert (lost.attempt, lost.reason) == (1, "lost")
        assert not is_alive(pid)
        assert ran(tmp_path)[-1] == "0-2"

    tell(story)


@pytest.mark.parametrize("agents", [1, 2])
def test_what_a_killed_guardian_leaves_running_is_ended(tell, tmp_path, agents):
    script = "import os, time; os.fork(); print(os.getpid(), flush=True); time.sleep(1_000)"

    async def story(cell):
        data = tmp_path / "data"
        await cell.submit("j", {"command": [sys.executable, "-S", "-c", script]})
        async with agent_on(cell, settings(data)):
            await started(cell, 1)
            text = await eventually(
                lambda: (read_output(data, "j", "s", 0) or b"").count(b"\n") == 2 and read_output(data, "j", "s", 0)
            )
            pids = [int(word) for word in text.split()]
            (folder,) = attempt_folders(data)
            guardian = (read_json(folder / "claim.json") or {})["pid"]
            if agents == 1:
                os.kill(guardian, signal.SIGKILL)
                await cell.until(lambda: cell.items(TaskFailed))
        if agents == 2:
            os.kill(guardian, signal.SIGKILL)
        async with agent_on(cell, settings(data)):
            await eventually(lambda: not any(is_alive(pid) for pid in pids))
            await cell.tell("jobs", {"cancel": "j"})
            await outcome_of(cell)

    tell(story)


# ---------------------------------------------------------------- what the log says of the node
def test_a_lost_node_stops_its_tasks_and_comes_back(tell, tmp_path):
    async def story(cell):
        await cell.submit("j", once(tmp_path, 1))
        async with agent_on(cell, settings(tmp_path / "data")):
            await started(cell, 1)
            (pid,) = await running(tmp_path, "0-1")
            await cell.lose("n")
            go(tmp_path, 0)

            assert await outcome_of(cell) == "succeeded"
        first, second = cell.bodies(NodeRegistered)
        assert first.epoch != second.epoch
        assert second.attempts == []
        assert not is_alive(pid)
        assert {item.attempt for item in cell.items(TaskFinished)} == {2}
        assert cell.items(TaskFailed) == []

    tell(story)


def test_an_agent_whose_node_was_taken_stops_everything_and_says_so(tell, tmp_path):
    async def story(cell):
        await cell.submit("j", once(tmp_path, 1))
        async with agent_on(cell, settings(tmp_path / "one")) as one:
            await started(cell, 1)
            (pid,) = await running(tmp_path, "0-1")
            async with agent_on(cell, settings(tmp_path / "two")):
                with pytest.raises(TakenOver, match="node n was registered by another agent"):
                    await one
                assert not is_alive(pid)
                go(tmp_path, 0)
                assert await outcome_of(cell) == "succeeded"
        (lost,) = cell.bodies(NodeRegistered)[1].lost
        assert (lost.first, lost.attempt) == (0, 1)

    tell(story)


def test_a_data_folder_has_one_agent(tell, tmp_path):
    async def story(cell):
        async with agent_on(cell, settings(tmp_path / "data")):
            await cell.until(lambda: cell.bodies(NodeRegistered))
            with pytest.raises(DirectoryHeld):
                await shell.run(cell.bus, settings(tmp_path / "data"), asyncio.Event())

    tell(story)


def test_an_old_registration_that_comes_late_is_answered_with_a_new_one(tell, tmp_path):
    async def story(cell):
        async with agent_on(cell, settings(tmp_path / "data")):
            await cell.until(lambda: cell.bodies(NodeRegistered))
        async with agent_on(cell, settings(tmp_path / "data")):
            await cell.until(lambda: len(cell.bodies(NodeRegistered)) == 2)
            await cell.submit("j", once(tmp_path, 1))
            await started(cell, 1)
            old = next(document for document in cell.inputs["nodes"] if "register" in document)
            await cell.tell("nodes", old)
            await cell.until(lambda: len(cell.bodies(NodeRegistered)) == 4)
            go(tmp_path, 0)

            assert await outcome_of(cell) == "succeeded"
        epochs = [body.epoch for body in cell.bodies(NodeRegistered)]
        assert epochs[2] == epochs[0]
        assert len(set(epochs)) == 3

    tell(story)


# ---------------------------------------------------------------- a log written by hand
def test_a_revoked_attempt_has_its_grace_and_is_given_back(tell, tmp_path):
    """The closing that takes it back is put into the log as it would stand there."""
    script = "trap 'echo asked; sleep 0.1; exit 0' TERM; echo ready; while :; do sleep 0.01; done"

    async def story(cell):
        await cell.submit("j", {"command": ["sh", "-c", script]})
        async with agent_on(cell, settings(tmp_path / "data", stop_grace_ms=0, revoke_grace_ms=60_000)):
            await started(cell, 1)
            await eventually(lambda: read_output(tmp_path / "data", "j", "s", 0))
            (item,) = cell.items(TaskStarted)
            revocation = Revocation("j", "s", 0, 1, 1, "n", item.epoch)
            await cell.put(RoundClosed([], [], [revocation], None, []))

            (failed,) = await cell.until(lambda: cell.items(TaskFailed))
            assert failed.reason == "revoked"
            assert read_output(tmp_path / "data", "j", "s", 0, 1) == b"ready\nasked\n"
            await cell.tell("jobs", {"cancel": "j"})
            await outcome_of(cell)

    tell(story)


# ---------------------------------------------------------------- checkpoints
def test_a_restarted_agent_goes_on_from_its_checkpoint(tell, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "RECORDS_BETWEEN", 1)
    begins: list[int] = []

    class Watched(LogReader):
        def __init__(self, bus, partition=0, order=None):
            super().__init__(bus, partition, order)
            begins.append(self.order.offset)

    monkeypatch.setattr(log_follower, "LogReader", Watched)

    async def story(cell):
        await cell.submit("j", once(tmp_path, 1))
        async with agent_on(cell, settings(tmp_path / "data")):
            await started(cell, 1)
            await eventually((tmp_path / "data" / checkpoint.CHECKPOINT).exists)
        async with agent_on(cell, settings(tmp_path / "data")):
            await cell.until(lambda: len(cell.bodies(NodeRegistered)) == 2)
            go(tmp_path, 0)
            assert await outcome_of(cell) == "succeeded"
        assert begins[0] == begins[1] == 0
        assert begins[2] > 0

    tell(story)
    assert ran(tmp_path) == ["0-1"]


def test_a_checkpoint_of_another_log_is_passed_over(tell, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "RECORDS_BETWEEN", 1)
    data = tmp_path / "data"

    async def first(cell):
        await cell.submit("i", {"command": ["true"], "tasks": 3})
        async with agent_on(cell, settings(data)):
            assert await outcome_of(cell, "i") == "succeeded"
            await eventually((data / checkpoint.CHECKPOINT).exists)

    async def second(cell):
        await cell.submit("j", {"command": ["true"]})
        async with agent_on(cell, settings(data)):
            assert await outcome_of(cell) == "succeeded"

    tell(first)
    tell(second)
