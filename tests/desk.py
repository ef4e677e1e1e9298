"""A sequencer on a clock of its own, and hands that write its inputs and read its records."""

from largesse.log.dead_letters import read_letter
from largesse.log.reader import LogReader, publish_input
from largesse.settings import Settings
from schemas import (
    Asks,
    Grants,
    NodeLost,
    RoundClosed,
    RoundOpened,
    Shares,
)
from schemas.topics import DEADLETTER
from services.admission.sequencer import Sequencer
from tests.bus_stories import Scribe, answers_in, story

JOB = {"stages": [{"stage": "s", "tasks": 2, "demand": {"cpu": "1"}, "duration_ms": 1_000}]}
NODE = {"node": "n1", "epoch": "e1", "capacity": {"cpu": "4"}}


class Desk:
    """One sequencer, a clock, and hands that write inputs and answers."""

    def __init__(self, bus, *, alone=True, paced=False, **settings):
        self.bus = bus
        self.now_ms = 1_000
        self.alone, self.paced = alone, paced
        self.settings = Settings(bus="memory:", **settings)
        self.tokens = 0
        self.scribe = Scribe(bus)
        self.start()

    def start(self):
        """A new process in the place of the old one."""
        self.sequencer = Sequencer(
            self.bus,
            self.settings,
            clock=lambda: self.now_ms,
            draw_token=self._token,
            alone=self.alone,
            paced=self.paced,
        )

    def _token(self):
        self.tokens += 1
        return f"token-{self.tokens}"

    async def turn(self, by_ms=0):
        """Time goes on, then the sequencer does all there is to do. Returns the records that came of it."""
        before = len(await self.records())
        self.now_ms += by_ms
        while await self.sequencer.step():
            pass
        return (await self.records())[before:]

    async def send(self, topic, document, author="ann"):
        await publish_input(self.bus.writer(), topic, document, author)

    async def take(self, topic, document, author="ann"):
        """An input, and the bodies of the records that came of it."""
        await self.send(topic, document, author)
        return [each.record.body for each in await self.turn()]

    async def records(self):
        """All records that count, claims too."""
        found, reader = [], LogReader(self.bus)
        while more := await reader.read():
            found += more
        return found

    async def bodies(self, kind):
        return [each.record.body for each in await self.records() if isinstance(each.record.body, kind)]

    async def opening(self):
        return [each.record for each in await self.records() if isinstance(each.record.body, RoundOpened)][-1]

    async def answer(self, *, shares=None, asks=None, grants=None):
        """All services answer the open round; what is not given is empty. Returns the closing's body."""
        opening = await self.opening()
        shards = opening.body.shards
        await self.scribe.say(opening, "shares", shares or Shares([]))
        for shard in range(shards):
            await self.scribe.say(opening, "asks", asks or Asks(shard, shards, []), shard)
        await self.scribe.say(opening, "grants", grants or Grants([]))
        await self.turn()
        return (await self.bodies(RoundClosed))[-1]

    async def letters(self):
        return [read_letter(message) for message in await answers_in(self.bus, DEADLETTER)]


def desk(test=None, **given):
    """A test over a desk whose sequencer leads already."""

    def wrap(test):
        @story
        async def run(bus, scribe):
            made = Desk(bus, **given)
            await made.turn()
            await test(made)

        run.__name__ = test.__name__
        return run

    return wrap(test) if test is not None else wrap


def kinds(bodies):
    return [type(body).__name__ for body in bodies]


async def watched(desk):
    await desk.take("nodes", {"register": NODE})
    await desk.answer()


async def pass_time(desk, span_ms, step_ms=500):
    """As a sequencer that is awake goes through it."""
    lost = []
    for _ in range(span_ms // step_ms):
        lost += [each for each in await desk.turn(step_ms) if isinstance(each.record.body, NodeLost)]
    return lost
