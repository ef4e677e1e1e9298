"""The file bus against bare appends: records a second through the bus, by plain writes with fdatasync, and the ratio.

    python -m benchmarks.file_bus [--folder DIR] [--records 4000] [--journal-mb 256]

Both sides write the same values in the same batches, one sync a batch, in turns so that the disk treats them alike; the
bus also numbers, hashes and chains, and keeps what it wrote for readers. `senders` many at once share syncs, which bare
appends cannot. Then a journal of --journal-mb is written, opened (every byte verified) and read back from its start.
"""

import argparse
import asyncio
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from largesse.bus.file.bus import FileBus
from largesse.bus.file.packing import pack_closed
from largesse.bus.port import Outgoing

ROUNDS = 5


class Cost(NamedTuple):
    """Of one run: wall clock and processor seconds, this process, all threads."""

    wall: float
    cpu: float


def value_of(number: int) -> bytes:
    """A record about as large as a task report."""
    return b'{"header":{"token":"t-%08d"},"content":{"type":"TaskFinished","version":1,"pad":"%b"}}' % (
        number,
        b"x" * 220,
    )


def measured(work: Callable[[], None]) -> Cost:
    """Runs and times it."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return Cost(time.perf_counter() - wall, time.process_time() - cpu)


def bare(folder: Path, values: list[bytes], batch: int) -> None:
    """The least that a durable append costs: one write and one fdatasync a batch."""
    file = os.open(folder / "bare", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for at in range(0, len(values), batch):
        os.write(file, b"\n".join(values[at : at + batch]) + b"\n")
        os.fdatasync(file)
    os.close(file)


def through_bus(folder: Path, values: list[bytes], batch: int, senders: int) -> None:
    """The same through the bus, from so many senders at once."""

    async def main() -> None:
        bus = FileBus(folder / "bus")
        batches = iter([values[at : at + batch] for at in range(0, len(values), batch)])

        async def sender() -> None:
            writer = bus.writer()
            for each in batches:
                await writer.send([Outgoing("tasks", 0, value) for value in each])

        await asyncio.gather(*(sender() for _ in range(senders)))
        await bus.close()

    asyncio.run(main())


def compare(values: list[bytes], batch: int, senders: int, parent: Path | None) -> None:
    """One line of the table: medians of ROUNDS turns."""
    ratios, ours, theirs = [], [], []
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory(dir=parent) as folder:
            theirs.append(measured(lambda: bare(Path(folder), values, batch)))
            ours.append(measured(lambda: through_bus(Path(folder), values, batch, senders)))
        ratios.append(theirs[-1].wall / ours[-1].wall)
    per_second = [len(values) / statistics.median(cost.wall for cost in costs) for costs in (ours, theirs)]
    cpu = [statistics.median(cost.cpu for cost in costs) for costs in (ours, theirs)]
    print(
        f"batch {batch:5d}  senders {senders:4d}  bus {per_second[0]:9.0f}/s  bare {per_second[1]:9.0f}/s  "
        f"ratio {statistics.median(ratios):6.2f}  cpu bus {cpu[0]:.2f} s, bare {cpu[1]:.2f} s"
    )


def memory_mb() -> float:
    """The most memory that this process has ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _pack(folder: Path) -> None:
    pack_closed(folder)


def long_journal(megabytes: int, parent: Path | None) -> None:
    """Writes, opens and reads back a long journal."""

    async def write(folder: Path) -> None:
        bus = FileBus(folder)
        writer = bus.writer()
        written = 0
        number = 0
        while written < megabytes << 20:
            batch = [Outgoing("cluster.log" if n % 2 else "tasks", 0, value_of(number + n)) for n in range(100)]
            number += 100
            written += sum(len(each.value) for each in batch)
            await writer.send(batch, durable=False)
        await bus.close()

    async def read(folder: Path) -> int:
        bus: FileBus | None = None

        def open_it() -> None:
            nonlocal bus
            bus = FileBus(folder)

        before = memory_mb()
        opened = measured(open_it)
        print(f"open {megabytes} MB: {opened.wall:.2f} s, peak memory {before:.0f} -> {memory_mb():.0f} MB")
        assert bus is not None
        offset = 0
        while found := await bus.fetch("cluster.log", 0, offset):
            offset += len(found)
        await bus.close()
        return offset

    with tempfile.TemporaryDirectory(dir=parent) as name:
        folder = Path(name)
        wrote = measured(lambda: asyncio.run(write(folder)))
        print(f"write {megabytes} MB, not durable: {wrote.wall:.2f} s, {megabytes / wrote.wall:.0f} MB/s")
        count = 0

        def read_all() -> None:
            nonlocal count
            count = asyncio.run(read(folder))

        cost = measured(read_all)
        print(f"open and read back {count} of one topic: {cost.wall:.2f} s, peak memory {memory_mb():.0f} MB")
        packed = measured(lambda: _pack(folder))
        _pack(folder)  # What was packed goes with the next turn.
        left = sum(path.stat().st_size for path in folder.glob("journal-*")) / (1 << 20)
        print(f"pack closed segments: {packed.cpu:.2f} CPU s, {left:.0f} MB are left")
        cost = measured(read_all)
        print(f"open and read back the same, packed: {cost.wall:.2f} s, peak memory {memory_mb():.0f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="on the disk to measure; a temporary folder by default")
    parser.add_argument("--records", type=int, default=4_000)
    parser.add_argument("--journal-mb", type=int, default=256)
    arguments = parser.parse_args()
    values = [value_of(number) for number in range(arguments.records)]
    for batch, senders in ((1, 1), (10, 1), (100, 1), (1_000, 1), (1, 100), (10, 100)):
        few = values[: arguments.records // 4] if batch == 1 and senders == 1 else values
        compare(few, batch, senders, arguments.folder)
    long_journal(arguments.journal_mb, arguments.folder)


if __name__ == "__main__":
    main()
