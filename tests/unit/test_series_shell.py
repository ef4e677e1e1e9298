"""What the planner's shell requests of series, and when."""

import asyncio
import json
from datetime import UTC, datetime

import pytest

from largesse.bus.memory import MemoryBus
from largesse.settings import Settings
from largesse.shell import Shell
from schemas import (
    ReservationDeleted,
    ReservationRequested,
    SeriesEnded,
)
from schemas.edge.read import read_input
from services.planner import core, occurrences
from services.planner.occurrences import AGAIN_S, AHEAD_MAX, SENT_MAX
from services.planner.renewing import Renewer
from tests.builders import Fact, configured, registered
from tests.cells import AUTHOR, one_node_cell
from tests.planner_cell import Cell
from tests.series_terms import ATOM, DAY_S, HOUR_S, STEP_S, body, names, of, window


class Beside:
    """A planner in a story, and what its shell would send at a moment. `requested` puts what it sends into the log."""

    def __init__(self, **knobs):
        self.cell = Cell(registered("n1", cpu=8_000, memory=16_384), **knobs)
        self.now_s = 0
        self._shell = Shell(core, MemoryBus(), Settings())
        self._shell.folded.state = self.cell.story.state
        self.renewer = Renewer(self._shell, MemoryBus(), Settings(), lambda: self.now_s)

    def due(self):
        return self.renewer.due()

    def requested(self):
        """What is due is read by the sequencer, and answered."""
        bodies = [read_input("reservations", message, "planner") for message in self.due()]
        self.cell.then(*(Fact(each) for each in bodies))
        if bodies:
            self.cell.settle(at=self.now_s * 1_000)
        return [each.reservation for each in bodies]

    @property
    def promised(self):
        return list(self.cell.story.state.promises)


def begun(**terms):
    beside = Beside()
    beside.cell.then(Fact(body(**terms)))
    return beside


def test_occurrences_are_requested_once_they_end_inside_the_horizon():
    beside = begun()
    assert beside.requested() == names(1, 2, 3, 4, 5, 6)
    assert beside.promised == names(1, 2, 3, 4, 5, 6)
    assert beside.due() == []

    beside.now_s = HOUR_S + STEP_S - 1
    assert beside.due() == []
    beside.now_s = HOUR_S + STEP_S
    assert beside.requested() == names(7)
    beside.now_s = DAY_S + HOUR_S + STEP_S
    assert beside.requested() == names(8)


def test_an_occurrence_keeps_its_whole_window_where_the_clock_of_the_log_is_up_to_a_step_behind():
    beside = begun(rdl=window(30 * STEP_S) | {"of": ATOM | {"l": 30 * STEP_S, "w": 30 * STEP_S}})
    beside.now_s = 30 * STEP_S + STEP_S
    beside.cell.then(*(Fact(read_input("reservations", each, "planner")) for each in beside.due()))
    beside.cell.settle(at=(beside.now_s - STEP_S) * 1_000)
    assert beside.promised == names(1, 2, 3, 4, 5, 6, 7)


def test_what_was_missed_is_not_made_up_for():
    beside = begun()
    beside.now_s = 10 * DAY_S
    assert beside.requested() == names(*range(11, 17))


def test_an_occurrence_that_is_refused_by_the_planner_is_not_asked_for_again():
    beside = begun(rdl=window() | {"of": ATOM | {"b": {"cpu": "9"}}})
    assert len(beside.requested()) == 6
    assert beside.promised == []
    beside.now_s = int(10 * AGAIN_S)
    assert beside.due() == []


def test_a_restart_goes_on_where_the_log_stands():
    beside = begun()
    beside.requested()
    again = Beside()
    again._shell.folded.state = beside.cell.story.state
    assert again.due() == []
    again.now_s = HOUR_S + STEP_S
    assert [each["request"]["reservation"] for each in again.due()] == names(7)


def test_a_cron_expression_counts_in_its_zone():
    summer = int(datetime(2026, 10, 23, tzinfo=UTC).timestamp())
    beside = begun(every="0 6 * * *", zone="Europe/Berlin", start_s=summer)
    beside.now_s = summer
    hours = [datetime.fromtimestamp(each["request"]["occurrence_s"], UTC).hour for each in beside.due()]
    assert hours == [4, 4, 5, 5, 5, 5, 5]  # Clocks go back on the 25th.


def test_so_many_occurrences_of_a_series_are_asked_for_ahead_and_more_when_some_have_ended():
    beside = begun(every=HOUR_S, start_s=HOUR_S)
    assert len(beside.requested()) == AHEAD_MAX
    assert beside.due() == []
    beside.now_s = 4 * HOUR_S
    beside.cell.round(at=beside.now_s * 1_000)
    gone = AHEAD_MAX - len(beside.promised)
    assert gone > 0
    assert len(beside.due()) == gone


