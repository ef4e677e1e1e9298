"""A series in a whole cell on one bus: occurrences are requested and answered as time goes on, and the log replays."""

import asyncio

import pytest

from largesse.bus.memory import MemoryBus
from largesse.log.reader import publish_input
from schemas import Plans, ReservationRequested, SeriesEnded, SeriesRequested
from schemas.edge.reservations import occurrence_name
from services.replay.source import Source, steps_of
from services.replay.verify import verify
from tests.bus_cell import GUARD_S, BusCell
from tests.stepped_cell import recorded
from tests.unit.test_planner_solver_beside import Log

ATOM = {"op": "atom", "b": {"cpu": "1"}, "g": 1, "h": 1, "l": 1, "w": 1}
PERIOD_S = 4
WINDOW = {"op": "window", "s": 0, "e": PERIOD_S, "of": ATOM}
HORIZON_S = 240
"""So long that an answer comes in time on any machine, and so short that AHEAD_MAX occurrences reach beyond it."""


def answered(body):
    """Names of the occurrences that are accepted."""
    if not isinstance(body, Plans):
        return []
    return [answer.reservation for answer in body.answers if answer.accepted and answer.reason == ""]


@pytest.mark.slow
def test_live_a_series_goes_on_beyond_the_horizon_until_it_is_deleted_and_the_log_replays():
    async def story():
        bus = MemoryBus()
        async with asyncio.timeout(2 * GUARD_S), BusCell(bus) as cell:
            log, writer = Log(cell), bus.writer()
            await log.set_knobs(reservation_step_ms=1_000, reservation_horizon_ms=HORIZON_S * 1_000)
            series = {"series": "s", "user": "ann", "every": PERIOD_S, "start_s": log._now_s, "rdl": WINDOW}
            await publish_input(writer, "reservations", {"series": series}, "ann")
            names = answered(await log.until(answered))
            beyond = occurrence_name("s", log._now_s + HORIZON_S)  # Names of the same length are in the order of time.
            while max(names) <= beyond:
                names += answered(await log.until(answered))
            await publish_input(writer, "reservations", {"end_series": {"series": "s", "user": "ann"}}, "ann")
            await log.until(lambda each: isinstance(each, SeriesEnded))
            await log.until(
                lambda each: isinstance(each, Plans) and any(answer.reason == "deleted" for answer in each.answers)
            )
        return names, await recorded(bus, 1)

    names, recording = asyncio.run(story())
    assert len(set(names)) == len(names)
    (series,) = recording.bodies(SeriesRequested)
    asked = [body.occurrence_s for body in recording.bodies(ReservationRequested)]
    assert asked == sorted(set(asked))
    assert all((at - series.start_s) % PERIOD_S == 0 for at in asked)
    verdict = verify(Source("the log", lambda hear: steps_of(recording.messages(), hear=hear), lambda: 1))
    assert verdict.is_same, verdict.text()
