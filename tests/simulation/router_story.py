"""A story of a router, told by a process of its own: prints a digest of the router's log, and what it decided."""

import asyncio
import json
import sys
from hashlib import sha256

from largesse.log.codec import encode
from largesse.telemetry import configure
from schemas.routes import RouterSet
from services.router.checking import check
from tests.routed_cells import RoutedCells, spec


async def tell() -> dict[str, object]:
    """Jobs on three cells, one of which loses its node, while a router is given up."""
    nodes = {"north": {"n1": "4"}, "east": {"e1": "2", "e2": "2"}, "west": {"w1": "6"}}
    cells = await RoutedCells(nodes, RouterSet(move_after_ms=5_000)).begin()
    for number in range(30):
        await cells.submit(f"j{number}", stages=[{**spec("j")["stages"][0], "duration_ms": 20_000}])
    await cells.run(5_000)
    cells.cells["west"].agents["w1"].away = True
    cells.restart()
    await cells.run(100_000)
    await cells.cells["west"].agents["w1"].come_back()  # What had begun there has stayed.
    await cells.run(60_000)
    records = await cells.records()
    checked = check(records)
    text = b"\n".join(encode(record) for record in records)
    succeeded = await cells.succeeded()
    return {
        "digest": sha256(text).hexdigest(),
        "decided": checked.decided,
        "wrong": checked.wrong,
        "moved": sum(record.type == "MoveAsked" for record in records),
        "succeeded": sorted(succeeded.items()),
    }


if __name__ == "__main__":
    configure(level="error")
    json.dump(asyncio.run(tell()), sys.stdout)
