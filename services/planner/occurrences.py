"""Which occurrences of recurring reservations are to be requested now, and which are to be given back.

What a cron expression means depends on a time zone, whose rules differ between machines and over the years. So it is
looked up here and not in the core: every occurrence is an ordinary request on the topic `reservations`, and a replay
finds it in the log. Live, the planner's shell asks (renewing.py); in virtual time, the simulator (simulator/series.py).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice, takewhile

from schemas.edge.reservations import MOMENT_S_MAX, occurrence_name
from schemas.edge.strict_json import loads
from schemas.presets import PRESETS
from services.planner.core.promises import Promise
from services.planner.core.state import Series, State
from services.planner.core.waiting import Request
from services.planner.rdl.recurrence import occurrence, occurrences

AHEAD_MAX = 64
"""Occurrences of a series that are promised or wait for an answer; further ones are requested later."""

SENT_MAX = 256
"""Inputs that are due at most each time."""

AGAIN_S = 60.0
"""What is not in the log by then was refused or lost, and is due again."""

Document = dict[str, object]


@dataclass(slots=True)
class _Next:
    """The next occurrence of a series after `asked_s` (None: there is none), and how long after its beginning it ends.
    `seq`: of the series."""

    seq: int
    asked_s: int
    at_s: int | None
    length_s: int


@dataclass(slots=True)
class _Sent:
    """What was sent last of a series: occurrences after `asked_s`, up to `to_s`. `seq`: of the series; `at_s`: when."""

    seq: int
    asked_s: int
    to_s: int
    at_s: float


class Occurrences:
    """What is due of the series of a cell. `now_s`: the time, in seconds of log time. `warn`: told of a series that
    cannot be evaluated here, and why."""

    def __init__(self, now_s: Callable[[], float], warn: Callable[[str, str], None]) -> None:
        self._now_s = now_s
        self._warn = warn
        self._deleted: dict[str, float] = {}  # When a deletion was sent, by reservation.
        self._sent: dict[str, _Sent] = {}  # By series.
        self._next: dict[str, _Next] = {}  # By series.

    def due(self, state: State) -> list[Document]:
        """The requests and deletions that are to be sent now, as messages of the topic `reservations`."""
        now = self._now_s()
        self._deleted = {name: at for name, at in self._deleted.items() if now - at < AGAIN_S}
        self._sent = {name: sent for name, sent in self._sent.items() if name in state.series}
        self._next = {name: found for name, found in self._next.items() if name in state.series}
        found = list(islice(self._orphans(state, int(now)), SENT_MAX))
        return found + list(islice(self._requests(state, int(now)), SENT_MAX - len(found)))

    def next_s(self, state: State) -> int | None:
        """The first second after now at which something is due, if nothing happens until then; None if nothing is."""
        if not _requests_any(state):
            return None
        now = int(self._now_s())
        least: int | None = None
        for name, series in state.series.items():
            following = self._following(name, series, now)
            if following.at_s is None or following.at_s > MOMENT_S_MAX:
                continue
            at = following.at_s + following.length_s - _ahead_s(state)
            sent = self._sent.get(name)
            if sent is not None and self._is_on_its_way(name, series):
                at = max(at, int(sent.at_s + AGAIN_S))
            if at > now and (least is None or at < least):
                least = at
        return least

    def note(self, message: Document) -> None:
        """One of the messages was sent."""
        now = self._now_s()
        match message:
            case {"delete": {"reservation": str(name)}}:
                self._deleted[name] = now
            case {"request": {"series": str(name), "series_seq": int(seq), "occurrence_s": int(at_s)}}:
                asked_s = self._next[name].asked_s if name in self._next else at_s
                self._sent[name] = _Sent(seq, asked_s, at_s, now)

    # ---------------------------------------------------------------- series that have ended
    def _orphans(self, state: State, now: int) -> Iterator[Document]:
        for name, promise in state.promises.items():
            if not promise.series or promise.series in state.series or name in self._deleted:
                continue
            if _begins_s(state, promise) > now:
                yield {"delete": {"reservation": name, "user": promise.user}}
        for name, broken in state.broken.items():
            series = broken.promise.series
            if series and series not in state.series and name not in self._deleted:
                yield {"delete": {"reservation": name, "user": broken.promise.user}}

    # ---------------------------------------------------------------- series that go on
    def _requests(self, state: State, now: int) -> Iterator[Document]:
        if not _requests_any(state):
            return
        standing = _standing(state)
        for name, series in state.series.items():
            following = self._following(name, series, now)
            last = min(now + _ahead_s(state) - following.length_s, MOMENT_S_MAX)
            room = AHEAD_MAX - standing.get(name, 0)
            if room <= 0 or following.at_s is None or following.at_s > last or self._is_on_its_way(name, series):
                continue
            rdl = _rdl(series)
            due = takewhile(last.__ge__, self._starts(name, series, now))
            for at in self._chosen(name, series, list(islice(due, room))):
                yield _request_of(name, series, rdl, at)

    def _is_on_its_way(self, name: str, series: Series) -> bool:
        """Whether what was sent last may still come into the log."""
        sent = self._sent.get(name)
        if sent is None or sent.seq != series.seq or series.asked_s >= sent.to_s:
            return False
        return self._now_s() - sent.at_s < AGAIN_S

    def _chosen(self, name: str, series: Series, due: list[int]) -> list[int]:
        """Those of the occurrences that are due that are sent now. Where nothing that was sent last came into the log,
        it was probably refused: then one at a time, each in its turn, so that a series of which all are refused fills
        neither topic nor log, and one that is refused does not stop the others."""
        sent = self._sent.get(name)
        if sent is None or sent.seq != series.seq or series.asked_s > sent.asked_s:
            return due
        return ([at for at in due if at > sent.to_s] or due)[:1]

    def _following(self, name: str, series: Series, now: int) -> _Next:
        """The next occurrence. It is kept, since a cell may have many series that come seldom."""
        found = self._next.get(name)
        is_known = found is not None and (found.seq, found.asked_s) == (series.seq, series.asked_s)
        if found is None or not is_known or (found.at_s is not None and found.at_s <= now):
            length_s = found.length_s if found is not None and is_known else int(str(_rdl(series)["e"]))
            at_s = next(self._starts(name, series, now), None)
            found = self._next[name] = _Next(series.seq, series.asked_s, at_s, length_s)
        return found

    def _starts(self, name: str, series: Series, now: int) -> Iterator[int]:
        """Its occurrences that are still to be requested, as far as they can be evaluated."""
        try:
            yield from occurrences(series.every, series.start_s, max(series.asked_s, now) + 1, series.zone)
        except (ValueError, OverflowError) as error:
            self._warn(name, str(error))


def has_series(state: State) -> bool:
    """Whether there are series, or occurrences of series that have ended."""
    broken = any(each.promise.series for each in state.broken.values())
    return bool(state.series) or broken or any(promise.series for promise in state.promises.values())


def _requests_any(state: State) -> bool:
    """Otherwise all would be refused, and each is requested only once."""
    return state.policy.reservations != "off" and PRESETS[state.policy.preset].has_reservations


def _ahead_s(state: State) -> int:
    """How long before its end an occurrence is requested: a step less than the horizon, since the clock of the
    sequencer may be behind this one, and what ends beyond the horizon is cut off."""
    return (state.policy.reservation_horizon_ms - state.step_ms) // 1_000


def _rdl(series: Series) -> Document:
    document: Document = loads(series.rdl.encode())
    return document


def _request_of(name: str, series: Series, rdl: Document, at_s: int) -> Document:
    return {
        "request": {
            "reservation": occurrence_name(name, at_s),
            "user": series.user,
            "queue": series.queue,
            "rdl": occurrence(rdl, at_s),
            "series": name,
            "series_seq": series.seq,
            "occurrence_s": at_s,
            **({"weight": series.weight} if series.weight > 1 else {}),
        }
    }


def _standing(state: State) -> dict[str, int]:
    """How many occurrences of each series are promised, or wait for an answer."""
    found: dict[str, int] = {}
    series = [each.series for each in state.promises.values()]
    series += [each.series for each in state.waiting if isinstance(each, Request)]
    series += [each.promise.series for each in state.broken.values()]
    for name in series:
        if name:
            found[name] = found.get(name, 0) + 1
    return found


def _begins_s(state: State, promise: Promise) -> int:
    return min(lease.begin for lease in promise.leases) * state.step_ms // 1_000
