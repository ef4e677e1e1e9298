"""An agent puts away what ended jobs left, looks only at what has not ended when it starts, and never falls behind."""

import fcntl
from pathlib import Path

import pytest

from schemas import JobEnded, NodeReported, TaskStarted
from services.agent import shell, troubles
from services.agent.attempts import Attempts
from services.agent.clearing import ENDED, LOCK
from services.agent.folders import OVER, Kept, attempt_folder
from services.agent.runs import runs_of_jobs
from tests.live.agent_cell import agent_on, eventually, settings
from tests.printed import read_output


@pytest.fixture(autouse=True)
def looks_often(monkeypatch):
    monkeypatch.setattr(troubles, "PROBE_MS", 50)
    monkeypatch.setattr(shell, "LOOK_MS", 50)


def ended(cell) -> list[str]:
    return [end.job for body in cell.bodies(JobEnded) for end in body.jobs if end.outcome == "succeeded"]


def kept(data: Path) -> list[str]:
    return sorted(run.parent.name for run in (data / ENDED).glob("[0-9]*/*/*"))


def test_what_ended_jobs_left_is_put_away_up_to_its_limits_and_can_be_read(tell, tmp_path):
    async def story(cell):
        async with agent_on(cell, settings(tmp_path, kept=Kept(runs=2), clear_ms=20)):
            for number in range(4):
                await cell.submit(f"j{number}", {"command": ["echo", str(number)]})
                await cell.until(lambda job=f"j{number}": job in ended(cell))
            await eventually(lambda: kept(tmp_path) == ["j2", "j3"] and not runs_of_jobs(tmp_path))
        assert [read_output(tmp_path, job, "s", 0) for job in ("j1", "j3")] == [None, b"3\n"]

    tell(story)


def test_a_run_stays_where_it_is_while_its_job_lives(tell, tmp_path):
    async def story(cell):
        async with agent_on(cell, settings(tmp_path, clear_ms=20)):
            await cell.submit(
                "long", {"command": ["true"]}, {"stage": "t", "command": ["sleep", "1000"], "after": ["s"]}
            )
            await cell.submit("short", {"command": ["true"]})
            await eventually(lambda: kept(tmp_path) == ["short"])
            # The first stage may be over before the agent has reported its start: then only its end is reported.
            await cell.until(lambda: any(item.stage == "t" for item in cell.items(TaskStarted, "long")))
            assert [run.partition("/")[0] for run in runs_of_jobs(tmp_path)] == ["long"]

            await cell.tell("jobs", {"cancel": "long"})
            await eventually(lambda: kept(tmp_path) == ["long", "short"])

    tell(story)


def test_what_ended_while_no_agent_ran_is_put_away_at_the_next_start(tell, tmp_path):
    async def story(cell):
        async with agent_on(cell, settings(tmp_path)):
            await cell.submit("j", {"command": ["true"]})
            await cell.until(lambda: ended(cell))
        (run,) = runs_of_jobs(tmp_path)
        of_before = attempt_folder(tmp_path, "old", "3-e.1", "s", 0, 1)
        of_before.mkdir(parents=True)
        (of_before.parents[1] / OVER).write_text('{"at_ms": 0, "bytes": 0}')

        async with agent_on(cell, settings(tmp_path, clear_ms=20)):
            await eventually(lambda: kept(tmp_path) == [run.partition("/")[0], "old"])

    tell(story)


def test_a_start_does_not_look_into_what_was_put_away(tell, tmp_path):
    async def story(cell):
        async with agent_on(cell, settings(tmp_path, clear_ms=20)):
            await cell.submit("j", {"command": ["true"]})
            await eventually(lambda: kept(tmp_path) == ["j"])
        found = Attempts(settings(tmp_path))
        found.scan()
        assert found.by_key == {}

    tell(story)


def test_a_node_that_clears_away_more_slowly_than_jobs_end_takes_no_new_tasks_until_it_has_caught_up(tell, tmp_path):
    reason = "more than 3 runs of ended jobs wait to be cleared away"
    (tmp_path / ENDED).mkdir()

    async def story(cell):
        with (tmp_path / ENDED / LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # Nothing can be put away while it is held.
            async with agent_on(cell, settings(tmp_path, kept=Kept(runs=0, behind_max=3), clear_ms=20)):
                for number in range(4):
                    await cell.submit(f"j{number}", {"command": ["true"]})
                reasons = await cell.until(lambda: [body.unschedulable for body in cell.bodies(NodeReported)])
                assert reasons == [reason]

                await cell.submit("late", {"command": ["true"]})
                fcntl.flock(lock, fcntl.LOCK_UN)
                await cell.until(lambda: "late" in ended(cell))
                assert [body.unschedulable for body in cell.bodies(NodeReported)] == [reason, ""]

    tell(story)
