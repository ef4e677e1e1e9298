"""The cell as it was: the view folded again up to a moment of the log, from the nearest past state before it."""

import asyncio
from collections import OrderedDict
from copy import deepcopy
from dataclasses import replace

from largesse.beginning import LogTrimmed, restored
from largesse.bus.port import Bus
from largesse.core import Core
from largesse.folding import Folded
from largesse.log.past_states import PastStates
from largesse.log.snapshots import Snapshot, dump, load
from largesse.moments import Moment
from largesse.settings import Settings
from schemas import RoundAbandoned, RoundClosed
from services.gateway import view
from services.gateway.view.state import State

STATES_KEPT = 2
"""Past states that stay in memory, those asked for last: lists of them are often asked for one after another."""

FOLDS_MAX = 4
"""Moments that are being folded at most, one after another; further ones are refused."""

WAIT_S = 20.0
"""A request waits so long for its moment; the fold goes on behind it, for the next that asks."""

STATES_BYTES_MAX = 64 * 1024 * 1024
"""Bytes that states on the way to moments take in memory, the last ones: to look around at a moment is to ask for
others near it.
"""
BYTES_BY_RECORD = 4 * 1024
"""A record is folded for each of these that the last one had before the next is kept: it costs a part of the fold."""
RECORDS_LEAST = 1_000
"""Records between two of them at the least."""

TURN_S = 0.005
"""Seconds for which is folded before others get a turn."""


class PastBusy(Exception):
    """A moment cannot be shown yet; says why. Asking again helps."""


def past_states_in(bus: Bus, settings: Settings) -> PastStates[State]:
    """The states that moments begin at."""
    return PastStates(bus, settings.partition, view.NAME, view.LAYOUT, State, view.SETTLED)


class Past:
    """Past states of one cell, read from its bus. Belongs to one event loop. States that it returns never change."""

    def __init__(self, core: Core[State], bus: Bus, settings: Settings) -> None:
        self._core, self._bus, self._settings = core, bus, settings
        self.states = past_states_in(bus, settings)
        self._on_the_way: OrderedDict[int, Snapshot] = OrderedDict()
        self._on_the_way_bytes = 0
        self._kept: OrderedDict[Moment, State] = OrderedDict()
        self._folds: dict[Moment, asyncio.Task[State]] = {}
        self._turn = asyncio.Lock()

    async def at(self, moment: Moment) -> State:
        """The view behind the last record up to `moment`, which the log has reached. Raises PastBusy; BusError,
        CoreStopped, DecisionGap where the log cannot be folded to there.
        """
        kept = self._kept.get(moment)
        if kept is not None:
            self._kept.move_to_end(moment)
            return kept
        fold = self._folds.get(moment)
        if fold is None:
            if len(self._folds) >= FOLDS_MAX:
                raise PastBusy("other moments of the past are being read: try again")
            fold = self._folds[moment] = asyncio.create_task(self._fold(moment))
            fold.add_done_callback(lambda done: self._ended(moment, done))
        done, _ = await asyncio.wait((fold,), timeout=WAIT_S)
        if not done:
            raise PastBusy(f"reading the log up to there takes longer than {WAIT_S:.0f} s: try again")
        return fold.result()

    async def close(self) -> None:
        """Gives up what is being folded."""
        for fold in list(self._folds.values()):
            fold.cancel()
        await asyncio.gather(*self._folds.values(), return_exceptions=True)

    def _ended(self, moment: Moment, fold: "asyncio.Task[State]") -> None:
        del self._folds[moment]
        if not fold.cancelled() and fold.exception() is None:
            self._kept[moment] = fold.result()
            while len(self._kept) > STATES_KEPT:
                self._kept.popitem(last=False)

    async def _fold(self, moment: Moment) -> State:
        async with self._turn:
            folded = Folded(self._core, self._bus, self._settings, shard=0, of=1, name="gateway.past")
            near = self._nearest(moment)
            above = near.order.seq if near is not None else -1
            found = await self.states.before(moment.seq, moment.time_ms, above=above)
            if found is not None:
                folded.go_on(*found)
            elif near is not None:
                folded.go_on(load(State, near.state), replace(near, order=deepcopy(near.order)))
            elif (kept := await self._kept_outside(moment)) is not None:
                folded.go_on(*kept)
            begun_seq, least = folded.log.order.seq, self._least(found[1] if found is not None else near)
            clock = asyncio.get_running_loop().time
            begun = clock()
            while (ahead := await folded.log.peek()) is not None:
                if moment.is_before(ahead.record.seq, ahead.record.time):
                    break
                accepted = await folded.take()
                seq = folded.log.order.seq
                if (
                    accepted is not None
                    and isinstance(accepted.record.body, RoundClosed | RoundAbandoned)
                    and seq - begun_seq >= least
                ):
                    begun_seq, least = seq, self._least(self._keep_on_the_way(folded))
                if clock() - begun >= TURN_S:
                    await asyncio.sleep(0)
                    begun = clock()
            return folded.state

    async def _kept_outside(self, moment: Moment) -> tuple[State, Snapshot] | None:
        """What the newest checkpoint has, where the log's beginning was trimmed; None: it was not. Raises LogTrimmed
        where that is from behind the moment, or there is none; BusError.
        """
        partition, archive = self._settings.partition, self._settings.archive
        kept = await restored(self._bus, partition, archive, view.NAME, 0, view.LAYOUT, State)
        if kept is not None and moment.is_before(kept[1].order.seq, kept[1].order.time):
            raise LogTrimmed(f"what was before record {kept[1].order.seq:,} has been trimmed: an archive has it")
        return kept

    def _nearest(self, moment: Moment) -> Snapshot | None:
        """The latest state in memory up to a moment."""
        found: Snapshot | None = None
        for seq, near in self._on_the_way.items():
            if not moment.is_before(seq, near.order.time) and (found is None or seq > found.order.seq):
                found = near
        if found is not None:
            self._on_the_way.move_to_end(found.order.seq)
        return found

    def _least(self, near: Snapshot | None) -> int:
        return max(RECORDS_LEAST, len(near.state) // BYTES_BY_RECORD if near is not None else 0)

    def _keep_on_the_way(self, folded: Folded[State]) -> Snapshot:
        """The state directly after a round's end."""
        order, core = deepcopy(folded.log.order), self._core
        positions = folded.decisions.positions()
        near = Snapshot(core.NAME, 0, 1, core.LAYOUT, 0, order, "", positions, dump(folded.state))
        if order.seq not in self._on_the_way:
            self._on_the_way[order.seq] = near
            self._on_the_way_bytes += len(near.state)
        while self._on_the_way_bytes > STATES_BYTES_MAX:
            _, oldest = self._on_the_way.popitem(last=False)
            self._on_the_way_bytes -= len(oldest.state)
        return near
