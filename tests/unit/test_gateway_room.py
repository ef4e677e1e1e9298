"""What is free of the nodes and for whom, the map of nodes, specs of jobs, and what the summary says of refusals."""

import asyncio
import json
from typing import Any

import httpx
import pytest
from hypothesis import settings
from hypothesis import strategies as st

from largesse.hosts import hosts_of
from largesse.log.reader import publish_input
from schemas import JobSpec, NodeDrained, NodeRegistered, Stage
from schemas.edge.jobs import read_job
from schemas.jobs import AntiAffinity, Spread
from services.cli.ending import Wrong
from services.cli.viewing import results_in
from services.gateway.documents.node_map import node_map_document
from services.gateway.documents.nodes import listed_nodes, node_documents
from services.gateway.documents.specs import spec_document
from services.gateway.documents.summary import late_jobs, summary_document
from services.gateway.documents.tally import Counts
from services.gateway.http.results_app import results_app
from services.gateway.view.room import free_of, has_labels, is_closed
from services.gateway.why.fitting import fitting_document
from tests.builders import reservation
from tests.gateway_cell import GUARD_S, STAGE, run_in_memory
from tests.gateway_watch import Watched, stage
from tests.strategies import for_all
from tests.unit.cli_here import largesse


# ---------------------------------------------------------------- free room
def plain_fits(state, wanted):
    """For how many tasks there is room: node by node, task by task."""
    count = 0
    for node in state.nodes.values():
        if is_closed(node) or not has_labels(node, wanted):
            continue
        left = {kind: max(0, amount) for kind, amount in free_of(state.policy, node).items()}
        while all(left.get(kind, 0) >= amount for kind, amount in wanted.demand.items()):
            left = {kind: amount - wanted.demand.get(kind, 0) for kind, amount in left.items()}
            count += 1
    return count


def test_room_in_pieces_is_of_no_use_to_tasks_that_are_larger():
    cell = Watched(nodes=3, cpu=4)
    cell.submit("large", stage(tasks=9, cpu=3))

    found = fitting_document(cell.view)
    (row,) = found["classes"]

    assert found["free"] == {"cpu": "3"}
    assert (row["tasks"], row["fits"], row["nodes"], row["in_one"], row["usable"]) == (6, 0, 0, 1, {"cpu": "0"})


