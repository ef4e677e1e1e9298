"""The page against a cell that runs: every view, wide and narrow, light and dark, now and in the past."""

import json
from datetime import UTC, datetime

import httpx
import pytest

from tests.browser import needs_chromium
from tests.live.up_jobs import shell
from tests.live.up_process import GUARD_S, eventually, up
from tests.page_reader import NARROW, WIDE, Truth, readers

pytestmark = [pytest.mark.slow, needs_chromium]

HOSTILE = "<img src=x onerror=alert(1)> \"'&amp;</script>"
QUEUES = {
    "queues": {
        "name": "root",
        "children": [
            {"name": "ads", "weight": 2, "children": [{"name": "prod", "weight": 3}, {"name": "dev"}]},
            {"name": "research", "guaranteed": {"cpu": "500m"}},
            {"name": "default"},
        ],
    },
    "set": {"node_lease_ms": 600_000},
}
"""A node whose reports a busy disk keeps back for ten seconds would be lost, and could not be drained."""
VIEWS = (
    *("overview", "queues", "queues/ads", "queues/root", "jobs", "jobs?state=waiting", "jobs/etl", "jobs/endless"),
    *("jobs/broken", "nodes", "nodes/node-1", "reservations", "classes", "donations", "log", "submit", "nowhere"),
    "whatif",
)
NUMBERED = {
    "overview": 20,
    "queues": 40,
    "queues/ads/prod": 8,
    "jobs": 12,
    "jobs/etl": 15,
    "jobs/endless": 10,
    "nodes": 8,
    "nodes/node-0": 8,
    "classes": 4,
}
"""Views with numbers that the API has, too, and how many of them there are at least."""


def stage(name, text, tasks=1, cpu="100m", **more):
    return {
        "stage": name,
        "tasks": tasks,
        "demand": {"cpu": cpu, "memory": "32Mi"},
        "command": [*shell(text)],
        "retries": 0,
        **more,
    }


@pytest.fixture(scope="module")
def cell(tmp_path_factory):
    """A cell in which jobs have succeeded, failed, run and wait; a node is drained, with markup in the reason."""
    with up(tmp_path_factory.mktemp("page"), "--nodes", 2) as running:
        said = running.ask("config", "apply", "-", stdin=json.dumps(QUEUES))
        assert said.code == 0, said.err
        jobs = (
            {
                "job": "etl",
                "queue": "ads/prod",
                "stages": [
                    stage("split", "echo one; echo two >&2", 3),
                    stage("join", f"echo '{HOSTILE.replace(chr(39), '')}'", 2, after=["split"]),
                ],
            },
            {"job": "broken", "queue": "ads/dev", "stages": [stage("try", "echo no; exit 3")]},
        )
        for job in jobs:
            assert running.ask("submit", "-", stdin=json.dumps(job)).code == 0
        running.until("etl", lambda job: job["state"] == "succeeded")
        running.until("broken", lambda job: job["state"] == "failed")
        endless = {"job": "endless", "queue": "research", "stages": [stage("wait", "sleep 900", 12, cpu="400m")]}
        assert running.ask("submit", "-", stdin=json.dumps(endless)).code == 0
        running.until("endless", lambda job: job["tasks"]["running"] >= 2)
        httpx.post(f"{running.url}/v1/nodes/node-1/drain", params={"reason": HOSTILE}).raise_for_status()
        yield running


@pytest.fixture(scope="module")
def reader(cell):
    with readers(cell.url) as make:
        yield make


@pytest.fixture(scope="module")
def seq(cell):
    return httpx.get(f"{cell.url}/readyz").json()["seq"]


@pytest.mark.rotating(2)
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize(("colours", "size"), [("light", WIDE), ("dark", NARROW)], ids=["light-wide", "dark-narrow"])
def test_a_view_is_quiet_asks_nobody_else_and_is_accessible(reader, view, colours, size):
    tab = reader(colours, size)
    tab.open(view)

    assert tab.complaints == []
    assert tab.elsewhere() == []
    assert not tab.too_wide()
    assert tab.violations() == []


