"""Requests the occurrences of recurring reservations as the horizon moves, beside the loop of the planner's core.

What a cron expression means depends on a time zone, whose rules differ between machines and over the years. So it is
looked up here and not in the core: every occurrence is an ordinary request on the topic `reservations`, and a replay
finds it in the log. The core and the sequencer know the latest occurrence that was requested, so each is requested
once, by whichever instance is active. Occurrences of a series that has ended are given back unless they have begun.
"""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from largesse.bus.port import Bus, BusError, Writer
from largesse.log.reader import publish_input
from largesse.settings import Settings
from largesse.shell import Shell
from largesse.telemetry import logger
from schemas.edge.reservations import MOMENT_S_MAX, occurrence_name
from services.planner import core
from services.planner.core.state import Promise, Series, State
from services.planner.rdl.recurrence import occurrence, occurrences

LOOK_S = 1.0
"""How often it is looked whether occurrences are to be requested."""

AHEAD_MAX = 64
"""Occurrences of a series that are promised or wait for an answer; further ones are requested later."""

SENT_MAX = 256
"""Inputs that are sent at most each time."""

AGAIN_S = 60.0
"""What is not in the log by then was refused or lost, and is sent again."""

Document = dict[str, object]


class Renewer:
    """Keeps the series of a planner's shell supplied. `now_s`: the time, in seconds of Unix time."""

    def __init__(
        self, shell: Shell[State], bus: Bus, settings: Settings, now_s: Callable[[], float] = time.time
    ) -> None:
        self._shell = shell
        self._bus = bus
        self._settings = settings
        self._now_s = now_s
        self._sent: dict[tuple[str, bool], float] = {}  # When it was sent, by reservation and whether it deletes.
        self._next: dict[str, tuple[int, int, int | None]] = {}  # By series: seq, asked_s, and the occurrence after it.
        self._said = logger(service=shell.name)

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set. What the bus does not take is logged, and tried again at the next time."""
        while not stop.is_set():
            try:
                if self._is_active() and self._has_work() and await self._shell.has_caught_up():
                    await self.renew()
            except (BusError, ValueError) as error:
                self._said.warning("series", failed=str(error))
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), LOOK_S)

    async def renew(self) -> None:
        """Sends what is due once. Raises BusError."""
        messages = self.due()
        if not messages:
            return
        writer: Writer = self._bus.writer()
        try:
            for name, message in messages:
                await publish_input(writer, "reservations", message, core.NAME, self._settings.partition)
                self._sent[name, "delete" in message] = self._now_s()
        finally:
            await writer.drop()
        self._said.info("series", sent=len(messages))

    def due(self) -> list[tuple[str, Document]]:
        """The requests and deletions that are to be sent now, with the names of their reservations."""
        state, now = self._shell.state, self._now_s()
        self._sent = {key: at for key, at in self._sent.items() if now - at < AGAIN_S}
        self._next = {name: found for name, found in self._next.items() if name in state.series}
        standing = _standing(state)
        found = [*self._orphans(state, int(now)), *self._occurrences(state, int(now), standing)]
        return found[:SENT_MAX]

    def _is_active(self) -> bool:
        return self._shell.active is None or self._shell.active.is_set()

    def _has_work(self) -> bool:
        state = self._shell.state
        return bool(state.series) or any(promise.series for promise in state.promises.values())

    # ---------------------------------------------------------------- series that have ended
    def _orphans(self, state: State, now: int) -> Iterator[tuple[str, Document]]:
        for name, promise in state.promises.items():
            if not promise.series or promise.series in state.series or (name, True) in self._sent:
                continue
            if _begins_s(state, promise) > now:
                yield name, {"delete": {"reservation": name, "user": promise.user}}

    # ---------------------------------------------------------------- series that go on
    def _occurrences(self, state: State, now: int, standing: dict[str, int]) -> Iterator[tuple[str, Document]]:
        horizon = now + state.policy.reservation_horizon_ms // 1_000
        for name, series in state.series.items():
            rdl = json.loads(series.rdl)
            last = min(horizon - rdl["e"], MOMENT_S_MAX)
            room = AHEAD_MAX - standing.get(name, 0)
            if room <= 0 or not self._may_be_due(name, series, now, last):
                continue
            try:
                for at in self._starts(series, now):
                    if at > last or room <= 0:
                        break
                    room -= 1
                    of = occurrence_name(name, at)
                    if (of, False) not in self._sent:
                        request: Document = {"reservation": of, "user": series.user, "queue": series.queue}
                        request |= {"rdl": occurrence(rdl, at), "series": name, "occurrence_s": at}
                        yield of, {"request": request}
            except (ValueError, OverflowError) as error:
                self._next[name] = (series.seq, series.asked_s, None)
                self._said.warning("series", series=name, failed=str(error))

    def _may_be_due(self, name: str, series: Series, now: int, last: int) -> bool:
        """Whether the next occurrence lies within the horizon. Cron expressions are evaluated only if so: a cell may
        have many that come seldom."""
        found = self._next.get(name)
        if found is None or found[:2] != (series.seq, series.asked_s) or (found[2] is not None and found[2] <= now):
            try:
                first = next(iter(self._starts(series, now)), None)
            except (ValueError, OverflowError) as error:
                first = None
                self._said.warning("series", series=name, failed=str(error))
            found = self._next[name] = (series.seq, series.asked_s, first)
        return found[2] is not None and found[2] <= last

    def _starts(self, series: Series, now: int) -> Iterator[int]:
        return occurrences(series.every, series.start_s, max(series.asked_s, now) + 1, series.zone)


def _standing(state: State) -> dict[str, int]:
    """How many occurrences of each series are promised, or wait for an answer."""
    found: dict[str, int] = {}
    series = [each.series for each in state.promises.values()] + [each.series for each in state.waiting]
    for name in series:
        if name:
            found[name] = found.get(name, 0) + 1
    return found


def _begins_s(state: State, promise: Promise) -> int:
    return min(lease.begin for lease in promise.leases) * state.step_ms // 1_000
