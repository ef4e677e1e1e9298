"""Limits of a task: memory, and how much of its output is kept."""

import pytest

from schemas import TaskFinished
from services.agent.found import attempt_folders
from tests.live.agent_cell import (
    outcome_of,
)
from tests.live.test_agent_processes import failures_of, python, tell
from tests.printed import read_output

__all__ = ["tell"]  # The fixture.

GREEDY = "hoard = bytearray(200 << 20); print(len(hoard), flush=True); import time; time.sleep(1_000)"


def test_more_memory_than_was_asked_for_ends_a_task(tell):
    async def story(cell, data):
        await cell.submit("j", python(GREEDY, demand={"cpu": "100m", "memory": "100Mi"}))

        assert await outcome_of(cell) == "failed"
        (failed,) = await failures_of(cell)
        assert (failed.reason, failed.exit_code) == ("memory", None)
        peak = failed.peak["memory"]
        assert failed.detail == f"used {peak} MiB of memory, more than the 100 MiB it may"
        assert failed.peak["memory"] >= 200

    tell(story)


THREE = """
import os, signal, time
ready, holds = os.pipe()
for _ in range(3):
    if os.fork() == 0:
        hoard = bytearray(60 << 20)
        os.write(holds, b".")
        time.sleep(1_000)
held = b""
while len(held) < 3:
    held += os.read(ready, 3)
def slept():
    with open(f"/proc/{os.getppid()}/status") as file:
        return int(file.read().rpartition("\\nvoluntary_ctxt_switches:")[2].split()[0])
seen = slept()
while slept() < seen + 3:
    time.sleep(0.05)
"""
"""Each of three processes holds 60 MiB until the shim, which sleeps from look to look, has looked."""


@pytest.mark.parametrize("limit", ["resident", "none"])
def test_the_peak_is_of_all_processes_together(tell, limit):
    async def story(cell, data):
        await cell.submit("j", python(THREE, demand={"cpu": "100m", "memory": "1Gi"}))

        assert await outcome_of(cell) == "succeeded"
        (item,) = cell.items(TaskFinished)
        assert 180 <= item.peak["memory"] < 300

    tell(story, memory_limit=limit)


def test_a_task_that_is_ended_for_its_memory_used_more_than_it_may(tell):
    async def story(cell, data):
        await cell.submit("j", python(THREE, demand={"cpu": "100m", "memory": "120Mi"}))

        assert await outcome_of(cell) == "failed"
        (failed,) = await failures_of(cell)
        peak = failed.peak["memory"]
        assert failed.detail == f"used {peak} MiB of memory, more than the 120 MiB it may"
        assert failed.peak["memory"] > 120

    tell(story)


def test_the_peak_of_one_process_is_what_the_kernel_measured(tell):
    """It is over long before anybody looks."""

    async def story(cell, data):
        await cell.submit("j", python("bytearray(150 << 20)", demand={"cpu": "100m", "memory": "1Gi"}))

        assert await outcome_of(cell) == "succeeded"
        (item,) = cell.items(TaskFinished)
        assert 150 <= item.peak["memory"] < 250

    tell(story)


def test_the_kernel_can_limit_what_a_task_reserves(tell):
    async def story(cell, data):
        await cell.submit("j", python("bytearray(2 << 30)", demand={"cpu": "100m", "memory": "100Mi"}))

        assert await outcome_of(cell) == "failed"
        assert b"MemoryError" in (read_output(data, "j", "s", 0, stream="stderr") or b"")

    tell(story, memory_limit="address_space")


def test_without_a_limit_a_task_takes_what_it_wants(tell):
    async def story(cell, data):
        script = "hoard = bytearray(200 << 20); import time; time.sleep(1.5)"
        await cell.submit("j", python(script, demand={"cpu": "100m", "memory": "100Mi"}))

        assert await outcome_of(cell) == "succeeded"

    tell(story, memory_limit="none")


def test_of_a_long_output_head_and_tail_are_kept(tell):
    async def story(cell, data):
        await cell.submit("j", python("for i in range(100_000): print(f'line {i:5}')"))

        assert await outcome_of(cell) == "succeeded"
        kept = read_output(data, "j", "s", 0) or b""
        assert kept.startswith(b"line     0\nline     1\n")
        assert kept.endswith(b"line 99998\nline 99999\n")
        assert b" bytes were not kept]\n" in kept
        assert len(kept) < 4_200
        sizes = sum(path.stat().st_size for path in next(attempt_folders(data)).glob("stdout*"))
        assert sizes <= 4_096

    tell(story, output_bytes=4_096)


def test_the_peak_of_cpu_of_a_short_task_is_its_average(tell):
    async def story(cell, data):
        busy = "import time\nwhile time.process_time() < 0.3: pass"
        await cell.submit("j", python(busy, demand={"cpu": "2", "memory": "64Mi"}))

        assert await outcome_of(cell) == "succeeded"
        (item,) = cell.items(TaskFinished)
        assert item.cpu_ms[0] >= 300
        # Both times are cut to whole milliseconds, the mean is not taken from them.
        least, most = item.cpu_ms[0] * 1_000 // (item.run_ms[0] + 1), (item.cpu_ms[0] + 1) * 1_000 // item.run_ms[0] + 1
        assert least <= item.peak["cpu"] <= most

    tell(story)


def test_what_runs_for_a_moment_on_one_processor_has_no_more_of_it(tell):
    async def story(cell, data):
        await cell.submit("j", {"command": ["true"], "tasks": 100, "demand": {"cpu": "100m", "memory": "8Mi"}})

        assert await outcome_of(cell) == "succeeded"
        peaks = [item.peak["cpu"] for item in cell.items(TaskFinished)]
        assert min(peaks) > 0
        assert max(peaks) <= 1_050

    tell(story)
