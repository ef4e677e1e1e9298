"""The page over a recorded log, without a cell: any moment of it."""

import json

import httpx
import pytest

from tests.browser import needs_chromium
from tests.conftest import ROOT
from tests.page_reader import NARROW, WIDE, Truth, readers
from tests.viewed_log import viewed

pytestmark = [pytest.mark.slow, needs_chromium]

GUARD_S = 240
LOG = max(ROOT.glob("tests/golden/rules-*.jsonl.gz"), key=lambda path: int(path.name.split("-")[1].split(".")[0]))
VIEWS = ("overview", "queues", "jobs", "nodes", "reservations", "classes", "donations", "log", "whatif")
MOMENTS = 5


@pytest.fixture(scope="module")
def url():
    """Where `largesse view` serves the newest of the kept logs."""
    with viewed(LOG) as where:
        yield where


@pytest.fixture(scope="module")
def reader(url):
    with readers(url) as make:
        yield make


@pytest.fixture(scope="module")
def last(url):
    return httpx.get(f"{url}/readyz").json()["seq"]


@pytest.mark.rotating(2)
@pytest.mark.parametrize("view", VIEWS)
def test_a_view_of_a_log_is_quiet_and_accessible(reader, view):
    tab = reader("dark", WIDE) if VIEWS.index(view) % 2 else reader("light", NARROW)
    tab.open(view)

    assert tab.text(".tense").lower() == "the end"
    assert (tab.complaints, tab.elsewhere(), tab.violations()) == ([], [], [])
    assert not tab.too_wide()


def test_moments_of_a_log_are_drawn_as_the_api_has_them(reader, url, last):
    tab, drawn = reader(), 0
    for at in range(last // MOMENTS, last, last // MOMENTS):
        truth = Truth(url, at)
        for view in ("overview", "queues", "jobs", "nodes"):
            tab.open(f"{view}?at={at}")
            facts = tab.facts()
            assert {fact: said for fact in facts if (said := truth.of(*fact[:3])) != fact[3]} == {}
            drawn += len(facts)
        truth.close()

    assert drawn > 200
    assert tab.complaints == []


def test_a_log_is_asked_what_would_have_been(reader):
    tab = reader()
    tab.open("whatif")
    tab.tab.get_by_label("Preset").select_option("drf")
    tab.tab.get_by_role("button", name="Decide again").click()
    tab.tab.get_by_role("heading", name="The log, decided again").wait_for(timeout=GUARD_S * 1_000)

    assert tab.tab.get_by_role("group", name="Measures of the worlds").locator("tbody tr").count() > 5
    assert tab.tab.get_by_role("heading", name="Who loses").count() == 1
    assert (tab.complaints, tab.violations()) == ([], [])


def test_nothing_of_a_log_can_be_changed(reader, url):
    job = httpx.get(f"{url}/v1/jobs", params={"limit": 1}).json()["jobs"][0]["job"]
    tab = reader()
    tab.open("submit")
    assert tab.tab.get_by_role("button", name="Submit").is_disabled()
    tab.open(f"jobs/{job}")

    assert "no part of a log" in tab.text()
    assert tab.complaints == [], json.dumps(tab.complaints)
