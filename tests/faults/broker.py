"""A bus of many simulated processes behind the Bus port, with the faults of a real one.

One journal for all partitions, as behind a directory's bus: what is durable makes all before it durable, and a power
cut takes the rest. One hop takes a while, another one for each partition, so what is sent to two topics arrives in any
order. A sender that hears an error does not know what has arrived; what was sent arrives also where its sender dies.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from largesse.bus.local import LocalBus
from largesse.bus.passing import KEPT, PASSING
from largesse.bus.port import BusError, Fetched, Message, Outgoing, check_sizes
from schemas.topics import INPUTS, LOG

Place = tuple[str, int]

TIME_OUT_MS = 1_500
"""A process that is cut off, or a broker that is away, shows itself by an error after so long."""
LATE_MS = 8_000
"""What comes late comes within so long."""
PARTED_MS = 7_000
"""Who is cut off in the middle of an append gets through again after so long."""
HOPS = 1 / 8
"""This part of the answers that there is nothing takes a hop, when much can happen to who has asked."""
STALLED_MS = 3_000
"""Most that an answer of the broker may take, where it stalls."""


@dataclass(slots=True)
class Rates:
    """Chances of faults, in parts of 10,000 of appends (`reading`: of fetches) while the faults last. An append whose
    sender sees an error: `lost`: it never arrives; `unknown`: it has arrived; `late`: it arrives after other things;
    `torn`: but for its last message. Without an error: `repeated`: it arrives twice; `stalled`: the sender hears of it
    late. `hop_ms`: most that a way takes.
    """

    lost: int = 0
    unknown: int = 0
    late: int = 0
    torn: int = 0
    repeated: int = 0
    stalled: int = 0
    reading: int = 0
    hop_ms: float = 0
    slow: dict[Place, int] = field(default_factory=dict)

    def but(self, rates: dict[str, int]) -> "Rates":
        """The same with these changed."""
        changed = replace(self, slow={})
        for kind, rate in rates.items():
            setattr(changed, kind, rate)
        return changed


KINDS = ("lost", "unknown", "late", "torn", "repeated", "stalled")


@dataclass(slots=True)
class _Kept:
    """One partition. `waiting`: for each message, its number in the journal where it is shown only once durable."""

    messages: list[Message] = field(default_factory=list)
    waiting: list[int | None] = field(default_factory=list)
    shown: int = 0


class Broker:
    """What all processes write to and read from. `calm`: no fault is drawn. `hear`: is told what becomes visible."""

    forgets_to_sync = False  # A bug to be planted.

    def __init__(self, dice: random.Random, rates: Rates, loop: Any = None) -> None:
        self.dice, self.rates, self.loop = dice, rates, loop
        self.calm = False
        self.away = False
        self.met: Counter[str] = Counter()
        self.hear: Callable[[Message], None] = lambda message: None
        self.told: Callable[[str], None] = lambda text: None
        self._kept: dict[Place, _Kept] = {}
        self.holding: dict[str, int] = {}
        """Appends to the log of which the next is held back, `claim` or `record`: for how many ms at most."""
        self._held: dict[str, list[tuple[list[Outgoing], bool, int]]] = {}
        self._journal: list[Place] = []
        self._synced = 0
        self._life = 0
        self._buses: list[SimulatedBus] = []
        self.sending: dict[asyncio.Future[bool], None] = {}
        """What senders wait for; False: the power went before it came about."""

    def bus(self) -> "SimulatedBus":
        """For one more process."""
        bus = SimulatedBus(self)
        self._buses.append(bus)
        return bus

    def leave(self, bus: "SimulatedBus") -> None:
        """Its process is gone."""
        if bus in self._buses:
            self._buses.remove(bus)

    def shown(self, place: Place) -> list[Message]:
        """All that readers may see of a partition."""
        kept = self._kept.get(place)
        return kept.messages[: kept.shown] if kept is not None else []

    def places(self) -> list[Place]:
        """All partitions that were written to."""
        return list(self._kept)

    def first(self, place: Place) -> int:
        """The first offset that is left: of what nobody keeps the last messages are."""
        return max(0, self.end(place) - KEPT) if place[0] in PASSING else 0

    def end(self, place: Place) -> int:
        """The offset that a reader of this partition sees next."""
        kept = self._kept.get(place)
        return kept.shown if kept is not None else 0

    def read(self, place: Place, offset: int, most: int) -> list[Message]:
        """What lies there."""
        kept = self._kept[place]
        return kept.messages[offset : min(kept.shown, offset + most)]

    def hop_s(self, place: Place) -> float:
        """How long one way takes."""
        most_ms = self.rates.hop_ms * (1 if self.calm else self.rates.slow.get(place, 1))
        return self.dice.random() * most_ms / 1_000

    def is_plain(self) -> bool:
        """Whether an answer that there is nothing comes at once, as most do, and takes no hop."""
        return self.dice.random() >= HOPS

    def fault(self, topic: str) -> str:
        """What goes wrong with the next append; empty: nothing. Only who says what the log knows not yet is stalled."""
        if self.calm:
            return ""
        draw = self.dice.randrange(10_000)
        for kind in KINDS:
            draw -= getattr(self.rates, kind)
            if draw < 0:
                if kind == "stalled" and topic not in INPUTS:
                    return ""
                self.met[f"bus: {kind}"] += 1
                return kind
        return ""

    # ---------------------------------------------------------------- holding back
    def holds(self, batch: list[Outgoing], durable: bool) -> bool:
        """Whether an append to the log is held back, until the moment when it does the most harm: a record until a
        claim has come, a claim until another's record is about to. At the latest it comes after a while."""
        kind = _kind_of(batch)
        if self.calm or kind not in self.holding:
            return False
        most_ms = self.holding.pop(kind)
        self._held.setdefault(kind, []).append((batch, durable, self._life))
        self.loop.call_world(most_ms * 1_000, self._release, kind)
        self.met[f"bus: {kind} held back"] += 1
        return True

    def _release(self, kind: str) -> None:
        for batch, durable, life in self._held.pop(kind, ()):
            self.told(f"what was held back comes: a {kind}")
            self._arrive(batch, durable, life, lambda offsets: None)

    # ---------------------------------------------------------------- appending
    def deliver(self, batch: list[Outgoing], durable: bool, after_s: float, done: Callable[[list[int]], None]) -> None:
        """Appends to one partition, later; `done` is called with the offsets once readers see them."""
        if after_s <= 0:
            self._arrive(batch, durable, self._life, done)
        else:
            self.loop.call_world(int(after_s * 1e6), self._arrive, batch, durable, self._life, done)

    def _arrive(self, batch: list[Outgoing], durable: bool, life: int, done: Callable[[list[int]], None]) -> None:
        if life != self._life:
            return  # It was on its way when the power went.
        place, kind = (batch[0].topic, batch[0].partition), _kind_of(batch)
        if kind == "record" and self._held:
            self._release("claim")
        kept = self._kept.setdefault(place, _Kept())
        offsets = []
        for outgoing in batch:
            offset = len(kept.messages)
            message = Message(*place, offset, outgoing.value, dict(outgoing.headers))
            kept.messages.append(message)
            kept.waiting.append(len(self._journal) if durable and not outgoing.early else None)
            self._journal.append(place)
            offsets.append(offset)
        if kind == "claim" and self._held:
            self._release("record")
        if not durable:
            self._show(place)
            done(offsets)
            return
        self._show(place)
        after_s = self.hop_s(("sync", 0))
        if after_s <= 0:
            self._sync(len(self._journal), life, offsets, done)
        else:
            self.loop.call_world(int(after_s * 1e6), self._sync, len(self._journal), life, offsets, done)

    def _sync(self, number: int, life: int, offsets: list[int], done: Callable[[list[int]], None]) -> None:
        if life != self._life:
            return
        before, shown = self._synced, number
        if not self.forgets_to_sync:
            self._synced = max(before, number)
        for place in dict.fromkeys(self._journal[before:shown]):
            self._show(place, shown)
        done(offsets)

    def _show(self, place: Place, synced: int | None = None) -> None:
        kept = self._kept[place]
        before, synced = kept.shown, self._synced if synced is None else max(synced, self._synced)
        while kept.shown < len(kept.messages):
            number = kept.waiting[kept.shown]
            if number is not None and number >= synced:
                break
            kept.shown += 1
        if kept.shown > before:
            for message in kept.messages[before : kept.shown]:
                self.hear(message)
            self._wake(place)

    def _wake(self, place: Place) -> None:
        for bus in self._buses:
            bus._wakeups.wake(*place)

    def wake_all(self) -> None:
        """The broker, or somebody's way to it, is back."""
        for bus in self._buses:
            bus._wakeups.wake_all()

    # ---------------------------------------------------------------- the power
    def lose_power(self) -> int:
        """Everything that was not durable is gone, and what was on its way; returns how many messages that are."""
        self._life += 1
        for waiting in self.sending:
            if not waiting.done():
                waiting.set_result(False)
        self.sending.clear()
        lost = self._journal[self._synced :]
        for place in reversed(lost):
            kept = self._kept[place]
            kept.messages.pop()
            kept.waiting.pop()
            kept.shown = min(kept.shown, len(kept.messages))
        del self._journal[self._synced :]
        return len(lost)


