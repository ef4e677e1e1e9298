"""Answers of the log reach the senders they are for in whatever order sends, offsets and answers come, and no more of
them are kept than the oldest send under way may need."""

import asyncio
from contextlib import asynccontextmanager, suppress

from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st

from largesse.bus.memory import MemoryBus
from largesse.settings import Settings
from schemas import InputRepeated, JobAdmitted, Record
from services.admission import sequencer as admission
from services.gateway.answers import Answer, Answers, brief
from services.gateway.follow import Follower
from tests.builders import job

GUARD_S = 240

STEPS = st.one_of(
    st.just(("begin", 0)),
    st.tuples(st.just("arrive"), st.integers(0, 9)),
    st.tuples(st.just("lose"), st.integers(0, 9)),
    st.tuples(st.just("know"), st.integers(0, 9)),
    st.tuples(st.just("give up waiting"), st.integers(0, 9)),
    st.just(("somebody else sends", 0)),
    st.tuples(st.just("read"), st.integers(1, 3)),
)
"""What happens next; the number says to which of the sends it happens, or how many inputs the log reads at once."""


def a_record(offset):
    return Record("InputRepeated", 1, "default", offset + 1, 0, 0, f"id-{offset}", "", InputRepeated("j"))


class Model:
    """Sends under way, an input topic, and a log that reads it. Of what the log reads at once only the last input has
    a record; the others changed nothing."""

    def __init__(self, kept_max):
        self.answers = Answers(kept_max=kept_max)
        self.kept_max = kept_max
        self.end = 0  # Of the topic.
        self.truth = {}  # Offset -> what the log has answered, once it has read so far.
        self.reads = []  # Offsets at which the log stood after each read.
        self.under_way = []  # [number, offset or None, how many reads there were when it began]
        self.waiting = []  # (offset, future)

    def step(self, kind, which):
        chosen = self.under_way[which % len(self.under_way)] if self.under_way else None
        if kind == "begin":
            self.under_way.append([self.answers.begin(), None, len(self.reads)])
        elif kind == "somebody else sends":
            self.end += 1
        elif kind == "read":
            self.read(which)
        elif kind == "give up waiting" and self.waiting:
            offset, waiter = self.waiting.pop(which % len(self.waiting))
            waiter.cancel()
            self.answers.forget(offset)
        elif kind == "arrive" and chosen is not None and chosen[1] is None:
            chosen[1], self.end = self.end, self.end + 1
        elif kind == "lose" and chosen is not None:
            self.under_way.remove(chosen)
            self.answers.end(chosen[0])
        elif kind == "know" and chosen is not None and chosen[1] is not None:
            self.know(chosen)

    def know(self, send):
        number, offset, _ = send
        self.under_way.remove(send)
        found = self.answers.find(offset)
        self.answers.end(number)
        if found is None:
            assert offset not in self.truth
            self.waiting.append((offset, self.answers.wait(offset)))
        else:
            exact = Answer(offset, True, self.truth[offset])
            # With room for all answers it is always the exact one.
            assert found in ((exact,) if self.kept_max > len(self.reads) else (exact, Answer(offset, False)))

    def read(self, inputs):
        reached = min(self.answers.reached + inputs, self.end - 1)
        if reached <= self.answers.reached:
            return
        for offset in range(self.answers.reached + 1, reached):
            self.truth[offset] = None
        self.truth[reached] = a_record(reached)
        self.reads.append(reached)
        self.answers.move(reached, self.truth[reached])
        due = [each for each in self.waiting if each[0] <= reached]
        self.waiting = [each for each in self.waiting if each[0] > reached]
        assert all(waiter.result() == self.truth[offset] for offset, waiter in due)

    def check(self):
        oldest = min((begun for _, _, begun in self.under_way), default=len(self.reads))
        assert self.answers.kept <= min(len(self.reads) - oldest, self.kept_max)
        assert self.answers.waiting == len(self.waiting)


