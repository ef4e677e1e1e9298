"""PastStates: where each is kept, which of them serves a moment, what serves where one is gone, and how one is built
upon another."""

import asyncio
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from largesse.bus.memory import MemoryBus
from largesse.bus.port import Outgoing
from largesse.log import past_keeper, snapshots
from largesse.log.fencing import LogOrder
from largesse.log.past_keeper import PastKeeper
from largesse.log.past_states import PastStates, base_of, cut, distance_of, join, kept_as, slot_of
from largesse.log.snapshots import dump, newest
from largesse.settings import Settings
from schemas import JobCancelled
from schemas.topics import LOG, SNAPSHOTS
from tests.bus_stories import answers_in, story


@dataclass(slots=True)
class State:
    """What changes, and two fields whose entries stay as they are until they go."""

    seen: int = 0
    over: dict[str, list[int]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)


SETTLED = ("over", "texts")
DROPPED = ("oldest", "any", "again")


@pytest.fixture(autouse=True)
def _short_stretches(monkeypatch):
    monkeypatch.setattr(past_keeper, "RECORDS_BETWEEN", 1)
    monkeypatch.setattr(past_keeper, "BYTES_BY_RECORD", 1 << 30)


def evolve(state, moves, number):
    """A few entries come and go, and one may come again under its name."""
    state.seen = number
    for kind, at in moves:
        entries = (state.over, state.texts)[at % 2]
        if kind == "new":
            entries[f"{number}-{at}"] = [at, number] if at % 2 == 0 else f"{at}\n{number}"
        elif entries:
            name = next(iter(entries)) if kind == "oldest" else list(entries)[at % len(entries)]
            value = entries.pop(name)
            if kind == "again":
                entries[name] = [*value, number] if isinstance(value, list) else f"{value}{number}"


moves = st.lists(st.tuples(st.sampled_from(("new", "new", "new", *DROPPED)), st.integers(0, 40)), max_size=6)


def plain(state):
    return [state.seen, list(state.over.items()), list(state.texts.items())]


def keeper(bus, most=64, layout=1, **more):
    return PastKeeper(bus, Settings(checkpoints=most), past_states(bus, layout), **more)


def past_states(bus, layout=1):
    return PastStates(bus, 0, "toy", layout, State, SETTLED)


class Sender:
    """A writer of a bus that remembers what it has sent."""

    def __init__(self, bus):
        self.bus, self.sent = bus, []

    async def send(self, messages, *, durable=True):
        self.sent += messages
        return await self.bus.writer().send(messages, durable=durable)

    async def compacted(self):
        """A bus with the same log, and with the last message of each key alone."""
        left, last = MemoryBus(), {}
        for message in self.sent:
            last.pop(message.key, None)
            last[message.key] = message
        await left.writer().send(list(last.values()))
        await left.writer().send([Outgoing(LOG, 0, value) for value in await answers_in(self.bus, LOG)])
        return left


async def keep(bus, scribe, number, kept_by=None, state=None, *, writer=None, **more):
    """The past state behind record `number`, at ten times that many milliseconds."""
    await scribe.write(JobCancelled(f"job-{number}"))
    order = LogOrder(offset=(await bus.bounds(LOG, 0))[1], seq=number, round=number, time=10 * number)
    kept_by = kept_by or keeper(bus, **more)
    if kept_by.is_due(number):
        await kept_by.keep(writer or bus.writer(), state or State(number), order, {})


async def found_before(found, seq=None, time_ms=None):
    there = await found.before(seq, time_ms)
    return None if there is None else (there[0].seen, there[1].order.seq)


