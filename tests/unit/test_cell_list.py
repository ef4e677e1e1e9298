"""The list of cells: the first record with a name or a partition counts, and only records that are well formed."""

import asyncio

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from largesse.bus.memory import MemoryBus
from largesse.bus.port import Outgoing
from largesse.known_cells import NAME, Cell, CellList, add_cell, read_cell, remove_cell
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


# ---------------------------------------------------------------- removed
def test_a_cell_that_is_removed_is_gone_and_its_name_and_partition_may_be_added_once_more():
    async def story():
        bus = MemoryBus()
        listed = CellList(bus)
        for number, name in enumerate("ab"):
            await add_cell(bus, Cell(name, number))
        await listed.read()

        await remove_cell(bus, Cell("a", 7))
        assert not await listed.read(), "another partition: it means a cell that is not there"
        await remove_cell(bus, Cell("a", 0))
        assert await listed.read()
        assert (list(listed.cells), listed.removed, listed.at(0)) == (["b"], {"a": Cell("a", 0)}, None)
        assert await add_cell(bus, Cell("a", 0))
        assert await listed.read()
        assert (list(listed.cells), listed.removed, listed.at(0)) == (["b", "a"], {}, Cell("a", 0))

    tell(story)


STEPS = st.lists(st.tuples(st.booleans(), st.sampled_from("abc"), st.integers(0, 2)), max_size=20)


@given(STEPS, st.integers(0, 20))
def test_whenever_it_is_read_the_list_is_what_all_records_say_one_after_the_other(steps, read_at):
    async def story():
        bus = MemoryBus()
        listed, whole = CellList(bus), CellList(bus)
        expected: list[Cell] = []
        for number, (is_removed, name, partition) in enumerate(steps):
            cell = Cell(name, partition)
            if is_removed:
                await remove_cell(bus, cell)
                expected = [each for each in expected if each != cell]
            else:
                said = await add_cell(bus, cell)
                if all(each.name != name and each.partition != partition for each in expected):
                    expected.append(cell)
                assert said == (cell in expected)
            if number >= read_at:
                await listed.read()
        await listed.read()
        await whole.read()
        for each in (listed, whole):
            assert list(each.cells.values()) == expected
            assert [each.at(partition) for partition in range(3)] == [
                next((cell for cell in expected if cell.partition == partition), None) for partition in range(3)
            ]
            assert not set(each.cells) & set(each.removed)

    asyncio.run(story())