@settings(max_examples=300)
@for_all(st.lists(STEPS, max_size=60), st.sampled_from([1, 3, 1_000]))
def test_every_send_gets_its_own_answer_and_only_what_the_oldest_send_may_need_is_kept(steps, kept_max):
    async def story():
        model = Model(kept_max)
        for kind, which in steps:
            model.step(kind, which)
            model.check()

    asyncio.run(story())


def test_under_sends_that_always_overlap_no_answer_is_kept_longer_than_one_send_takes():
    """Each send begins before the one before it has ended: there is always one under way."""
    answers = Answers()
    before = answers.begin()
    kept = []
    for offset in range(5_000):
        following = answers.begin()
        answers.move(offset, a_record(offset))
        assert answers.find(offset) == Answer(offset, True, a_record(offset))
        answers.end(before)
        before = following
        kept.append(answers.kept)

    assert max(kept) == 1


def test_waits_that_were_given_up_leave_nothing_behind_before_the_log_gets_there():
    async def story():
        answers = Answers()
        for offset in range(10_000):
            answers.wait(offset)
            answers.forget(offset)
        return len(answers._order), answers.waiting

    order, waiting = asyncio.run(story())
    assert (order <= 100, waiting) == (True, 0)


def test_of_an_admitted_job_the_verdict_is_kept_and_not_its_stages():
    spec = job("j")
    record = Record("JobAdmitted", 1, "default", 7, 0, 0, "id", "", JobAdmitted(spec, 0))

    kept = brief(record)
    assert (kept.id, kept.body.spec.job, kept.body.spec.stages) == ("id", "j", [])
    assert spec.stages


class LateBus:
    """A bus on which a sender learns the offset of its message only when the next send has begun."""

    def __init__(self, behind):
        self._behind = behind
        self._begun = asyncio.Condition()
        self._sends = 0

    def __getattr__(self, name):
        return getattr(self._behind, name)

    def writer(self):
        return LateWriter(self, self._behind.writer())

    async def next_begins(self):
        async with self._begun:
            self._sends += 1
            mine = self._sends
            self._begun.notify_all()
            await self._begun.wait_for(lambda: self._sends > mine)


class LateWriter:
    def __init__(self, bus, behind):
        self._bus, self._behind = bus, behind

    async def send(self, batch, *, durable=True):
        offsets = await self._behind.send(batch, durable=durable)
        await self._bus.next_begins()
        return offsets

    async def drop(self):
        await self._behind.drop()


@asynccontextmanager
async def following(late=LateBus):
    bus, stop = MemoryBus(), asyncio.Event()
    wired = Settings(bus="file:memory")
    follower = Follower(late(bus), wired, stop=stop)
    running = [asyncio.ensure_future(each) for each in (follower.run(), admission.run(bus, wired, stop=stop))]
    try:
        yield follower
    finally:
        stop.set()
        await asyncio.gather(*running)


def test_a_gateway_that_is_never_without_a_send_keeps_no_pile_of_answers():
    async def story():
        kept = 0
        async with asyncio.timeout(GUARD_S), following() as follower:
            answers = follower._answers["jobs"]

            async def send(number):
                return await follower.send("jobs", {"cancel": f"unknown-{number}"}, "ann", GUARD_S)

            before = asyncio.ensure_future(send(0))
            for number in range(1, 300):
                # The log answers before the sender knows its offset: it learns that when the next send begins.
                assert await follower.until(lambda view: answers.reached >= number - 1, GUARD_S)  # noqa: B023
                following_it = asyncio.ensure_future(send(number))
                answer = await before
                assert answer.record.body.reason
                before, kept = following_it, max(kept, answers.kept)
            before.cancel()
            with suppress(asyncio.CancelledError):
                await before
            return kept, answers.kept

    most, last = asyncio.run(story())
    assert (most <= 2, last) == (True, 0)
