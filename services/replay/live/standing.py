"""Where a running cell stands at the end of its log: every core and the gateway's view, each from its newest snapshot,
with the records behind it. A round that is open there is decided, and not closed yet.
"""

from copy import deepcopy
from dataclasses import dataclass

from largesse.bus.port import Bus
from largesse.core import RULES
from largesse.log.decisions import DecisionReader
from largesse.log.fencing import LogOrder
from largesse.log.reader import Lookahead
from largesse.log.snapshots import Snapshot, newest
from largesse.log.wanted import Wanted
from largesse.rounds import Answers, Hosted, read_by
from largesse.settings import Settings
from schemas import Record, RoundAbandoned, RoundClosed, RoundOpened, SequencerClaimed
from services.admission.core import State as AdmissionState
from services.gateway.view.state import State as ViewState
from services.replay.refold import Refold
from services.replay.viewing import viewing


@dataclass(slots=True)
class Standing:
    """Behind `last`. `cores`: admission, then those that answer rounds, in their order. `pending`: what is decided on
    the round that is open; None where none is, or one of other rules."""

    last: Record
    prefix: bytes
    cores: list[Hosted]
    follower: Hosted
    pending: Answers | None = None

    @property
    def admission(self) -> AdmissionState:
        """The sequencer's state."""
        state: AdmissionState = self.cores[0].state
        return state

    @property
    def view(self) -> ViewState:
        """The gateway's view."""
        state: ViewState = self.follower.state
        return state


async def standing(bus: Bus, settings: Settings, shards: int) -> Standing:
    """Reads a cell's log to its end. `shards`: of altruism, as many as there may be rounds with. Raises BusError,
    DecisionGap, Undecodable, CoreRaised, and what a core raises that folds."""
    cores, follower = Refold(shards), viewing(None)
    begun = [await _begun(bus, settings, each) for each in [*cores.all(), follower]]
    return await _read(bus, settings, cores, follower, begun)


@dataclass(slots=True)
class _Begun:
    """A state, and the snapshot that it is from; None: it begins with the log."""

    hosted: Hosted
    snapshot: Snapshot | None

    @property
    def seq(self) -> int:
        return 0 if self.snapshot is None else self.snapshot.order.seq

    def position(self, place: str) -> int:
        """Where it would go on in a decision topic."""
        return 0 if self.snapshot is None else self.snapshot.decisions.get(place, 0)


async def _begun(bus: Bus, settings: Settings, hosted: Hosted) -> _Begun:
    core = hosted.core
    found = await newest(bus, settings.partition, core.NAME, hosted.shard, core.LAYOUT, type(hosted.state))
    if found is None:
        return _Begun(hosted, None)
    hosted.state, snapshot = found
    return _Begun(hosted, snapshot)


async def _read(bus: Bus, settings: Settings, cores: Refold, follower: Hosted, begun: list[_Begun]) -> Standing:
    earliest = min(begun, key=lambda each: each.seq).snapshot
    log = Lookahead(bus, settings.partition, LogOrder() if earliest is None else deepcopy(earliest.order))
    decisions = DecisionReader(bus, settings.partition, _positions(begun))
    opened, pending = 0, None
    while (accepted := await log.take()) is not None:
        record = accepted.record
        if isinstance(record.body, SequencerClaimed):
            continue
        behind = [each.hosted for each in begun if each.seq < record.seq]
        if isinstance(record.body, RoundClosed):
            await _feed(decisions, record, behind, settings.gap_wait_ms)
        for each in behind:
            _fold(each, record)
        if isinstance(record.body, RoundOpened):
            opened = record.seq
            if record.body.rules == RULES and not await log.is_over(record.round):
                pending = cores.decide(record)
        elif isinstance(record.body, RoundClosed | RoundAbandoned):
            pending = None
            decisions.forget(opened)
    order = log.order
    last = Record("", 0, settings.cell, order.seq, order.round, order.time, "", "", None)
    return Standing(last, bytes.fromhex(order.prefix), cores.all(), follower, pending)


def _positions(begun: list[_Begun]) -> dict[str, int]:
    """By place in decision topics, the first position that one of those needs who read there."""
    places = {place: True for each in begun if each.snapshot is not None for place in each.snapshot.decisions}
    return {
        place: min(
            (each.position(place) for each in begun if place.rpartition("/")[0] in each.hosted.core.READS), default=0
        )
        for place in places
    }


async def _feed(decisions: DecisionReader, closing: Record, behind: list[Hosted], wait_ms: int) -> None:
    """Has each fold the winning decisions that it reads."""
    read = {topic: True for each in behind for topic in each.core.READS}
    named = [each for each in closing.body.hashes if each.topic in read]
    winners = await decisions.winners(closing, named, wait_ms)
    pairs = [
        (Wanted(each.topic, each.shard, each.of), found.record) for each, found in zip(named, winners, strict=True)
    ]
    for each in behind:
        for record in read_by(each, pairs):
            _fold(each, record)


def _fold(hosted: Hosted, record: Record) -> None:
    learn = hosted.core.FOLDS.get(type(record.body))
    if learn is not None:
        learn(hosted.state, record)
