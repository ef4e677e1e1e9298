"""Reservations over HTTP, with the sequencer and the planner behind it on a bus in memory."""

import json
import time

import pytest

from largesse.lifecycle import reservation_limits
from tests.gateway_cell import run_in_memory

HOUR_S = 3_600
START_S = (int(time.time()) // 86_400 + 2) * 86_400


def rdl(cores=1, minutes=10, hours=2, after_s=0):
    begin = int(time.time()) + after_s
    atom = {"op": "atom", "b": {"cpu": str(cores)}, "g": 1, "h": 1, "l": minutes * 60, "w": minutes * 60}
    return {"op": "window", "s": begin, "e": begin + hours * HOUR_S, "of": atom}


def request(name="r", user="ann", **terms):
    return {"reservation": name, "user": user, "rdl": rdl(**terms)}


def test_a_request_is_answered_with_its_plan():
    async def story(cell):
        asked = await cell.http.post("/v1/reservations", json=request())
        return asked, await cell.get("/v1/reservations/r"), await cell.get("/v1/reservations")

    asked, one, every = run_in_memory(story)
    document = asked.json()
    assert asked.status_code == 201
    assert asked.headers["location"] == "/v1/reservations/r"
    assert (document["state"], document["answer"]["accepted"], document["queue"]) == ("accepted", True, "default")
    assert [(step["units"], step["usage"]) for step in document["steps"]] == [(1, {"cpu": "1"})]
    assert one.json() == document
    assert every.json() == {"reservations": [document]}


def test_a_no_says_why_and_what_would_be_accepted():
    async def story(cell):
        await cell.http.post("/v1/reservations", json=request("a", cores=4, minutes=110))
        return await cell.http.post("/v1/reservations", json=request("b", cores=4, minutes=30))

    problem = run_in_memory(story).json()
    assert (problem["status"], problem["type"], problem["reason"]) == (409, "urn:largesse:refused:no_room", "no_room")
    assert problem["answer"]["offer_to_ms"] > problem["answer"]["offer_from_ms"]
    assert "it would be accepted from" in problem["detail"]


def test_the_same_request_once_more_changes_nothing():
    async def story(cell):
        asked = request()
        first = await cell.http.post("/v1/reservations", json=asked)
        return first, await cell.http.post("/v1/reservations", json=asked)

    first, again = run_in_memory(story)
    assert again.status_code == 200
    assert again.json() == first.json()


def test_an_owner_changes_and_deletes_a_reservation_and_nobody_else():
    async def story(cell):
        await cell.http.post("/v1/reservations", json=request(cores=1))
        return [
            await cell.http.put("/v1/reservations/r", json={"user": "bob", "rdl": rdl(cores=2)}),
            await cell.http.put("/v1/reservations/r", json={"user": "ann", "rdl": rdl(cores=2)}),
            await cell.http.delete("/v1/reservations/r", params={"user": "bob"}),
            await cell.http.delete("/v1/reservations/r", params={"user": "ann"}),
            await cell.http.delete("/v1/reservations/r", params={"user": "ann"}),
        ]

    foreign, changed, theirs, gone, again = run_in_memory(story)
    assert foreign.status_code == 409
    assert "belongs to another user" in foreign.json()["detail"]
    assert changed.status_code == 200
    assert changed.json()["steps"][0]["usage"] == {"cpu": "2"}
    assert theirs.status_code == 409
    assert (gone.status_code, gone.json()["state"]) == (200, "deleted")
    assert again.status_code == 409


def test_new_terms_that_find_no_room_leave_the_old_ones_in_force():
    async def story(cell):
        before = await cell.http.post("/v1/reservations", json=request(cores=1))
        refused = await cell.http.put("/v1/reservations/r", json={"user": "ann", "rdl": rdl(cores=5)})
        return before, refused, await cell.get("/v1/reservations/r")

    before, refused, after = run_in_memory(story)
    assert refused.json()["reason"] == "invalid"
    assert refused.json()["detail"].endswith("; the terms accepted before stay in force")
    assert refused.json()["update_refused"]
    assert (after.json()["state"], after.json()["update_refused"]) == ("accepted", True)
    assert after.json()["requested_ms"] == before.json()["requested_ms"]
    assert after.json()["steps"] == before.json()["steps"]


def test_accepted_terms_are_those_that_were_requested_last():
    async def story(cell):
        before = await cell.http.post("/v1/reservations", json=request(cores=1))
        await cell.http.put("/v1/reservations/r", json={"user": "ann", "rdl": rdl(cores=5)})
        changed = await cell.http.put("/v1/reservations/r", json={"user": "ann", "rdl": rdl(cores=2)})
        return before.json(), changed.json()

    before, changed = run_in_memory(story)
    assert (changed["state"], changed["update_refused"]) == ("accepted", False)
    assert before["requested_ms"] < changed["requested_ms"] <= changed["answered_ms"]


def test_under_slots_no_capacity_is_promised():
    async def story(cell):
        await cell.http.post("/v1/reservations", json=request("a"))
        await cell.http.put("/v1/config", json={"set": {"preset": "slots"}})
        asked = await cell.http.post("/v1/reservations", json=request("b"))
        changed = await cell.http.put("/v1/reservations/a", json={"user": "ann", "rdl": rdl(cores=2)})
        dry = await cell.http.post("/v1/reservations", json=request("b"), params={"dry_run": True})
        return asked, changed, dry, await cell.http.delete("/v1/reservations/a", params={"user": "ann"})

    asked, changed, dry, deleted = run_in_memory(story)
    for refused in (asked, changed, dry):
        assert refused.status_code == 409
        assert 'under the preset "slots" no capacity can be promised' in refused.json()["detail"]
    assert deleted.json()["state"] == "deleted"


@pytest.mark.slow
def test_a_user_s_reservations_have_so_many_bytes_of_terms(monkeypatch):
    size = len(json.dumps(rdl(), separators=(",", ":")))
    monkeypatch.setattr(reservation_limits, "USER_BYTES_MAX", size * 3 // 2)

    async def story(cell):
        first = await cell.http.post("/v1/reservations", json=request("a"))
        dry = await cell.http.post("/v1/reservations", json=request("b"), params={"dry_run": True})
        second = await cell.http.post("/v1/reservations", json=request("b"))
        other = await cell.http.post("/v1/reservations", json=request("c") | {"user": "bob"})
        changed = await cell.http.put("/v1/reservations/a", json={"user": "ann", "rdl": rdl(cores=2)})
        await cell.http.delete("/v1/reservations/a", params={"user": "ann"})
        again = await cell.http.post("/v1/reservations", json=request("b"))
        return [first, dry, second, other, changed, again]

    found = run_in_memory(story)
    assert [each.status_code for each in found] == [201, 409, 409, 201, 200, 201]
    assert found[1].json() == found[2].json()
    assert 'the reservations of user "ann" would have terms of' in found[2].json()["detail"]


@pytest.mark.slow
def test_a_dry_run_knows_how_many_reservations_a_cell_may_hold(monkeypatch):
    monkeypatch.setattr(reservation_limits, "RESERVATIONS_MAX", 1)

    async def story(cell):
        dry = [await cell.http.post("/v1/reservations", json=request("a"), params={"dry_run": True})]
        sent = [await cell.http.post("/v1/reservations", json=request("a"))]
        dry.append(await cell.http.post("/v1/reservations", json=request("b"), params={"dry_run": True}))
        sent.append(await cell.http.post("/v1/reservations", json=request("b")))
        terms = {"user": "ann", "rdl": rdl(cores=2)}
        dry.append(await cell.http.put("/v1/reservations/a", json=terms, params={"dry_run": True}))
        await cell.http.delete("/v1/reservations/a", params={"user": "ann"})
        dry.append(await cell.http.post("/v1/reservations", json=request("b"), params={"dry_run": True}))
        return dry, sent

    dry, sent = run_in_memory(story)
    assert [each.status_code for each in dry] == [200, 409, 200, 200]
    assert [each.status_code for each in sent] == [201, 409]
    assert dry[1].json() == sent[1].json()
    assert "the cell holds 1 reservations" in dry[1].json()["detail"]


@pytest.mark.slow
def test_a_dry_run_says_what_the_answer_would_be_and_changes_nothing():
    async def story(cell):
        await cell.http.post("/v1/reservations", json=request("a", cores=3, minutes=110))
        yes = await cell.http.post("/v1/reservations", json=request("b", cores=1), params={"dry_run": True})
        no = await cell.http.post("/v1/reservations", json=request("b", cores=2, minutes=30), params={"dry_run": True})
        other = await cell.http.put(
            "/v1/reservations/a", json={"user": "ann", "rdl": rdl(cores=4)}, params={"dry_run": True}
        )
        return yes.json(), no.json(), other.json(), (await cell.get("/v1/reservations")).json()["reservations"]

    yes, no, other, after = run_in_memory(story)
    assert yes["answer"]["accepted"]
    assert yes["steps"][0]["units"] == 1
    assert (no["answer"]["accepted"], no["answer"]["reason"]) == (False, "no_room")
    assert other["answer"]["accepted"]
    assert [(each["reservation"], each["steps"][0]["usage"]) for each in after] == [("a", {"cpu": "3"})]


@pytest.mark.slow
def test_a_dry_run_refuses_a_queue_as_the_log_would():
    tree = {"name": "root", "children": [
        {"name": "ads", "submitters": ["ann", "cat"], "children": [{"name": "prod"}, {"name": "test"}]},
        {"name": "default"}, {"name": "ml", "submitters": [f"u{i}" for i in range(12)]}]}  # fmt: skip

    async def story(cell):
        await cell.http.put("/v1/config", json={"queues": tree})
        await cell.http.post("/v1/reservations", json=request("mine", "ann"))
        pairs = []
        for user, queue in (("ann", "ads/nope"), ("ann", "ads"), ("bob", "ads/prod"), ("ann", "ml"), ("ann", "x")):
            document = request("r", user) | {"queue": queue}
            dry = await cell.http.post("/v1/reservations", json=document, params={"dry_run": True})
            pairs.append((dry, await cell.http.post("/v1/reservations", json=document)))
        terms = {"user": "ann", "rdl": rdl(cores=2), "queue": "ads"}
        dry = await cell.http.put("/v1/reservations/mine", json=terms, params={"dry_run": True})
        pairs.append((dry, await cell.http.put("/v1/reservations/mine", json=terms)))
        good = request("good") | {"queue": "ads/prod"}
        return pairs, await cell.http.post("/v1/reservations", json=good, params={"dry_run": True})

    pairs, good = run_in_memory(story)
    assert good.json()["answer"]["accepted"]
    for dry, sent in pairs:
        assert dry.status_code == 409
        assert dry.json() == sent.json()


@pytest.mark.parametrize(
    ("document", "status", "field"),
    [
        pytest.param({**request(), "queue": "root"}, 422, "queue", id="a queue path with root"),
        pytest.param({"reservation": "r", "user": "ann"}, 422, "rdl", id="no terms"),
        pytest.param({**request(), "rdl": {"op": "atom"}}, 422, "rdl", id="terms that are not whole"),
        pytest.param([], 422, "", id="no object"),
    ],
)
def test_what_is_malformed_is_refused_with_its_field(document, status, field):
    async def story(cell):
        return await cell.http.post("/v1/reservations", json=document)

    problem = run_in_memory(story)
    assert problem.status_code == status
    assert problem.json()["field"].startswith(field)


def test_a_reservation_that_nobody_knows_is_not_found():
    async def story(cell):
        return [
            await cell.get("/v1/reservations/none"),
            await cell.http.put("/v1/reservations/none", json={"user": "ann", "rdl": rdl()}),
            await cell.http.delete("/v1/reservations/none", params={"user": "ann"}),
        ]

    assert [answer.status_code for answer in run_in_memory(story)] == [404, 404, 404]


def test_a_job_runs_only_under_a_reservation_of_its_own_user():
    async def story(cell):
        await cell.http.post("/v1/reservations", json=request())
        stage = {"stage": "s", "tasks": 1, "command": ["true"], "demand": {"cpu": "1"}}
        jobs = [("good", "ann", "r"), ("foreign", "bob", "r"), ("unknown", "ann", "x")]
        return [
            await cell.post({"job": name, "user": user, "reservation": reservation, "stages": [stage]})
            for name, user, reservation in jobs
        ]

    good, foreign, unknown = run_in_memory(story)
    assert good.status_code == 201
    assert foreign.json()["reason"] == "not_allowed"
    assert foreign.json()["detail"] == (
        'reservation: "r" belongs to another user than "bob": only jobs with `user: ann` may use it'
    )
    assert unknown.json()["reason"] == "unknown_reservation"


def test_a_request_that_names_no_user_is_for_the_one_who_asks():
    async def story(cell):
        ann = {"Largesse-User": "ann"}
        asked = request()
        del asked["user"]
        nobody = await cell.http.post("/v1/reservations", json=asked)
        first = await cell.http.post("/v1/reservations", json=asked, headers=ann)
        terms = {"rdl": rdl(minutes=5)}
        changed = await cell.http.put("/v1/reservations/r", json=terms, headers=ann)
        stranger = await cell.http.put("/v1/reservations/r", json=terms, headers={"Largesse-User": "ben"})
        return nobody, first, changed, stranger

    nobody, first, changed, stranger = run_in_memory(story)
    assert (nobody.status_code, nobody.json()["field"]) == (422, "user")
    assert (first.status_code, first.json()["user"]) == (201, "ann")
    assert changed.status_code == 200
    assert stranger.status_code == 409


@pytest.mark.parametrize(
    ("query", "header", "status"),
    [
        pytest.param({}, "ann", 200, id="the header alone"),
        pytest.param({"user": "ann"}, None, 200, id="the query alone"),
        pytest.param({"user": "ann"}, "ann", 200, id="both alike"),
        pytest.param({"user": "ann"}, "ben", 200, id="a proxy asks for the owner"),
        pytest.param({"user": "ben"}, "ann", 409, id="the query goes first"),
        pytest.param({}, "ben", 409, id="another user"),
        pytest.param({"user": ""}, "ann", 422, id="an empty name"),
        pytest.param({}, None, 422, id="nobody"),
    ],
)
@pytest.mark.parametrize("kind", ["reservations", "series"])
def test_who_gives_back_is_named_by_the_query_or_else_by_the_header(kind, query, header, status):
    asks = {"reservations": request(), "series": {"series": "r", "user": "ann", "every": 86_400, "start_s": START_S}}
    asks["series"]["rdl"] = {"op": "window", "s": 0, "e": HOUR_S, "of": request()["rdl"]["of"]}

    async def story(cell):
        made = await cell.http.post(f"/v1/{kind}", json=asks[kind])
        headers = {} if header is None else {"Largesse-User": header}
        return made, await cell.http.delete(f"/v1/{kind}/r", params=query, headers=headers)

    made, answer = run_in_memory(story)
    assert made.status_code == 201
    assert answer.status_code == status
    if status == 422:
        assert answer.json()["field"] == "user"


def test_other_terms_under_a_name_in_use_are_refused_with_a_word_on_relative_times():
    async def story(cell):
        await cell.http.post("/v1/reservations", json=request())
        return await cell.http.post("/v1/reservations", json=request(minutes=5))

    answer = run_in_memory(story)
    assert answer.status_code == 409
    assert "with other terms (times like +1h count from the moment of each request)" in answer.json()["detail"]
