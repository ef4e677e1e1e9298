"""Whoever watches a job hears of it what all watchers hear, worded once, and nobody else is kept waiting for it."""

import asyncio
import json

import pytest

from services.gateway.http import api, app, watching
from services.gateway.http.watching import WOKEN_AT_ONCE, Watching
from tests.gateway_cell import run_in_memory
from tests.http_rig import HOST, JOB, request, run_over_http, until

WATCHERS = 50


def states(events):
    """The state of the job in each event."""
    return [json.loads(line_of(event, "data"))["state"] for event in events if b"data: " in event]


def numbers(events):
    """The seq at which each event was worded."""
    return [int(id_of(event).partition("-")[0]) for event in events if b"data: " in event]


def id_of(event):
    return line_of(event, "id")


def line_of(event, field):
    return next(line for line in event.decode().split("\n") if line.startswith(field)).removeprefix(f"{field}: ")


async def heard(seen, job="j"):
    return [event async for event in seen.events(job)]


async def cancel(cell, job="j"):
    assert (await cell.http.delete(f"/v1/jobs/{job}")).status_code == 200


def job(name):
    return JOB | {"job": name}


async def watchers_there(seen, count, job="j"):
    await until(lambda: len(seen._watched[job].watchers) == count if job in seen._watched else count == 0)


def test_each_change_is_worded_once_for_all_who_watch():
    async def story(cell):
        await cell.post(JOB)
        seen = Watching(cell.follower, gap_s=0)
        tasks = [asyncio.ensure_future(heard(seen)) for _ in range(WATCHERS)]
        await watchers_there(seen, WATCHERS)
        await cancel(cell)
        return await asyncio.gather(*tasks), seen.encodings

    events, encodings = run_in_memory(story)
    assert all(states(each)[-1] == "cancelled" for each in events)
    longest = max(len(numbers(each)) for each in events)
    assert encodings == longest <= 5
    assert len({number for each in events for number in numbers(each)}) == encodings


def test_records_that_do_not_change_the_job_cost_no_wording():
    async def story(cell):
        await cell.post(JOB)
        seen = Watching(cell.follower, gap_s=0)
        task = asyncio.ensure_future(heard(seen))
        await watchers_there(seen, 1)
        for number in range(20):
            await cell.post(job(f"other-{number}"))
        before = seen.encodings
        await cancel(cell)
        await task
        return before, seen.encodings

    before, after = run_in_memory(story)
    assert before <= 3
    assert after > before


class PacedFollower:
    """A follower whose pauses end when a test says so."""

    def __init__(self, behind):
        self._behind = behind
        self.pauses = asyncio.Semaphore(0)

    def __getattr__(self, name):
        return getattr(self._behind, name)

    async def pause(self, seconds):
        await self.pauses.acquire()


def test_however_often_a_job_changes_it_is_told_once_a_gap_and_its_last_state_always(monkeypatch):
    worded = watching.job_document
    # With each record the job is another one.
    monkeypatch.setattr(watching, "job_document", lambda state, name: worded(state, name) | {"n": state.seq})

    async def story(cell):
        await cell.post(JOB)
        paced = PacedFollower(cell.follower)
        seen = Watching(paced)
        task = asyncio.ensure_future(heard(seen))
        await watchers_there(seen, 1)
        for number in range(20):
            await cell.post(job(f"other-{number}"))
        in_one_gap = seen.encodings
        await cancel(cell)
        while seen._telling is not None:
            paced.pauses.release()
            await asyncio.sleep(0)
        return in_one_gap, await task, cell.follower.state.seq

    in_one_gap, events, last = run_in_memory(story)
    assert in_one_gap <= 2
    assert states(events)[-1] == "cancelled"
    assert numbers(events)[-1] <= last


def test_a_watcher_that_sleeps_through_changes_hears_the_latest_and_not_each():
    async def story(cell):
        await cell.post(JOB)
        seen = Watching(cell.follower, gap_s=0)
        quick = asyncio.ensure_future(heard(seen))
        await watchers_there(seen, 1)
        slow = seen.events("j")
        events = [await anext(slow)]
        await cancel(cell)
        heard_quickly = await quick
        events += [event async for event in slow]
        return events, heard_quickly

    events, heard_quickly = run_in_memory(story)
    assert states(events)[-1] == "cancelled"
    assert len(events) == 2
    assert events[-1] == heard_quickly[-1]


def test_watchers_of_a_job_that_is_over_hear_its_end_and_nothing_is_left_of_them():
    async def story(cell):
        await cell.post(JOB)
        seen = Watching(cell.follower, gap_s=0)
        task = asyncio.ensure_future(heard(seen))
        await watchers_there(seen, 1)
        await cancel(cell)
        await task
        late = await heard(seen)
        await until(lambda: seen._telling is None)
        return late, seen._watched

    late, left = run_in_memory(story)
    assert (states(late), left) == (["cancelled"], {})


def test_watchers_that_leave_leave_nothing_behind():
    async def story(served):
        await served.submit()
        watching_ = served.watching
        for _ in range(20):
            client = await served.connect()
            await client.say(request("GET", "/v1/jobs/j/events", client.host))
            assert (await client.head())[0] == 200
        await watchers_there(watching_, 20)
        served.close()
        await until(lambda: not watching_._watched)
        await until(lambda: watching_._telling is None)
        return served.places.taken

    assert run_over_http(story) == 0