# ---------------------------------------------------------------- which are kept
@given(st.integers(0, 300), st.sampled_from([2, 4, 8, 16]))
def test_neighbours_are_never_further_apart_than_twice_what_has_room(last, slots):
    held = {}
    for number in range(last + 1):
        slot = slot_of(number, slots)
        assert (slot is not None) == (number % distance_of(number, slots) == 0)
        if slot is not None:
            assert 0 <= slot < slots
            held[slot] = number

    numbers = [*sorted(held.values()), last]
    widest = max(after - before for before, after in zip([0, *numbers], numbers, strict=False))
    assert 0 in numbers
    least = -(-(last + 1) // slots)  # Without room for more, as even as can be.
    assert widest <= 4 * least if least > 1 else widest <= 1


@given(
    steps=st.lists(st.integers(1, 6), max_size=60),
    slots=st.sampled_from([8, 32, 64]),
    restarts=st.sets(st.integers(0, 59), max_size=3),
    drawn=st.data(),
)
def test_each_that_is_left_shows_the_state_as_it_was(steps, slots, restarts, drawn):
    """Rounds end where they like, who keeps them is started again, and old ones are written over."""

    async def whole():
        bus = MemoryBus()
        writer, kept_by, state, seq, shown = Sender(bus), keeper(bus, slots), State(), 0, {}
        for at, step in enumerate(steps):
            seq += step
            evolve(state, drawn.draw(moves), seq)
            if at in restarts:
                state = snapshots.load(State, dump(state))
                kept_by = keeper(bus, slots)
                await kept_by.resume(state, seq - step)
            await bus.writer().send([Outgoing(LOG, 0, b"%d" % seq)])
            if kept_by.is_due(seq):
                await kept_by.keep(writer, state, LogOrder(offset=at + 1, seq=seq, time=seq), {})
                shown[seq] = plain(state)
        found = past_states(await writer.compacted())
        seqs = await found.seqs()
        assert set(seqs) <= set(shown)
        for each in seqs:
            there = await found.before(each, None)
            assert there is not None
            assert there[1].order.seq == each
            assert plain(there[0]) == shown[each]

    asyncio.run(whole())


@given(first=moves, second=moves)
def test_what_is_cut_out_is_put_back_in_its_order(first, second):
    state = State()
    evolve(state, first, 1)
    base = base_of(state, SETTLED, 1)
    evolve(state, second, 2)
    found = cut(state, base)
    assert found is not None
    line, short = found
    assert set(short.over) <= {name for name in state.over if base.settled["over"].get(name) is not state.over[name]}
    again = snapshots.load(State, dump(short))
    join(again, base, snapshots.orjson.loads(line)["kept"])

    assert plain(again) == plain(state)


def test_what_has_changed_its_place_is_written_whole():
    state = State(over={"a": [1], "b": [2]})
    base = base_of(state, SETTLED, 1)
    state.over["a"] = state.over.pop("a")

    assert cut(state, base) is None


@story
async def test_most_are_built_upon_another(bus, scribe):
    state = State(texts={str(number): "long" * 200 for number in range(300)})
    kept_by = keeper(bus)
    for number in range(1, 40):
        state.texts[f"new-{number}"] = "short"
        await keep(bus, scribe, number, kept_by, state)

    sizes = [len(value) for value in await answers_in(bus, SNAPSHOTS)]
    assert sizes[15] > 3 * max(sizes[16:31])
    assert sizes[31] > 3 * max(sizes[32:])


def test_one_waits_until_what_was_folded_is_worth_it(monkeypatch):
    monkeypatch.setattr(past_keeper, "BYTES_BY_RECORD", 100)

    @story
    async def kept(bus, scribe):
        kept_by = keeper(bus)
        await keep(bus, scribe, 32, kept_by)
        await keep(bus, scribe, 33, kept_by, State(33, {f"name-{number}": [number] for number in range(100)}))

        assert [kept_by.is_due(number) for number in (34, 45, 70)] == [False, False, True]

    kept()


# ---------------------------------------------------------------- which serves
@story
async def test_the_latest_up_to_a_moment_serves(bus, scribe):
    for number in (1, 3, 4):
        await keep(bus, scribe, number)
    found = past_states(bus)

    assert await found_before(found, seq=0) is None
    assert [await found_before(found, seq=seq) for seq in (1, 2, 3, 9)] == [(1, 1), (1, 1), (3, 3), (4, 4)]
    assert await found_before(found, time_ms=9) is None
    assert [await found_before(found, time_ms=ms) for ms in (10, 29, 30, 99)] == [(1, 1), (1, 1), (3, 3), (4, 4)]

    await keep(bus, scribe, 6)
    assert await found_before(found, seq=9) == (6, 6)


@story
async def test_one_that_is_damaged_of_another_layout_or_another_log_is_passed_over(bus, scribe):
    for number, layout in ((1, 1), (2, 2), (3, 1)):
        await keep(bus, scribe, number, layout=layout)
    values = await answers_in(bus, SNAPSHOTS)
    bus.lose_tail(SNAPSHOTS, 0, len(values) - 1)
    await bus.writer().send([Outgoing(SNAPSHOTS, 0, values[-1][:-12] + b'AAAA"}')])

    assert await found_before(past_states(bus), seq=9) == (1, 1)
    assert await found_before(past_states(bus, 2), seq=9) == (2, 2)

    bus.lose_tail(LOG, 0, 2)
    await bus.writer().send([Outgoing(LOG, 0, b"{}")] * 3)
    assert await found_before(past_states(bus, 2), seq=9) is None


@story
async def test_one_whose_base_is_gone_is_passed_over(bus, scribe):
    kept_by, writer = keeper(bus), Sender(bus)
    for number in (15, 16, 17, 18):
        await keep(bus, scribe, number, kept_by, writer=writer)
    assert await found_before(past_states(bus), seq=18) == (18, 18)
    without = [message for message in writer.sent if message.key.split("/")[3] != "16"]
    assert len(without) == 3
    bus.lose_tail(SNAPSHOTS, 0, 0)
    await bus.writer().send(without)

    assert await found_before(past_states(bus), seq=18) == (15, 15)


@story
async def test_a_large_one_comes_in_parts_and_is_no_snapshot_to_start_from(bus, scribe):
    patch = snapshots.PART_BYTES_MAX
    snapshots.PART_BYTES_MAX = 16
    try:
        await keep(bus, scribe, 1)
        await keep(bus, scribe, 2, state=State(2, {str(number): [number] for number in range(500)}))
    finally:
        snapshots.PART_BYTES_MAX = patch

    assert len(await answers_in(bus, SNAPSHOTS)) > 20
    assert await found_before(past_states(bus), seq=5) == (2, 2)
    assert await newest(bus, 0, "toy", 0, 1, State) is None
    assert kept_as("toy") == "toy.past"


@story
async def test_none_are_kept_where_none_are_wanted(bus, scribe):
    await keep(bus, scribe, 1, most=0)

    assert await answers_in(bus, SNAPSHOTS) == []
    assert await found_before(past_states(bus), seq=5) is None


@story
async def test_numbers_count_from_where_the_log_begins(bus, scribe):
    kept_by = keeper(bus, 4, begins=1_000)
    for number in range(1_001, 1_004):
        await keep(bus, scribe, number, kept_by)

    assert await past_states(bus).seqs() == [1_001, 1_002, 1_003]
