"""Reservations that recur: what the edge takes of them, and what the sequencer judges."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from largesse.lifecycle import reservation_limits
from schemas import (
    ConfigChanged,
    InputRefused,
    InputRepeated,
    JobAdmitted,
    ReservationDeleted,
    ReservationRequested,
    ReservationUpdated,
    SeriesEnded,
    SeriesRequested,
)
from schemas.edge.read import Malformed, read_input
from schemas.edge.reservations import MOMENT_S_MAX, SERIES_NAME_MAX, occurrence_name
from tests.builders import config, job, queue, stage, tree
from tests.cells import AUTHOR, one_node_cell
from tests.series_terms import ATOM, DAY_S, HOUR_S, asked, body, occurrence, of, window


# ---------------------------------------------------------------- the edge
def test_a_series_is_kept_as_it_was_asked_for():
    taken = body(every="0 6 * * 1-5", zone="Europe/Berlin", queue="a/b")

    assert isinstance(taken, SeriesRequested)
    assert (taken.series, taken.every, taken.zone, taken.queue) == ("s", "0 6 * * 1-5", "Europe/Berlin", "a/b")
    assert body(every=HOUR_S).every == str(HOUR_S)


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        pytest.param(asked(every=HOUR_S - 1), "series.every: is 3599 s, and the window has 3600 s", id="overlap"),
        pytest.param(asked(every=0), "series.every", id="no period"),
        pytest.param(asked(every="daily"), "series.every: is neither a whole number", id="no cron expression"),
        pytest.param(asked(every="* * * *"), "series.every: is neither a whole number", id="four fields"),
        pytest.param(asked(rdl=ATOM), "series.rdl: has to be a window", id="no window"),
        pytest.param(asked(zone="../etc"), "series.zone: is no time zone", id="no zone"),
        pytest.param(asked(series="x" * (SERIES_NAME_MAX + 1)), "series.series: is too long", id="a long name"),
        pytest.param(asked(start_s=MOMENT_S_MAX + 1), "series.start_s", id="after the year 9999"),
        pytest.param(occurrence(0, reservation="r"), 'request.reservation: has to be "s.19700101T000000Z"', id="name"),
        pytest.param(occurrence(0, occurrence_s=None), "request.occurrence_s: is missing", id="no moment"),
        pytest.param(occurrence(0, series=None), "request.occurrence_s: is only for an occurrence", id="no series"),
        pytest.param(
            occurrence(0, series=None, occurrence_s=None, series_seq=1),
            "request.series_seq: is only for an occurrence",
            id="no series, only its record",
        ),
        pytest.param({"end_series": {"series": "s"}}, "end_series.user: is missing", id="no owner"),
    ],
)
def test_what_is_refused_of_a_series(document, problem):
    with pytest.raises(Malformed) as refused:
        read_input("reservations", document, "ann")
    assert str(refused.value).startswith(problem)


def test_a_series_has_the_longest_name_whose_occurrences_can_be_named():
    name = "x" * SERIES_NAME_MAX
    assert body(series=name).series == name
    assert isinstance(of(MOMENT_S_MAX - HOUR_S, series=name), ReservationRequested)


@drawn(st.integers(0, MOMENT_S_MAX))
def test_an_occurrence_is_named_after_its_moment_in_utc(at_s):
    assert occurrence_name("s", at_s) == f"s.{datetime.fromtimestamp(at_s, UTC).isoformat()[:19]}Z".replace(
        "-", ""
    ).replace(":", "")


# ---------------------------------------------------------------- the sequencer
def test_a_series_is_a_fact_and_the_same_once_more_a_repeat():
    story = one_node_cell()
    first = story.take(body())
    assert isinstance(first, SeriesRequested)
    assert story.take(body()) == InputRepeated("", AUTHOR, "s")
    assert "names another series" in story.take(body(every=2 * DAY_S)).reason


def test_a_cron_series_asked_for_again_later_is_a_repeat():
    story = one_node_cell(body(every="0 6 * * *", start_s=100))
    assert story.take(body(every="0 6 * * *", start_s=200)) == InputRepeated("", AUTHOR, "s")


def limited(**maxima):
    """A cell whose queue `eng/dev`, the one above it and the root have these maxima."""
    branch = queue("eng", 1, queue("dev", max=maxima.get("dev", {})), max=maxima.get("eng", {}))
    return one_node_cell(config(queues=tree(branch, queue("ops"), max=maxima.get("root", {}))))


def wide(gang, *, op="all", beside=1):
    """A window around two atoms, of which one needs so many units at a time."""
    of = [ATOM | {"g": gang, "h": gang}, ATOM | {"g": beside, "h": beside}]
    return {"op": "window", "s": 0, "e": HOUR_S, "of": {"op": op, "of": of}}


@pytest.mark.parametrize(
    ("maxima", "named"),
    [
        ({"dev": {"cpu": 2_000}, "root": {"cpu": 2_000}}, 'queue "eng/dev" has a max of 2'),
        ({"dev": {"cpu": 8_000}, "eng": {"cpu": 2_000}}, 'queue "eng" has a max of 2'),
        ({"eng": {"gpu": 0}, "root": {"cpu": 2_000}}, "the root of the tree has a max of 2"),
    ],
)
def test_a_series_of_which_no_occurrence_could_be_promised_is_refused_and_the_queue_named(maxima, named):
    refused = limited(**maxima).take(body(queue="eng/dev", rdl=wide(3)))
    assert isinstance(refused, InputRefused)
    assert (refused.field, named in refused.reason) == ("series.rdl", True)
    assert "3 units at a time (g) come to cpu 3" in refused.reason


@pytest.mark.parametrize(
    ("queue_named", "rdl"),
    [("eng/dev", wide(2)), ("ops", wide(3)), ("eng/dev", wide(3, op="any"))],
    ids=["as much as it may", "another queue", "another branch"],
)
def test_a_series_that_could_be_promised_is_taken_beside_maxima(queue_named, rdl):
    taken = limited(dev={"cpu": 2_000}).take(body(queue=queue_named, rdl=rdl))
    assert isinstance(taken, SeriesRequested)


def test_series_and_reservations_have_different_names():
    single = read_input("reservations", {"request": {"reservation": "r", "user": "ann", "rdl": window()}}, AUTHOR)
    story = one_node_cell(single)
    assert "names a reservation" in story.take(body(series="r")).reason
    story.take(body())
    single.reservation = "s"
    assert "names a series" in story.take(single).reason


def test_each_occurrence_of_a_series_is_requested_once_and_in_order():
    story = one_node_cell(body())
    assert isinstance(story.take(of(DAY_S)), ReservationRequested)
    assert isinstance(story.take(of(DAY_S)), InputRepeated)
    assert isinstance(story.take(of(3 * DAY_S)), ReservationRequested)
    assert isinstance(story.take(of(2 * DAY_S)), InputRepeated)


@pytest.mark.parametrize(
    ("terms", "reason"),
    [
        ({"series": "t"}, "not known"),
        ({"user": "bob"}, "another owner"),
        ({"queue": "other"}, "another owner or queue"),
    ],
)
def test_an_occurrence_is_of_a_series_that_is_known_and_the_owners(terms, reason):
    refused = one_node_cell(body()).take(of(DAY_S, **terms))
    assert isinstance(refused, InputRefused)
    assert reason in refused.reason


def test_only_its_owner_ends_a_series_and_then_no_occurrence_counts():
    story = one_node_cell(body())
    assert "another user" in story.take(SeriesEnded("s", "bob", AUTHOR)).reason
    assert isinstance(story.take(SeriesEnded("s", "ann", AUTHOR)), SeriesEnded)
    assert "not known" in story.take(SeriesEnded("s", "ann", AUTHOR)).reason
    assert "not known" in story.take(of(DAY_S)).reason


def test_what_is_said_of_a_reservation_but_names_a_series_is_told_what_to_say_instead():
    story = one_node_cell(body())
    update = story.take(ReservationUpdated("s", "ann", "{}", AUTHOR))
    assert update.reason.startswith('"s" is a series, whose terms cannot be changed: delete it (largesse reserve del')
    assert "DELETE /v1/series/s" in story.take(ReservationDeleted("s", "ann", AUTHOR)).reason


def test_a_name_is_free_again_once_no_occurrence_is_left():
    story = one_node_cell(body())
    story.take(of(DAY_S), SeriesEnded("s", "ann", AUTHOR))
    assert "still promised" in story.take(body()).reason
    assert isinstance(one_node_cell(body(), SeriesEnded("s", "ann", AUTHOR)).take(body()), SeriesRequested)


def test_a_user_and_a_cell_have_so_many_series(monkeypatch):
    monkeypatch.setattr(reservation_limits, "SERIES_USER_MAX", 2)
    monkeypatch.setattr(reservation_limits, "SERIES_MAX", 3)
    story = one_node_cell(body(series="a"), body(series="b"))
    refused = story.take(body(series="c"))
    assert (refused.field, refused.reason) == ("series.user", 'user "ann" has 2 series; delete one first')
    assert isinstance(story.take(body(series="c", user="bob")), SeriesRequested)
    assert story.take(body(series="d", user="eve")).reason == "the cell holds 3 series; delete one first"


def test_a_series_serves_a_queue_that_there_is_and_keeps_it():
    story = one_node_cell(config(queues=tree(queue("a"), queue("b"))))
    assert story.take(body(queue="c")).field == "series.queue"
    assert isinstance(story.take(body(queue="a")), SeriesRequested)
    refused = story.take(config(queues=tree(queue("b"))))
    assert not isinstance(refused, ConfigChanged)
    assert 'series "s" serves queue "a"' in refused.reason


def test_a_job_names_an_occurrence_and_not_the_series():
    story = one_node_cell(body(), of(DAY_S))
    refused = story.take(replace(job("j", stage()), user="ann", reservation="s"))
    assert 'name one of its occurrences, like "s.2026' in refused.detail
    taken = story.take(replace(job("k", stage()), user="ann", reservation=occurrence_name("s", DAY_S)))
    assert isinstance(taken, JobAdmitted)