@pytest.mark.parametrize("view", NUMBERED)
def test_every_number_of_a_view_is_what_the_api_says_at_that_record(reader, cell, seq, view):
    tab, truth = reader(), Truth(cell.url, seq)
    tab.open(f"{view}?at={seq}")

    facts = [fact for fact in tab.facts() if fact[0] != "record"]
    truth_of = {fact: truth.of(*fact[:3]) for fact in facts}
    truth.close()

    assert len(facts) >= NUMBERED[view]
    assert {fact: said for fact, said in truth_of.items() if said != fact[3]} == {}


def test_the_past_is_marked_and_keys_and_a_time_lead_to_moments(reader, cell, seq):
    tab = reader(timezone_id="UTC")
    tab.open("overview")
    assert tab.text(".tense").lower() == "now"

    tab.open(f"jobs?at={seq}")
    assert tab.text(".tense").lower() == "past"
    assert f"record {seq:,}" in tab.text(".which")

    tab.tab.keyboard.press("ArrowLeft")
    tab.until(f"location.hash.includes('at={seq - 1}')")
    tab.tab.keyboard.press("Shift+ArrowLeft")
    tab.until(f"!location.hash.includes('at={seq - 1}') && location.hash.includes('at=')")
    assert int(tab.tab.url.partition("at=")[2]) < seq - 1
    tab.tab.keyboard.press("Home")
    tab.until("!location.hash.includes('at=')")
    tab.settled()

    moment = httpx.get(f"{cell.url}/v1/summary", params={"at": seq}).json()["time"] // 1_000 + 1
    field = tab.tab.get_by_label("Go to a time")
    field.fill(datetime.fromtimestamp(moment, UTC).isoformat()[:19])
    field.press("Enter")
    tab.until("location.hash.includes('at=20')")
    assert tab.text(".tense").lower() == "past"
    assert tab.complaints == []


def test_time_goes_on_while_nothing_happens_but_not_in_the_past(reader, seq):
    so_far = "[...document.querySelectorAll('dt')].find((each) => each.innerText === 'So far').nextElementSibling"
    tab = reader()
    tab.tab.clock.install()
    for view, goes_on in (("jobs/endless", True), (f"jobs/endless?at={seq}", False)):
        tab.open(view)
        tab.until(f"document.querySelector('.tense').innerText.toLowerCase() === '{'now' if goes_on else 'past'}'")
        before = tab.tab.evaluate(f"{so_far}.innerText")
        assert "d" not in before
        tab.tab.clock.fast_forward("50:00:00")
        if goes_on:
            tab.until(f"{so_far}.innerText.startsWith('2 d')")
        else:
            assert tab.tab.evaluate(f"{so_far}.innerText") == before


def test_nothing_can_be_changed_in_the_past(reader, seq):
    tab = reader()
    tab.open(f"jobs/endless?at={seq}")

    assert tab.tab.get_by_role("button", name="Cancel", exact=True).is_disabled()


def test_keys_lead_to_views_and_to_the_search(reader):
    tab = reader()
    tab.open("overview")

    tab.tab.keyboard.press("g")
    tab.tab.keyboard.press("j")
    tab.until("location.hash.startsWith('#/jobs')")
    tab.tab.keyboard.press("/")
    tab.tab.keyboard.type("etl")
    tab.tab.keyboard.press("Enter")
    tab.until("location.hash.includes('q=etl')")
    tab.until("document.querySelectorAll('main tbody tr').length === 1")

    assert "etl" in tab.text("main tbody")


def test_what_others_wrote_is_text(reader):
    tab = reader()
    tab.tab.on("dialog", lambda dialog: pytest.fail(f"it ran: {dialog.message}"))

    tab.open("nodes/node-1")
    assert HOSTILE in tab.text()
    tab.open("jobs/etl")
    tab.tab.get_by_role("combobox", name="Stage").select_option("join")
    tab.until("document.querySelector('main pre').innerText.includes('onerror')")

    assert tab.tab.query_selector_all("main img, main script") == []
    assert tab.complaints == []


