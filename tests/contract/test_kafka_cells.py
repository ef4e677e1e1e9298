"""Cells on a real Kafka: who is dealt which, and a place for a new one."""

import asyncio
import itertools
from contextlib import asynccontextmanager

import pytest

from largesse.bus.kafka.bus import KafkaBus
from largesse.bus.kafka.topic_settings import TOPICS
from largesse.bus.kafka.topics_admin import partitions_now
from largesse.known_cells import Cell, CellList
from largesse.log.fencing import LogOrder
from largesse.log.writer import claim_message
from largesse.process.cell_adding import put_in
from schemas.topics import LOG
from tests.contract.kafka_rig import new_name, put_right_at_once
from tests.contract.test_kafka_bus import GUARD_SECONDS, address, needs_kafka, tell
from tests.unit.cli_process import largesse

__all__ = ["address"]  # The fixture.

pytestmark = [needs_kafka, pytest.mark.xdist_group("kafka cells")]


class Member:
    """One instance in a group, and what it has been dealt last."""

    def __init__(self, address, group, copies):
        self.bus = KafkaBus(address)
        self.mine: list[int] | None = None
        self.dealt = asyncio.Event()
        self.task = asyncio.create_task(self.bus.join_cells(group, copies, self._take))

    def _take(self, partitions):
        self.mine = partitions
        self.dealt.set()

    async def leave(self):
        self.task.cancel()
        await asyncio.wait([self.task])
        await self.bus.close()


@asynccontextmanager
async def group_of(address, copies, count):
    name = new_name("group")
    members = [Member(address, name, copies) for _ in range(count)]
    try:
        yield members
    finally:
        for member in members:
            await member.leave()


async def until(members, holds):
    """Waits until something holds about what the members have been dealt, whenever that changes."""
    async with asyncio.timeout(GUARD_SECONDS):
        while not all(member.mine is not None for member in members) or not holds():
            waits = [asyncio.create_task(member.dealt.wait()) for member in members]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
            for member in members:
                member.dealt.clear()


def copies_of(members, partition):
    return sum(partition in member.mine for member in members)


async def partitions_at_least(address, count):
    there = max(await partitions_now(address, LOG), count)
    await put_right_at_once(address, TOPICS.values(), cells=there, grow=True)
    return there


@pytest.mark.parametrize("copies", [1, 2])
def test_each_cell_is_dealt_to_as_many_as_are_to_run_it_and_to_others_when_one_leaves(address, copies):
    async def story():
        there = await partitions_at_least(address, 4)
        async with group_of(address, copies, 3) as members:
            await until(members, lambda: all(copies_of(members, each) == copies for each in range(there)))
            gone = members.pop()
            await gone.leave()
            await until(members, lambda: all(copies_of(members, each) == copies for each in range(there)))

    tell(story)


def test_a_partition_that_is_added_is_dealt_out_too(address):
    async def story():
        there = await partitions_at_least(address, 1)
        async with group_of(address, 2, 2) as members:
            await until(members, lambda: copies_of(members, there - 1) == 2)
            await put_right_at_once(address, TOPICS.values(), cells=there + 1, grow=True)
            await until(members, lambda: copies_of(members, there) == 2)

    tell(story)


def test_cells_that_are_added_at_once_get_places_of_their_own_and_one_that_is_there_keeps_its_own(address):
    async def story():
        await partitions_at_least(address, 1)
        bus = KafkaBus(address)
        names = [new_name(f"cell-{number}") for number in range(3)]
        try:
            made = await asyncio.gather(*(put_in(address, bus, name) for name in names))
            again = await put_in(address, bus, names[0])
            listed = CellList(bus)
            await listed.read()
        finally:
            await bus.close()

        assert [was_there for _, was_there in made] == [False] * 3
        assert again == (made[0][0], True)
        assert [listed.cells[name] for name in names] == [cell for cell, _ in made]
        assert all(a.partition != b.partition for a, b in itertools.combinations(listed.cells.values(), 2))
        for topic in TOPICS:
            assert await partitions_now(address, topic) >= 1
        assert await partitions_now(address, LOG) > max(cell.partition for cell, _ in made)

    tell(story)


def test_a_cell_whose_log_is_there_keeps_its_partition_and_nobody_else_gets_it(address):
    async def story():
        own, other = new_name("own"), new_name("other")
        partition = await partitions_now(address, LOG)
        await partitions_at_least(address, partition + 1)
        bus = KafkaBus(address)
        try:
            await bus.writer().send([claim_message(own, partition, new_name("token"), LogOrder(), 0)])
            assert (await put_in(address, bus, other))[0].partition != partition
            assert await put_in(address, bus, own) == (Cell(own, partition), False)
        finally:
            await bus.close()

    tell(story)


def test_the_command_adds_a_cell_once_and_lists_it(address):
    name, bus = new_name("cell"), f"kafka://{address}"
    added, again = (largesse("cell", "add", name, "--bus", bus, "--json") for _ in range(2))

    assert (added.code, added.err) == (again.code, again.err) == (0, "")
    assert (added.json["cell"], added.json["added"], again.json["added"]) == (name, True, False)
    assert added.json["partition"] == again.json["partition"]
    listed = largesse("cell", "list", LARGESSE_BUS=bus)
    assert f"{name}\t{added.json['partition']}" in listed.out.splitlines()
    assert {"cell": name, "partition": added.json["partition"]} in largesse("cell", "list", "--bus", bus, "--json").json


def test_the_command_removes_a_cell_once_and_adds_it_at_its_place_again(address):
    name, bus = new_name("cell"), f"kafka://{address}"
    added = largesse("cell", "add", name, "--bus", bus, "--json")
    removed, again = (largesse("cell", "remove", name, "--bus", bus, "--json") for _ in range(2))

    assert (removed.code, again.code) == (0, 0), removed.err + again.err
    assert (removed.json["partition"], removed.json["removed"]) == (added.json["partition"], True)
    assert (again.json["partition"], again.json["removed"]) == (added.json["partition"], False)
    assert name not in largesse("cell", "list", "--bus", bus).out
    refused = largesse("cell", "remove", new_name("cell"), "--bus", bus)
    assert refused.code == 1
    assert "there is no cell" in refused.err
    back = largesse("cell", "add", name, "--bus", bus, "--json")
    assert (back.json["partition"], back.json["added"]) == (added.json["partition"], True)
