"""`largesse view`: a recorded log and a bundle of it answer as the live gateway does at the same record."""

import asyncio
import os
import signal
import subprocess
from contextlib import asynccontextmanager

import httpx
import pytest

from largesse.bus.memory import MemoryBus
from largesse.log.export import ExportWriter
from largesse.settings import Settings
from services.gateway import view
from services.gateway.follow import Follower
from services.gateway.http.app import make_app
from services.replay.bundling import Slice, write_bundle
from services.replay.onto_bus import put_onto
from services.replay.source import Source, open_source, steps_of, write_export
from services.simulator.drawn import drawn_cluster
from services.simulator.drawn_reservations import KNOBS, drawn_arrivals
from tests.gateway_cell import GUARD_S, JOB, STAGE, run_in_memory
from tests.simulation.test_what_if import recorded as simulated
from tests.stepped_cell import recorded
from tests.unit.cli_here import largesse
from tests.unit.cli_process import COMMAND, ROOT, environment
from tests.unit.test_gateway_attempts import ran

pytestmark = pytest.mark.slow

PATHS = (
    *("/v1/jobs", "/v1/jobs/j", "/v1/jobs/more-1", "/v1/jobs?sort=-waiting&limit=3", "/v1/jobs/j/why"),
    *("/v1/jobs/j/attempts", "/v1/nodes/n1/attempts", "/v1/nodes", "/v1/queues", "/v1/summary", "/v1/classes"),
    *("/v1/config", "/v1/ledger", "/v1/reservations", "/v1/series", "/v1/queues/default/why"),
)
OF_THE_LOG = ("/v1/records?whole=1&limit=1000", "/v1/records?order=desc&job=j", "/v1/rounds/2", "/openapi.json", "/")


@asynccontextmanager
async def viewed(source):
    """A client of the gateway over a recorded log."""
    bus, stop, counted = MemoryBus(), asyncio.Event(), []
    cell = await put_onto(source, bus.writer(), view.NAME, counted.append)
    follower = Follower(bus, Settings(bus="memory:", cell=cell, snapshot_rounds=2), stop=stop)
    running = asyncio.ensure_future(follower.run())
    transport = httpx.ASGITransport(make_app(follower, recorded=True))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8642") as http:
        try:
            async with asyncio.timeout(GUARD_S):
                while not follower.ready:
                    await follower.changed(0.01)
                yield http, follower
        finally:
            stop.set()
            await running


async def busy(cell):
    await ran(cell)
    for number in range(4):
        await cell.post({**JOB, "job": f"more-{number}", "stages": [{**STAGE, "tasks": 3}]})
    assert (await cell.http.delete("/v1/jobs/more-2")).status_code < 300
    assert await cell.follower.until(lambda view: not view.open, GUARD_S)
    await cell.stop_sequencer()


async def source_of(cell):
    messages = (await recorded(cell.bus, 1)).messages()
    return Source("live", lambda hear: steps_of(messages, 0, hear), lambda: 1)


async def answers(http, paths, seqs):
    """By path and record what is answered, and of the log itself."""
    found = {}
    for path in paths:
        for seq in seqs:
            answer = await http.get(path, params={"at": seq} if "?" not in path else None, follow_redirects=False)
            if "?" in path:
                answer = await http.get(f"{path}&at={seq}")
            found[path, seq] = answer.status_code, answer.content
    for path in OF_THE_LOG:
        answer = await http.get(path)
        found[path, None] = answer.status_code, answer.content
    return found


