"""What an agent has learnt from the log, kept beside its attempts: a restart need not fold the log from its start.

Never the truth: one that is damaged, of another layout, or that the log does not remember is not used, and the whole
fold serves.
"""

import asyncio
import json
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path

from largesse.bus.port import Bus, PositionGap
from largesse.lifecycle.node_work import LAYOUT, State, renew
from largesse.log.fencing import LogOrder
from largesse.log.snapshots import SnapshotRefused, dump, landmark_of, load
from services.agent.documents import read_json, write_json

CHECKPOINT = "checkpoint.json"
BYTES_MAX = 1 << 30
RECORDS_BETWEEN = 5_000
"""Log records between two checkpoints."""


async def save(bus: Bus, partition: int, data: Path, node: str, state: State, order: LogOrder) -> None:
    """Writes a checkpoint of `state`, the fold for `node` up to `order`. Raises BusError, OSError."""
    text = dump(state).decode()
    about = {"layout": LAYOUT, "node": node, "order": asdict(order)}
    about["landmark"] = await landmark_of(bus, partition, order.offset)
    document = {**about, "sum": _sum(about, text), "state": text}
    await asyncio.to_thread(write_json, data / CHECKPOINT, document, durable=True)


async def restore(bus: Bus, partition: int, data: Path, node: str, epoch: str) -> tuple[State, LogOrder] | None:
    """The last checkpoint, for an agent that is about to register `node` under `epoch`; None: there is none to use.

    Raises BusError where the bus cannot say whether it is the same log.
    """
    document = read_json(data / CHECKPOINT, most=BYTES_MAX)
    if document is None:
        return None
    text, total = document.pop("state", ""), document.pop("sum", "")
    if total != _sum(document, text) or (document.get("layout"), document.get("node")) != (LAYOUT, node):
        return None
    order = LogOrder(**document["order"])
    try:
        if await landmark_of(bus, partition, order.offset) != document["landmark"]:
            return None
        state: State = load(State, text.encode())
    except (PositionGap, SnapshotRefused):
        return None
    renew(state.nodes[node], epoch)
    return state, order


def _sum(about: dict[str, object], text: str) -> str:
    return sha256(f"{json.dumps(about)}\n{text}".encode()).hexdigest()