@settings(max_examples=20)
@for_all(
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 5)), min_size=1, max_size=3),
    st.lists(st.integers(1, 4), min_size=1, max_size=4),
    st.booleans(),
)
def test_as_many_tasks_fit_as_when_they_are_put_there_one_by_one(jobs, capacities, drains):
    cell = Watched(nodes=0)
    for number, cpu in enumerate(capacities):
        labels = {"zone": "a"} if number % 2 else {}
        cell.take(NodeRegistered(f"n{number}", "e1", {"cpu": cpu * 1_000}, labels))
    if drains:
        cell.take(NodeDrained("n0", True, "ann"))
    wanted = {}
    for number, (tasks, cpu) in enumerate(jobs):
        labels = {"zone": "a"} if number % 3 == 2 else {}
        wanted[f"j{number}"] = stage(tasks=tasks, cpu=cpu, labels=labels)
        cell.submit(f"j{number}", wanted[f"j{number}"])

    found = fitting_document(cell.view)

    for row in found["classes"]:
        assert row["fits"] == plain_fits(cell.view, wanted[row["job"]])
    total = sum(
        max(0, free_of(cell.view.policy, node)["cpu"]) for node in cell.view.nodes.values() if not is_closed(node)
    )
    assert found["free"].get("cpu", "0") == (str(total // 1_000) if total % 1_000 == 0 else f"{total}m")


# ---------------------------------------------------------------- the map of nodes
def test_the_map_has_of_every_node_what_its_document_says():
    cell = Watched(nodes=3, cpu=2)
    cell.take(NodeRegistered("other", "e1", {"licences": 3}))
    cell.submit("j", stage(tasks=3)).take(NodeDrained("n1", True, "ann"))

    found = node_map_document(cell.view, listed_nodes(cell.view))

    for at, node in enumerate(node_documents(cell.view)):
        assert (found["nodes"][at], found["states"][at], found["running"][at]) == (
            *(node["node"], node["state"], node["running"]),
        )
        for kind, columns in found["resources"].items():
            has = columns["capacity"][at]
            assert (has is None) == (kind not in node["capacity"])
            assert (columns["used"][at] is None) == (has is None)
    assert found["resources"]["cpu"]["unit"] == "1m"


def test_nodes_are_listed_by_their_state():
    cell = Watched(nodes=3).take(NodeDrained("n1", True, "ann"))

    assert listed_nodes(cell.view, states=("draining",)) == ["n1"]
    assert listed_nodes(cell.view, states=("draining", "ready"), sort="-name") == ["n2", "n1", "n0"]


# ---------------------------------------------------------------- specs
NAMES = st.text("abc-", min_size=1, max_size=6).filter(lambda name: name.strip("-") == name)
DEMANDS = st.dictionaries(st.sampled_from(("cpu", "memory", "gpu")), st.integers(1, 4_096), min_size=1)


@st.composite
def stages(draw, number):
    """A stage as the log keeps it, which may come after the one before it."""
    command = draw(st.booleans())
    tasks = draw(st.integers(1, 4))
    durations = [] if command else draw(st.lists(st.integers(1, 99), min_size=tasks, max_size=tasks))
    durations = durations[:1] if len(set(durations)) == 1 else durations
    timeout_ms = draw(st.none() | st.integers(1, 10_000))
    mean = -(-sum(durations) // len(durations)) if durations else timeout_ms or 0
    return Stage(
        f"s{number}",
        tasks,
        draw(DEMANDS),
        after=[f"s{number - 1}"] if number and draw(st.booleans()) else [],
        estimate_ms=draw(st.sampled_from((mean, 7))),
        durations_ms=durations,
        gang=draw(st.booleans()),
        retries=draw(st.integers(0, 3)),
        timeout_ms=timeout_ms,
        labels=draw(st.dictionaries(NAMES, NAMES, max_size=1)),
        command=["sh", "-c", draw(st.text("ab '\"\n", min_size=1, max_size=9))] if command else [],
        env=draw(st.dictionaries(st.sampled_from(("A", "B")), st.text("ab =", max_size=3))),
        cwd=draw(st.none() | st.just("/tmp")),
        anti_affinity=draw(st.none() | st.builds(AntiAffinity, st.sampled_from(("", "group")), st.booleans())),
        spread=draw(st.none() | st.builds(Spread, st.just("zone"), st.integers(1, 3), st.booleans())),
        speculative=draw(st.booleans()),
        running_max=None,
    )


@st.composite
def specs(draw):
    """A job as the log keeps it."""
    return JobSpec(
        draw(NAMES),
        draw(st.sampled_from(("default", "ads/prod"))),
        [draw(stages(number)) for number in range(draw(st.integers(1, 3)))],
        draw(st.integers(-5, 5)),
        draw(st.sampled_from(("", "ann"))),
        draw(st.sampled_from((None, "nightly"))),
        revocable=draw(st.sampled_from(("auto", "never", "always"))),
        hold=draw(st.booleans()),
    )


@for_all(specs())
def test_a_spec_as_it_is_shown_reads_as_the_same_job(spec):
    assert read_job(json.loads(json.dumps(spec_document(spec))), "ann") == spec


def test_a_job_tells_its_spec_while_it_lives_and_for_a_while_after():
    document = {"job": "j", "queue": "default", "stages": [{**STAGE, "env": {"A": "1"}}]}

    async def story(cell):
        await cell.post(document)
        live = await cell.get("/v1/jobs/j/spec")
        await cell.http.delete("/v1/jobs/j")
        await cell.follower.until(lambda view: "j" in view.ended, GUARD_S)
        ended = await cell.get("/v1/jobs/j/spec")
        cell.follower.state.specs.clear()
        return live, ended, await cell.get("/v1/jobs/j/spec"), await cell.get("/v1/jobs/nobody/spec")

    live, ended, forgotten, unknown = run_in_memory(story)
    assert live.json() == {"job": "j", "spec": document}
    assert ended.json() == live.json()
    assert (forgotten.status_code, forgotten.json()["type"]) == (404, "urn:largesse:no_spec")
    assert (unknown.status_code, unknown.json()["type"]) == (404, "urn:largesse:unknown_job")


# ---------------------------------------------------------------- what needs attention
def test_an_input_that_is_refused_for_good_is_told_and_its_record_named():
    async def story(cell):
        before = (await cell.get("/v1/summary")).json()["refused"]
        seq = cell.follower.state.seq
        await publish_input(cell.bus.writer(), "jobs", {"stages": "none"}, "mallory")
        await cell.follower.until(lambda view: view.refused_count, GUARD_S)
        changed = cell.follower.changes.since(seq)
        after = (await cell.get("/v1/summary")).json()["refused"]
        record = (await cell.get("/v1/records", type="InputRefused", **{"from": after["latest"][0]["seq"]})).json()
        return before, changed, after, record["records"][0]

    before, changed, after, record = run_in_memory(story)
    assert before == {"count": 0, "latest": []}
    assert "refused" in changed.kinds
    assert after["count"] == 1
    (row,) = after["latest"]
    assert (row["topic"], row["author"], row["seq"], row["time_ms"]) == (
        *("jobs", "mallory", record["seq"], record["time_ms"]),
    )
    assert "stages" in row["field"]


def test_a_round_that_is_open_is_told_with_its_beginning():
    cell, seen = Watched(nodes=1), []
    hear = cell._hear

    def look(topic, header, content):
        hear(topic, header, content)
        seen.append(summary_document(cell.view, Counts())["open_since_ms"])

    cell.cell.listener = look
    cell.submit("j", stage())
    cell.settle(after_ms=500).submit("k", stage())

    assert {0, 500} <= {*seen}
    assert summary_document(cell.view, Counts())["open_since_ms"] is None


def test_for_how_long_no_record_has_come_is_told():
    async def story(cell):
        await cell.stop_sequencer()
        found = 0
        for _ in range(1_000):
            await asyncio.sleep(0.02)
            found = (await cell.get("/readyz")).json()["silent_ms"]
            if found >= 100:
                break
        return found

    assert 100 <= run_in_memory(story) < GUARD_S * 1_000


def test_a_job_is_late_once_the_window_of_its_reservation_is_over():
    cell = Watched(nodes=1, reservations="on")
    atom = {"op": "atom", "b": {"cpu": 1000}, "g": 1, "h": 1, "l": 60, "w": 60}
    cell.take(reservation("r", {"op": "window", "s": 0, "e": 600, "of": atom}).body)
    cell.settle()
    cell.submit("j", stage(), user="ann", reservation="r")

    assert late_jobs(cell.view) == []
    cell.settle(after_ms=700_000)

    assert [(row["job"], row["reservation"], row["since_ms"]) for row in late_jobs(cell.view)] == [("j", "r", 600_000)]


# ---------------------------------------------------------------- results
RESULTS: dict[str, Any] = {"presets": {"drf": {"per_job": []}}}


def test_results_are_served_with_the_page_and_nothing_else():
    async def story():
        app = results_app("out", RESULTS, hosts_of("127.0.0.1"))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:1") as http:
            return [await http.get(path) for path in ("/", "/readyz", "/v1/results", "/v1/jobs")]

    page, ready, results, jobs = asyncio.run(story())
    assert "<html" in page.text
    assert ready.json()["results"] is True
    assert results.json() == {"name": "out", "document": RESULTS}
    assert jobs.status_code == 404


def test_results_are_found_in_a_file_or_the_folder_of_a_report(tmp_path):
    (tmp_path / "results.json").write_text(json.dumps(RESULTS))
    (tmp_path / "other.json").write_text("[1]")
    (tmp_path / "broken.json").write_text("{")

    assert results_in(tmp_path) == results_in(tmp_path / "results.json") == RESULTS
    assert results_in(tmp_path / "log.gz") is None
    for name in ("other.json", "broken.json"):
        with pytest.raises(Wrong, match=name):
            results_in(tmp_path / name)


def test_a_report_has_its_results_beside_it(tmp_path):
    said = largesse(
        *("compare", "--presets", "drf,fifo", "--report", str(tmp_path), "--json"),
        *("--workload", "examples/workloads/small.jsonl", "--cluster", "examples/clusters/small.json"),
    )
    assert said.code == 0, said.err
    assert json.loads((tmp_path / "results.json").read_text()) == json.loads(said.out)