def test_a_recorded_log_answers_as_the_live_gateway_at_the_same_record(tmp_path):
    async def story(cell):
        await busy(cell)
        last = cell.follower.state.seq
        seqs = [last // 2, last - 3, last]
        live = await answers(cell.http, PATHS, seqs)
        source = await source_of(cell)
        write_export(source, tmp_path / "log.gz")
        async with viewed(open_source(tmp_path / "log.gz")) as (http, follower):
            assert follower.state.seq == last
            again = await answers(http, PATHS, seqs)
        return live, again

    live, again = run_in_memory(story)
    assert {key for key in live if live[key] != again[key]} == set()
    assert {status for status, _ in live.values()} <= {200, 404}
    assert sum(status == 200 for status, _ in live.values()) > len(PATHS) * 2


def test_a_bundle_answers_so_from_its_first_record_on(tmp_path):
    async def story(cell):
        await busy(cell)
        last = cell.follower.state.seq
        source = await source_of(cell)
        written = write_bundle(source, tmp_path / "bundle", Slice(last // 2, None, None))
        seqs = [written.first + 2, last]
        paths = [path for path in PATHS if "attempts" not in path]
        live = await answers(cell.http, paths, seqs)
        async with viewed(open_source(tmp_path / "bundle")) as (http, _):
            again = await answers(http, paths, seqs)
            early = await http.get("/v1/jobs", params={"at": written.first - 2})
            records = (await http.get("/v1/records")).json()["records"]
            back = (await http.get("/v1/records?order=desc&limit=1000")).json()["records"]
            attempts = await http.get("/v1/jobs/j/attempts")
            stream = await http.get("/v1/changes?limit=1")
        for path in ("/v1/records?whole=1&limit=1000", "/v1/records?order=desc&job=j", "/v1/rounds/2"):
            del live[path, None], again[path, None]
        return written, live, again, early, records, back, attempts.json(), stream.status_code

    written, live, again, early, records, back, attempts, stream = run_in_memory(story)
    assert written.first > 10
    assert {key for key in live if live[key] != again[key]} == set()
    assert (early.status_code, early.json()["field"]) == (422, "at")
    assert records[0]["seq"] >= written.first
    assert [row["seq"] for row in records] == [row["seq"] for row in reversed(back)]
    assert all(row["start_ms"] is None or row["outcome"] for row in attempts["attempts"])
    assert stream == 200


def test_nothing_can_be_changed_and_no_node_is_asked(tmp_path):
    async def story(cell):
        await busy(cell)
        write_export(await source_of(cell), tmp_path / "log.gz")
        async with viewed(open_source(tmp_path / "log.gz")) as (http, follower):
            before = follower.state.seq
            refused = [
                await http.post("/v1/jobs", json={**JOB, "job": "late"}),
                await http.post("/v1/jobs?dry_run=true", json={**JOB, "job": "late"}),
                await http.delete("/v1/jobs/j"),
                await http.patch("/v1/jobs/j", json={"hold": True}),
                await http.put("/v1/config", json={"set": {"headroom": "off"}}),
                await http.post("/v1/nodes/n1/drain"),
                await http.post("/v1/rounds/1/abandon"),
            ]
            ready = (await http.get("/readyz")).json()
            assert follower.state.seq == before
        return refused, ready

    refused, ready = run_in_memory(story)
    assert [(answer.status_code, answer.json()["type"]) for answer in refused] == [(409, "urn:largesse:recorded")] * 7
    assert ready["recorded"] is True


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """Of a simulation, with reservations."""
    path = tmp_path_factory.mktemp("log") / "log.gz"
    arrivals = sorted(drawn_arrivals(9, "rayon"), key=lambda arrival: arrival[0])[:20]
    simulated(path, arrivals, drawn_cluster(9), {"preset": "rayon", "seed": 9, **KNOBS})
    return path


def test_the_command_serves_the_page_and_the_log_until_it_is_ended(log):
    command = [*COMMAND, "view", str(log), "--port", "0"]
    env = {**os.environ, **environment(200, {})}
    with subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True) as process:
        try:
            said = process.stdout.readline()
            url = said.split(" at ")[1].strip()
            with httpx.Client(base_url=url, timeout=GUARD_S) as http:
                for _ in range(10_000):
                    if (ready := http.get("/readyz")).status_code == 200:
                        break
                assert ready.json()["recorded"]
                last = ready.json()["seq"]
                assert http.get("/").headers["content-security-policy"]
                assert http.get("/v1/records?order=desc&limit=1").json()["end"] == last
                assert http.get(f"/v1/jobs?at={last // 2}").json()["at"]["seq"] == last // 2
                assert http.get("/v1/reservations").json()["reservations"]
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(GUARD_S) == 0
    assert "as recorded" in said


def test_what_is_no_log_or_has_no_record_is_refused(tmp_path):
    with ExportWriter(tmp_path / "empty"):
        pass
    for path, text in ((tmp_path / "none", "there is no such file"), (tmp_path / "empty", "the log has no record")):
        said = largesse("view", path, "--port", 0)
        assert said.code != 0
        assert text in said.err
