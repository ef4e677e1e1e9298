"""Tasks as real processes under a real agent: how they run, what they are told, how they end, what is left behind."""

import asyncio
import functools
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from schemas import RoundClosed, TaskFailed, TaskFinished, TaskStarted
from services.agent.documents import read_json
from services.agent.found import attempt_folders
from services.agent.processes import attempt_key, carriers, node_key, seen
from tests.cells import holds_of
from tests.live.agent_cell import (
    ScriptedCell,
    agent_on,
    end_tasks,
    eventually,
    first_end,
    is_alive,
    outcome_of,
    scripted_cell,
    settings,
)
from tests.printed import read_output

Story = Callable[[ScriptedCell, Path], Awaitable[None]]


@pytest.fixture
def tell(tmp_path):
    """Runs a story of a cell, and an agent on it for node n. `changes`: to the node's settings."""

    async def run(story: Story, changes: dict[str, Any]) -> None:
        data = tmp_path / "data"
        async with scripted_cell() as cell, agent_on(cell, settings(data, **changes)) as agent:
            await first_end(story(cell, data), agent, cell.serving)

    yield lambda story, **changes: asyncio.run(run(story, changes))
    end_tasks(tmp_path)


def shell(script: str, **stage: Any) -> dict[str, Any]:
    """A stage whose tasks run a shell script."""
    return {"command": ["sh", "-c", script], **stage}


def python(script: str, **stage: Any) -> dict[str, Any]:
    """A stage whose tasks run a Python script."""
    return {"command": [sys.executable, "-S", "-c", script], **stage}


async def failures_of(cell: ScriptedCell, count: int = 1) -> list[Any]:
    """The first `count` failed tasks, once there are as many."""
    await cell.until(lambda: len(cell.items(TaskFailed)) >= count)
    return cell.items(TaskFailed)


# ---------------------------------------------------------------- running
def test_tasks_run_and_their_output_is_kept(tell):
    async def story(cell, data):
        script = f"echo out $LARGESSE_TASK_INDEX; echo err >&2; until test -e {data}/go; do sleep 0.02; done"
        await cell.submit("j", shell(script, tasks=3))
        # Of a task that is over before its start was reported, only the end is.
        await cell.until(lambda: len(cell.items(TaskStarted)) == 3)
        (data / "go").touch()

        assert await outcome_of(cell) == "succeeded"
        assert [read_output(data, "j", "s", index) for index in range(3)] == [b"out 0\n", b"out 1\n", b"out 2\n"]
        assert read_output(data, "j", "s", 1, stream="stderr") == b"err\n"
        assert sorted(item.first for item in cell.items(TaskStarted)) == [0, 1, 2]
        assert all(item.peak["memory"] > 0 for item in cell.items(TaskFinished))

    tell(story)


def test_stages_run_in_their_order(tell):
    async def story(cell, data):
        await cell.submit("j", shell("true", stage="a"), shell("true", stage="b", after=["a"], tasks=2))

        assert await outcome_of(cell) == "succeeded"
        assert [item.stage for item in cell.items(TaskFinished)] == ["a", "b", "b"]

    tell(story)


def test_a_task_knows_who_it_is_and_nothing_of_the_agents_secrets(tell, monkeypatch):
    monkeypatch.setenv("LARGESSE_PASSWORD", "hunter2")
    monkeypatch.setenv("AWS_SECRET", "hunter2")
    monkeypatch.setenv("SHOWN", "yes")

    async def story(cell, data):
        await cell.submit("j", shell("env | sort", env={"MINE": "a b", "PATH": "/usr/bin:/bin"}))

        assert await outcome_of(cell) == "succeeded"
        lines = (read_output(data, "j", "s", 0) or b"").decode().splitlines()
        (folder,) = attempt_folders(data)
        key = attempt_key(node_key(data), data, folder)
        assert "MINE=a b" in lines
        assert "PATH=/usr/bin:/bin" in lines
        assert "SHOWN=yes" in lines
        assert [line for line in lines if line.startswith("LARGESSE_")] == [
            "LARGESSE_ARRAY_INDEX=0",
            "LARGESSE_ATTEMPT=1",
            f"LARGESSE_ATTEMPT_KEY={key}",
            "LARGESSE_JOB=j",
            "LARGESSE_NODE=n",
            f"LARGESSE_RESULTS={folder}/work",
            "LARGESSE_STAGE=s",
            "LARGESSE_TASK_COUNT=1",
            "LARGESSE_TASK_INDEX=0",
        ]
        assert not [line for line in lines if "hunter2" in line]

    tell(story, pass_env=("SHOWN",))