class SimulatedBus(LocalBus):
    """One process's way to the broker. `cut`: nothing of it gets through."""

    def __init__(self, broker: Broker) -> None:
        super().__init__()
        self.broker = broker
        self.cut = False
        self.parting_ms = 0

    def writer(self) -> "SimulatedWriter":
        self._refuse_if_closed()
        return SimulatedWriter(self)

    async def part(self) -> None:
        """Nothing of it gets through from here on, and it hears only later that its append has arrived."""
        heard_ms, self.parting_ms, self.cut = self.parting_ms, 0, True
        self.broker.told("its last append has arrived; it is cut off")
        self.broker.met["bus: cut off behind an append"] += 1
        self.broker.loop.call_world(PARTED_MS * 1_000, self.join)
        await asyncio.sleep(heard_ms / 1_000)

    def join(self) -> None:
        """It gets through again."""
        self.cut = False
        self._wakeups.wake_all()

    @property
    def gets_through(self) -> bool:
        """Whether anything that is sent arrives, and anything can be read."""
        return not (self.cut or self.broker.away)

    async def fetch(self, topic: str, partition: int, offset: int, *, wait_ms: int = 0, most: int = 1_000) -> Fetched:
        place, broker = (topic, partition), self.broker
        if wait_ms <= 0 and self.gets_through and broker.end(place) == offset and broker.is_plain():
            return Fetched((), offset)  # Nearly all are like this.
        await self._way(place)
        found = await super().fetch(topic, partition, offset, wait_ms=wait_ms, most=most)
        if not self.gets_through:
            await self._way(place)
        return found

    async def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        await self._way((topic, partition))
        return await super().bounds(topic, partition)

    async def wait_any(
        self, positions: dict[Place, int], wait_ms: int, ends: Sequence[asyncio.Future[Any]] = ()
    ) -> bool:
        if not self.gets_through:
            await asyncio.sleep(min(wait_ms, TIME_OUT_MS) / 1_000)
            return False
        return await super().wait_any(positions, wait_ms, ends)

    async def close(self) -> None:
        self._closed = True
        self._wakeups.wake_all()
        self.broker.leave(self)

    async def _way(self, place: Place) -> None:
        """One way there and back."""
        broker = self.broker
        if not self.gets_through:
            await asyncio.sleep(TIME_OUT_MS / 1_000)
            if not self.gets_through:
                raise BusError("the broker does not answer (simulated)")
        if not broker.calm and broker.rates.reading and broker.dice.randrange(10_000) < broker.rates.reading:
            broker.met["bus: reading failed"] += 1
            raise BusError("reading failed (simulated)")
        if (seconds := broker.hop_s(place)) > 0:
            await asyncio.sleep(seconds)

    def _bounds(self, topic: str, partition: int) -> tuple[int, int]:
        return self.broker.first((topic, partition)), self.broker.end((topic, partition))

    def _read(self, topic: str, partition: int, offset: int, most: int) -> list[Message]:
        return self.broker.read((topic, partition), offset, most)


