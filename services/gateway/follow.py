"""The gateway's side of the bus: it folds the log into the view, sends inputs, and finds the answers to them.

The answer to an input is the log record that carries its topic, partition and offset. An input that changed nothing has
no record; the log only shows that it was read.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any

from largesse.bus.port import Bus, BusError, MessageTooLarge, Writer
from largesse.log.decisions import DecisionReader
from largesse.log.past_keeper import PastKeeper
from largesse.log.reader import publish_input, wait_for_more
from largesse.settings import Settings
from largesse.shell import Shell
from schemas import Record
from schemas.topics import INPUTS
from services.gateway import view
from services.gateway.answers import Answer, Answers
from services.gateway.changes import Changes
from services.gateway.heard import HeardNodes
from services.gateway.log_places import LogPlaces, Place
from services.gateway.past import Past
from services.gateway.view.state import State

TURN_RECORDS = 100
"""Records that are folded before requests get a turn of the event loop."""


class Follower:
    """Follows one cell. `run` drives it; requests read the `state`, its `changes`, the `past`, or the log from one of
    its `places` on, and `send` inputs; dry runs read the `bus`. `begins`: the record behind which the log begins.
    `name`: in counters and lines of the log, where this process follows several. Belongs to one event loop.
    """

    def __init__(self, bus: Bus, settings: Settings, *, stop: asyncio.Event, begins: int = 0, name: str = "") -> None:
        self.ready = False
        self.stop = stop
        self.bus = bus
        self._settings = settings
        core: Any = view
        self.past = Past(core, bus, settings)
        keeper = PastKeeper(bus, settings, self.past.states, begins=begins)
        self._shell = Shell(core, bus, settings, stop=stop, name=name, past=keeper)
        self.heard = HeardNodes(bus, settings.partition)
        self.places = LogPlaces(bus, settings.partition, self.past.states)
        self.changes = Changes(self.state)
        self._read_s = monotonic()  # When a record came last, or the log began to be read.
        self._latest: Record | None = None
        self._answers = {topic: Answers() for topic in INPUTS}
        self._writer: Writer | None = None
        self._turn: asyncio.Future[None] | None = None

    def decisions_from(self, place: Place) -> DecisionReader:
        """A reader of the decisions of rounds behind a place of the log."""
        return DecisionReader(self.bus, self._settings.partition, place.decisions)

    @property
    def silent_s(self) -> float:
        """For how long neither a record has come nor a sign of life of the sequencer that writes them."""
        return monotonic() - max(self._read_s, self.heard.sequencer_s(self._shell.log.order.token))

    @property
    def cell(self) -> str:
        """The cell's name."""
        return self._settings.cell

    @property
    def address(self) -> str:
        """Where its bus is, as the settings name it."""
        return self._settings.bus

    @property
    def archive(self) -> str:
        """The store with its checkpoints, as the settings name it; empty where they name none."""
        return self._settings.archive

    @property
    def partition(self) -> int:
        """Where the cell's messages lie in every topic."""
        return self._settings.partition

    @property
    def state(self) -> State:
        """The cell as far as the log has been folded."""
        state: State = self._shell.state
        return state

    async def run(self) -> None:
        """Until `stop`. Raises CoreStopped, DecisionGap, BusError, and what the log cannot be read for."""
        shell = self._shell
        hearing = asyncio.ensure_future(self.heard.follow())
        try:
            await shell.restore()
            self.changes = Changes(self.state)
            self.places.note(shell.log.order, shell.decisions.positions, anyway=True)
            for topic, answers in self._answers.items():
                answers.reached = self._reached(topic)
            while not self.stop.is_set():
                folded = 0
                while folded < TURN_RECORDS and await shell.step():
                    folded += 1
                    self._note()
                    self.places.note(shell.log.order, shell.decisions.positions)
                if folded:
                    self._read_s = monotonic()
                    self._tell()
                    await asyncio.sleep(0)
                if folded < TURN_RECORDS:
                    self.ready = True
                    await wait_for_more(self.bus, shell.log.position, self._settings.wait_ms, self.stop)
        finally:
            self.ready = False
            self._tell()
            await self.past.close()
            hearing.cancel()
            await asyncio.wait((hearing,))
            await shell.close()
            if self._writer is not None:
                await self._writer.drop()

    async def send(self, topic: str, document: Any, author: str, wait_s: float) -> Answer:
        """Publishes one input and waits for what becomes of it. Raises BusError: it may or may not have arrived;
        MessageTooLarge: it has not, and never will."""
        answers = self._answers[topic]
        number = answers.begin()
        try:
            offset = await self._publish(topic, document, author)
            found = answers.find(offset)
        finally:
            answers.end(number)
        if found is not None:
            return found
        waiter = answers.wait(offset)
        try:
            async with asyncio.timeout(wait_s):
                return Answer(offset, True, await waiter)
        except TimeoutError:
            return Answer(offset, False)
        finally:
            answers.forget(offset)

    async def _publish(self, topic: str, document: Any, author: str) -> int:
        if self._writer is None:
            self._writer = self.bus.writer()
        try:
            return await publish_input(self._writer, topic, document, author, self._settings.partition)
        except MessageTooLarge:
            raise  # Others send with this writer, and it is as good as before.
        except BusError:
            writer, self._writer = self._writer, None
            if writer is not None:
                await writer.drop()
            raise

    async def changed(self, wait_s: float) -> bool:
        """Waits until something was folded; False where the time is over, or the gateway ends."""
        if self.stop.is_set():
            return False
        if self._turn is None:
            self._turn = asyncio.get_running_loop().create_future()
        done, _ = await asyncio.wait((self._turn,), timeout=wait_s)
        return bool(done)

    async def pause(self, seconds: float) -> None:
        """Sleeps, unless the gateway ends."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.stop.wait()

    async def until(self, holds: Callable[[State], bool], wait_s: float) -> bool:
        """Waits until the view shows what is asked for; False once the time is over."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        while not holds(self.state):
            left_s = deadline - loop.time()
            if left_s <= 0 or self.stop.is_set():
                return False
            await self.changed(left_s)
        return True

    def _reached(self, topic: str) -> int:
        return self._shell.log.order.positions.get(f"{topic}/{self._settings.partition}", -1)

    def _note(self) -> None:
        """What the record folded last has changed; it is the answer to an input if the log has read further by it."""
        latest = self.state.latest
        if latest is None or latest is self._latest:
            return
        self._latest = latest
        self.places.learn(latest)
        self.changes.take(latest)
        for topic, answers in self._answers.items():
            reached = self._reached(topic)
            if reached > answers.reached:
                answers.move(reached, latest)

    def _tell(self) -> None:
        turn, self._turn = self._turn, None
        if turn is not None and not turn.done():
            turn.set_result(None)
