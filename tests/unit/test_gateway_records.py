"""The log over HTTP: pages of records fit together whatever they begin at, and a round shows what decided it."""

import json
from random import Random

import pytest

from largesse.log import past_keeper
from largesse.log.codec import decode
from largesse.log.fencing import LogOrder, advance
from largesse.log.record_lines import JobPlaces, WantedRecords, line_of
from largesse.settings import Settings
from largesse.shell import Shell
from schemas import RoundClosed, RoundOpened, SequencerClaimed
from schemas.topics import LOG
from services.gateway import log_pages, log_places, view
from services.gateway.http.problems import dumped
from tests.bus_stories import answers_in
from tests.gateway_cell import GUARD_S, JOB, run_in_memory
from tests.unit.test_gateway_past import keeper_in


@pytest.fixture(autouse=True)
def near_places(monkeypatch):
    """Places all over a log of some dozen records."""
    monkeypatch.setattr(log_places, "PLACE_EVERY", 5)
    monkeypatch.setattr(log_places, "FAR", 8)
    monkeypatch.setattr(log_places, "READ_AT_ONCE", 3)
    monkeypatch.setattr(log_places, "LOOKED_AT_ONCE", 4)
    monkeypatch.setattr(log_pages, "PLACE_EVERY", 5)


async def busy(cell):
    """Jobs in two queues, of two users, of which some are cancelled, and a node that drains."""
    for number in range(12):
        job = {**JOB, "job": f"j{number}", "queue": f"q{number % 2}", "user": ("ann", "bob")[number % 3 == 0]}
        assert (await cell.post(job)).status_code == 201
        if number % 4 == 1:
            assert (await cell.http.delete(f"/v1/jobs/j{number}")).status_code < 300
    await cell.http.post("/v1/nodes/n1/drain")
    await cell.follower.until(lambda view: not view.open, GUARD_S)
    await cell.stop_sequencer()


async def whole_log(cell):
    """The slow way: every message of the topic, by the rule of who may write."""
    order, found = LogOrder(), []
    for offset, message in enumerate(await answers_in(cell.bus, LOG)):
        accepted = advance(order, offset, message)
        if accepted is not None and not isinstance(accepted.record.body, SequencerClaimed):
            found.append(accepted)
    return found


def wanted_of(log, wanted):
    places, found = JobPlaces(), []
    for accepted in log:
        if wanted.has(accepted.record, places.names_in(accepted.record)):
            found.append(accepted.record)
    return found


async def pages(cell, **params):
    """All pages from one on, put together."""
    rows, key = [], "to" if params.get("order") == "desc" else "from"
    for _ in range(200):
        page = (await cell.get("/v1/records", **params)).json()
        assert len(page["records"]) <= params["limit"]
        rows += page["records"]
        if page["next"] is None:
            return rows, page["end"]
        params[key] = page["next"]
    raise AssertionError("pages do not end")


FILTERS = [
    {},
    {"jobs": ["j3"]},
    {"queues": ["q1"], "types": ["JobEnded", "JobAdmitted", "RoundClosed"]},
    {"users": ["bob"]},
    {"nodes": ["n1"]},
    {"types": ["SequencerAlive", "TimeReached", "RoundOpened"]},
    {"reservations": ["none"]},
]


@pytest.mark.parametrize("looked_at", [4, 10_000])
def test_pages_of_records_fit_together_and_hold_what_the_log_has(monkeypatch, looked_at):
    monkeypatch.setattr(log_pages, "LOOKED_AT_MAX", looked_at)

    async def story(cell):
        await busy(cell)
        log = await whole_log(cell)
        assert [each.record.seq for each in log] == list(range(1, len(log) + 1))
        assert len(log) > 25
        found = []
        for asked in FILTERS:
            params = {name.removesuffix("s"): values for name, values in asked.items()}
            for order in ("asc", "desc"):
                for limit in (1, 7, 1_000):
                    rows, end = await pages(cell, order=order, limit=limit, **params)
                    assert end == len(log)
                    found.append((asked, order, rows))
        return log, found

    log, found = run_in_memory(story)
    for asked, order, rows in found:
        expected = wanted_of(log, WantedRecords(**asked))
        if order == "desc":
            expected = expected[::-1]
        assert [(row["seq"], row["type"], row["line"], row["time_ms"]) for row in rows] == [
            (record.seq, record.type, line_of(record), record.time) for record in expected
        ]
    assert sum(bool(rows) for _, _, rows in found) == 6 * 6


@pytest.mark.parametrize("kind", ["jobs", "nodes"])
def test_what_speaks_only_of_names_that_begin_alike_is_passed_over(kind):
    async def story(cell):
        await busy(cell)
        log, places = await whole_log(cell), cell.follower.places
        cuts = [place.seq for place in places._places]
        spoken_of = JobPlaces()
        names = [getattr(spoken_of.names_in(each.record), kind) for each in log]
        found = []
        for name in [*sorted({name: None for each in names for name in each}), "j", "n"]:
            read = [each.record.seq async for each in places.records(places._places[0], len(log), (name,))]
            has_name = [at for at, each in enumerate(names, 1) if name in each]
            stretches = list(zip(cuts, [*cuts[1:], len(log)], strict=True))
            wanted = [cut for cut in stretches if any(cut[0] < at <= cut[1] for at in has_name)]
            near = {at for low, high in wanted for at in range(low + 1, high + 1)}
            found.append((name, read, has_name, near | set(range(cuts[-1] + 1, len(log) + 1))))
        return found

    found = run_in_memory(story)
    for name, read, has_name, near in found:
        assert read == sorted(set(read)), name
        assert set(has_name) <= set(read) <= near, name
    assert sum(len(read) for _, read, _, _ in found) < sum(len(near) for *_, near in found)