def test_a_task_has_a_folder_of_its_own_unless_it_names_one(tell, tmp_path):
    async def story(cell, data):
        await cell.submit("own", shell("pwd; echo x > made; ls", tasks=2))
        await cell.submit("named", shell("pwd; umask", cwd=str(tmp_path)))

        assert await outcome_of(cell, "own") == "succeeded"
        assert await outcome_of(cell, "named") == "succeeded"
        own = [(read_output(data, "own", "s", index) or b"").split() for index in (0, 1)]
        assert own[0][0] != own[1][0]
        assert [listed[1:] for listed in own] == [[b"made"], [b"made"]]
        mask = os.umask(0)
        os.umask(mask)
        assert read_output(data, "named", "s", 0) == b"%s\n%04o\n" % (os.fsencode(tmp_path), mask)

    tell(story)


def test_a_task_is_alone_in_its_session_with_default_signals_and_no_input(tell):
    script = """
import os, signal, sys
assert os.getsid(0) == os.getpid() and sys.stdin.read() == ""
ignored = [s for s in signal.valid_signals() if signal.getsignal(s) is signal.SIG_IGN]
print(ignored, os.listdir("/proc/self/fd"), signal.pthread_sigmask(signal.SIG_BLOCK, []))
"""

    async def story(cell, data):
        await cell.submit("j", python(script))

        assert await outcome_of(cell) == "succeeded"
        said = (read_output(data, "j", "s", 0) or b"").decode()
        # Python itself ignores SIGPIPE and SIGXFSZ; the listing has a descriptor of its own.
        assert "SIGHUP" not in said
        assert "SIGINT" not in said
        assert "['0', '1', '2', '3'] set()" in said

    tell(story)


@pytest.mark.parametrize("job", ["naïve job: *?[x]", "..", "日本語 💡", "x" * 253])
def test_any_name_runs(tell, job):
    async def story(cell, data):
        await cell.submit(job, shell('printf %s "$LARGESSE_JOB"', stage=job))

        assert await outcome_of(cell, job) == "succeeded"
        assert read_output(data, job, job, 0) == job.encode()

    tell(story)


def test_many_small_tasks_leave_nothing_behind(tell, daily):
    tasks = 50 if daily else 200

    async def story(cell, data):
        await cell.submit("j", shell("true", tasks=tasks, demand={"cpu": "10m"}))

        assert await outcome_of(cell) == "succeeded"
        assert len(cell.items(TaskFinished)) == tasks
        pids = [(read_json(folder / "claim.json") or {})["pid"] for folder in attempt_folders(data)]
        assert len(pids) == tasks
        # Reaped, not only ended: shims wait a while for more.
        await eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))

    tell(story)


# ---------------------------------------------------------------- ending badly
@pytest.mark.parametrize(
    ("script", "code", "detail"),
    [
        pytest.param("exit 3", 3, "ended with status 3", id="a status"),
        pytest.param("kill -SEGV $$", 139, "ended by SIGSEGV", id="a signal"),
    ],
)
def test_a_failure_says_how_the_command_ended(tell, script, code, detail):
    async def story(cell, data):
        await cell.submit("j", shell(script))

        assert await outcome_of(cell) == "failed"
        (failed,) = await failures_of(cell)
        assert (failed.reason, failed.exit_code, failed.detail) == ("exit_code", code, detail)

    tell(story)


def test_a_failed_task_is_run_again_as_often_as_it_may(tell):
    async def story(cell, data):
        await cell.tell("config", {"set": {"retry_backoff_ms": 1}})
        await cell.submit("j", shell('echo $LARGESSE_ATTEMPT; test "$LARGESSE_ATTEMPT" = 3', retries=2))

        assert await outcome_of(cell) == "succeeded"
        assert [item.attempt for item in await failures_of(cell)] == [1, 2]
        assert [read_output(data, "j", "s", 0, attempt) for attempt in (1, 2, None)] == [b"1\n", b"2\n", b"3\n"]

    tell(story)


