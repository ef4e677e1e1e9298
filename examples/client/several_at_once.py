"""Submits several jobs, waits for all of them at the same time, and tells why those that wait do.

python examples/client/several_at_once.py
"""

import asyncio

from largesse.client import AsyncClient, JobSpec, Stage


async def run(cell: AsyncClient, word: str) -> str:
    stage = Stage(stage="say", tasks=2, demand={"cpu": "100m", "memory": "64Mi"}, command=["echo", word])
    job = (await cell.submit(JobSpec(stages=[stage])))["job"]
    why = await cell.why(job)
    if why["state"] == "waiting" and why["reasons"]:
        print(f"{word}: {why['reasons'][0]['text']}")
    await cell.wait(job)
    said = [printed.decode().strip() async for _, printed in cell.job_logs(job)]
    return " ".join(said)


async def main() -> None:
    async with AsyncClient() as cell:
        for said in await asyncio.gather(*(run(cell, word) for word in ("one", "two", "three"))):
            print(said)


if __name__ == "__main__":
    asyncio.run(main())
