"""Wall-clock times where clocks change: nothing is shown twice in a plan, a day late, or an hour off."""

from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import islice
from zoneinfo import ZoneInfo

import pytest

from services.planner.rdl.document import read_document
from services.planner.rdl.faults import BadDocument
from services.planner.rdl.recurrence import expanded, occurrences
from services.planner.rdl.times import clock, instant, time_s

ZONES = (
    "Africa/Cairo",
    "America/New_York",
    "America/Santiago",
    "America/Sao_Paulo",
    "America/St_Johns",
    "Asia/Beirut",
    "Asia/Tehran",
    "Atlantic/Azores",
    "Australia/Lord_Howe",
    "Europe/Berlin",
    "Europe/Dublin",
    "Pacific/Apia",
    "Pacific/Chatham",
)
HOUR_S = 3_600
DAY_S = 24 * HOUR_S
SECOND = timedelta(seconds=1)


def shown(at, zone):
    return at.astimezone(zone).replace(tzinfo=None, fold=0)


@cache
def changes(name):
    """Every moment from 1970 to 2037 at which clocks are put forward or back, and by how much."""
    return list(found_changes(ZoneInfo(name)))


def found_changes(zone):
    at = datetime(1970, 1, 1, tzinfo=UTC)
    while at.year < 2038:
        following = at + timedelta(days=1)
        if following.astimezone(zone).utcoffset() != at.astimezone(zone).utcoffset():
            low, high = at, following
            while high - low > SECOND:
                middle = low + timedelta(seconds=(high - low) // timedelta(seconds=2))
                same = middle.astimezone(zone).utcoffset() == at.astimezone(zone).utcoffset()
                low, high = (middle, high) if same else (low, middle)
            yield high, shown(high, zone) - shown(low, zone) - SECOND
        at = following


@pytest.mark.parametrize("name", ZONES)
def test_a_time_that_does_not_exist_is_the_end_of_the_gap_and_one_that_comes_twice_the_first(name):
    zone = ZoneInfo(name)
    seen = 0
    for at, by in changes(name):
        seen += 1
        last, first = shown(at - SECOND, zone), shown(at, zone)
        if by > timedelta(0):
            for wall in (last + SECOND, last + by / 2, first - SECOND):
                assert instant(wall.replace(microsecond=0), zone) == at
            assert instant(first, zone) == at
            assert instant(last, zone) == at - SECOND
        else:
            for wall in (first, first - by / 2, last):
                once = instant(wall.replace(microsecond=0), zone)
                assert at + by <= once < at
                assert shown(once, zone) == wall.replace(microsecond=0)
            assert instant(last + SECOND, zone) == at - by
    assert seen > 20


@pytest.mark.parametrize("name", ZONES)
def test_a_window_around_a_change_of_clocks_is_never_longer_than_clocks_show(name):
    zone = ZoneInfo(name)
    for at, by in changes(name):
        evening = shown(at, zone).replace(hour=0, minute=0, second=0) - timedelta(hours=4)
        known = clock(instant(evening, zone).isoformat(), zone=name)
        ends = sorted((shown(at - SECOND, zone), shown(at, zone)))
        begin, end = ends[0] - timedelta(minutes=20), ends[1] + timedelta(minutes=70)
        if end - begin >= timedelta(days=1):
            continue  # Samoa left out a whole day.
        text = f"window({begin:%H:%M}, {end:%H:%M}, atom(b='1 cpu', g=1, h=1, l=1m, w=1m))"
        rdl = read_document(text, known)
        assert 0 < rdl["e"] - rdl["s"] <= 90 * 60 + 2 * abs(by.total_seconds())
        assert rdl["s"] < 30 * HOUR_S


BERLIN = ("2027-03-27T20:00", "Europe/Berlin")


def seconds(text, night=BERLIN):
    return read_document(f"window({text}, atom(b='1 cpu', g=1, h=1, l=1m, w=1m))", clock(night[0], zone=night[1]))


@pytest.mark.parametrize(
    ("text", "begin_h", "end_h"),
    [
        pytest.param("02:30, 03:15", 6, 6.25, id="from the end of the gap"),
        pytest.param("01:30, 02:30", 5.5, 6, id="until the end of the gap"),
        pytest.param("01:00, 04:00", 5, 7, id="over the gap"),
        pytest.param("02:30, 02:15", 6, 29.25, id="until the next night"),
        pytest.param("2027-03-28T02:30, 03:15", 6, 6.25, id="with a date"),
        pytest.param("2027-03-28T02:30, 2027-03-28T03:15", 6, 6.25, id="with two dates"),
        pytest.param("02:30 Europe/Berlin, 01:15Z", 6, 6.25, id="with zones of their own"),
    ],
)
def test_a_window_in_the_night_in_which_clocks_go_forward(text, begin_h, end_h):
    rdl = seconds(text)
    assert (rdl["s"] / HOUR_S, rdl["e"] / HOUR_S) == (begin_h, end_h)


@pytest.mark.parametrize("text", ["02:10, 02:50", "02:30, 03:00", "2027-03-28T02:10, 02:50"])
def test_a_window_that_lies_in_a_gap_is_refused_and_not_a_day_long(text):
    with pytest.raises(BadDocument, match=r"clocks of Europe/Berlin go forward then, to 03:00:00; let the window end"):
        seconds(text)


def test_a_window_in_the_night_in_which_clocks_go_back():
    rdl = seconds("02:15, 02:45", ("2027-10-30T20:00", "Europe/Berlin"))
    assert (rdl["s"] / HOUR_S, rdl["e"] / HOUR_S) == (6.25, 6.75)


def test_a_time_of_day_after_the_first_of_two_is_the_next_day_s():
    known = clock("2027-10-31T00:50Z", zone="Europe/Berlin")  # 02:50, for the first time.
    assert time_s("02:40", known) == DAY_S + HOUR_S - 10 * 60


def test_a_plan_whose_origin_names_no_offset_counts_real_seconds():
    known = clock("2027-03-28T00:00", zone="Europe/Berlin")
    assert time_s("2027-03-28T12:00", known) == 11 * HOUR_S
    assert time_s("12:00", known) == 11 * HOUR_S


@pytest.mark.parametrize("name", ZONES)
def test_a_period_of_a_day_keeps_its_time_of_day(name):
    zone = ZoneInfo(name)
    first = datetime.fromisoformat("2009-01-01T10:30")
    start = instant(first, zone)
    start_s = int(start.timestamp())
    for i, at_s in enumerate(islice(occurrences(str(DAY_S), start_s, 0, name), 2_000)):
        assert at_s == int(instant(first + timedelta(days=i), zone).timestamp())


@pytest.mark.parametrize("days", [1, 7, 30])
@pytest.mark.parametrize("name", ["Europe/Berlin", "Pacific/Apia", "UTC"])
def test_occurrences_go_on_where_they_were_left(name, days):
    every = str(days * DAY_S)
    start_s = int(datetime(2011, 1, 3, 2, 30, tzinfo=UTC).timestamp())
    found = list(islice(occurrences(every, start_s, 0, name), 60))
    for i, at in enumerate(found):
        assert next(occurrences(every, start_s, at, name)) == at
        if i:
            assert next(occurrences(every, start_s, found[i - 1] + 1, name)) == at


def test_a_period_of_hours_does_not_follow_the_clocks():
    start_s = int(datetime(2027, 3, 27, 11, tzinfo=UTC).timestamp())
    found = list(islice(occurrences(str(12 * HOUR_S), start_s, 0, "Europe/Berlin"), 5))
    assert found == [start_s + i * 12 * HOUR_S for i in range(5)]


def test_a_period_that_never_comes_again_ends():
    assert list(occurrences(str(10**7 * DAY_S), 0, 1, "Europe/Berlin")) == []


def test_all_occurrences_in_a_horizon_follow_the_clocks():
    known = clock("2027-03-27T00:00", zone="Europe/Berlin")
    rdl = seconds("10:00, 12:00", ("2027-03-27T00:00", "Europe/Berlin"))
    found = expanded(rdl, DAY_S, known, 3 * DAY_S)["of"]
    assert [(each["s"] / HOUR_S, each["e"] / HOUR_S) for each in found] == [(10, 12), (33, 35), (57, 59)]
