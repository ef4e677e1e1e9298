"""A copied data folder, or one node's name twice: each grant is acted on by one agent, and one of the two ends."""

import asyncio
import os
import shutil
import signal
from types import SimpleNamespace

import pytest

from largesse.bus.port import Fetched
from schemas import NodeLost, NodeRegistered, Policy, RoundClosed, TaskFinished
from schemas.topics import LOG
from services.agent import log_follower
from services.agent.found import attempt_folders
from services.agent.local import mono_ms
from services.agent.proc import stat_of
from services.agent.shell import TakenOver
from tests.live.agent_cell import AgentProcess, agent_on, eventually, is_alive, outcome_of, settings
from tests.live.test_agent_restarts import go, once, ran, running, started

JOBS = 10
FIRST_RECORD = 1
"""The offset of a cell's first record, behind the claim of its sequencer."""


def of(cell, folder):
    """An agent process with a data folder and a socket below `folder`."""
    folder.mkdir(exist_ok=True)
    return AgentProcess(cell.bus, folder)


def test_two_agents_on_copies_of_one_folder_run_each_job_once(tell, tmp_path):
    script = 'echo "$$ $LARGESSE_ATTEMPT" >> "$FOLDER/$LARGESSE_JOB"; sleep 0.3'

    async def story(cell):
        async with of(cell, tmp_path / "one") as one, of(cell, tmp_path / "two") as two:
            await one.start()
            await cell.until(lambda: cell.bodies(NodeRegistered))
            await one.kill()
            shutil.copytree(one.data, two.data)
            cell.deaf = True  # Both have said who they are before either is heard.
            await one.start()
            await two.start()
            heard = cell.heard["nodes"]
            await eventually(lambda: cell.heard["nodes"] >= heard + 2)
            cell.deaf = False
            for number in range(JOBS):
                await cell.submit(f"j{number}", {"command": ["sh", "-c", script], "env": {"FOLDER": str(tmp_path)}})
            for number in range(JOBS):
                assert await outcome_of(cell, f"j{number}") == "succeeded"
            runs = [(tmp_path / f"j{number}").read_text().split() for number in range(JOBS)]
            # As often as the log says, which may have moved a job from one agent to the other.
            ends = {item.job: item.attempt for item in cell.items(TaskFinished)}
            for number, said in enumerate(runs):
                attempts = said[1::2]
                assert len(set(attempts)) == len(attempts), f"j{number}: an attempt ran twice: {attempts}"
                assert str(ends[f"j{number}"]) in attempts

    tell(story)


def test_of_two_agents_on_copies_the_one_that_came_first_ends_with_its_tasks(tell, tmp_path):
    async def story(cell):
        await cell.submit("j", once(tmp_path, 1))
        async with agent_on(cell, settings(tmp_path / "one")) as one:
            await started(cell, 1)
            (pid,) = await running(tmp_path, "0-1")
            shutil.copytree(tmp_path / "one", tmp_path / "two", ignore=shutil.ignore_patterns("lock"))
            async with agent_on(cell, settings(tmp_path / "two")):
                with pytest.raises(TakenOver):
                    await one
                assert not is_alive(pid)
                go(tmp_path, 0)
                assert await outcome_of(cell) == "succeeded"
        assert ran(tmp_path) == ["0-1", "0-2"]
        assert len(cell.bodies(NodeRegistered)) == 2

    tell(story)


def test_an_agent_that_was_lost_meanwhile_does_not_take_the_node_back(tell, tmp_path):
    async def story(cell):
        await cell.submit("j", once(tmp_path, 1))
        async with of(cell, tmp_path / "one") as one:
            await one.start()
            await started(cell, 1)
            (pid,) = await running(tmp_path, "0-1")
            process = one._process
            process.send_signal(signal.SIGSTOP)
            await eventually(lambda: stat_of(process.pid)[0] == b"T")
            await cell.lose("n")
            shutil.copytree(one.data, tmp_path / "two")
            async with agent_on(cell, settings(tmp_path / "two")):
                await cell.until(lambda: len(cell.bodies(NodeRegistered)) == 2)
                process.send_signal(signal.SIGCONT)
                await one.gone()
                assert not is_alive(pid)
                go(tmp_path, 0)
                assert await outcome_of(cell) == "succeeded"
        assert len(cell.bodies(NodeRegistered)) == 2

    tell(story)


