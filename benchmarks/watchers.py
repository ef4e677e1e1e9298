"""Time from submission to answer while others watch a job that changes all the time, on a cell of `largesse up`.

The watchers live in a process of their own and read whatever comes. `--quick` takes fewer submissions.
"""

import argparse
import asyncio
import multiprocessing
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from urllib.parse import urlsplit

import httpx

WATCHERS = (0, 200, 1_000)
SUBMISSIONS = 300
PAUSE_S = 0.02
GUARD_S = 60


def stage(tasks: int, duration_ms: int) -> dict[str, object]:
    return {"stage": "s", "tasks": tasks, "duration_ms": duration_ms, "demand": {"cpu": "100m"}}


@contextmanager
def a_cell() -> Iterator[str]:
    """The address of a cell in a process of its own, on a folder that goes with it."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "services.cli.main", "up", "--data", folder, "--http", "0"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            assert process.stdout is not None
            found = re.search(r"http://\S+", process.stdout.readline())
            assert found is not None
            yield found[0]
        finally:
            process.terminate()
            process.wait()


def watch(url: str, job: str, count: int, said: Connection) -> None:
    """So many watchers, until their process is ended. Says when all of them have had a first event, and, whenever it is
    asked, how many events have come."""
    where = urlsplit(url)
    question = f"GET /v1/jobs/{job}/events HTTP/1.1\r\nHost: {where.netloc}\r\n\r\n".encode()
    events = 0

    async def one(begun: asyncio.Semaphore) -> None:
        nonlocal events
        reader, writer = await asyncio.open_connection(where.hostname, where.port)
        writer.write(question)
        await reader.readuntil(b"event: job")
        begun.release()
        while part := await reader.read(1 << 16):
            events += part.count(b"event: job")

    async def all_of_them() -> None:
        begun = asyncio.Semaphore(0)
        tasks = [asyncio.ensure_future(one(begun)) for _ in range(count)]
        for _ in range(count):
            await begun.acquire()
        said.send(0)
        asyncio.get_running_loop().add_reader(said.fileno(), lambda: said.send((said.recv(), events)))
        await asyncio.gather(*tasks)

    asyncio.run(all_of_them())


def measure(url: str, count: int, submissions: int) -> None:
    """One line."""
    with httpx.Client(base_url=url, timeout=GUARD_S, trust_env=False) as http:
        watched = f"watched-{count}"
        http.post("/v1/jobs", json={"job": watched, "stages": [stage(100_000, 500)]}).raise_for_status()
        here, there = multiprocessing.Pipe()
        watching = multiprocessing.get_context("spawn").Process(target=watch, args=(url, watched, count, there))
        watching.start()
        try:
            before = 0.0
            if count:
                assert here.poll(GUARD_S), "watchers got no first event"
                here.recv()
                here.send("begin")
                before = here.recv()[1]
            begun, times = time.perf_counter(), []
            for number in range(submissions):
                at = time.perf_counter()
                body = {"job": f"j-{count}-{number}", "stages": [stage(1, 1)]}
                http.post("/v1/jobs", json=body).raise_for_status()
                times.append(time.perf_counter() - at)
                time.sleep(PAUSE_S)
            took_s = time.perf_counter() - begun
            rate = 0.0
            if count:
                here.send("end")
                rate = (here.recv()[1] - before) / count / took_s
        finally:
            watching.kill()
            watching.join()
        http.delete(f"/v1/jobs/{watched}").raise_for_status()
    p50, p99 = statistics.median(times), sorted(times)[int(0.99 * len(times))]
    print(
        f"{count:5d} watchers: submission p50 {1e3 * p50:6.1f} ms, p99 {1e3 * p99:6.1f} ms; {rate:4.1f} events/s each"
    )


def main() -> None:
    """All sizes, one line each."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true")
    submissions = 60 if options.parse_args().quick else SUBMISSIONS
    for count in WATCHERS:
        with a_cell() as url:
            measure(url, count, submissions)


if __name__ == "__main__":
    main()