def test_beyond_their_limit_watchers_are_told_to_come_again(monkeypatch):
    monkeypatch.setattr(api, "WATCHERS_MAX", 2)

    async def story(served):
        await served.submit()
        clients = []
        for _ in range(2):
            clients.append(await served.connect())
            await clients[-1].say(request("GET", "/v1/jobs/j/events", HOST))
            assert (await clients[-1].head())[0] == 200
        refused = await served.ask("GET", "/v1/jobs/j/events")
        clients[0].close()
        await until(lambda: served.places.taken == 1)
        again = await served.connect()
        await again.say(request("GET", "/v1/jobs/j/events", HOST))
        return refused, (await again.head())[0]

    refused, again = run_over_http(story)
    assert (refused.status, refused.document["type"]) == (503, "urn:largesse:busy")
    assert "2 watchers" in refused.document["detail"]
    assert refused.headers["retry-after"] == "1"
    assert again == 200


def test_a_watcher_that_never_reads_is_cut_off_and_the_others_hear_on(monkeypatch):
    """Its job changes as often as there are records, and its events are large: they do not fit in the kernel."""
    monkeypatch.setattr(watching, "EVENT_GAP_S", 0)
    wide = [JOB["stages"][0] | {"stage": f"s{number}", "tasks": 1} for number in range(300)]

    async def story(served):
        await served.submit("j", stages=wide)
        deaf = await served.connect_deaf()
        deaf.send(request("GET", "/v1/jobs/j/events", HOST))
        await until(lambda: any(each.unsent for each in served.door.open))
        served.ahead_s = 3_600
        await until(lambda: served.places.taken == 0)
        return (await served.ask("DELETE", "/v1/jobs/j")).status

    assert run_over_http(story, send_buffer=4_096) == 200


def test_telling_many_leaves_turns_to_others():
    """Between two groups of watchers the loop does everything else that is ready."""

    async def story(cell):
        await cell.post(JOB)
        seen = Watching(cell.follower, gap_s=0)
        counted = {"events": 0}
        most = 0

        async def one():
            async for _ in seen.events("j"):
                counted["events"] += 1

        tasks = [asyncio.ensure_future(one()) for _ in range(10 * WOKEN_AT_ONCE)]
        await watchers_there(seen, 10 * WOKEN_AT_ONCE)
        asked = asyncio.ensure_future(cancel(cell))
        before = counted["events"]
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            most, before = max(most, counted["events"] - before), counted["events"]
        await asked
        return most

    assert run_in_memory(story) <= 2 * WOKEN_AT_ONCE


@pytest.mark.parametrize("failing", ["job_document"])
def test_a_fault_in_wording_ends_the_streams_and_is_not_waited_for(failing, monkeypatch):
    async def story(cell):
        await cell.post(JOB)
        seen = Watching(cell.follower, gap_s=0)
        task = asyncio.ensure_future(heard(seen))
        await watchers_there(seen, 1)
        monkeypatch.setattr(watching, failing, lambda state, name: 1 // 0)
        telling = seen._telling
        await cell.post(job("other"))
        await task
        monkeypatch.undo()
        return type(telling.exception())

    assert run_in_memory(story) is ZeroDivisionError


def resumed(cell, last, job="j"):
    return cell.http.get(f"/v1/jobs/{job}/events", headers={"Last-Event-ID": last})


def test_a_state_that_was_told_is_not_told_again_to_who_names_its_event():
    async def story(cell):
        await cell.post(JOB)
        seen = Watching(cell.follower, gap_s=0)
        first = await anext(seen.events("j"))
        again = asyncio.ensure_future(heard_after(seen, id_of(first)))
        await watchers_there(seen, 1)
        await cancel(cell)
        return first, await again

    first, again = run_in_memory(story)
    assert states([first]) == ["waiting"]
    assert id_of(first).partition("-")[2] not in {id_of(event).partition("-")[2] for event in again}
    assert states(again)[-1] == "cancelled"


async def heard_after(seen, last, job="j"):
    return [event async for event in seen.events(job, last)]


@pytest.mark.parametrize("last", [
    pytest.param("", id="none"),
    pytest.param("1", id="a position alone"),
    pytest.param("999999-0123456789abcdef", id="of another cell, or of a log that is gone"),
    pytest.param("-", id="nothing that was ever an id"),
])  # fmt: skip
def test_whoever_names_no_event_that_told_it_hears_the_state_of_now(last):
    async def story(cell):
        await cell.post(JOB)
        seen = Watching(cell.follower, gap_s=0)
        first = await anext(seen.events("j", last))
        await cancel(cell)
        return first, await resumed(cell, last)

    first, ended = run_in_memory(story)
    assert states([first]) == ["waiting"]
    assert (ended.status_code, ended.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert states([ended.content]) == ["cancelled"]


def test_what_changed_while_a_client_was_away_it_hears_when_it_comes_back_and_after_the_end_nothing():
    async def story(cell):
        await cell.post(JOB)
        first = await anext(Watching(cell.follower, gap_s=0).events("j"))
        await cancel(cell)
        back = await resumed(cell, id_of(first))
        return back, await resumed(cell, id_of(back.content))

    back, over = run_in_memory(story)
    assert states([back.content]) == ["cancelled"]
    assert (over.status_code, over.content) == (204, b"")


def test_an_event_id_that_is_too_long_is_refused():
    async def story(cell):
        await cell.post(JOB)
        return await resumed(cell, "9" * (app.EVENT_ID_MAX + 1))

    refused = run_in_memory(story)
    assert (refused.status_code, refused.json()["field"]) == (422, "Last-Event-ID")
