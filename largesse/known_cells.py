"""The cells of a deployment: records of the topic `cells`, each a name and the partition that the cell has in every
topic.

Records are only ever added. Of two with one name, or with one partition, the first counts, so two operators that add a
cell at the same time cannot both get it. A record with `removed` takes a cell out again: what it has written stays in
its partition, and the name and the partition may be added once more.
"""

import json
from dataclasses import dataclass

from largesse.access import CELL_NAME, CELL_NAME_RULE
from largesse.bus.port import Bus, Outgoing
from largesse.telemetry import logger
from schemas.topics import CELLS

CELLS_MAX = 1_000
NAME, NAME_RULE = CELL_NAME, CELL_NAME_RULE


@dataclass(frozen=True, slots=True)
class Cell:
    """`partition`: where it lies in every topic."""

    name: str
    partition: int


class CellList:
    """The cells that the topic names, by name and in the order in which they were added; `removed`: those that were
    taken out, and not added again."""

    def __init__(self, bus: Bus) -> None:
        self.cells: dict[str, Cell] = {}
        self.removed: dict[str, Cell] = {}
        self._bus = bus
        self._taken: dict[int, str] = {}
        self._position: int | None = None

    async def read(self, wait_ms: int = 0) -> bool:
        """Reads to the end, and where that is reached already waits up to `wait_ms` for more. Whether a cell was added
        or removed. Raises BusError."""
        first, end = await self._bus.bounds(CELLS, 0)
        position = first if self._position is None else self._position
        before = dict(self.cells)
        while position < end or wait_ms:
            fetched = await self._bus.fetch(CELLS, 0, position, wait_ms=wait_ms)
            for message in fetched:
                self._take(message.offset, message.value)
            position, self._position, wait_ms = fetched.position, fetched.position, 0
        self._position = position
        return self.cells != before

    def at(self, partition: int) -> Cell | None:
        """The cell of a partition."""
        name = self._taken.get(partition)
        return None if name is None else self.cells[name]

    def _take(self, offset: int, value: bytes) -> None:
        cell, is_removed = read_cell(value), removes(value)
        if cell is None:
            logger().warning("no_cell", topic=CELLS, offset=offset, why="it is no record of a cell")
        elif is_removed:
            self._remove(cell)
        elif len(self.cells) < CELLS_MAX and cell.name not in self.cells and cell.partition not in self._taken:
            self.cells[cell.name] = cell
            self._taken[cell.partition] = cell.name
            self.removed.pop(cell.name, None)

    def _remove(self, cell: Cell) -> None:
        """One that says another partition means a cell that is not there any more."""
        if self.cells.get(cell.name) == cell:
            self.removed[cell.name] = self.cells.pop(cell.name)
            del self._taken[cell.partition]


def read_cell(value: bytes) -> Cell | None:
    """The cell that a message of the topic names; None where it is malformed."""
    try:
        document = json.loads(value)
    except ValueError:
        return None
    match document:
        case {"cell": str(name), "partition": int(partition)} if NAME.fullmatch(name) and partition >= 0:
            return None if isinstance(partition, bool) else Cell(name, partition)
    return None


def removes(value: bytes) -> bool:
    """Whether a message of the topic takes out the cell that it names."""
    try:
        document = json.loads(value)
    except ValueError:
        return False
    return isinstance(document, dict) and document.get("removed") is True


async def add_cell(bus: Bus, cell: Cell) -> bool:
    """Adds a cell to the topic. False where another record with its name or partition came first. Raises BusError."""
    await _say(bus, cell, {})
    listed = CellList(bus)
    await listed.read()
    return listed.cells.get(cell.name) == cell


async def remove_cell(bus: Bus, cell: Cell) -> None:
    """Takes a cell out of the list. Its log stays, and everything else that lies in its partition. Raises BusError."""
    await _say(bus, cell, {"removed": True})


async def _say(bus: Bus, cell: Cell, more: dict[str, bool]) -> None:
    writer = bus.writer()
    try:
        value = json.dumps({"cell": cell.name, "partition": cell.partition, **more}).encode()
        await writer.send([Outgoing(CELLS, 0, value, key=cell.name)], durable=True)
    finally:
        await writer.drop()
