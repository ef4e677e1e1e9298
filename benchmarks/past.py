"""Any past moment of a cell: how long it takes to show one, with checkpoints and without.

    python -m benchmarks.past [--jobs 10000] [--moments 100] [--preset fifo]

A simulated log is put on a bus in memory, a gateway follows it and keeps its checkpoints, and then drawn moments are
folded one after another, as `?at=` does, each by a gateway that has shown none before, and then one near each.
Times are CPU seconds of this process: finding checkpoints, reading, decoding and folding are all in them.
"""

import argparse
import asyncio
import time
from random import Random

from benchmarks.loads import short
from largesse.bus.memory import MemoryBus
from largesse.bus.port import Outgoing
from largesse.log.codec import wrap
from largesse.log.fencing import LogOrder
from largesse.log.writer import claim_message
from largesse.moments import Moment
from largesse.process.serve import calm_collector
from largesse.settings import Settings
from largesse.shell import Shell
from schemas import Header
from schemas.topics import LOG, SNAPSHOTS
from services.gateway import view
from services.gateway.past import Past
from services.simulator.run import Options, simulate

TOKEN = "bench"
JOBS, MOMENTS = 10_000, 100
NEAR = 20


def main(jobs: int = JOBS, moments: int = MOMENTS, preset: str = "fifo") -> None:
    """Prints how large the log is, and what a moment costs."""
    messages: list[Outgoing] = []

    def note(topic: str, header: Header | None, content: bytes) -> None:
        messages.append(Outgoing(topic, 0, wrap(Header(TOKEN) if topic == LOG else header or Header(""), content)))

    calm_collector()  # As a gateway does before it serves.
    arrivals, cluster = short(jobs)
    simulate(arrivals, cluster, Options({"preset": preset}, listener=note))
    asyncio.run(_measure(messages, moments))


async def _measure(messages: list[Outgoing], moments: int) -> None:
    bus, settings = MemoryBus(), Settings(bus="memory:")
    await bus.writer().send([claim_message("sim", 0, TOKEN, LogOrder(), 0)])
    for at in range(0, len(messages), 1_000):
        await bus.writer().send(messages[at : at + 1_000])
    gateway = Shell(view, bus, settings, keeps_past=True)
    begun = time.process_time()
    while await gateway.step():
        pass
    followed_s = time.process_time() - begun
    last = gateway.log.order.seq
    kept = sum(b'"gateway.past"' in message.value for message in await bus.fetch(SNAPSHOTS, 0, 0, most=10_000))
    print(f"{last:,} records, {gateway.state.round:,} rounds: followed in {followed_s:.1f} s, {kept} checkpoints")
    chance = Random(1)
    seqs = [chance.randint(1, last) for _ in range(moments)]
    took = [await _cpu_s(Past(view, bus, settings), seq) for seq in seqs]
    _print("a moment", took)
    near = []
    for seq in seqs:
        past = Past(view, bus, settings)
        await past.at(Moment(seq, None))
        near.append(await _cpu_s(past, max(1, seq - NEAR)))
    _print(f"another one, {NEAR} records before it", near)


def _print(what: str, took: list[float]) -> None:
    took.sort()
    print(f"{what}: p50 {took[len(took) // 2]:.2f} s, p90 {took[len(took) * 9 // 10]:.2f}, most {took[-1]:.2f}")


async def _cpu_s(past: Past, seq: int) -> float:
    begun = time.process_time()
    await past.at(Moment(seq, None))
    return time.process_time() - begun


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--moments", type=int, default=MOMENTS)
    parser.add_argument("--preset", default="fifo")
    said = parser.parse_args()
    main(said.jobs, said.moments, said.preset)
