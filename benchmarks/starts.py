"""How fast an embedded cell runs real tasks that do nothing, and how long submissions wait meanwhile.

    python -m benchmarks.starts [--tasks 1000] [--seconds 10] [--floods 3]

Starts `largesse up` with one node. First one job of `--tasks` tasks, each `true`: tasks a second from the submission to
the end, beside `xargs -P 2 -n 1 true` in the same run, and CPU time a task: of the cell with its agent, of shims and
commands, and of a command under xargs. Then CLIENTS clients submit jobs of one such task as fast as they are answered,
for `--seconds`: how long answers took, and how many tasks ran a second. Beside them one client submits a job every
BESIDE_S: its answers are shown apart. `--floods` of them; the one with the middle 99th percentile is shown. Then one in
which all jobs are held, so that nothing starts: what is left is what answers take by themselves, one after another.

Clients share the processors with the cell. They speak HTTP over plain streams, and say what CPU time they took.
"""

import argparse
import asyncio
import json
import resource
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil

from benchmarks import sustained

CLIENTS = 16
SLOTS = 8
"""Tasks that run at once."""
XARGS = "2"
LOOK_S = 0.25
"""So often it is asked whether a job has ended. When it did, it says itself."""
BESIDE_S = 0.1


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
            up = cell.processes["up"]
            floods = [await _flood(client, up, asked.seconds, held=False) for _ in range(asked.floods)]
            print(sorted(floods)[len(floods) // 2][1], flush=True)
            print((await _flood(client, up, asked.seconds, held=True))[1], flush=True)
    finally:
        await cell.end()


async def _one_job(client: httpx.AsyncClient, up: psutil.Process, tasks: int) -> None:
    await _until_ended(client, [await _submit(client, "warm", SLOTS)])
    with _spent(up) as spent:
        await _until_ended(client, [await _submit(client, "many", tasks)])
    job = (await client.get("/v1/jobs/many")).json()
    xargs_s, xargs_cpu_s = await asyncio.to_thread(_xargs, tasks)
    rate, beside = 1_000 * tasks / (job["ended_ms"] - job["submitted_ms"]), tasks / xargs_s
    cell, rest, xargs = (1_000 * seconds / tasks for seconds in (spent["cell_s"], spent["rest_s"], xargs_cpu_s))
    print(f"a job of {tasks:,} tasks, each `true`: {rate:,.0f} a second; xargs -P {XARGS} -n 1: {beside:,.0f}", end="")
    print(f"; {rate / beside:.2f} of that; {cell + rest:.1f} ms of CPU a task: the cell {cell:.1f}", end="")
    print(f", shims and commands {rest:.1f}; under xargs {xargs:.1f}", flush=True)


class _Connection:
    """A client that submits jobs one after another."""

    def __init__(self, url: httpx.URL) -> None:
        self._host, self._port = url.host, url.port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def submit(self, job: str, *, held: bool) -> float:
        """How long the answer took, in ms."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port)
        reader, writer = self._streams
        body = json.dumps(_spec(job, 1, held=held)).encode()
        begun = time.perf_counter()
        head = f"POST /v1/jobs HTTP/1.1\r\nHost: {self._host}:{self._port}\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        await reader.readexactly(int(head.partition("content-length:")[2].split()[0]))
        took = (time.perf_counter() - begun) * 1_000
        assert head.split()[1] == "201", f"{job}: {head}"
        return took

    def close(self) -> None:
        """No more of them."""
        if self._streams is not None:
            self._streams[1].close()


async def _flood(client: httpx.AsyncClient, up: psutil.Process, seconds: float, *, held: bool) -> tuple[float, str]:
    """The 99th percentile of answers, and a line that says all."""
    took: list[float] = []
    beside: list[float] = []
    jobs: list[str] = []
    name, over = f"flood-{time.time_ns() // 1_000_000}", time.monotonic() + seconds

    async def submit(client: str, into: list[float], every_s: float) -> None:
        connection, count = _Connection(up_url), 0
        while time.monotonic() < over:
            job = f"{name}-{client}-{count}"
            into.append(await connection.submit(job, held=held))
            jobs.append(job)
            count += 1
            await asyncio.sleep(max(0.0, every_s - into[-1] / 1_000))
        connection.close()

    up_url, own_s = client.base_url, time.process_time()
    with _spent(up) as spent:
        begun = time.monotonic()
        clients = (submit(str(number), took, 0.0) for number in range(CLIENTS))
        await asyncio.gather(submit("beside", beside, BESIDE_S), *clients)
        own_s, answered_s = time.process_time() - own_s, time.monotonic() - begun
        if not held:
            await _until_ended(client, jobs)
    (p50, p99), (beside_p50, beside_p99) = _percentiles(took), _percentiles(beside)
    line = f"{CLIENTS} clients submit jobs of one task{', held,' if held else ''} for {seconds:g} s: "
    line += f"{len(jobs) / answered_s:,.0f} answers a second, {p50:.0f} ms at the median, "
    line += f"{p99:.0f} at the 99th percentile; those of one beside them {beside_p50:.0f} and {beside_p99:.0f} ms; "
    line += f"clients took {1_000 * own_s / len(jobs):.1f} ms of CPU each; "
    cpu = f"{1_000 * (spent['cell_s'] + spent['rest_s']) / len(jobs):.1f} ms of CPU each"
    return p99, line + (cpu if held else f"{len(jobs) / spent['s']:,.0f} jobs a second, {cpu}")


def _percentiles(took: list[float]) -> tuple[float, float]:
    """The median and the 99th percentile."""
    took.sort()
    return took[len(took) // 2], took[len(took) * 99 // 100]


def _spec(job: str, tasks: int, *, held: bool = False) -> dict[str, Any]:
    stage = {"stage": "s", "tasks": tasks, "demand": {"cpu": "1"}, "command": ["true"]}
    return {"job": job, "stages": [stage], "hold": held}


async def _submit(client: httpx.AsyncClient, job: str, tasks: int) -> str:
    (await client.post("/v1/jobs", content=json.dumps(_spec(job, tasks)))).raise_for_status()
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
    begun, (cell_s, rest_s) = time.monotonic(), _cpu_s(up)
    yield spent
    spent["s"], (cell, rest) = time.monotonic() - begun, _cpu_s(up)
    spent["cell_s"], spent["rest_s"] = cell - cell_s, rest - rest_s


def _cpu_s(up: psutil.Process) -> tuple[float, float]:
    """Of the cell; of its children, those that have ended and its fork server."""
    times = up.cpu_times()
    rest = times.children_user + times.children_system
    for process in up.children():
        with suppress(psutil.NoSuchProcess):
            its = process.cpu_times()
            rest += its.user + its.system + its.children_user + its.children_system
    return times.user + times.system, rest


def _xargs(commands: int) -> tuple[float, float]:
    """Seconds, and CPU seconds."""
    words, before = "x\n" * commands, resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.monotonic()
    subprocess.run(["xargs", "-P", XARGS, "-n", "1", "true"], input=words, text=True, check=True)
    took_s, after = time.monotonic() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    return took_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    import sys

    main(*sys.argv[1:])
