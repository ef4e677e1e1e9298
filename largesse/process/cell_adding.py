"""Adding a cell to a Kafka cluster while all of it runs: a partition of every topic, and a record in the list."""

import asyncio

from aiokafka.errors import InvalidPartitionsError, KafkaError

from largesse.bus.kafka.cluster import Cluster
from largesse.bus.kafka.topic_settings import TOPICS
from largesse.bus.kafka.topics_admin import SHOWN_LOOK_SECONDS, SHOWN_LOOKS, partitions_now, put_right
from largesse.bus.port import Bus, BusError
from largesse.known_cells import Cell, CellList, add_cell
from largesse.log.reader import LogReader
from schemas.topics import LOG

TRIES = 5
"""So often the partition may be taken by somebody who adds a cell at the same time."""
FIRST_MOST = 100
"""Messages at the beginning of a log among which its first claim is."""


async def put_in(cluster: Cluster | str, bus: Bus, name: str) -> tuple[Cell, bool]:
    """The cell of that name, and whether it was listed before. Raises BusError.

    A cell that has been served by itself keeps the partition of its log; a new one gets the first that is not used.
    """
    for _ in range(TRIES):
        listed = CellList(bus)
        await listed.read()
        if (known := listed.cells.get(name)) is not None:
            return known, True
        there = await partitions_now(cluster, LOG)
        partition = await _place_for(bus, listed, name, there)
        await make_room(cluster, max(there, partition + 1))
        if await add_cell(bus, cell := Cell(name, partition)):
            return cell, False
    raise BusError(f"others add cells at the same time: {name} has got no place in {TRIES} tries")


async def make_room(cluster: Cluster | str, cells: int) -> None:
    """Makes topics with room for this number of cells, and waits a while until the brokers show it: they answer before
    that. Raises BusError."""
    for _ in range(SHOWN_LOOKS):
        try:
            await put_right(cluster, TOPICS.values(), cells=cells, grow=True)
            if (await put_right(cluster, TOPICS.values(), cells=cells, check=True))[1]:
                return
        except InvalidPartitionsError:
            pass  # Somebody else who adds a cell was faster.
        except KafkaError as error:
            raise BusError(f"topics: {error}") from error
        await asyncio.sleep(SHOWN_LOOK_SECONDS)


async def _place_for(bus: Bus, listed: CellList, name: str, there: int) -> int:
    """The partition whose log is this cell's, else the first that has no log, else the next one."""
    unused: list[int] = []
    for partition in range(there):
        if listed.at(partition) is not None:
            continue
        if (found := await _cell_of_log(bus, partition)) == name:
            return partition
        if found is None:
            unused.append(partition)
    return unused[0] if unused else there


async def _cell_of_log(bus: Bus, partition: int) -> str | None:
    """Whose log lies in a partition: its first record names the cell. None: nobody's. "" where that cannot be told."""
    first, end = await bus.bounds(LOG, partition)
    if first == end:
        return None
    found = await LogReader(bus, partition).read(FIRST_MOST) if first == 0 else []
    return found[0].record.cell if found else ""