class SlowLog:
    """A bus on which the log is to be read only up to the offset `until`, and that notes who asks where it ends. While
    `paused` nothing of the log is read.
    """

    def __init__(self, behind):
        self._behind = behind
        self.until = None
        self.asked = False
        self.paused = False

    def __getattr__(self, name):
        return getattr(self._behind, name)

    async def fetch(self, topic, partition, offset, *, wait_ms=0, most=1_000):
        found = None
        while found is None or (topic == LOG and self.paused):
            await asyncio.sleep(0.01 if self.paused else 0)
            found = await self._behind.fetch(topic, partition, offset, wait_ms=min(wait_ms, 20), most=most)
        until = self.until
        if topic != LOG or until is None or found.position <= until:
            return found
        await asyncio.sleep(0.01)
        return Fetched([message for message in found if message.offset < until], max(offset, until))

    async def bounds(self, topic, partition):
        self.asked = True
        return await self._behind.bounds(topic, partition)


def test_an_agent_that_reads_of_its_loss_long_before_the_rest_does_not_take_the_node_back(tell, tmp_path):
    async def story(cell):
        slow = SlowLog(cell.bus)
        await cell.submit("j", once(tmp_path, 1))
        async with agent_on(SimpleNamespace(bus=slow), settings(tmp_path / "one")) as one:
            await started(cell, 1)
            (pid,) = await running(tmp_path, "0-1")
            slow.until = (await cell.bus.bounds(LOG, 0))[1]
            await cell.lose("n")
            (lost,) = [at for at, record in enumerate(cell.records) if isinstance(record.body, NodeLost)]
            shutil.copytree(tmp_path / "one", tmp_path / "two", ignore=shutil.ignore_patterns("lock"))
            async with agent_on(cell, settings(tmp_path / "two")):
                await cell.until(lambda: len(cell.bodies(NodeRegistered)) == 2)
                slow.asked, slow.until = False, FIRST_RECORD + lost + 1

                await eventually(lambda: slow.asked or len(cell.bodies(NodeRegistered)) > 2)
                assert not is_alive(pid)
                assert len(cell.bodies(NodeRegistered)) == 2
                slow.until = None

                with pytest.raises(TakenOver):
                    await one
                go(tmp_path, 0)
                assert await outcome_of(cell) == "succeeded"
        assert len(cell.bodies(NodeRegistered)) == 2

    tell(story)


def test_an_agent_on_a_copy_neither_takes_over_nor_ends_what_runs_for_the_other(tell, tmp_path):
    async def story(cell):
        await cell.submit("j", once(tmp_path, 1))
        async with of(cell, tmp_path / "one") as one:
            await one.start()
            await started(cell, 1)
            (pid,) = await running(tmp_path, "0-1")
            await one.kill()
            shutil.copytree(one.data, tmp_path / "two")
            async with agent_on(cell, settings(tmp_path / "two")):
                await cell.until(lambda: len(cell.bodies(NodeRegistered)) == 2)
                again = cell.bodies(NodeRegistered)[1]
                assert [known.state for known in again.attempts] == ["failed"]
                assert again.attempts[0].reason == "lost"
                assert is_alive(pid)
                (folder,) = attempt_folders(one.data)
                assert not (folder / "result.json").exists()
                await cell.tell("jobs", {"cancel": "j"})
                await outcome_of(cell)
            os.kill(pid, signal.SIGKILL)

    tell(story)


def test_an_agent_that_reads_late_of_a_grant_starts_nothing_before_it_has_read_on(tell, tmp_path, monkeypatch):
    late_ms = 0
    monkeypatch.setattr(log_follower, "mono_ms", lambda: mono_ms() + late_ms)

    async def story(cell):
        nonlocal late_ms
        slow = SlowLog(cell.bus)
        async with agent_on(SimpleNamespace(bus=slow), settings(tmp_path / "one")):
            await cell.until(lambda: cell.bodies(NodeRegistered))
            slow.paused = True
            await cell.submit("j", once(tmp_path, 1))
            await cell.until(lambda: any(body.grants for body in cell.bodies(RoundClosed)))
            slow.until = (await cell.bus.bounds(LOG, 0))[1]
            await cell.lose("n")
            late_ms += Policy().node_lease_ms
            slow.asked = slow.paused = False

            await eventually(lambda: slow.asked or ran(tmp_path))
            late_ms, slow.until = 0, None
            await running(tmp_path, "0-2")
            go(tmp_path, 0)
            assert await outcome_of(cell) == "succeeded"
        assert ran(tmp_path) == ["0-2"]

    tell(story)
