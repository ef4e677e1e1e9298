"""Who follows the changes of a cell hears of each by kind and name, and goes on where the connection broke."""

import asyncio
import json

from services.gateway import changes
from services.gateway.changes import Changed, Changes
from services.gateway.http import change_streams
from services.gateway.http.change_streams import ChangeStreams
from services.gateway.view.state import note
from tests.gateway_cell import GUARD_S, JOB, run_in_memory
from tests.gateway_watch import Watched
from tests.http_rig import HOST, request, run_over_http


def told(event):
    """The document of an event."""
    lines = event.decode().splitlines()
    assert "event: changes" in lines
    document = json.loads(next(line for line in lines if line.startswith("data: ")).removeprefix("data: "))
    assert f"id: {document['seq']}" in lines
    return document


async def events_of(cell, **params):
    """What a stream that ends after `limit` events has told."""
    answer = await cell.get("/v1/changes", **{"limit": 1, **params})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    return [told(part.encode()) for part in answer.text.split("\n\n") if "data: " in part]


def test_a_stream_begins_with_where_the_log_stands_and_that_nothing_is_known():
    async def story(cell):
        await cell.post(JOB)
        (first,) = await events_of(cell)
        return first, cell.follower.state

    first, state = run_in_memory(story)
    assert first["all"]
    assert first["since_seq"] is None
    assert first["changed"]["jobs"] == {"count": 1, "names": [], "reasons": True}
    assert first["changed"]["nodes"]["count"] == 1
    assert all(first["changed"][kind] for kind in changes.WITHOUT_NAMES)
    assert 0 < first["seq"] <= state.seq


def test_a_change_is_told_by_kind_and_name_and_what_has_not_changed_is_left_out():
    async def story(cell):
        await cell.follower.until(lambda view: view.round and not view.open, GUARD_S)
        seq = cell.follower.state.seq
        waits = asyncio.ensure_future(events_of(cell, after=seq))
        await cell.http.post("/v1/nodes/n1/drain")
        return seq, await waits

    seq, (event,) = run_in_memory(story)
    assert event["changed"].pop("nodes") == {"count": 1, "names": ["n1"]}
    assert event["changed"].pop("jobs") == {"count": 0, "names": [], "reasons": True}
    assert not {"reservations", "series", "config", "ledger"} & event["changed"].keys()
    assert event["changed"]["queues"] is True
    assert (event["since_seq"], event["all"]) == (seq, False)


def test_a_stream_goes_on_behind_the_event_that_the_client_names():
    async def story(cell):
        await cell.post({**JOB, "job": "early"})
        before = cell.follower.state.seq
        await cell.post({**JOB, "job": "late"})
        by_header = await cell.http.get("/v1/changes?limit=1", headers={"Last-Event-ID": str(before)})
        return before, told(by_header.content), (await events_of(cell, after=before))[0]

    before, by_header, by_parameter = run_in_memory(story)
    assert by_header["since_seq"] == by_parameter["since_seq"] == before
    assert not by_header["all"]
    assert "late" in by_header["changed"]["jobs"]["names"]
    assert by_header["changed"]["queues"] is True
    assert "config" not in by_header["changed"]


def test_changes_while_a_client_pauses_come_as_one_event():
    async def story(cell):
        await cell.post({**JOB, "job": "first"})
        gate = asyncio.Event()

        class Paused:
            """A follower whose pauses end when the story says so."""

            def __getattr__(self, name):
                return getattr(cell.follower, name)

            async def pause(self, seconds):
                await gate.wait()

        streams = ChangeStreams(Paused())
        events = streams.events(None, 0.5, 2)
        heard = [told(await anext(events))]
        following = asyncio.ensure_future(anext(events))
        for number in range(5):
            await cell.post({**JOB, "job": f"j{number}"})
        assert not following.done()
        gate.set()
        return [*heard, told(await following)]

    first, second = run_in_memory(story)
    assert second["since_seq"] == first["seq"]
    assert set(second["changed"]["jobs"]["names"]) >= {f"j{number}" for number in range(5)}


def test_streams_that_wait_for_the_same_event_share_it():
    async def story(cell):
        await cell.post(JOB)
        await cell.stop_sequencer()
        streams, seq = ChangeStreams(cell.follower), cell.follower.state.seq - 1
        heard = [await anext(streams.events(seq, 0.1)) for _ in range(20)]
        return len(set(heard)), streams.encodings

    assert run_in_memory(story) == (1, 1)


def test_a_quiet_stream_sends_comments_and_ends_with_the_gateway(monkeypatch):
    monkeypatch.setattr(change_streams, "BEAT_S", 0.01)

    async def story(cell):
        await cell.stop_sequencer()
        await cell.follower.changed(0.05)
        events = ChangeStreams(cell.follower).events(cell.follower.state.seq, 0.1)
        beats = [await anext(events) for _ in range(3)]
        cell.follower.stop.set()
        return beats, [event async for event in events]

    beats, rest = run_in_memory(story)
    assert all(beat.startswith(b":") for beat in beats)
    assert len(rest) <= 1


def test_what_lies_further_back_than_is_kept_counts_as_changed_altogether(monkeypatch):
    monkeypatch.setattr(changes, "NAMES_KEPT", 4)
    cell = Watched()
    kept = Changes(cell.view)
    start = cell.view.seq
    for number in range(8):
        note(cell.view, "jobs", f"j{number}")
        kept._keep(cell.view.noted, start + number + 1)
        cell.view.noted = {}
    cell.view.seq = start + 8
    assert kept.since(start).since is None
    assert kept.floor > start
    assert kept.since(kept.floor).names["jobs"][1] == [f"j{n}" for n in range(7, kept.floor - start - 1, -1)]
    assert kept.since(start + 8) == Changed(start + 8)
    assert kept.since(start + 9).since is None  # It comes from another log.


def test_names_beyond_the_limit_are_counted(monkeypatch):
    monkeypatch.setattr(changes, "NAMES_TOLD", 3)
    cell = Watched()
    kept = Changes(cell.view)
    for number in range(5):
        note(cell.view, "nodes", f"n{number}")
    kept._keep(cell.view.noted, cell.view.seq + 1)
    assert kept.since(cell.view.seq).names["nodes"] == (5, ["n4", "n3", "n2"])


def test_beyond_the_places_for_streams_a_client_is_told_to_come_again():
    async def story(served):
        served.change_places.most = 1
        client = await served.connect()
        await client.say(request("GET", "/v1/changes", f"{HOST}:{served.port}"))
        status, headers = await client.head()
        refused = await served.ask("GET", "/v1/changes")
        client.close()
        async with asyncio.timeout(GUARD_S):
            while served.change_places.taken:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)
        return status, headers["cache-control"], refused.status, refused.document["type"]

    assert run_over_http(story) == (200, "no-store", 503, "urn:largesse:busy")
