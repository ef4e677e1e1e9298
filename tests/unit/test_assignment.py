"""Which shards are an instance's own, where nobody else takes part."""

import asyncio

import pytest

from largesse.bus.memory import MemoryBus
from largesse.bus.port import BusError
from largesse.process.assignment import GroupAssignment, StaticAssignment, assignment_of
from largesse.settings import Settings


async def caught_up() -> None:
    """At once."""


def tell(story) -> None:
    asyncio.run(asyncio.wait_for(story(), 60))


@pytest.mark.parametrize(
    ("settings", "mine", "not_mine"),
    [
        pytest.param(Settings(bus="kafka://one:1", shard=2), 2, 0, id="what the environment says counts"),
        pytest.param(Settings(bus="memory:"), 63, 64, id="a bus of one process leaves everything to it"),
    ],
)
def test_an_instance_of_its_own_needs_nobody_to_tell_it(settings, mine, not_mine):
    async def story():
        assignment = assignment_of(MemoryBus(), settings, "altruism", caught_up)

        assert assignment.is_mine(mine)
        assert assignment.active(mine).is_set()
        assert not assignment.is_mine(not_mine)
        assert not assignment.active(not_mine).is_set()

    tell(story)


def test_closing_gives_everything_back():
    async def story():
        assignment = StaticAssignment([1, 0])
        active = assignment.active(1)
        assert assignment.shards() == (0, 1)
        assignment.changed.clear()
        await assignment.close()

        assert assignment.shards() == ()
        assert not active.is_set()
        assert assignment.changed.is_set()

    tell(story)


def test_what_is_dealt_out_counts_until_it_is_dealt_anew_or_the_group_is_lost():
    async def story():
        deals: asyncio.Queue[list[int] | None] = asyncio.Queue()

        async def join(group, on_assigned):
            assert group == "largesse.altruism.c"
            while (shards := await deals.get()) is not None:
                on_assigned(shards)
            raise BusError("thrown out")

        async def after(deal):
            assignment.changed.clear()
            deals.put_nowait(deal)
            await assignment.changed.wait()
            return assignment.shards()

        assignment = GroupAssignment(join, "largesse.altruism.c", caught_up)
        active = assignment.active(3)
        assert await after([3, 1]) == (1, 3)
        assert active.is_set()
        assert await after([1]) == (1,)
        assert not active.is_set()
        assert await after(None) == ()
        assert await after([3]) == (3,)
        assert active.is_set()
        await assignment.close()
        assert not active.is_set()

    tell(story)


@pytest.mark.parametrize("error", [RuntimeError("a fault"), KeyError("member"), OSError("no route")])
def test_any_error_of_a_group_is_said_and_ends_in_another_try_with_nothing_of_its_own(error, monkeypatch, capsys):
    monkeypatch.setattr("largesse.process.assignment.REJOIN_MS", 0)

    async def story():
        owned: list[tuple[int, ...]] = []
        joined_again = asyncio.Event()

        async def join(group, on_assigned):
            owned.append(assignment.shards())
            on_assigned([2])
            if len(owned) == 1:
                raise error
            joined_again.set()
            await asyncio.Event().wait()

        assignment = GroupAssignment(join, "largesse.altruism.c", caught_up)
        await asyncio.wait_for(joined_again.wait(), 5)

        assert owned == [(), ()]
        assert assignment.shards() == (2,)
        await assignment.close()

    tell(story)
    assert "group_failed" in capsys.readouterr().out