class SimulatedWriter:
    """A producer: what it sends to one partition keeps its order, until it does not know what has arrived."""

    def __init__(self, bus: SimulatedBus) -> None:
        self._bus, self._broker = bus, bus.broker
        self._dropped = self._failed = False
        self._last_s: dict[Place, float] = {}

    async def send(self, batch: list[Outgoing], *, durable: bool = True) -> list[int]:
        if self._dropped or self._failed:
            raise BusError("this writer was dropped, or has failed")
        check_sizes(batch)
        self._bus._refuse_if_closed()
        if not batch:
            return []
        if not self._bus.gets_through:
            self._failed = True
            await asyncio.sleep(TIME_OUT_MS / 1_000)
            raise BusError("the broker does not answer (simulated)")
        if self._broker.holds(batch, durable):
            self._failed = True
            self._broker.told(f"append to {batch[0].topic}: held back")
            await asyncio.sleep(self._broker.hop_s(_place(batch[0])))
            raise BusError("append failed (simulated: held back)")
        fault = self._broker.fault(batch[0].topic)
        if fault:
            self._broker.told(f"append to {batch[0].topic}: {fault}")
        if fault in ("", "repeated", "stalled"):
            offsets = await self._sent(batch, durable)
            if self._bus.parting_ms and not self._broker.calm:
                await self._bus.part()
            elif fault == "stalled":
                await asyncio.sleep(self._broker.dice.randrange(STALLED_MS) / 1_000)
            elif fault:
                self._post(batch, durable, self._broker.hop_s(_place(batch[0])), lambda _, at: None)
            await asyncio.sleep(0)
            return offsets
        self._failed = True
        arrives = {"lost": [], "torn": batch[:-1]}.get(fault, batch)
        late_s = self._broker.dice.randrange(LATE_MS) / 1_000 if fault == "late" else 0
        self._post(arrives, durable, late_s, lambda _, at: None)
        await asyncio.sleep(self._broker.hop_s(_place(batch[0])))
        raise BusError(f"append failed (simulated: {fault})")

    async def drop(self) -> None:
        self._dropped = True

    async def _sent(self, batch: list[Outgoing], durable: bool) -> list[int]:
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        found: dict[Place, list[int]] = {}
        places = {_place(each) for each in batch}

        def arrived(place: Place, offsets: list[int]) -> None:
            found[place] = offsets
            if len(found) == len(places) and not done.done():
                done.set_result(True)

        self._post(batch, durable, 0, arrived)
        sending = self._broker.sending
        sending[done] = None
        came_about = await done
        sending.pop(done, None)
        if not came_about:
            self._failed = True
            raise BusError("append failed (simulated: the power is gone)")
        rest = {place: iter(offsets) for place, offsets in found.items()}
        return [next(rest[_place(each)]) for each in batch]

    def _post(
        self, batch: list[Outgoing], durable: bool, late_s: float, done: Callable[[Place, list[int]], None]
    ) -> None:
        parts: dict[Place, list[Outgoing]] = {}
        for outgoing in batch:
            parts.setdefault(_place(outgoing), []).append(outgoing)
        now_s = asyncio.get_running_loop().time()
        for place, part in parts.items():
            after_s = self._broker.hop_s(place) + late_s
            if not late_s:
                after_s = max(after_s, self._last_s.get(place, 0) - now_s)
                self._last_s[place] = now_s + after_s + 1e-6
            self._broker.deliver(part, durable, after_s, _named(done, place))


def _place(outgoing: Outgoing) -> Place:
    return outgoing.topic, outgoing.partition


def _kind_of(batch: list[Outgoing]) -> str:
    """Of an append to the log: `claim` or `record`; empty: it is none."""
    if batch[0].topic != LOG:
        return ""
    return "claim" if b"SequencerClaimed" in batch[0].value else "record"


def _named(done: Callable[[Place, list[int]], None], place: Place) -> Callable[[list[int]], None]:
    return lambda offsets: done(place, offsets)