@pytest.mark.parametrize(
    ("stage", "detail", "exit_code"),
    [
        pytest.param(
            {"command": ["no-such-command"]}, "cannot execute no-such-command: No such file", 127, id="no command"
        ),
        pytest.param({"command": ["/etc"]}, "cannot execute /etc: Permission denied", 126, id="not executable"),
        pytest.param(
            {"command": ["true"], "cwd": "/no/such"}, "no working directory /no/such: No such file", 126, id="no folder"
        ),
    ],
)
def test_what_cannot_start_comes_back_as_a_fact(tell, stage, detail, exit_code):
    async def story(cell, data):
        await cell.submit("j", stage)

        assert await outcome_of(cell) == "failed"
        (failed,) = await failures_of(cell)
        assert (failed.reason, failed.exit_code) == ("cannot_start", exit_code)
        assert failed.detail.startswith(detail)
        assert cell.items(TaskStarted) == []

    tell(story)


FAMILY = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for deaf in (False, True):
    if os.fork() == 0:
        if deaf:
            os.setsid()
            if os.fork():
                os._exit(0)
        print(os.getpid(), flush=True)
        time.sleep(1_000)
print(os.getpid(), flush=True)
time.sleep(1_000)
"""
"""A task with a child and a daemon, all of which refuse to end; each prints its pid."""


async def family_of(data: Path, job: str) -> list[int]:
    def pids() -> list[int]:
        found = [int(word) for word in (read_output(data, job, "s", 0) or b"").split()]
        return found if len(found) == 3 else []

    family: list[int] = await eventually(pids)
    assert all(is_alive(pid) for pid in family)
    return family


def test_a_time_out_ends_the_whole_family(tell):
    """However much of it there is by then: a machine that has little to give may not have started all."""

    async def story(cell, data):
        await cell.submit("j", python(FAMILY, timeout_ms=1_500))

        assert await outcome_of(cell) == "failed"
        (failed,) = await failures_of(cell)
        assert (failed.reason, failed.detail) == ("timeout", "ran longer than 1500 ms")
        assert failed.run_ms[0] >= 1_500
        assert not any(is_alive(int(pid)) for pid in (read_output(data, "j", "s", 0) or b"").split())
        # The shim itself carries the key too, and ends after it has told its result.
        await eventually(lambda: carriers(seen(), node_key(data)) == {})

    tell(story, stop_grace_ms=100)


def test_a_cancellation_ends_the_whole_family(tell):
    async def story(cell, data):
        await cell.submit("j", python(FAMILY))
        family = await family_of(data, "j")

        await cell.tell("jobs", {"cancel": "j"})

        assert await outcome_of(cell) == "cancelled"
        (failed,) = await failures_of(cell)
        assert failed.reason == "killed"
        assert not any(is_alive(pid) for pid in family)

    tell(story, stop_grace_ms=100)


def test_a_cancellation_at_any_moment_leaves_nothing(tell):
    async def story(cell, data):
        moments = {
            "asked": lambda job: True,
            "granted": lambda job: job in [grant.job for body in cell.bodies(RoundClosed) for grant in body.grants],
            "started": lambda job: cell.items(TaskStarted, job),
        }
        for turn in range(4):
            for moment, has_come in moments.items():
                job = f"{moment}-{turn}"
                await cell.submit(job, shell("sleep 1000", tasks=3))
                await cell.until(functools.partial(has_come, job))
                await cell.tell("jobs", {"cancel": job})
        for turn in range(4):
            for moment in moments:
                assert await outcome_of(cell, f"{moment}-{turn}") == "cancelled"
        await cell.until(lambda: not holds_of(cell.cell.admission))
        assert {item.reason for item in cell.items(TaskFailed)} == {"killed"}
        claims = [read_json(folder / "claim.json") or {} for folder in attempt_folders(data)]
        await eventually(lambda: not any(is_alive(claim["pid"]) for claim in claims if claim))

    tell(story)


def test_a_task_that_heeds_a_stop_has_time_to_end_well(tell):
    async def story(cell, data):
        await cell.submit("j", shell("trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.01; done"))
        await eventually(lambda: read_output(data, "j", "s", 0))

        await cell.tell("jobs", {"cancel": "j"})

        (failed,) = await failures_of(cell)
        assert (failed.reason, failed.exit_code) == ("killed", 0)
        assert read_output(data, "j", "s", 0) == b"ready\nsaved\n"

    tell(story, stop_grace_ms=60_000)


def test_a_stopped_process_can_be_ended(tell):
    async def story(cell, data):
        await cell.submit("j", shell("echo $$; kill -STOP $$"))
        await eventually(lambda: read_output(data, "j", "s", 0))

        await cell.tell("jobs", {"cancel": "j"})

        assert (await failures_of(cell))[0].reason == "killed"

    tell(story, stop_grace_ms=60_000)


def test_what_a_command_leaves_running_ends_with_it(tell):
    async def story(cell, data):
        await cell.submit("j", shell("sleep 1000 & echo $!; setsid sleep 1000 & sleep 0.1; exit 0"))

        assert await outcome_of(cell) == "succeeded"
        pid = int((read_output(data, "j", "s", 0) or b"").split()[0])
        assert not is_alive(pid)

    tell(story)


def test_tasks_of_a_job_that_failed_are_killed(tell):
    async def story(cell, data):
        script = 'test "$LARGESSE_TASK_INDEX" = 0 && exit 1; sleep 1000'
        await cell.submit("j", shell(script, tasks=3))

        assert await outcome_of(cell) == "failed"
        failed = await failures_of(cell, 3)
        assert sorted((item.first, item.reason) for item in failed) == [(0, "exit_code"), (1, "killed"), (2, "killed")]

    tell(story)


def test_a_gang_ends_together_and_is_run_again(tell):
    async def story(cell, data):
        await cell.tell("config", {"set": {"retry_backoff_ms": 1}})
        script = 'test "$LARGESSE_ATTEMPT" = 2 && exit 0; test "$LARGESSE_TASK_INDEX" = 0 && exit 1; sleep 1000'
        await cell.submit("j", shell(script, tasks=3, gang=True, retries=1))

        assert await outcome_of(cell) == "succeeded"
        reasons = sorted((item.first, item.attempt, item.reason) for item in cell.items(TaskFailed))
        assert reasons == [(0, 1, "exit_code"), (1, 1, "gang"), (2, 1, "gang")]

    tell(story)


# ---------------------------------------------------------------- simulated tasks
def test_simulated_tasks_last_as_long_as_they_say(tell):
    async def story(cell, data):
        await cell.submit("j", {"durations_ms": [0, 30, 300]})

        assert await outcome_of(cell) == "succeeded"
        # Ends that the agent meets at once are one item.
        items = [item for body in cell.bodies(TaskFinished) for item in body.items]
        ran_ms = {item.first + at: item.run_ms[at % len(item.run_ms)] for item in items for at in range(item.count)}
        assert ran_ms == {0: 0, 1: 30, 2: 300}
        assert len(cell.items(TaskStarted)) == 3

    tell(story)


def test_a_simulated_task_can_time_out_and_be_cancelled(tell):
    async def story(cell, data):
        await cell.submit("slow", {"duration_ms": 1_000_000, "tasks": 1, "timeout_ms": 50})
        await cell.submit("unwanted", {"duration_ms": 1_000_000, "tasks": 1})
        assert await outcome_of(cell, "slow") == "failed"
        await cell.until(lambda: cell.items(TaskStarted, "unwanted"))
        await cell.tell("jobs", {"cancel": "unwanted"})

        assert await outcome_of(cell, "unwanted") == "cancelled"
        await failures_of(cell, 2)
        (slow,), (unwanted,) = cell.items(TaskFailed, "slow"), cell.items(TaskFailed, "unwanted")
        assert (slow.reason, slow.run_ms) == ("timeout", [50])
        assert unwanted.reason == "killed"
        assert unwanted.run_ms[0] < 1_000_000

    tell(story)


def test_many_simulated_tasks_need_no_processes(tell):
    async def story(cell, data):
        await cell.submit("j", {"duration_ms": 1, "tasks": 300, "demand": {"cpu": "10m"}})

        assert await outcome_of(cell) == "succeeded"
        assert len(cell.items(TaskFinished)) == 300
        assert not any((folder / "child.json").exists() for folder in attempt_folders(data))

    tell(story)