def test_a_change_of_a_weight_is_tried_first_and_then_applied(reader, cell):
    tab = reader()
    tab.open("queues/ads/dev")
    tab.tab.get_by_role("button", name="Change weight or limits").click()
    tab.tab.get_by_role("textbox", name="Weight").fill("5")
    tab.tab.get_by_role("button", name="Try it").click()
    tab.tab.get_by_role("button", name="Apply it").wait_for()
    before = httpx.get(f"{cell.url}/v1/config").json()["queues"]
    tab.tab.get_by_role("button", name="What would it have done in the last 24 h?").click()
    tab.tab.get_by_role("heading", name="The last 24 hours, decided again").wait_for(timeout=120_000)
    asked = {"dry_run": "true", "replay_ms": 86_400_000}
    answer = httpx.put(f"{cell.url}/v1/config", params=asked, json={"queues": before}, timeout=120).json()["replay"]
    rows = tab.tab.get_by_role("group", name="Jobs by queue in both worlds").locator("tbody th").all_inner_texts()
    assert rows == [row["queue"] for row in answer["queues"]] != []
    tab.tab.get_by_role("button", name="Apply it").click()
    tab.tab.get_by_text("It is in force.").wait_for()
    after = httpx.get(f"{cell.url}/v1/config").json()["queues"]

    def weights(tree):
        return {child["name"]: child.get("weight", 1) for child in tree["children"][0]["children"]}

    assert (weights(before), weights(after)) == ({"prod": 3, "dev": 1}, {"prod": 3, "dev": 5})
    assert tab.complaints == []


def test_a_job_is_submitted_from_the_form_appears_in_an_open_list_and_is_cancelled(reader, cell):
    watching, tab = reader(), reader()
    watching.open("jobs?q=typed")
    tab.open("submit")
    tab.tab.get_by_label("Name", exact=True).fill("typed")
    tab.tab.get_by_label("Command, for sh").fill("sleep 900")
    tab.tab.get_by_role("button", name="Try it").click()
    tab.tab.get_by_text("It would be admitted.").wait_for()
    assert httpx.get(f"{cell.url}/v1/jobs/typed").status_code == 404
    tab.tab.get_by_role("button", name="Submit").click()
    tab.tab.get_by_role("link", name="typed").click()
    watching.tab.get_by_role("link", name="typed").wait_for()

    tab.tab.get_by_role("button", name="Cancel", exact=True).click()
    tab.tab.get_by_role("dialog").get_by_role("button", name="Cancel", exact=True).click()
    tab.tab.get_by_text("It is cancelled.").wait_for()

    assert httpx.get(f"{cell.url}/v1/jobs/typed").json()["state"] == "cancelled"
    watching.tab.locator("main td").get_by_text("cancelled").wait_for()
    assert (watching.complaints, tab.complaints) == ([], [])


def test_a_reservation_is_asked_for_after_its_answer_was_shown(reader, cell):
    tab = reader()
    tab.open("reservations")
    for name, text in (("Name", "typed"), ("For whom", "ann"), ("One unit is", "cpu 10m, memory 1Mi")):
        tab.tab.get_by_label(name, exact=True).fill(text)
    tab.tab.get_by_role("button", name="Ask what the answer would be").click()
    tab.tab.get_by_text("It would be accepted.").wait_for()
    assert httpx.get(f"{cell.url}/v1/reservations").json()["reservations"] == []

    tab.tab.get_by_role("button", name="Ask for it", exact=True).click()
    tab.tab.get_by_role("link", name="The reservation").click()
    tab.tab.get_by_role("button", name="Give it back").wait_for()
    asked = httpx.get(f"{cell.url}/v1/reservations/typed").json()
    assert (asked["state"], asked["user"]) == ("accepted", "ann")
    assert tab.complaints == []


def test_a_node_is_drained_and_resumed(reader, cell):
    def state():
        nodes = httpx.get(f"{cell.url}/v1/nodes").json()["nodes"]
        return next(node["state"] for node in nodes if node["node"] == "node-0")

    tab = reader()
    tab.open("nodes/node-0")
    for name, said, left in (
        ("Drain", "It takes no new tasks.", "draining"),
        ("Resume", "It takes tasks again.", "ready"),
    ):
        tab.tab.get_by_role("button", name=name, exact=True).click()
        tab.tab.get_by_role("dialog").get_by_role("button", name=name, exact=True).click()
        tab.tab.get_by_text(said).wait_for()
        assert eventually(lambda left=left: state() == left)
        tab.tab.get_by_role("dialog").get_by_role("button", name="Close").click()
    assert tab.complaints == []