def test_stretches_that_are_known_not_to_speak_of_a_name_are_not_fetched(monkeypatch):
    fetched = []
    fetch = log_places.LogReader.fetch

    async def counted(self, *args, **more):
        found = await fetch(self, *args, **more)
        fetched.extend(found)
        return found

    async def story(cell):
        await busy(cell)
        places, end, log = cell.follower.places, cell.follower.state.seq, await whole_log(cell)
        monkeypatch.setattr(log_places.LogReader, "fetch", counted)
        said = []
        for kept in (dict(places._names), {}):
            places._names = kept
            places._learnt = end if kept else 0
            for name in ("j1", "none"):
                fetched.clear()
                rows = (await cell.get("/v1/records", job=name, order="desc")).json()["records"]
                said.append(([row["seq"] for row in rows], len(fetched)))
        return said, len(log)

    (known, nobody, plain, plain_nobody), size = run_in_memory(story)
    assert known[0] == plain[0]
    assert nobody[0] == plain_nobody[0] == []
    assert len(known[0]) >= 3
    assert nobody[1] < 10 < size <= plain_nobody[1]
    assert known[1] < plain[1]


def test_a_page_begins_and_ends_where_it_is_told_and_may_have_records_whole():
    async def story(cell):
        await busy(cell)
        log, chance = await whole_log(cell), Random(1)
        for _ in range(12):
            first, last = sorted(chance.sample(range(1, len(log) + 1), 2))
            for order in ("asc", "desc"):
                answer = await cell.http.get(
                    "/v1/records", params={"from": first, "to": last, "order": order, "whole": 1, "limit": 1_000}
                )
                rows = answer.json()["records"]
                expected = wanted_of(log[first - 1 : last], WantedRecords())
                assert sorted(row["seq"] for row in rows) == [record.seq for record in expected]
                assert all(row["record"] == json.loads(log[row["seq"] - 1].content) for row in rows)
        beyond = (await cell.http.get("/v1/records", params={"from": len(log) + 5})).json()
        return beyond, len(log)

    beyond, end = run_in_memory(story)
    assert beyond == {"records": [], "next": None, "end": end}


def test_a_restarted_gateway_reads_the_log_before_its_snapshot_from_checkpoints(monkeypatch):
    looked = []

    async def story(cell):
        await busy(cell)
        monkeypatch.setattr(past_keeper, "RECORDS_BETWEEN", 1)
        monkeypatch.setattr(past_keeper, "BYTES_BY_RECORD", 1 << 30)
        settings = Settings(checkpoints=64)
        shell = Shell(view, cell.bus, settings, past=keeper_in(cell.bus, settings))
        while await shell.step():
            pass
        log = await whole_log(cell)
        kept = cell.follower.places
        places = log_places.LogPlaces(cell.bus, 0, kept._past_states)
        places.note(shell.log.order, shell.decisions.positions, anyway=True)
        seqs = await kept._past_states.seqs()
        assert len(seqs) > 3
        for seq in range(2, len(log) + 1):
            place = await places.before(lambda order, seq=seq: order.seq < seq)
            assert place.seq < seq
            near = [each for each in seqs if each < seq]
            looked.append(not near or place.seq >= near[-1] or seq - place.seq <= log_places.FAR)
            found = [each.record.seq async for each in places.records(place, seq)]
            assert found == list(range(place.seq + 1, seq + 1))

    run_in_memory(story)
    assert all(looked)


def test_a_round_shows_its_records_and_what_each_service_decided():
    async def story(cell):
        await busy(cell)
        log = await whole_log(cell)
        rounds = [record.round for record in (each.record for each in log) if isinstance(record.body, RoundClosed)]
        return (
            log,
            {number: (await cell.get(f"/v1/rounds/{number}")).json() for number in rounds},
            (
                await cell.get(f"/v1/rounds/{rounds[-1] + 1_000}"),
                await cell.get("/v1/rounds/0"),
            ),
        )

    log, shown, (unknown, wrong) = run_in_memory(story)
    assert len(shown) >= 3
    for number, document in shown.items():
        opened = next(each for each in log if isinstance(each.record.body, RoundOpened) and each.record.round == number)
        closed = next(each for each in log if isinstance(each.record.body, RoundClosed) and each.record.round == number)
        assert document["state"] == "closed"
        assert [row["seq"] for row in document["records"]] == list(range(opened.record.seq, closed.record.seq + 1))
        assert document["records"][-1]["record"] == json.loads(closed.content)
        hashes = closed.record.body.hashes
        assert [(each["topic"], each["hash"]) for each in document["decisions"]] == [(h.topic, h.hash) for h in hashes]
        for each in document["decisions"]:
            assert each["record"]["cause"] == opened.record.id
            assert decode(dumped(each["record"])).type in ("Shares", "Asks", "Grants")
    assert (unknown.status_code, unknown.json()["type"]) == (404, "urn:largesse:unknown_round")
    assert wrong.status_code == 422


def test_a_type_that_no_record_has_is_refused():
    async def story(cell):
        return await cell.get("/v1/records", type="Nothing")

    refused = run_in_memory(story)
    assert refused.status_code == 422
    assert refused.json()["detail"].startswith("type: 'Nothing' is no type of record: one of ")
