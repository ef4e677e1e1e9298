"""What the page says of other worlds (what-ifs, comparisons), of what jobs held, gave and got, and of what needs
attention; and the ways by which a newcomer finds an answer, click by click.
"""

import json
import re

import httpx
import pytest

from tests.browser import needs_chromium
from tests.live.up_jobs import shell
from tests.live.up_process import eventually, up
from tests.page_reader import NARROW, readers
from tests.unit.cli_here import largesse
from tests.viewed_log import viewed

pytestmark = [pytest.mark.slow, needs_chromium]

WORLD_S = 240
SHORT_MS = 30_000
CLUSTER = {
    "nodes": [{"name": "node", "capacity": {"cpu": "8", "memory": "2Gi"}}],
    "queues": {
        "name": "root",
        "children": [
            {
                "name": "ads",
                "weight": 2,
                "guaranteed": {"cpu": "6"},
                "children": [{"name": "prod"}, {"name": "dev", "running_jobs_max": 1}],
            },
            {"name": "research"},
        ],
    },
    "policy": {"preset": "carbyne", "headroom": "off", "node_lease_ms": 600_000},
}


def stage(name, text, tasks=1, cpu="1", **more):
    demand = {"cpu": cpu, "memory": "16Mi"}
    return {"stage": name, "tasks": tasks, "demand": demand, "command": [*shell(text)], "retries": 0, **more}


@pytest.fixture(scope="module")
def cell(tmp_path_factory):
    """A cell under carbyne with eight cores, in which a job ended, and ads is below its guarantee of six: tasks of
    research come and go one by one, and never leave that many free at once.
    """
    folder = tmp_path_factory.mktemp("worlds")
    (folder / "cluster.json").write_text(json.dumps(CLUSTER))
    with up(folder, "--cluster", folder / "cluster.json") as running:
        graph = [stage("a", "true", 2), stage("b", "sleep 0.5", after=["a"]), stage("c", "true", after=["b"])]
        first = {"job": "first", "queue": "ads/dev", "user": "ann", "stages": graph}
        small = stage("run", "sleep $((2 + (LARGESSE_TASK_INDEX * 7) % 5))", 4_000)
        jobs = (
            (first, lambda document: document["state"] == "succeeded"),
            ({"job": "many", "queue": "research", "user": "bob", "stages": [small]}, is_full),
            ({"job": "ahead", "queue": "ads/dev", "user": "ann", "stages": [stage("run", "true", 1, "8")]}, bool),
            ({"job": "waits-1", "queue": "ads/dev", "user": "ann", "stages": [stage("run", "true")]}, bool),
        )
        for job, holds in jobs:
            assert running.ask("submit", "-", stdin=json.dumps(job)).code == 0
            running.until(job["job"], holds)
        assert eventually(lambda: short_for_ms(running.url, "ads") > SHORT_MS)
        yield running


def is_full(document):
    return document["tasks"]["running"] == 8


def short_for_ms(url, queue):
    """For how long a queue has held less than it is due."""
    summary = httpx.get(f"{url}/v1/summary", timeout=60).json()
    since_ms = next(child for child in summary["queues"]["children"] if child["queue"] == queue)["short_since_ms"]
    return 0 if since_ms is None else summary["time"] - since_ms


@pytest.fixture(scope="module")
def reader(cell):
    with readers(cell.url) as make:
        yield make


# ---------------------------------------------------------------- a newcomer's three questions
def test_which_queue_is_short_of_its_guarantee_and_why_takes_one_click(reader, cell):
    tab = reader()
    tab.open("overview")

    attention = tab.tab.get_by_role("region", name="Needs attention")
    said = attention.inner_text().replace("\n", " ")
    assert "Queue ads has held less than it is due for" in said
    assert re.search(r"due for \S+ \S+: 0 %, where 75 % are guaranteed\. ", said)
    attention.get_by_role("link", name="Why", exact=True).first.click()
    tab.until("location.hash.startsWith('#/queues/ads')")
    tab.settled()

    why = httpx.get(f"{cell.url}/v1/queues/ads/why").json()["reasons"][0]["reason"]
    assert why in tab.text("section[aria-label=Why]")
    assert "75 %" in tab.text()
    assert tab.complaints == []


