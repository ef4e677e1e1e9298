"""How fast an embedded cell runs real tasks that do nothing, and how long submissions wait meanwhile.

    python -m benchmarks.starts [--tasks 1000] [--seconds 10] [--floods 3]

Starts `largesse up` with one node. First one job of `--tasks` tasks, each `true`: tasks a second from the submission to
the end, beside `xargs -P 2 -n 1 true` in the same run, and CPU time a task of the cell and of what it started. Then
CLIENTS clients submit jobs of one such task as fast as they are answered, for `--seconds`: how long answers took, and
how many tasks ran a second. `--floods` of them; the one with the middle 99th percentile is shown.
"""

import argparse
import asyncio
import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil

from benchmarks import sustained

CLIENTS = 16
SLOTS = 8
"""Tasks that run at once."""
XARGS = "2"
LOOK_S = 0.05


def main(*words: str) -> None:
    """Prints a line for each figure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.starts", description=__doc__)
    parser.add_argument("--tasks", type=int, default=1_000, help="tasks of the job, and commands of xargs")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long clients submit")
    parser.add_argument("--floods", type=int, default=3, help="how often they do")
    asked = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="largesse-starts-", ignore_cleanup_errors=True) as folder:
        asyncio.run(_measure(asked, Path(folder)))


async def _measure(asked: argparse.Namespace, folder: Path) -> None:
    cell = await sustained.embedded(folder, nodes=1, cores=SLOTS)
    try:
        limits = httpx.Limits(max_connections=CLIENTS + 2)
        async with httpx.AsyncClient(base_url=cell.url, timeout=120, limits=limits) as client:
            await sustained.until_it_serves(client, cell.url, nodes=1)
            await _one_job(client, cell.processes["up"], asked.tasks)
            floods = [await _flood(client, cell.processes["up"], asked.seconds) for _ in range(asked.floods)]
            print(sorted(floods)[len(floods) // 2][1], flush=True)
    finally:
        await cell.end()


async def _one_job(client: httpx.AsyncClient, up: psutil.Process, tasks: int) -> None:
    await _until_ended(client, [await _submit(client, "warm", SLOTS)])
    with _spent(up) as spent:
        await _until_ended(client, [await _submit(client, "many", tasks)])
    xargs_s = await asyncio.to_thread(_xargs, tasks)
    rate, beside = tasks / spent["s"], tasks / xargs_s
    print(f"a job of {tasks:,} tasks, each `true`: {rate:,.0f} a second; xargs -P {XARGS} -n 1: {beside:,.0f}", end="")
    print(f"; {rate / beside:.2f} of that; {1_000 * spent['cpu_s'] / tasks:.1f} ms of CPU a task", flush=True)


async def _flood(client: httpx.AsyncClient, up: psutil.Process, seconds: float) -> tuple[float, str]:
    """The 99th percentile of answers, and a line that says all."""
    took: list[float] = []
    jobs: list[str] = []
    name, over = f"flood-{time.time_ns() // 1_000_000}", time.monotonic() + seconds

    async def submit(number: int) -> None:
        count = 0
        while time.monotonic() < over:
            begun = time.perf_counter()
            jobs.append(await _submit(client, f"{name}-{number}-{count}", 1))
            took.append((time.perf_counter() - begun) * 1_000)
            count += 1

    with _spent(up) as spent:
        await asyncio.gather(*(submit(number) for number in range(CLIENTS)))
        await _until_ended(client, jobs)
    took.sort()
    p50, p99 = took[len(took) // 2], took[len(took) * 99 // 100]
    line = f"{CLIENTS} clients submit jobs of one task for {seconds:g} s: answers take {p50:.0f} ms at the median, "
    line += f"{p99:.0f} at the 99th percentile; {len(jobs) / spent['s']:,.0f} jobs a second, "
    return p99, line + f"{1_000 * spent['cpu_s'] / len(jobs):.1f} ms of CPU each"


async def _submit(client: httpx.AsyncClient, job: str, tasks: int) -> str:
    stage: dict[str, Any] = {"stage": "s", "tasks": tasks, "demand": {"cpu": "1"}, "command": ["true"]}
    (await client.post("/v1/jobs", content=json.dumps({"job": job, "stages": [stage]}))).raise_for_status()
    return job


async def _until_ended(client: httpx.AsyncClient, jobs: list[str]) -> None:
    """Until all have succeeded; the last ones mostly end last."""
    for job in reversed(jobs):
        while (state := (await client.get(f"/v1/jobs/{job}")).json().get("state")) != "succeeded":
            assert state in (None, "waiting", "running"), f"{job} is {state}"
            await asyncio.sleep(LOOK_S)


@contextmanager
def _spent(up: psutil.Process) -> Iterator[dict[str, float]]:
    """Time, and CPU time of the cell and of all that it started and that has ended."""
    spent: dict[str, float] = {}
    begun, used = time.monotonic(), _cpu_s(up)
    yield spent
    spent["s"], spent["cpu_s"] = time.monotonic() - begun, _cpu_s(up) - used


def _cpu_s(up: psutil.Process) -> float:
    """Of the cell, its children that have ended, and its fork server."""
    total = 0.0
    for process in (up, *up.children()):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def _xargs(commands: int) -> float:
    words = "x\n" * commands
    begun = time.monotonic()
    subprocess.run(["xargs", "-P", XARGS, "-n", "1", "true"], input=words, text=True, check=True)
    return time.monotonic() - begun


if __name__ == "__main__":
    import sys

    main(*sys.argv[1:])
