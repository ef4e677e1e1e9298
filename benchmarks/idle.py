"""What an embedded cell costs that has nothing to do, and what a small task adds to its journal.

    python -m benchmarks.idle [--nodes 3] [--minutes 10] [--jobs 0] [--tasks 0]

Starts `largesse up`, lets it come to rest, and then looks at it twice, `--minutes` apart: bytes of the journal by topic
and type, what they come to in a day, CPU time of its process, and how often its threads were put to sleep (each time
something woke them). Then submits `--jobs` jobs of one task, each `true`, AT_ONCE at a time, and one job of `--tasks`
such tasks, and says the same of the bytes of each. The processes of tasks are not in the CPU time.
"""

import argparse
import asyncio
import re
import tempfile
import time
from collections import Counter
from pathlib import Path

import httpx
import psutil

from benchmarks import starts, sustained
from largesse.bus.file.scan import Scan

START_S, REST_S = 600.0, 15.0
DAY_S = 86_400
AT_ONCE = 8
FRAME = "line numbers and hashes"
_TYPE = re.compile(rb'"content":\{"type":"(\w+)"')
_FORM = re.compile(rb'\{"(\w+)":')


def main(*words: str) -> None:
    """Prints a table, or two."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.idle", description=__doc__)
    parser.add_argument("--nodes", type=int, default=3, help="nodes of the cell; one process has 64 at most")
    parser.add_argument("--minutes", type=float, default=10.0, help="for how long it is left alone")
    parser.add_argument("--jobs", type=int, default=0, help="jobs of one task that run afterwards")
    parser.add_argument("--tasks", type=int, default=0, help="tasks of one job that runs after them")
    asked = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="largesse-idle-", ignore_cleanup_errors=True) as folder:
        asyncio.run(_measure(asked, Path(folder)))


async def _measure(asked: argparse.Namespace, folder: Path) -> None:
    cell = await sustained.embedded(folder, nodes=asked.nodes, cores=max(starts.SLOTS, asked.nodes))
    up = cell.processes["up"]
    try:
        async with httpx.AsyncClient(base_url=cell.url, timeout=120) as client:
            await sustained.until_it_serves(client, cell.url, nodes=asked.nodes, within_s=START_S)
            await asyncio.sleep(REST_S)
            assert cell.bus is not None
            journal = cell.bus
            before, cpu_s, woken, begun = sizes_of(journal), _cpu_s(up), _woken(up), time.monotonic()
            await asyncio.sleep(60 * asked.minutes)
            took_s = time.monotonic() - begun
            after = sizes_of(journal)
            print(f"idle, {asked.nodes} nodes, {took_s:.0f} s: ", end="")
            print(f"{100 * (_cpu_s(up) - cpu_s) / took_s:.2f} % of a core, ", end="")
            print(f"{(_woken(up) - woken) / took_s:.0f} wake-ups a second, in a day:", flush=True)
            _print(after - before, DAY_S / took_s)
            if asked.jobs:
                await _run(client, asked.jobs)
                print(f"a job of one task, of {asked.jobs:,}:", flush=True)
                _print(sizes_of(journal) - after, 1 / asked.jobs)
            if asked.tasks:
                after = sizes_of(journal)
                await starts._until_ended(client, [await starts._submit(client, "many", asked.tasks)])
                print(f"a task of a job of {asked.tasks:,}:", flush=True)
                _print(sizes_of(journal) - after, 1 / asked.tasks)
    finally:
        await cell.end()


def sizes_of(journal: Path) -> Counter[str]:
    """Bytes of a journal by topic and, in the log and inputs, type."""
    sizes: Counter[str] = Counter()
    for line in Scan(journal):
        left, starts_at = len(line.raw) + 1, [item.start() for *_, item in line.items]
        for (topic, _, _, item), start, end in zip(line.items, starts_at, [*starts_at[1:], None], strict=True):
            size = (end - 1 - start) if end is not None else item.end() - start + int(item[4]) + 1
            sizes[_named(topic, line.raw[item.end() : item.end() + 400])] += size
            left -= size
        sizes[FRAME] += left
    return sizes


def _named(topic: str, value: bytes) -> str:
    found = _TYPE.search(value) or _FORM.match(value)
    return f"{topic} {found[1].decode()}" if found is not None and found[1] != b"header" else topic


def _print(sizes: Counter[str], times: float) -> None:
    for name, size in [("all", sizes.total()), *sizes.most_common()]:
        print(f"  {size * times:12,.0f}  {name}", flush=True)


async def _run(client: httpx.AsyncClient, jobs: int) -> None:
    names = [f"small-{number}" for number in range(jobs)]
    waiting = iter(names)

    async def submit() -> None:
        for name in waiting:
            await starts._submit(client, name, 1)
            await starts._until_ended(client, [name])

    await asyncio.gather(*(submit() for _ in range(AT_ONCE)))


def _cpu_s(up: psutil.Process) -> float:
    times = up.cpu_times()
    return times.user + times.system


def _woken(up: psutil.Process) -> int:
    """How often its threads have gone to sleep."""
    found = 0
    for status in Path(f"/proc/{up.pid}/task").glob("*/status"):
        found += int(re.findall(r"^voluntary_ctxt_switches:\s+(\d+)", status.read_text(), re.MULTILINE)[0])
    return found


if __name__ == "__main__":
    import sys

    main(*sys.argv[1:])
