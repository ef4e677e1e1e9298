"""A shim that is killed: whatever its task has started is gone before the attempt is said to be over."""

import os
import signal
import sys

import pytest

from schemas import JobEnded, NodeRegistered, TaskFailed, TaskStarted
from services.agent import processes
from services.agent.documents import CLAIM, read_json
from services.agent.executors.process import ProcessExecutor
from services.agent.found import attempt_folders
from tests.live.agent_cell import AgentProcess, agent_on, eventually, is_alive, settings

DETACHED = """
import os, sys, time
for number in range(2):
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        with open(os.environ["FOLDER"] + f"/pid-{os.environ['LARGESSE_ATTEMPT']}-{number}.new", "w") as file:
            file.write(str(os.getpid()))
        os.rename(file.name, file.name.removesuffix(".new"))
        if number:
            os.execve(sys.executable, [sys.executable, "-S", "-c", "import time; time.sleep(1_000)"], ENVIRONMENT)
        time.sleep(1_000)
time.sleep(1_000)
"""
"""A task with two daemons in sessions of their own, one of them another program."""


def detached(folder, environment="os.environ"):
    """A stage of one such task. `environment`: what the second daemon has."""
    script = DETACHED.replace("ENVIRONMENT", environment)
    return {"command": [sys.executable, "-S", "-c", script], "env": {"FOLDER": str(folder)}}


async def daemons_of(folder, attempt=1):
    """Their pids, once both are there."""
    paths = [folder / f"pid-{attempt}-{number}" for number in range(2)]
    await eventually(lambda: all(path.exists() for path in paths))
    pids = [int(path.read_text()) for path in paths]
    assert all(is_alive(pid) for pid in pids)
    return pids


def kill_guardian(data):
    """As the kernel does where memory runs out."""
    (folder,) = attempt_folders(data)
    os.kill((read_json(folder / CLAIM) or {})["pid"], signal.SIGKILL)


@pytest.mark.parametrize("environment", ["os.environ", "{}"])
def test_what_a_killed_guardian_leaves_in_other_sessions_is_gone_before_its_attempt_is_lost(
    tell, tmp_path, environment
):
    async def story(cell):
        await cell.submit("j", detached(tmp_path, environment))
        async with agent_on(cell, settings(tmp_path / "data")):
            pids = await daemons_of(tmp_path)

            kill_guardian(tmp_path / "data")

            await cell.until(lambda: cell.items(TaskFailed))
            assert not any(is_alive(pid) for pid in pids)
            assert cell.items(TaskFailed)[0].reason == "lost"
            await cell.tell("jobs", {"cancel": "j"})
            await cell.until(lambda: cell.bodies(JobEnded))

    tell(story)


def test_a_cancellation_is_over_when_what_a_killed_guardian_left_is_gone(tell, tmp_path):
    async def story(cell):
        await cell.submit("j", detached(tmp_path))
        async with agent_on(cell, settings(tmp_path / "data", stop_grace_ms=60_000)):
            await cell.until(lambda: cell.items(TaskStarted))
            pids = await daemons_of(tmp_path)
            (folder,) = attempt_folders(tmp_path / "data")
            guardian = (read_json(folder / CLAIM) or {})["pid"]
            os.kill(guardian, signal.SIGSTOP)
            await cell.tell("jobs", {"cancel": "j"})
            await eventually((folder / "stop.json").exists)
            os.kill(guardian, signal.SIGKILL)

            await cell.until(lambda: cell.items(TaskFailed))
            assert not any(is_alive(pid) for pid in pids)
            assert cell.items(TaskFailed)[0].reason == "killed"

    tell(story)


def test_what_guardian_and_agent_left_is_gone_before_the_next_agent_speaks(tell, tmp_path):
    async def story(cell):
        await cell.submit("j", detached(tmp_path))
        async with AgentProcess(cell.bus, tmp_path) as agent:
            await agent.start()
            pids = await daemons_of(tmp_path)
            await agent.kill()
            kill_guardian(agent.data)
            await agent.start()

            await cell.until(lambda: len(cell.bodies(NodeRegistered)) == 2)
            assert not any(is_alive(pid) for pid in pids)
            await cell.tell("jobs", {"cancel": "j"})
            await cell.until(lambda: cell.bodies(JobEnded))

    tell(story)


@pytest.mark.rotating(3)
@pytest.mark.parametrize("forged", ["nothing", "a folder", "an end of its job"])
def test_a_task_that_hides_its_folder_does_not_run_beside_its_next_attempt(tell, tmp_path, forged):
    """It removes what an agent would find it by, or has the agent pass it over, while no agent looks."""

    async def story(cell):
        await cell.submit("j", detached(tmp_path))
        async with AgentProcess(cell.bus, tmp_path) as agent:
            await agent.start()
            await cell.until(lambda: cell.items(TaskStarted))
            pids = await daemons_of(tmp_path)
            await agent.kill()
            (folder,) = attempt_folders(agent.data)
            if forged == "an end of its job":
                (folder.parents[1] / "#over.json").write_text('{"at_ms": 0, "bytes": 0}')
            else:
                folder.rename(tmp_path / "elsewhere")
                if forged == "a folder":
                    folder.mkdir()
            await agent.start()

            await cell.until(lambda: len(cell.bodies(NodeRegistered)) == 2)
            assert not any(is_alive(pid) for pid in pids)
            await cell.tell("jobs", {"cancel": "j"})
            await cell.until(lambda: cell.bodies(JobEnded))

    tell(story)


def test_a_result_that_a_task_forged_counts_only_when_nothing_of_it_is_left(tell, tmp_path):
    async def story(cell):
        await cell.submit("j", detached(tmp_path))
        async with agent_on(cell, settings(tmp_path / "data")):
            pids = await daemons_of(tmp_path)
            (folder,) = attempt_folders(tmp_path / "data")
            (folder / "result.json").write_text('{"state": "failed", "reason": "lost", "run_ms": 1}')

            kill_guardian(tmp_path / "data")

            await cell.until(lambda: cell.items(TaskFailed))
            assert not any(is_alive(pid) for pid in pids)
            await cell.tell("jobs", {"cancel": "j"})
            await cell.until(lambda: cell.bodies(JobEnded))

    tell(story)


def test_attempts_whose_guardians_are_killed_together_are_looked_for_together(tell, tmp_path, monkeypatch):
    walks, looks = [], []
    seen, look = processes.seen, ProcessExecutor.look
    monkeypatch.setattr(processes, "seen", lambda: walks.append(1) or seen())
    monkeypatch.setattr(ProcessExecutor, "look", lambda *words: looks.append(1) or look(*words))

    async def story(cell):
        await cell.submit("j", {"command": ["sleep", "1000"], "tasks": 20})
        async with agent_on(cell, settings(tmp_path / "data")):
            await cell.until(lambda: len(cell.items(TaskStarted)) == 20)
            walks.clear()
            looks.clear()
            for folder in attempt_folders(tmp_path / "data"):
                os.kill((read_json(folder / CLAIM) or {})["pid"], signal.SIGKILL)

            await cell.until(lambda: len(cell.items(TaskFailed)) >= 20)
            # One walk over all processes a look, however many attempts it is for; a slow machine takes more looks.
            assert 0 < len(walks) <= len(looks)
            await cell.tell("jobs", {"cancel": "j"})
            await cell.until(lambda: cell.bodies(JobEnded))

    tell(story)
