"""Any past moment of a cell: what it costs to keep states all over its log, and how long it takes to show a moment.

    python -m benchmarks.past [--log LOG] [--moments 100] [--bus memory] [--jobs 10000] [--preset fifo]

A recorded log (`largesse simulate --log`), or one that is simulated for this, is put on a bus, in memory as
`largesse view` does, or in a folder (`--bus file`) that is then opened again. A gateway follows it and keeps its
checkpoints. Then other gateways that were just started show drawn moments over HTTP: all jobs, why a job is as it is,
and the summary of the page. Some moments are compared with the state that the gateway had there as it followed the log.
"""

import argparse
import asyncio
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from random import Random
from resource import RUSAGE_SELF, getrusage
from tempfile import TemporaryDirectory

import httpx

from benchmarks.loads import short
from largesse.bus.file.bus import FileBus
from largesse.bus.memory import MemoryBus
from largesse.bus.port import Bus, Writer
from largesse.log.export import ExportWriter
from largesse.log.fencing import LogOrder
from largesse.log.past_keeper import PastKeeper
from largesse.log.snapshots import dump
from largesse.moments import Moment
from largesse.process.serve import calm_collector
from largesse.settings import Settings
from largesse.shell import Shell
from largesse.telemetry import configure
from schemas.topics import LOG, SNAPSHOTS
from services.gateway import view
from services.gateway.follow import Follower
from services.gateway.http.app import make_app
from services.gateway.past import Past, past_states_in
from services.replay.onto_bus import put_onto
from services.replay.source import Source, Step, open_source
from services.simulator.run import Options, simulate

JOBS, MOMENTS, COMPARED = 10_000, 100, 12
_ADMITTED = re.compile(rb'\{"type":"JobAdmitted".*?"job":"([^"]+)"')


@dataclass(slots=True)
class Drawn:
    """What is measured: records, and a job that was admitted before each."""

    seqs: list[int]
    jobs: list[str]
    compared: dict[int, str]


class Timed(PastKeeper[view.State]):
    """Keeps checkpoints as a gateway does, and counts what that takes."""

    spent_s = 0.0

    async def keep(self, writer: Writer, state: view.State, order: LogOrder, decisions: dict[str, int]) -> None:
        """See its base."""
        begun = time.process_time()
        await super().keep(writer, state, order, decisions)
        self.spent_s += time.process_time() - begun


def main(
    log: Path | None, moments: int = MOMENTS, where: str = "memory", jobs: int = JOBS, preset: str = "fifo"
) -> None:
    """Prints how large the log is, what it costs to follow it, and what a moment costs."""
    configure("console", level="error")
    calm_collector()  # As a gateway does before it serves.
    with TemporaryDirectory() as folder:
        if log is None:
            log = Path(folder, "log.gz")
            with ExportWriter(log) as writer:
                simulate(*short(jobs), Options({"preset": preset}, listener=writer))
        asyncio.run(_measure(open_source(log), moments, Path(folder, "bus") if where == "file" else None))


async def _measure(source: Source, moments: int, folder: Path | None) -> None:
    admitted: list[tuple[int, str]] = []
    bus: Bus = MemoryBus(compacts=True) if folder is None else FileBus(folder)
    cpu, clock = time.process_time(), time.monotonic()
    cell = await put_onto(_noting(source, admitted), bus.writer(), view.NAME, lambda _: None)
    last = (await bus.bounds(LOG, 0))[1] - 1  # A claim stands before the first record.
    print(f"{last:,} records put on the bus: {_since(cpu, clock)}")
    drawn = _drawn(last, moments, admitted)
    settings = Settings(bus="memory:", cell=cell)
    await _follow(bus, settings, last, drawn)
    if folder is not None:
        cpu, clock = time.process_time(), time.monotonic()
        await bus.close()
        bus = FileBus(folder)
        print(f"the folder opened again: {_since(cpu, clock)}")
    follower = Follower(bus, settings, stop=asyncio.Event())
    running = asyncio.ensure_future(follower.run())
    while not follower.ready:
        await follower.changed(1.0)
    differing = [seq for seq, total in drawn.compared.items() if total != await _sum_at(bus, settings, seq)]
    print(f"of {len(drawn.compared)} moments compared with the fold {len(differing)} differ {differing or ''}")
    transport = httpx.ASGITransport(make_app(follower, recorded=True))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8642") as http:
        for what, path in (
            ("get jobs --at", lambda _: "/v1/jobs"),
            ("why JOB --at", lambda job: f"/v1/jobs/{job}/why"),
            ("the page's summary", lambda _: "/v1/summary"),
        ):
            await _ask(http, follower, what, path, drawn)
    follower.stop.set()
    with suppress(asyncio.CancelledError):
        await running
    await bus.close()
    print(f"most memory of this process: {getrusage(RUSAGE_SELF).ru_maxrss / 1024:,.0f} MiB")


