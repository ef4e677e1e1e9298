"""Tasks held to their limits by control groups, as real processes: by cgroup v2 or v1, whichever is here for us."""

import os
import signal
import subprocess
import sys
from contextlib import suppress

import pytest

from schemas import JobAdmitted, TaskFinished
from services.agent import cgroups
from services.agent.cgroup_trees import processes_in
from services.agent.cgroups import Groups, Limits, open_groups
from services.agent.processes import attempt_key, node_key
from tests.live.agent_cell import eventually, outcome_of
from tests.live.test_agent_processes import failures_of, python, tell
from tests.printed import read_output

__all__ = ["tell"]  # The fixture.

HERE = open_groups("auto", "0.0/")
LIMITS = Limits("hard", 500, 64, 20)


def needs(controller):
    """Skips where the kernel does not limit this resource for us."""
    missing = not any(controller in tree.controllers for tree in HERE.trees)
    return pytest.mark.skipif(missing, reason=f"no cgroup with {controller} here: {HERE.limits_text('hard', 'auto')}")


def groups_of(data):
    """Where the groups of the attempts on a node are, made or not."""
    node = open_groups("auto", node_key(data)).node
    return [tree.parent / node for tree in HERE.trees]


QUOTA = "cpu.max" if any(tree.version == 2 for tree in HERE.trees) else "cpu.cfs_quota_us"

SPINS = "import time\nwhile time.process_time() < 1.5: pass"
"""Uses one and a half seconds of CPU time, however long it takes."""


@needs("cpu")
def test_a_spinning_task_gets_no_more_cpu_than_it_asked_for(tell):
    """On a busy machine it may get less."""

    async def story(cell, data):
        await cell.submit("j", python(SPINS, demand={"cpu": "0.5", "memory": "64Mi"}))

        assert await outcome_of(cell) == "succeeded"
        (item,) = cell.items(TaskFinished)
        assert 1_300 <= item.cpu_ms[0] <= 0.6 * item.run_ms[0]

    tell(story, cgroup="auto")


@needs("cpu")
def test_with_shares_a_task_may_take_what_is_free(tell):
    async def story(cell, data):
        await cell.submit("j", python("import time; time.sleep(600)", demand={"cpu": "0.5", "memory": "64Mi"}))

        (quota,) = await eventually(lambda: [file for node in groups_of(data) for file in node.glob(f"task-*/{QUOTA}")])
        assert quota.read_text().split()[0] in ("max", "-1")

    tell(story, cgroup="auto", cpu_limit="share")


def limited_groups(data):
    return [file.parent for node in groups_of(data) for file in node.glob(f"task-*/{QUOTA}")]


def runs_in(group):
    """Whether a process runs in it; one that has just been removed has none."""
    with suppress(OSError):
        return bool(processes_in(group))


@needs("cpu")
def test_a_task_that_counts_for_less_has_that_weight_and_the_limit_that_it_asked_for(tell):
    weight, expected = ("cpu.weight", "100") if QUOTA == "cpu.max" else ("cpu.shares", "1024")

    async def story(cell, data):
        await cell.tell("config", {"set": {"demands": "history"}})
        for number in range(3):
            await cell.submit(f"j-{number}", python("import time; time.sleep(0.2)", demand={"cpu": "2"}))
            assert await outcome_of(cell, f"j-{number}") == "succeeded"
        await cell.submit("j-3", python("import time; time.sleep(600.5)", demand={"cpu": "2"}))

        (group,) = await eventually(lambda: [each for each in limited_groups(data) if runs_in(each)])
        assert cell.bodies(JobAdmitted)[-1].counted[0].demand == {"cpu": 1_000}
        assert (group / QUOTA).read_text().split()[0] == "200000"
        assert (group / weight).read_text().split()[0] == expected

    tell(story, cgroup="auto")


HOG = "import time\nhoard = []\nwhile True: hoard.append(bytearray(4 << 20)); time.sleep(0.02)"


