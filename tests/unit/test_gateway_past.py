"""The cell as it was: a moment is shown as a fold of the log up to it shows it, whatever checkpoint it begins from."""

import asyncio

import pytest

from largesse.folding import Folded
from largesse.log import past_keeper
from largesse.log.past_keeper import PastKeeper
from largesse.log.snapshots import dump
from largesse.moments import Moment
from largesse.settings import Settings
from largesse.shell import Shell
from schemas.topics import SNAPSHOTS
from services.gateway import past, view
from services.gateway.past import Past, PastBusy
from tests.bus_stories import answers_in
from tests.gateway_cell import GUARD_S, JOB, STAGE, run_in_memory

JOBS = [
    {"job": "big", "stages": [{**STAGE, "stage": "s", "tasks": 9}]},
    {"job": "chain", "stages": [STAGE, {**STAGE, "stage": "t", "after": ["s"]}]},
    {"job": "never", "stages": [{**STAGE, "demand": {"cpu": "3"}}]},
]


async def busy(cell):
    """A few jobs of which some wait, one is cancelled, and the config is changed between them."""
    for job in JOBS:
        assert (await cell.post(job)).status_code == 201
    assert (await cell.http.delete("/v1/jobs/big")).status_code < 300
    assert (await cell.http.put("/v1/config", json={"set": {"headroom": "off"}})).status_code == 200
    for number in range(6):
        assert (await cell.post({**JOB, "job": f"more-{number}"})).status_code == 201
        assert await cell.follower.until(lambda view: not view.open, GUARD_S)
    await cell.stop_sequencer()
    return cell.follower.state.seq


async def folded_to(cell, seq):
    """The slow way: the whole log up to a record."""
    folded = Folded(view, cell.bus, Settings(bus="file:memory"), shard=0, of=1, name="slow")
    while (ahead := await folded.log.peek()) is not None and ahead.record.seq <= seq:
        await folded.take()
    return folded.state


def keeper_in(bus, settings):
    return PastKeeper(bus, settings, past.past_states_in(bus, settings))


async def with_checkpoints(cell, **settings):
    """Another gateway that follows the log and keeps a checkpoint of every round, or of as many as are wanted."""
    settings = Settings(**settings)
    shell = Shell(view, cell.bus, settings, past=keeper_in(cell.bus, settings))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(past_keeper, "RECORDS_BETWEEN", 1)
        patch.setattr(past_keeper, "BYTES_BY_RECORD", 1 << 30)
        while await shell.step():
            pass


@pytest.mark.parametrize("checkpoints", [0, 2, 64])
def test_every_moment_is_as_a_fold_up_to_it(checkpoints):
    async def story(cell):
        last = await busy(cell)
        await with_checkpoints(cell, checkpoints=checkpoints)
        kept = [value for value in await answers_in(cell.bus, SNAPSHOTS) if b'"gateway.past"' in value]
        assert bool(kept) == bool(checkpoints)
        shown = Past(view, cell.bus, Settings(bus="file:memory"))
        assert last > 20
        for seq in range(1, last + 1):
            slow = await folded_to(cell, seq)
            found = await shown.at(Moment(seq, None))
            assert found.seq == seq
            assert dump(found) == dump(slow)
        at_time = await shown.at(Moment(None, slow.time))
        assert at_time.seq == last
        assert (await shown.at(Moment(None, slow.time - 1))).time < slow.time

    run_in_memory(story)


@pytest.mark.parametrize(("most", "kept_least"), [(0, 0), (40_000, 1), (1 << 26, 2)])
def test_states_on_the_way_to_a_moment_show_the_next_ones_alike(monkeypatch, most, kept_least):
    monkeypatch.setattr(past, "RECORDS_LEAST", 1)
    monkeypatch.setattr(past, "BYTES_BY_RECORD", 1 << 30)
    monkeypatch.setattr(past, "STATES_BYTES_MAX", most)

    async def story(cell):
        last = await busy(cell)
        whole = Past(view, cell.bus, Settings(bus="file:memory"))
        await whole.at(Moment(last, None))
        assert len(whole._on_the_way) >= kept_least
        await with_checkpoints(cell, checkpoints=2)
        shown = Past(view, cell.bus, Settings(bus="file:memory"))
        for seq in [*range(last, 0, -3), *range(1, last, 2)]:
            found = await shown.at(Moment(seq, None))
            assert dump(found) == dump(await folded_to(cell, seq))
            assert sum(len(near.state) for near in shown._on_the_way.values()) == shown._on_the_way_bytes <= most
        assert bool(shown._on_the_way) == bool(most)

    run_in_memory(story)


