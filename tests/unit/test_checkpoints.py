"""Checkpoints: where each is kept, which of them serves a moment, and what serves where one is gone."""

from hypothesis import given
from hypothesis import strategies as st

from largesse.bus.port import Outgoing
from largesse.log import snapshots
from largesse.log.checkpoints import Checkpoints, checkpoint_messages, kept_as, slot_of
from largesse.log.fencing import LogOrder
from largesse.log.snapshots import Snapshot, dump, landmark_of, newest
from schemas import JobCancelled
from schemas.topics import LOG, SNAPSHOTS
from tests.bus_stories import answers_in, story
from tests.toy import State

MOST = 8


@given(st.integers(0, 300), st.sampled_from([2, 4, 8, 16]))
def test_neighbours_are_never_further_apart_than_twice_what_has_room(last, slots):
    held = {}
    for number in range(last + 1):
        slot = slot_of(number, slots)
        if slot is not None:
            assert 0 <= slot < slots
            held[slot] = number

    numbers = [*sorted(held.values()), last]
    widest = max(after - before for before, after in zip([0, *numbers], numbers, strict=False))
    assert 0 in numbers
    least = -(-(last + 1) // slots)  # Without room for more, as even as can be.
    assert widest <= 4 * least if least > 1 else widest <= 1


async def keep(bus, scribe, number, most=MOST, layout=1, state=None):
    """The checkpoint of the round `number`, at record `number` and ten times that many milliseconds."""
    await scribe.write(JobCancelled(f"job-{number}"))
    order = LogOrder(offset=(await bus.bounds(LOG, 0))[1], seq=number, round=number, time=10 * number)
    landmark = await landmark_of(bus, 0, order.offset)
    snapshot = Snapshot("toy", 0, 1, layout, number, order, landmark, {}, dump(state or State([str(number)])))
    messages = checkpoint_messages(snapshot, "default", 0, distance=1, most=most)
    if messages:
        await bus.writer().send(messages, durable=False)


async def found_before(checkpoints, seq=None, time_ms=None):
    found = await checkpoints.before(State, seq, time_ms)
    return None if found is None else (int(found[0].jobs[0]), found[1].order.seq)


@story
async def test_the_latest_up_to_a_moment_serves(bus, scribe):
    for number in (1, 3, 4):
        await keep(bus, scribe, number)
    checkpoints = Checkpoints(bus, 0, "toy", 1)

    assert await found_before(checkpoints, seq=0) is None
    assert [await found_before(checkpoints, seq=seq) for seq in (1, 2, 3, 9)] == [(1, 1), (1, 1), (3, 3), (4, 4)]
    assert await found_before(checkpoints, time_ms=9) is None
    assert [await found_before(checkpoints, time_ms=ms) for ms in (10, 29, 30, 99)] == [(1, 1), (1, 1), (3, 3), (4, 4)]

    await keep(bus, scribe, 6)
    assert await found_before(checkpoints, seq=9) == (6, 6)


@story
async def test_one_that_is_damaged_of_another_layout_or_another_log_is_passed_over(bus, scribe):
    for number, layout in ((1, 1), (2, 2), (3, 1)):
        await keep(bus, scribe, number, layout=layout)
    values = await answers_in(bus, SNAPSHOTS)
    bus.lose_tail(SNAPSHOTS, 0, len(values) - 1)
    await bus.writer().send([Outgoing(SNAPSHOTS, 0, values[-1][:-12] + b'AAAA"}')])

    assert await found_before(Checkpoints(bus, 0, "toy", 1), seq=9) == (1, 1)
    assert await found_before(Checkpoints(bus, 0, "toy", 2), seq=9) == (2, 2)

    bus.lose_tail(LOG, 0, 2)
    await bus.writer().send([Outgoing(LOG, 0, b"{}")] * 3)
    assert await found_before(Checkpoints(bus, 0, "toy", 2), seq=9) is None


@story
async def test_a_large_one_comes_in_parts_and_is_no_snapshot_to_start_from(bus, scribe):
    patch = snapshots.PART_BYTES_MAX
    snapshots.PART_BYTES_MAX = 16
    try:
        await keep(bus, scribe, 1)
        await keep(bus, scribe, 2, state=State(["2", *map(str, range(500))]))
    finally:
        snapshots.PART_BYTES_MAX = patch

    assert len(await answers_in(bus, SNAPSHOTS)) > 20
    assert await found_before(Checkpoints(bus, 0, "toy", 1), seq=5) == (2, 2)
    assert await newest(bus, 0, "toy", 0, 1, State) is None
    assert kept_as("toy") == "toy.past"


@story
async def test_none_are_kept_where_none_are_wanted(bus, scribe):
    await keep(bus, scribe, 1, most=0)

    assert await answers_in(bus, SNAPSHOTS) == []
    assert await found_before(Checkpoints(bus, 0, "toy", 1), seq=5) is None