def _noting(source: Source, admitted: list[tuple[int, str]]) -> Source:
    def noting(steps: Iterator[Step]) -> Iterator[Step]:
        for step in steps:
            found = _ADMITTED.match(step.accepted.content)
            if found is not None:
                admitted.append((step.accepted.record.seq, found[1].decode()))
            yield step

    return replace(source, read=lambda hear: noting(source.steps(hear)))


def _drawn(last: int, moments: int, admitted: list[tuple[int, str]]) -> Drawn:
    chance = Random(1)
    seqs = [chance.randint(admitted[0][0], last) for _ in range(moments)]
    jobs = [max((each for each in admitted if each[0] <= seq), default=admitted[0])[1] for seq in seqs]
    return Drawn(seqs, jobs, {chance.randint(1, last): "" for _ in range(COMPARED)})


async def _follow(bus: Bus, settings: Settings, last: int, drawn: Drawn) -> None:
    keeper = Timed(bus, settings, past_states_in(bus, settings))
    shell = Shell(view, bus, settings, past=keeper)
    cpu, clock = time.process_time(), time.monotonic()
    while await shell.step():
        if shell.state.seq in drawn.compared and not drawn.compared[shell.state.seq]:
            drawn.compared[shell.state.seq] = sha256(dump(shell.state)).hexdigest()
    await shell.close()
    print(f"{shell.state.round:,} rounds followed: {_since(cpu, clock)}, {keeper.spent_s:.1f} s of it for checkpoints")
    first, end = await bus.bounds(SNAPSHOTS, 0)
    kept = [each for at in range(first, end, 16) for each in await bus.fetch(SNAPSHOTS, 0, at, most=16)]
    sizes = {each.offset: len(each.value) for each in kept if b'"gateway.past"' in each.value[:60]}
    print(f"{len(sizes)} messages of checkpoints, {sum(sizes.values()) / 2**20:,.0f} MiB; a state has", end=" ")
    print(f"{len(dump(shell.state)) / 2**20:.1f} MiB, {len(shell.state.jobs):,} live jobs")


async def _sum_at(bus: Bus, settings: Settings, seq: int) -> str:
    return sha256(dump(await Past(view, bus, settings).at(Moment(seq, None)))).hexdigest()


async def _ask(
    http: httpx.AsyncClient, follower: Follower, what: str, path: Callable[[str], str], drawn: Drawn
) -> None:
    """Asks for each moment, and has the gateway forget what it has in memory in between."""
    wall, cpu = list[float](), list[float]()
    for seq, job in zip(drawn.seqs, drawn.jobs, strict=True):
        past = follower.past
        past._kept.clear()
        past._on_the_way.clear()
        past._on_the_way_bytes = 0
        before, begun = time.process_time(), time.monotonic()
        answer = await http.get(path(job), params={"at": str(seq)}, timeout=60)
        wall.append(time.monotonic() - begun)
        cpu.append(time.process_time() - before)
        assert answer.status_code in (200, 404), answer.text  # A job that ended long before is forgotten.
    for name, took in (("CPU", sorted(cpu)), ("elapsed", sorted(wall))):
        high = took[len(took) * 99 // 100]
        print(f"{what}, {name}: p50 {took[len(took) // 2]:.2f} s, p99 {high:.2f}, most {took[-1]:.2f}")


def _since(cpu: float, clock: float) -> str:
    return f"{time.process_time() - cpu:.1f} CPU seconds ({time.monotonic() - clock:.1f} s)"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", type=Path)
    parser.add_argument("--moments", type=int, default=MOMENTS)
    parser.add_argument("--bus", choices=("memory", "file"), default="memory")
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--preset", default="fifo")
    said = parser.parse_args()
    main(said.log, said.moments, said.bus, said.jobs, said.preset)