def test_a_past_state_does_not_change_while_others_are_shown():
    async def story(cell):
        last = await busy(cell)
        shown = Past(view, cell.bus, Settings(bus="file:memory"))
        early = await shown.at(Moment(last - 8, None))
        before = dump(early)
        for seq in (last, last - 4, last - 8, last - 2):
            await shown.at(Moment(seq, None))
        assert dump(early) == before

    run_in_memory(story)


def test_http_says_the_moment_beside_what_it_shows():
    async def story(cell):
        last = await busy(cell)
        seqs = {}
        for seq in range(1, last + 1):
            jobs = (await cell.get("/v1/jobs", at=str(seq))).json()
            assert jobs["at"]["seq"] == seq
            for job in jobs["jobs"]:
                seqs.setdefault((job["job"], job["state"]), seq)
        assert seqs["big", "waiting"] < seqs["chain", "waiting"] < seqs["big", "cancelled"]

        one = (await cell.get("/v1/jobs/big", at=str(seqs["big", "waiting"]))).json()
        assert one["state"] == "waiting"
        assert one["at"]["seq"] == seqs["big", "waiting"]
        for path in ("queues", "nodes", "classes", "ledger", "reservations", "series", "config"):
            then, now = [(await cell.get(f"/v1/{path}", **more)).json() for more in ({"at": str(last)}, {})]
            assert then.pop("at")["seq"] == last
            assert then == now
        why = (await cell.get("/v1/jobs/big/why", at=str(seqs["big", "waiting"]))).json()
        assert (why["state"], why["at"]["seq"]) == ("waiting", seqs["big", "waiting"])
        assert (await cell.get("/v1/why", id="big", at=str(last))).json()["state"] == "cancelled"
        summary = (await cell.get("/v1/summary", at=str(last))).json()
        assert summary["at"]["seq"] == summary["seq"] == last
        assert summary["queues"] == (await cell.get("/v1/queues")).json()
        assert sum(each["tasks"] for each in summary["waiting"]) > 0
        config = (await cell.get("/v1/config", at=str(seqs["big", "waiting"]))).json()
        assert config["set"]["headroom"] != "off"

    run_in_memory(story)


@pytest.mark.parametrize(
    ("at", "status", "says"),
    [
        pytest.param("soon", 422, "at: 'soon' is neither a record's seq nor a time like", id="no moment"),
        pytest.param("99999", 422, "at: the log ends at record", id="beyond the end"),
        pytest.param("1970-01-01T00:00:00", 422, "at: the log begins later", id="before the first record"),
    ],
)
def test_moments_that_the_log_does_not_have_are_refused(at, status, says):
    async def story(cell):
        answer = await cell.get("/v1/queues", at=at)
        assert answer.status_code == status
        assert answer.json()["field"] == "at"
        assert answer.json()["detail"].startswith(says)

    run_in_memory(story)


def test_a_job_that_was_not_there_yet_is_unknown():
    async def story(cell):
        await busy(cell)
        assert (await cell.get("/v1/jobs/big", at="3")).status_code == 404

    run_in_memory(story)


def test_a_moment_that_takes_long_is_read_on_for_who_asks_again(monkeypatch):
    async def story(cell):
        last = await busy(cell)
        monkeypatch.setattr(past, "WAIT_S", 0.0)
        monkeypatch.setattr(past, "TURN_S", 0.0)
        answer = await cell.get("/v1/nodes", at=str(last))
        assert (answer.status_code, answer.json()["type"]) == (503, "urn:largesse:busy")
        assert answer.headers["retry-after"]
        monkeypatch.setattr(past, "WAIT_S", 240.0)
        assert (await cell.get("/v1/nodes", at=str(last))).status_code == 200

    run_in_memory(story)


def test_moments_beyond_those_that_are_read_are_refused(monkeypatch):
    async def story(cell):
        last = await busy(cell)
        monkeypatch.setattr(past, "FOLDS_MAX", 1)
        shown = Past(view, cell.bus, Settings(bus="file:memory"))
        first = asyncio.ensure_future(shown.at(Moment(last, None)))
        await asyncio.sleep(0)
        with pytest.raises(PastBusy):
            await shown.at(Moment(last - 1, None))
        assert (await first).seq == last
        assert (await shown.at(Moment(last - 1, None))).seq == last - 1
        await shown.close()

    run_in_memory(story)