def test_a_cell_that_is_gone_is_said_to_be_and_what_was_read_stays(cell, reader):
    tab = reader()
    tab.open("jobs")
    tab.tab.context.set_offline(True)
    tab.tab.get_by_text("The gateway does not answer").first.wait_for(timeout=GUARD_S * 1_000)

    assert "endless" in tab.text()
    tab.tab.context.set_offline(False)
    tab.until("!document.body.innerText.includes('The gateway does not answer')")


def test_a_page_whose_script_did_not_arrive_tries_again(reader):
    tab, refused = reader(), []

    def refuse_once(route):
        if refused:
            route.continue_()
        else:
            refused.append(route.request.url)
            route.abort()

    tab.tab.route("**/page/all.js", refuse_once)
    tab.open("queues")

    assert len(refused) == 1
    assert "ads" in tab.text()


def test_a_view_asks_for_its_parts_before_its_own_document_has_come(reader):
    tab, held = reader(), []
    tab.tab.route("**/v1/queues?*", lambda route: held.append(route))

    def asked():
        return sum(url.endswith("/v1/queues/ads/why") for url in tab.asked)

    tab.tab.goto(f"{tab.url}/#/queues/ads")
    for _ in range(400):
        if held and asked():
            break
        tab.tab.wait_for_timeout(50)
    early = asked()
    for route in held:
        route.continue_()
    tab.tab.unroute("**/v1/queues?*")
    tab.settled()

    assert (len(held), early, asked()) == (1, 1, 1)
    assert "Why it has what it has" in tab.text()


TEXTS = (
    ("amount('500m')", 0.5),
    ("amount('2Gi')", 2 << 30),
    ("measured('memory', 6026 * 2 ** 20)", "5.88 GiB"),
    ("measured('cpu', 1)", "1 core"),
    ("measured('network', 10e9)", "10 Gbit/s"),
    ("measured('licences', 3)", "3 licences"),
    ("percent(null)", "–"),
    ("percent(0.0149)", "1.5 %"),
    ("percent(1)", "100 %"),
    ("duration(90)", "90 ms"),
    ("duration(3_400)", "3.4 s"),
    ("duration(204_000)", "3.4 min"),
    ("duration(3_600_000 * 25)", "1 d 1 h"),
    ("resourceTime('cpu', '7200')", "2 core h"),
    ("iso(0)", "1970-01-01T00:00:00.000Z"),
)


def test_numbers_are_worded_with_their_units(reader):
    tab = reader(timezone_id="Europe/Berlin", locale="de-DE")
    tab.open("overview")
    names = "{amount, measured, percent, duration, resourceTime, iso, moment}"
    said = {
        call: tab.tab.evaluate(f"import('/page/app/text.js').then(({names}) => {call})")
        for call in [*(call for call, _ in TEXTS), "moment(1795934533821)"]
    }

    assert said.pop("moment(1795934533821)") == "2026-11-29 07:42:13"
    assert said == dict(TEXTS)


LENT = """
import('/page/app/lending.js').then(({lending}) => lending([0, 10, 40], {
  lends: {held: [1e8, 4e8, 0], guaranteed: [4e8, 4e8, 4e8]},
  also: {held: [1e8, 3e8, 0], guaranteed: [2e8, 3e8, 0]},
  borrows: {held: [3e8, 1e8, 1e9], guaranteed: [1e8, 2e8, 0]},
  gone: {held: [null, 0, null], guaranteed: [null, null, null]},
}))
"""


def test_what_queues_lend_and_borrow_is_weighed_by_time(reader):
    tab = reader()
    tab.open("overview")
    found = tab.tab.evaluate(LENT)
    rows = {row.pop("name"): {name: round(part, 9) for name, part in row.items()} for row in found["rows"]}

    # For 10 of 40 ms 0.4 are left of guarantees, and 0.2 borrowed: half of what either leaves is lent.
    assert rows == {
        "lends": {"held": 0.325, "guaranteed": 0.4, "lent": 0.0375, "borrowed": 0},
        "also": {"held": 0.25, "guaranteed": 0.275, "lent": 0.0125, "borrowed": 0},
        "borrows": {"held": 0.15, "guaranteed": 0.175, "lent": 0, "borrowed": 0.05},
        "gone": {"held": 0, "guaranteed": 0, "lent": 0, "borrowed": 0},
    }
    assert found["spanMs"] == 40
