"""Attempts over HTTP: of a job and on a node, live and past, read on from the log each time that somebody asks."""

import pytest

from largesse.log.reader import publish_input
from services.gateway import attempts, log_places
from services.gateway.http.routes import attempts as routes
from tests.gateway_cell import GUARD_S, STAGE, run_in_memory

THREE = {"job": "j", "stages": [{**STAGE, "tasks": 3, "retries": 3}]}


async def report(cell, kind, *indexes, job="j", **more):
    """The node's agent says something of tasks of stage `s`."""
    place = {"job": job, "stage": "s", "count": 1, "attempt": 1, "node": "n1", "epoch": "e1"}
    items = [{**place, "first": index, **more} for index in indexes]
    await publish_input(cell.bus.writer(), "tasks", {kind: {"items": items}}, "n1")


async def ran(cell):
    """A job of three tasks, of which one succeeds, one fails for good and is tried again, and one runs."""
    assert (await cell.post(THREE)).status_code == 201
    assert await cell.follower.until(lambda view: len(view.holds) == 3, GUARD_S)
    await report(cell, "started", 0, 1, 2)
    assert await cell.follower.until(lambda view: view.jobs["j"].running == [3], GUARD_S)
    between = cell.follower.state.seq
    await report(cell, "finished", 0, run_ms=[5])
    await report(cell, "failed", 1, reason="exit_code", exit_code=3)
    assert await cell.follower.until(lambda view: view.jobs["j"].failures, GUARD_S)
    return between


def outcomes(document):
    return {(row["index"], row["attempt"]): row["outcome"] for row in document["attempts"]}


def test_attempts_of_a_job_are_told_as_they_come_and_as_they_were():
    async def story(cell):
        assert (await cell.post({**THREE, "job": "other"})).status_code == 201
        assert await cell.follower.until(lambda view: view.holds, GUARD_S)
        assert (await cell.http.delete("/v1/jobs/other")).status_code < 300
        await report(cell, "failed", 0, 1, 2, job="other", reason="killed")
        assert await cell.follower.until(lambda view: not view.holds, GUARD_S)
        between = await ran(cell)
        params = ({}, {"at": str(between)}, {"limit": 2})
        found = [(await cell.get("/v1/jobs/j/attempts", **more)).json() for more in params]
        return *found, (await cell.get("/v1/jobs/other/attempts")).json(), await cell.get("/v1/jobs/none/attempts")

    now, past, cut, other, unknown = run_in_memory(story)
    assert outcomes(other) == {(index, 1): "killed" for index in range(3)}
    found = outcomes(now)
    assert (found[0, 1], found[1, 1], found[2, 1]) == ("succeeded", "exit_code", "running")
    assert not now["truncated"]
    for row in now["attempts"][:3]:
        assert row["granted_ms"] <= row["start_ms"] <= (row["end_ms"] or now["time_ms"])
        assert (row["job"], row["stage"], row["node"]) == ("j", "s", "n1")
    assert outcomes(past) == {(index, 1): "running" for index in range(3)}
    assert past["at"]["seq"] == past["seq"]
    assert all(row["end_ms"] is None for row in past["attempts"])
    assert (cut["attempts"], cut["truncated"]) == (now["attempts"][:2], True)
    assert unknown.status_code == 404


def test_what_ran_on_a_node_is_told_from_a_moment_on(monkeypatch):
    monkeypatch.setattr(log_places, "PLACE_EVERY", 4)

    async def story(cell):
        between = await ran(cell)
        at = cell.follower.state.time
        whole = (await cell.get("/v1/nodes/n1/attempts")).json()
        late = (await cell.get("/v1/nodes/n1/attempts", since_ms=at + 1)).json()
        past = (await cell.get("/v1/nodes/n1/attempts", at=str(between))).json()
        return whole, late, past, await cell.get("/v1/nodes/none/attempts")

    whole, late, past, unknown = run_in_memory(story)
    found = outcomes(whole)
    assert (found[0, 1], found[1, 1], found[2, 1]) == ("succeeded", "exit_code", "running")
    assert all(row["granted_ms"] is not None and row["start_ms"] is not None for row in whole["attempts"][:3])
    assert (0, 1) not in outcomes(late)
    assert outcomes(late)[2, 1] == "running"  # It holds room still, though the records of that lie before.
    assert outcomes(past) == {(index, 1): "running" for index in range(3)}
    assert unknown.status_code == 404


@pytest.mark.parametrize("kept", [1, 16])
def test_who_asks_again_gets_what_was_not_read_in_one_go(monkeypatch, kept):
    monkeypatch.setattr(attempts, "LOOKED_AT_MAX", 2)
    monkeypatch.setattr(routes, "LOOKED_AT_MAX", 10_000)
    monkeypatch.setattr(attempts, "TABLES_KEPT", kept)
    monkeypatch.setattr(log_places, "READ_AT_ONCE", 1)

    async def story(cell):
        await ran(cell)
        await cell.stop_sequencer()
        found = [(await cell.get("/v1/jobs/j/attempts")).json()]
        while found[-1]["truncated"]:
            found.append((await cell.get("/v1/jobs/j/attempts")).json())
            assert len(found) < 100
        return found

    found = run_in_memory(story)
    assert len(found) > 2
    assert outcomes(found[-1])[0, 1] == "succeeded"
    assert [len(each["attempts"]) for each in found] == sorted(len(each["attempts"]) for each in found)


def test_more_attempts_than_are_kept_are_said_to_be_missing(monkeypatch):
    monkeypatch.setattr(attempts, "ATTEMPTS_MAX", 2)

    async def story(cell):
        await ran(cell)
        return (await cell.get("/v1/jobs/j/attempts")).json()

    found = run_in_memory(story)
    assert (len(found["attempts"]), found["truncated"]) == (2, True)