def test_why_a_job_waits_takes_a_search_and_one_click(reader, cell):
    tab = reader()
    tab.open("overview")
    tab.tab.keyboard.press("/")
    tab.tab.keyboard.type("waits")
    tab.tab.keyboard.press("Enter")
    tab.tab.get_by_role("link", name="waits-1").click()
    tab.until("location.hash.startsWith('#/jobs/waits-1')")
    tab.settled()

    why = httpx.get(f"{cell.url}/v1/jobs/waits-1/why").json()["reasons"][0]
    shown = tab.text("section[aria-label=Why]")
    assert why["reason"] in shown
    assert all(text in shown for text in why["unblocks"])
    assert tab.complaints == []


def test_who_got_what_a_queue_gave_away_up_to_a_moment_takes_a_view_a_time_and_a_span(reader, cell):
    tab = reader(timezone_id="UTC")
    tab.open("overview")
    tab.tab.get_by_role("link", name="Donations").click()
    tab.settled()
    assert eventually(lambda: any(row["donated"] for row in httpx.get(f"{cell.url}/v1/ledger").json()["queues"]))
    noon = httpx.get(f"{cell.url}/v1/summary").json()["time"] // 1_000 - 5  # Another second than the field has.
    field = tab.tab.get_by_label("Go to a time")
    field.fill(tab.tab.evaluate("ms => new Date(ms).toISOString().slice(0, 19)", noon * 1_000))
    field.press("Enter")
    tab.until("location.hash.includes('at=20')")
    tab.tab.get_by_role("button", name="last hour").click()
    tab.until("location.hash.includes('since=')")
    tab.settled()

    at = tab.tab.evaluate("new URLSearchParams(location.hash.split('?')[1]).get('at')")
    ledger = httpx.get(f"{cell.url}/v1/ledger", params={"at": at}, timeout=60).json()
    given = {row["queue"] for row in ledger["queues"] if row["donated"]}
    assert given
    drawn = tab.tab.get_by_role("group", name="Flows between queues").inner_text()
    assert all(queue in drawn for queue in given)
    table = tab.text("section[aria-label='By queue']")
    assert all(row["queue"] in table for row in ledger["queues"])
    assert tab.text(".tense").lower() == "past"
    assert tab.complaints == []


# ---------------------------------------------------------------- what needs attention, what jobs held
def test_a_refused_input_is_told_and_leads_to_its_record(reader, cell):
    httpx.post(f"{cell.url}/v1/jobs", json={"job": "x", "stages": []}, timeout=60)
    count = httpx.get(f"{cell.url}/v1/summary").json()["refused"]["count"]
    tab = reader("dark", NARROW)
    tab.open("overview")

    if count:
        tab.tab.get_by_role("link", name="refused for good in the last hour").click()
        tab.until("location.hash.includes('type=InputRefused')")
        tab.settled()
        assert "InputRefused" in tab.text("main tbody")
    assert not tab.too_wide()
    assert tab.complaints == []


def test_a_job_shows_what_it_held_and_what_it_gave_and_got(reader, cell):
    tab = reader()
    tab.open("jobs/first")
    share = tab.tab.get_by_role("region", name="Share over time")
    share.get_by_text("At most").wait_for()

    account = httpx.get(f"{cell.url}/v1/jobs/first").json()["account"]
    facts = {(name, field): value for kind, name, field, value in tab.facts() if kind == "job" and "account" in field}
    for field in ("donated", "received", "waited"):
        for resource, amount in account[field].items():
            assert facts["first", f"account.{field}.{resource}"] == amount
    assert any(account[field] for field in ("donated", "received", "waited"))
    assert (tab.complaints, tab.violations()) == ([], [])


def test_a_job_is_submitted_again_under_another_name(reader, cell):
    tab = reader()
    tab.open("jobs/first")
    tab.tab.get_by_role("link", name="Submit another like it").click()
    tab.until("document.querySelector('textarea')?.value.includes('first-2')")
    tab.tab.get_by_role("button", name="Submit", exact=True).click()
    tab.tab.get_by_role("link", name="first-2", exact=True).wait_for()

    first, second = (httpx.get(f"{cell.url}/v1/jobs/{name}/spec").json()["spec"] for name in ("first", "first-2"))
    assert second == {**first, "job": "first-2"}
    assert tab.complaints == []


def test_nodes_show_what_waiting_tasks_could_still_use(reader, cell):
    tab, seq = reader(), httpx.get(f"{cell.url}/readyz").json()["seq"]
    tab.open(f"nodes?at={seq}")
    tab.tab.get_by_role("group", name="Room for waiting tasks").wait_for()
    room = httpx.get(f"{cell.url}/v1/room", params={"at": seq}, timeout=60).json()

    facts = {(name, field): value for kind, name, field, value in tab.facts() if kind == "room"}
    for at, row in enumerate(room["classes"]):
        for field in ("tasks", "fits", "in_one"):
            assert facts[str(at), field] == str(row[field])
    assert room["classes"]
    assert (tab.complaints, tab.violations()) == ([], [])


