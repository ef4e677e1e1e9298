"""The list of cells: the first record with a name or a partition counts, and only records that are well formed."""

import asyncio

import orjson
import pytest

from largesse.bus.memory import MemoryBus
from largesse.bus.port import Outgoing
from largesse.known_cells import NAME, Cell, CellList, add_cell, read_cell
from schemas.topics import CELLS


def tell(story) -> None:
    asyncio.run(asyncio.wait_for(story(), 60))


def test_the_first_record_with_a_name_or_a_partition_counts():
    async def story():
        bus = MemoryBus()

        assert await add_cell(bus, Cell("a", 0))
        assert not await add_cell(bus, Cell("b", 0))
        assert not await add_cell(bus, Cell("a", 1))
        assert await add_cell(bus, Cell("b", 1))
        listed = CellList(bus)
        assert await listed.read()

        assert list(listed.cells.values()) == [Cell("a", 0), Cell("b", 1)]
        assert listed.at(1) == Cell("b", 1)
        assert listed.at(2) is None
        assert not await listed.read()

    tell(story)


def test_who_waits_for_the_list_hears_of_a_cell_that_is_added():
    async def story():
        bus = MemoryBus()
        listed = CellList(bus)
        waiting = asyncio.create_task(listed.read(30_000))
        await asyncio.sleep(0)
        await add_cell(bus, Cell("late", 3))

        assert await waiting
        assert listed.cells == {"late": Cell("late", 3)}

    tell(story)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"{", id="no JSON"),
        pytest.param(b"[]", id="another document"),
        pytest.param(b'{"cell":"a"}', id="no partition"),
        pytest.param(b'{"cell":"a","partition":-1}', id="a partition below zero"),
        pytest.param(b'{"cell":"a","partition":true}', id="a truth value"),
        pytest.param(b'{"cell":"a","partition":"1"}', id="a text"),
        pytest.param(b'{"cell":"a/b","partition":1}', id="a name that would divide an id"),
        pytest.param(b'{"cell":"","partition":1}', id="no name"),
    ],
)
def test_a_record_that_is_malformed_is_passed_over(value):
    async def story():
        bus = MemoryBus()
        await bus.writer().send([Outgoing(CELLS, 0, value)])
        await add_cell(bus, Cell("a", 1))
        listed = CellList(bus)
        await listed.read()

        assert read_cell(value) is None
        assert list(listed.cells) == ["a"]

    tell(story)


def test_a_record_may_say_more_than_this_release_reads():
    value = orjson.dumps({"cell": "a", "partition": 1, "colour": "blue"})

    assert read_cell(value) == Cell("a", 1)


@pytest.mark.parametrize("name", ["-a", ".a", "a b", "a\n", "ä", "a" * 64])
def test_names_are_short_and_plain(name):
    assert NAME.fullmatch(name) is None
