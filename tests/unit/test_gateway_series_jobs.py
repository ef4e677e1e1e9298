"""Jobs that name a series: under which occurrence they run, and what is said where there is none."""

import json
import time
from types import SimpleNamespace

import pytest

from schemas import JobSpec, PlanAnswer, Stage
from schemas.edge.reservations import occurrence_name
from services.gateway.http.problems import Problem
from services.gateway.http.series_jobs import occurrence_for
from services.gateway.view.state import ReservationRow, SeriesRow, State
from tests.gateway_cell import STAGE, run_in_memory
from tests.unit.test_gateway_series import occurrence, series

HOUR = 3_600
NOW_S = 1_800_000_000
NAMES = [occurrence_name("s", NOW_S + number * HOUR) for number in (-1, 0, 1, 2)]


def view(*states, series_at_ms=0):
    """A view with a series of half-hour windows, whose occurrences, by hour from the one before now, are in these
    states."""
    state = State()
    state.series["s"] = SeriesRow("s", "ann", "default", "{}", "3600", "UTC", NOW_S, series_at_ms, 4, NOW_S + 2 * HOUR)
    for name, number, how in zip(NAMES, (-1, 0, 1, 2), states, strict=False):
        begin = NOW_S + number * HOUR
        rdl = json.dumps({"op": "window", "s": begin, "e": begin + HOUR // 2, "of": {}})
        row = state.reservations[name] = ReservationRow(name, "ann", "default", rdl, 5, how, series="s")
        row.unanswered = int(how == "requested")
    return state


def bound(state, after_s=60, job="j", named="s"):
    return occurrence_for(state, job, named, (NOW_S + after_s) * 1_000)


@pytest.mark.parametrize(
    ("after_s", "number"),
    [
        pytest.param(-HOUR, 0, id="as its window begins"),
        pytest.param(-HOUR + 1_799, 0, id="as long as its window holds"),
        pytest.param(-HOUR + 1_800, 1, id="between two windows"),
        pytest.param(60, 1, id="in the next window"),
        pytest.param(2 * HOUR + 1_799, 3, id="in the last window"),
    ],
)
def test_it_is_the_occurrence_whose_window_holds_the_submission_else_the_next(after_s, number):
    assert bound(view("accepted", "accepted", "requested", "accepted"), after_s) == NAMES[number]


def test_what_is_no_series_is_left_alone():
    state = view("accepted")
    assert bound(state, named="other") is None
    assert bound(state, named=NAMES[0]) is None


def refusal(state, **more):
    with pytest.raises(Problem) as fault:
        bound(state, **more)
    assert (fault.value.status, fault.value.document["type"]) == (422, "urn:largesse:refused:unknown_reservation")
    assert fault.value.document["field"] == "reservation"
    return fault.value.document["detail"]


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("rejected", "was rejected: too wide"),
        ("deleted", "was given back"),
        ("broken", "was broken"),
        ("ended", "is over"),
    ],
)
def test_a_next_occurrence_that_is_promised_no_more_is_named_with_its_fate_and_the_one_after_it(state, said):
    found = view("ended", state, "accepted", "accepted")
    found.reservations[NAMES[1]].answer = PlanAnswer(NAMES[1], False, "no_room", "too wide")

    assert refusal(found) == (
        f'reservation: "{NAMES[1]}", the next occurrence of series "s", {said}; a later one is "{NAMES[2]}"'
    )


def test_none_ahead_says_when_the_next_is_requested():
    text = refusal(view("accepted", "accepted", "accepted", "accepted"), after_s=3 * HOUR)
    assert text.startswith(
        f'reservation: no occurrence of series "s" is requested after "{NAMES[3]}": each is once it ends'
    )
    assert "(largesse reserve why s)" in text


def test_a_series_that_has_ended_is_told_from_one_that_never_was():
    state = view("ended", "accepted")
    del state.series["s"]
    assert refusal(state) == f'reservation: series "s" has ended; what is left of it can be named: "{NAMES[1]}"'
    assert refusal(state, after_s=2 * HOUR) == 'reservation: series "s" has ended'


def test_occurrences_of_an_earlier_series_of_the_name_do_not_count():
    assert "no occurrence" in refusal(view("accepted", "accepted", "accepted", series_at_ms=6))


def test_a_job_that_is_there_already_keeps_its_occurrence():
    state = view("accepted", "accepted", "accepted")
    stage = Stage("s", 1, {"cpu": 1}, command=["true"])
    state.jobs["j"] = SimpleNamespace(spec=JobSpec("j", "default", [stage], reservation=NAMES[0]))

    assert bound(state) == NAMES[0]
    assert bound(state, job="k") == NAMES[1]


def test_the_answer_names_the_occurrence_and_the_log_knows_nothing_else():
    asked = series()
    name = occurrence(asked, 0)["reservation"]
    job = {"job": "night", "user": "ann", "reservation": "s", "stages": [STAGE]}

    async def story(cell):
        await cell.http.post("/v1/series", json=asked)
        early = await cell.post(job)
        await cell.http.post("/v1/reservations", json=occurrence(asked, 0))
        answers = [
            early,
            await cell.post(job),
            await cell.post(job),
            await cell.post(job | {"user": "bob", "job": "b"}),
        ]
        return answers, (await cell.get("/v1/jobs/night")).json()

    (early, first, again, foreign), document = run_in_memory(story)
    assert (early.status_code, early.json()["type"]) == (422, "urn:largesse:refused:unknown_reservation")
    assert (first.status_code, first.json()["reservation"]) == (201, name)
    assert (again.status_code, again.json()["state"], again.json()["reservation"]) == (200, "repeated", name)
    assert document["reservation"] == name
    assert foreign.status_code == 422
    assert f'"{name}" belongs to another user' in foreign.json()["detail"]
    assert time.time() < asked["start_s"]
