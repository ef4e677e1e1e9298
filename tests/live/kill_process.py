"""A cell in a process of its own, on a data folder: submits jobs by name, runs until they have ended, exits with 0.

`python -m tests.live.kill_process DIRECTORY JOBS`. May be killed at any time and started again.
"""

import asyncio
import sys
from pathlib import Path

from largesse.bus.file.bus import FileBus
from tests.bus_cell import BusCell


async def whole_cell(directory: Path, jobs: int) -> None:
    bus = FileBus(directory)
    async with BusCell(bus, nodes=2, shards=2, snapshot_rounds=3) as cell:
        for number in range(jobs):
            await cell.submit(1, job=f"j{number}")
            if number % 2:
                await cell.until_ended(number + 1)  # Rounds give way to submissions: one would hold all jobs.
        await cell.until_ended(jobs)
    await bus.close()


if __name__ == "__main__":
    asyncio.run(whole_cell(Path(sys.argv[1]), int(sys.argv[2])))