def test_a_series_is_asked_for_and_shown_with_its_occurrences(reader, cell):
    tab = reader()
    tab.open("reservations")
    for name, text in (
        ("Name", "nightly"),
        ("For whom", "ann"),
        ("Queue", "research"),
        ("One unit is", "cpu 10m, memory 1Mi"),
    ):
        tab.tab.get_by_label(name, exact=True).fill(text)
    tab.tab.get_by_label("Again").select_option("86400")
    tab.tab.get_by_role("button", name="Ask what the answer would be").click()
    tab.tab.get_by_text("It would be kept").wait_for()
    assert httpx.get(f"{cell.url}/v1/series").json()["series"] == []
    tab.tab.get_by_role("button", name="Ask for it", exact=True).click()
    tab.tab.get_by_role("link", name="The series").click()
    tab.tab.get_by_role("button", name="End it").wait_for()

    (series,) = httpx.get(f"{cell.url}/v1/series").json()["series"]
    assert (series["series"], series["every"], series["user"]) == ("nightly", "86400", "ann")
    tab.tab.get_by_role("group", name="Occurrences").get_by_role("link").first.wait_for()
    assert (tab.complaints, tab.violations()) == ([], [])


# ---------------------------------------------------------------- other worlds
def test_the_cell_is_asked_what_would_have_been_and_shows_who_loses(reader, cell):
    tab = reader()
    tab.open("whatif")
    tab.tab.get_by_label("Preset").select_option("fifo")
    tab.tab.get_by_role("button", name="Decide again").click()
    tab.tab.get_by_role("heading", name="The log, decided again").wait_for(timeout=WORLD_S * 1_000)

    rows = tab.tab.get_by_role("group", name="Jobs by queue in both worlds").locator("tbody th").all_inner_texts()
    assert "ads/dev" in rows
    assert "carbyne → fifo" in tab.text()
    for heading in ("Who loses", "By queue"):
        assert tab.tab.get_by_role("heading", name=heading).count() == 1
    assert (tab.complaints, tab.violations()) == ([], [])


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """The folder of a report."""
    folder = tmp_path_factory.mktemp("compared")
    inputs = ("--workload", "examples/workloads/small.jsonl", "--cluster", "examples/clusters/small.json")
    said = largesse("compare", "--presets", "drf,fifo", *inputs, "--report", str(folder))
    assert said.code == 0, said.err
    return folder


def of_presets(tab, results):
    """What the view says of a comparison is what the results have."""
    head = tab.tab.get_by_role("group", name="Measures of the worlds").locator("thead th").all_inner_texts()
    assert head[1:3] == list(results)
    queues = {job["queue"] for result in results.values() for job in result["per_job"]}
    shown = tab.tab.get_by_role("group", name="Completion by queue").locator("tbody th").all_inner_texts()
    assert shown == sorted(queues)
    assert (tab.complaints, tab.elsewhere(), tab.violations()) == ([], [], [])
    assert not tab.too_wide()


def test_a_comparison_is_opened_from_a_file(reader, compared):
    tab = reader()
    tab.open("whatif")
    tab.tab.get_by_label("A file").set_input_files(compared / "results.json")
    tab.tab.get_by_role("group", name="Measures of the worlds").wait_for()

    of_presets(tab, json.loads((compared / "results.json").read_text())["presets"])


def test_a_file_that_has_no_results_is_said_to_have_none(reader, tmp_path):
    (tmp_path / "none.json").write_text('{"jobs": []}')
    tab = reader()
    tab.open("whatif")
    tab.tab.get_by_label("A file").set_input_files(tmp_path / "none.json")

    tab.tab.get_by_text("The file has no results that are known here.").wait_for()


@pytest.mark.parametrize(("colours", "size"), [("light", (1_280, 900)), ("dark", NARROW)], ids=["wide", "narrow"])
def test_a_comparison_is_opened_without_a_cell(compared, reader, colours, size):
    with viewed(compared) as where:
        assert where.endswith("/#/results")
        tab = reader(colours, size, elsewhere=where.removesuffix("/#/results"))
        tab.open("results")
        of_presets(tab, json.loads((compared / "results.json").read_text())["presets"])
        tab.tab.close()