@pytest.mark.parametrize("command", ["itself", "under a shell"])
def test_a_hog_is_ended_at_its_limit_for_its_memory(tell, command):
    """By the kernel where it counts memory for us, else by its shim."""

    async def story(cell, data):
        task = python(HOG, demand={"cpu": "1", "memory": "100Mi"})
        if command == "under a shell":
            task["command"] = ["sh", "-c", '"$@"; exit $?', "sh", *task["command"]]
        await cell.submit("j", task)

        assert await outcome_of(cell) == "failed"
        (failed,) = await failures_of(cell)
        assert (failed.reason, failed.exit_code) == ("memory", None)
        assert "memory" in failed.detail
        assert failed.peak_mib[0] >= 100

    tell(story, cgroup="auto")


@needs("memory")
def test_the_kernel_ends_a_hog_before_it_has_more_than_it_may(tell):
    async def story(cell, data):
        await cell.submit("j", python("hoard = bytearray(500 << 20)", demand={"cpu": "1", "memory": "100Mi"}))

        assert await outcome_of(cell) == "failed"
        (failed,) = await failures_of(cell)
        assert (failed.reason, failed.detail) == ("memory", "used more than the 100 MiB of memory it may")
        assert 100 <= failed.peak_mib[0] < 150  # Pages of the interpreter's own files are counted in one process.

    tell(story, cgroup="auto")


FORKS = """
import os, time
children = []
try:
    for _ in range(40):
        pid = os.fork()
        if pid == 0:
            time.sleep(600)
            os._exit(0)
except OSError as error:
    print(error.strerror)
"""


@needs("pids")
def test_a_task_has_no_more_processes_than_it_may(tell):
    async def story(cell, data):
        await cell.submit("j", python(FORKS))

        assert await outcome_of(cell) == "succeeded"
        assert read_output(data, "j", "s", 0) == b"Resource temporarily unavailable\n"

    tell(story, cgroup="auto", task_pids=20)


@needs("pids")
def test_groups_go_with_their_attempts(tell):
    async def story(cell, data):
        await cell.submit("j", python("pass", tasks=3))

        assert await outcome_of(cell) == "succeeded"
        await eventually(lambda: not any(list(group.glob("task-*")) for group in groups_of(data)))

    tell(story, cgroup="auto")


@pytest.fixture
def groups(tmp_path):
    """Groups of a node whose data folder this is."""
    made = open_groups("auto", node_key(tmp_path))
    yield made
    made.sweep([])
    made.close()


def sleeper(groups: Groups, key: str) -> "subprocess.Popen[bytes]":
    """A process in the groups of an attempt with this key."""
    made = groups.make(key, LIMITS)
    assert made is not None
    script = (
        "import sys, time\nfor group in sys.argv[1:]: open(group, 'w').write('0')\nprint(flush=True); time.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-S", "-c", script, *made["join"]], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()  # It is in.
    return process


@needs("pids")
def test_what_a_killed_agent_left_is_ended_and_what_runs_on_is_not(groups, tmp_path, monkeypatch):
    monkeypatch.setattr(cgroups, "REMOVE_WAIT_S", 60)
    key = node_key(tmp_path)
    lives, stray = (attempt_key(key, tmp_path, tmp_path / name) for name in ("lives", "stray"))
    running, left = sleeper(groups, lives), sleeper(groups, stray)
    try:
        again = open_groups("auto", key)
        found = again.sweep([lives])

        assert found == len(again.trees)
        assert left.wait(240) == -signal.SIGKILL
        assert running.poll() is None
        assert [len(list(group.glob("task-*"))) for group in groups_of(tmp_path)] == [1] * len(again.trees)
    finally:
        for process in (running, left):
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
            process.communicate()


@needs("pids")
def test_no_group_is_left_of_a_node_that_is_not_run_any_more(groups, tmp_path):
    groups.make("key", LIMITS)
    assert all(group.is_dir() for group in groups_of(tmp_path))

    groups.remove("key")
    groups.close()

    assert not any(group.exists() for group in groups_of(tmp_path))