def test_at_most_so_much_is_sent_at_a_time():
    beside = Beside()
    for number in range(SENT_MAX // AHEAD_MAX + 1):
        beside.cell.then(Fact(body(series=f"s{number}", every=HOUR_S)))
    assert len(beside.due()) == SENT_MAX


def test_a_series_that_has_ended_gives_back_what_has_not_begun():
    beside = begun()
    beside.requested()
    beside.now_s = DAY_S
    beside.cell.then(Fact(SeriesEnded("s", "ann")))
    beside.cell.round(at=DAY_S * 1_000)
    first = beside.cell.story.state.promises[names(1)[0]].leases[0].begin * 60
    beside.now_s = first
    gone = [read_input("reservations", message, "planner") for message in beside.due()]
    assert gone == [ReservationDeleted(name, "ann", "planner") for name in names(2, 3, 4, 5, 6)]
    beside.cell.then(*(Fact(each) for each in gone))
    beside.cell.settle(at=beside.now_s * 1_000)
    assert beside.promised == names(1)
    assert beside.due() == []


def test_what_was_requested_a_moment_ago_is_given_back_at_once():
    async def story():
        beside = begun()
        await beside.renewer.renew()
        beside.requested()  # Nothing is sent twice.
        beside.cell.then(*(Fact(of(day * DAY_S)) for day in (1, 2)))
        beside.cell.settle(at=0)
        beside.cell.then(Fact(SeriesEnded("s", "ann")))
        return beside.due()

    assert [each["delete"]["reservation"] for each in asyncio.run(story())] == names(1, 2)


def test_new_terms_for_an_occurrence_leave_it_in_its_series():
    beside = begun()
    beside.requested()
    (name,) = names(3)
    rdl = window(3 * DAY_S + HOUR_S, 3 * DAY_S) | {"of": ATOM | {"h": 2}}
    update = {"update": {"reservation": name, "user": "ann", "rdl": rdl}}
    beside.cell.then(Fact(read_input("reservations", update, "ann")))
    beside.cell.settle(at=0)
    assert beside.cell.story.state.promises[name].series == "s"


@pytest.mark.parametrize("terms", [{"every": "99 * * * *"}, {"every": "0 6 * * *", "zone": "No/Where"}])
def test_a_series_that_cannot_be_evaluated_harms_no_other(terms):
    beside = Beside()
    beside.cell.then(Fact(body(series="bad", **terms)), Fact(body()))
    assert beside.requested() == names(1, 2, 3, 4, 5, 6)


def test_a_cron_expression_is_evaluated_only_where_an_occurrence_may_be_due(monkeypatch):
    beside = begun(every="0 6 1 7 *", start_s=0)
    beside.due()
    evaluated = []
    monkeypatch.setattr(occurrences, "occurrences", lambda *terms: evaluated.append(terms) or iter(()))
    beside.now_s = HOUR_S
    assert beside.due() == []
    assert evaluated == []


def test_what_was_sent_and_is_not_in_the_log_is_sent_again_after_a_while():
    async def story():
        bus = MemoryBus()
        beside = begun()
        beside.renewer._bus = bus
        await beside.renewer.renew()
        assert beside.due() == []
        beside.now_s = int(AGAIN_S) - 1
        assert beside.due() == []
        beside.now_s += 1
        assert [each["request"]["reservation"] for each in beside.due()] == names(1)
        return [json.loads(each.value) for each in await bus.fetch("reservations", 0, 0)]

    sent = asyncio.run(story())
    assert [each["request"]["reservation"] for each in sent] == names(1, 2, 3, 4, 5, 6)


def sent_in_vain(**terms):
    """A series of hours of which nothing that was sent came into the log, and when that was sent."""
    beside = begun(every=HOUR_S, start_s=HOUR_S, **terms)
    asyncio.run(beside.renewer.renew())
    assert beside.due() == []
    beside.now_s = int(AGAIN_S)
    return beside


def moments(messages):
    return [each["request"]["occurrence_s"] // HOUR_S for each in messages]


def test_a_series_of_which_all_is_refused_sends_one_occurrence_at_a_time_each_in_its_turn():
    beside = sent_in_vain()
    found = []
    for _ in range(3):
        found.append(moments(beside.due()))
        asyncio.run(beside.renewer.renew())
        assert beside.due() == []
        beside.now_s += int(AGAIN_S)
    assert found == [[1], [2], [3]]


def test_a_series_of_which_an_occurrence_comes_into_the_log_again_sends_what_is_missing():
    beside = sent_in_vain()
    beside.requested()
    assert moments(beside.due()) == list(range(2, AHEAD_MAX + 1))


def test_what_follows_an_occurrence_that_was_refused_waits_no_longer_than_others():
    async def story():
        beside = begun()
        beside.now_s = HOUR_S
        await beside.renewer.renew()
        beside.cell.then(*(Fact(of(day * DAY_S)) for day in range(1, 6)))  # Not the sixth.
        beside.cell.settle(at=beside.now_s * 1_000)
        beside.now_s += DAY_S
        return beside

    assert asyncio.run(story()).requested() == names(6, 7)


@pytest.mark.parametrize("knobs", [{"reservations": "off"}, {"preset": "slots"}])
def test_while_no_reservation_is_accepted_none_is_requested_so_that_none_is_lost(knobs):
    beside = begun()
    beside.cell.then(configured(**knobs))
    assert beside.due() == []
    beside.cell.then(configured(seed=0))
    assert beside.requested() == names(1, 2, 3, 4, 5, 6)


def test_a_request_that_was_on_its_way_is_not_taken_for_an_occurrence_of_another_series_of_that_name():
    story = one_node_cell(body())
    seq = story.admission.series["s"].seq
    late = of(DAY_S, series_seq=seq)
    story.take(SeriesEnded("s", "ann", AUTHOR), body(every=2 * DAY_S))
    assert "another of that name" in story.take(late).reason
    assert isinstance(story.take(of(DAY_S, series_seq=story.admission.series["s"].seq)), ReservationRequested)


def test_a_standby_sends_nothing():
    beside = begun()
    assert beside.renewer._is_active()
    beside._shell.active = asyncio.Event()
    assert not beside.renewer._is_active()
    beside._shell.active.set()
    assert beside.renewer._is_active()
