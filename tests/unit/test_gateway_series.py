"""Reservations that recur over HTTP, with the sequencer and the planner behind it on a bus in memory."""

import time

import pytest

from largesse.lifecycle import reservation_limits
from schemas.edge.reservations import occurrence_name
from tests.gateway_cell import run_in_memory

ATOM = {"op": "atom", "b": {"cpu": "1"}, "g": 1, "h": 1, "l": 600, "w": 600}
DAY_S = 86_400
START_S = (int(time.time()) // DAY_S + 2) * DAY_S


def window(end_s=3_600):
    return {"op": "window", "s": 0, "e": end_s, "of": ATOM}


def series(**terms):
    return {"series": "s", "user": "ann", "every": DAY_S, "start_s": START_S, "rdl": window()} | terms


def occurrence(of, number):
    at = of["start_s"] + number * DAY_S
    rdl = {"op": "window", "s": at, "e": at + 3_600, "of": ATOM}
    return {"reservation": occurrence_name("s", at), "user": "ann", "rdl": rdl, "series": "s", "occurrence_s": at}


def test_a_series_is_kept_shown_and_repeated():
    asked = series()

    async def story(cell):
        first = await cell.http.post("/v1/series", json=asked)
        again = await cell.http.post("/v1/series", json=asked)
        other = await cell.http.post("/v1/series", json=asked | {"every": 2 * DAY_S})
        return first, again, other, await cell.get("/v1/series/s"), await cell.get("/v1/series")

    first, again, other, one, every = run_in_memory(story)
    assert (first.status_code, again.status_code, other.status_code) == (201, 200, 409)
    assert first.headers["location"] == "/v1/series/s"
    document = one.json()
    assert (document["every"], document["zone"], document["start_s"]) == (str(DAY_S), "UTC", asked["start_s"])
    assert every.json() == {"series": [document]}


def test_its_occurrences_are_reservations_that_name_it_and_it_tells_how_far_it_is():
    asked = series()

    async def story(cell):
        await cell.http.post("/v1/series", json=asked)
        answer = await cell.http.post("/v1/reservations", json=occurrence(asked, 0))
        return answer.json(), (await cell.get("/v1/series/s")).json()

    reservation, one = run_in_memory(story)
    assert (reservation["state"], reservation["series"]) == ("accepted", "s")
    assert (one["occurrences"], one["asked_s"]) == (1, asked["start_s"])


def test_its_owner_ends_it_and_nobody_else():
    async def story(cell):
        await cell.http.post("/v1/series", json=series())
        return [
            await cell.http.delete("/v1/series/s", params={"user": "bob"}),
            await cell.http.delete("/v1/series/s", params={"user": "ann"}),
            await cell.http.delete("/v1/series/s", params={"user": "ann"}),
            await cell.get("/v1/series/s"),
        ]

    foreign, gone, again, one = run_in_memory(story)
    assert (foreign.status_code, "another user" in foreign.json()["detail"]) == (409, True)
    assert (gone.status_code, again.status_code, one.status_code) == (200, 404, 404)


def test_a_dry_run_refuses_what_would_be_refused_and_keeps_nothing():
    asked = series()
    tree = {"name": "root", "children": [{"name": "ads", "children": [{"name": "prod"}]}, {"name": "default"}]}

    async def story(cell):
        await cell.http.put("/v1/config", json={"queues": tree})
        new = await cell.http.post("/v1/series", json=asked, params={"dry_run": True})
        none = await cell.get("/v1/series")
        await cell.http.post("/v1/series", json=asked)
        await cell.http.post("/v1/reservations", json=occurrence(asked, 0))
        pairs = []
        for terms in (asked, asked | {"every": 2 * DAY_S}, asked | {"series": "t", "queue": "ads"},
                      asked | {"series": occurrence(asked, 0)["reservation"]}):  # fmt: skip
            dry = await cell.http.post("/v1/series", json=terms, params={"dry_run": True})
            pairs.append((dry, await cell.http.post("/v1/series", json=terms)))
        return new, none, pairs

    new, none, pairs = run_in_memory(story)
    assert (new.status_code, new.json()["series"], none.json()) == (200, "s", {"series": []})
    assert [dry.status_code for dry, _ in pairs] == [200, 409, 409, 409]
    for dry, sent in pairs:
        assert dry.status_code == sent.status_code
        assert dry.json() == sent.json()


def test_new_terms_for_a_series_are_refused_in_words_of_series():
    async def story(cell):
        await cell.http.post("/v1/series", json=series())
        terms = {"user": "ann", "rdl": occurrence(series(), 0)["rdl"]}
        name = await cell.http.post("/v1/reservations", json=terms | {"reservation": "s"}, params={"dry_run": True})
        update = await cell.http.put("/v1/reservations/s", json=terms)
        delete = await cell.http.delete("/v1/reservations/s", params={"user": "ann"})
        return update, name, delete, await cell.get("/v1/reservations/s"), await cell.get("/v1/series/s")

    update, name, delete, found, series_found = run_in_memory(story)
    assert (update.status_code, delete.status_code, found.status_code) == (409, 409, 404)
    assert update.json()["detail"].startswith('"s" is a series, whose terms cannot be changed: delete it (largesse')
    assert delete.json()["detail"] == (
        '"s" is a series, not a reservation: delete it with largesse reserve delete s, or DELETE /v1/series/s'
    )
    assert "look at /v1/series/s (largesse reserve why s)" in found.json()["detail"]
    assert series_found.status_code == 200
    assert (name.status_code, name.json()["detail"]) == (409, '"s" names a series; choose a new name')


def test_a_dry_run_knows_how_many_series_a_user_and_a_cell_may_have(monkeypatch):
    monkeypatch.setattr(reservation_limits, "SERIES_USER_MAX", 2)
    monkeypatch.setattr(reservation_limits, "SERIES_MAX", 3)

    async def story(cell):
        pairs = []
        for name, user in (("a", "ann"), ("b", "ann"), ("c", "ann"), ("c", "bob"), ("d", "eve"), ("a", "ann")):
            asked = series(series=name, user=user)
            dry = await cell.http.post("/v1/series", json=asked, params={"dry_run": True})
            pairs.append((dry, await cell.http.post("/v1/series", json=asked)))
        return pairs

    pairs = run_in_memory(story)
    assert [dry.status_code for dry, _ in pairs] == [200, 200, 409, 200, 409, 200]
    assert [sent.status_code for _, sent in pairs] == [201, 201, 409, 201, 409, 200]
    for dry, sent in pairs:
        if sent.status_code == 409:
            assert dry.json() == sent.json()
    assert pairs[2][0].json()["detail"] == 'user "ann" has 2 series; delete one first'
    assert pairs[4][0].json()["detail"] == "the cell holds 3 series; delete one first"


@pytest.mark.parametrize(
    ("terms", "field", "reason"),
    [
        ({"every": 60}, "every", "occurrences may not overlap"),
        ({"every": "0 6 * * 8"}, "every", '"0 6 * * 8" is no cron expression like "0 6 * * 1-5"'),
        ({"every": "0 6 30 2 *"}, "every", "is no cron expression"),
        ({"zone": "No/Where"}, "zone", '"No/Where" is no time zone'),
        ({"every": 30 * DAY_S, "rdl": window(8 * DAY_S)}, "rdl", "604800 s can be planned"),
    ],
)
def test_a_series_that_could_never_be_requested_is_refused_and_names_the_field(terms, field, reason):
    problem = run_in_memory(lambda cell: cell.http.post("/v1/series", json=series(**terms))).json()
    assert (problem["status"], problem["field"]) == (422, field)
    assert reason in problem["detail"]


def test_a_series_that_no_maximum_leaves_room_for_is_refused_and_a_dry_run_says_the_same():
    tree = {"name": "root", "children": [{"name": "default", "max": {"cpu": "1"}}]}
    asked = series(rdl=window() | {"of": ATOM | {"g": 2, "h": 2}})

    async def story(cell):
        await cell.http.put("/v1/config", json={"queues": tree})
        dry = await cell.http.post("/v1/series", json=asked, params={"dry_run": "true"})
        return dry, await cell.http.post("/v1/series", json=asked), await cell.http.post("/v1/series", json=series())

    dry, real, narrow = run_in_memory(story)
    assert (dry.status_code, real.status_code, narrow.status_code) == (409, 409, 201)
    assert dry.json()["detail"] == real.json()["detail"]
    assert 'queue "default" has a max of 1' in real.json()["detail"]
