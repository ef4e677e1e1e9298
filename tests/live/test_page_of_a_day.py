"""The page over a recorded log of many hours: what is shown of a moment is of that moment."""

import signal
import subprocess

import httpx
import pytest

from tests.browser import needs_chromium
from tests.conftest import ROOT
from tests.day_log import MIN_MS, SHORT_MIN, day_log
from tests.page_reader import NARROW, readers
from tests.unit.cli_process import COMMAND

pytestmark = [pytest.mark.slow, needs_chromium]

GUARD_S = 240
HOUR_MS = 60 * MIN_MS


def at_ms(ms):
    """A moment of log time in an address."""
    return f"1970-01-01T{ms // HOUR_MS:02}:{ms // MIN_MS % 60:02}:{ms // 1_000 % 60:02}.{ms % 1_000:03}Z"


SHORT = at_ms(SHORT_MIN * MIN_MS)


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """Where `largesse view` serves the log."""
    command = [*COMMAND, "view", str(day_log(tmp_path_factory.mktemp("day"))), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        line = process.stdout.readline()
        assert "http" in line, line + process.communicate(timeout=GUARD_S)[1]
        yield line.split()[-1]
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=GUARD_S)
        assert err == ""
    finally:
        process.kill()


@pytest.fixture(scope="module")
def reader(url):
    with readers(url) as make:
        yield lambda *how, **more: make(*how, **{"timezone_id": "UTC", **more})


@pytest.fixture(scope="module")
def attempts(url):
    """Every attempt as (job, stage, index, attempt), with its node, start and end: read from the records one by one."""
    found, start = {}, 1
    while start is not None:
        page = httpx.get(
            f"{url}/v1/records", params={"whole": 1, "limit": 1_000, "from": start}, timeout=GUARD_S
        ).json()
        for row in page["records"]:
            for item in row["record"]["body"].get("items", []):
                for index in range(item.get("first", 0), item.get("first", 0) + item.get("count", 0)):
                    key = item["job"], item["stage"], index, item["attempt"]
                    if row["type"] == "TaskStarted":
                        found[key] = [item["node"], row["time_ms"], None]
                    elif row["type"] in ("TaskFinished", "TaskFailed"):
                        found[key][2] = row["time_ms"]
        start = page["next"]
    return found


def drawn_by(attempts, until, from_ms, **of):
    """The bars that are to be there at a moment: key, start and end within the time that is shown."""
    rows = set()
    for key, (node, start, end) in attempts.items():
        wanted = node == of["node"] if "node" in of else key[0] == of["job"]
        if wanted and start <= until and (end is None or end >= from_ms):
            rows.add((*key, max(start, from_ms), min(until, end or until)))
    return rows


DRAW = """async ({kind, name, at, spanMs}) => {
  const data = await (await fetch(`v1/${kind}/${name}/attempts?at=${at}`)).json();
  const {touching, lanes} = await import('/page/app/gantt.js');
  const until = data.time_ms, from = spanMs === 0 ? null : Math.max(0, until - spanMs);
  const bars = lanes(touching(data.attempts, from, until), 'job', until).bars;
  const asRow = ({row, end}) => [row.job, row.stage, row.index, row.attempt, Math.max(from ?? 0, row.start_ms), end];
  return {until, bars: bars.map(asRow)};
}"""


def test_only_attempts_that_touch_the_hour_before_a_moment_are_drawn_of_a_node(reader, url, attempts):
    tab, seen = reader(), 0
    tab.open("overview")
    for minute in range(5, 600, 45):
        for name in ("node-0", "node-3"):
            how = {"kind": "nodes", "name": name, "at": at_ms(minute * MIN_MS), "spanMs": HOUR_MS}
            drawn = tab.tab.evaluate(DRAW, how)
            bars = drawn_by(attempts, drawn["until"], max(0, drawn["until"] - HOUR_MS), node=name)
            assert {tuple(bar) for bar in drawn["bars"]} == bars
            assert len(drawn["bars"]) == len(bars)
            seen += len(bars)

    assert seen > 200
    assert tab.complaints == []


def test_nothing_behind_a_moment_is_drawn_of_a_job(reader, attempts):
    tab, seen = reader(), 0
    tab.open("overview")
    for job, minute in (
        ("query-3", 58),
        ("query-3", 66),
        ("query-3", 700),
        ("long", 400),
        ("long", 500),
        ("train-4", 170),
    ):
        drawn = tab.tab.evaluate(DRAW, {"kind": "jobs", "name": job, "at": at_ms(minute * MIN_MS), "spanMs": 0})
        bars = drawn_by(attempts, drawn["until"], 0, job=job)
        assert {tuple(bar) for bar in drawn["bars"]} == bars
        seen += len(bars)

    assert seen > 50


@pytest.mark.parametrize("minute", [30, 200, SHORT_MIN])
def test_the_axis_of_a_node_is_the_hour_before_the_moment(reader, attempts, minute):
    tab = reader()
    tab.open(f"nodes/node-1?at={at_ms(minute * MIN_MS)}")
    canvas = tab.tab.get_by_role("region", name="Attempts").get_by_role("img")
    canvas.wait_for()
    shown = tab.tab.get_attribute(".when time", "datetime")
    until = sum(int(part) * of for part, of in zip(shown[11:19].split(":"), (HOUR_MS, MIN_MS, 1_000), strict=True))
    from_ms = max(0, until - HOUR_MS)

    bars = drawn_by(attempts, until + 999, from_ms, node="node-1")
    assert canvas.get_attribute("aria-label") == (
        f"{len(bars)} attempts from {at_ms(from_ms)[11:19]} to {at_ms(until)[11:19]}, by job"
    )
    assert "still being looked through" not in tab.text()


def test_a_job_at_a_moment_has_no_attempt_of_later(reader, attempts):
    tab = reader()
    tab.open(f"jobs/long?at={SHORT}")
    label = tab.tab.get_by_role("region", name="Attempts").get_by_role("img").get_attribute("aria-label")

    started = [start for key, (_, start, _) in attempts.items() if key[0] == "long"]
    assert int(label.split()[0]) == sum(start <= SHORT_MIN * MIN_MS for start in started) < len(started)


@pytest.mark.parametrize("size", [(1_280, 900), NARROW])
def test_settings_stay_on_the_screen_and_close(reader, size):
    tab = reader("light", size)
    tab.open("overview")
    settings, sheet = tab.tab.get_by_role("button", name="Settings"), tab.tab.get_by_role("group", name="Settings")
    rights = "[...document.querySelectorAll('.sheet, .sheet *')].map((each) => each.getBoundingClientRect().right)"
    closings = (
        lambda: tab.tab.keyboard.press("Escape"),
        lambda: tab.tab.locator("main h2").first.click(),
        lambda: tab.tab.evaluate("location.hash = '#/queues'"),
        lambda: settings.click(),
    )
    for close in closings:
        settings.click()
        sheet.wait_for()
        box = tab.tab.evaluate("document.querySelector('.sheet').getBoundingClientRect().toJSON()")
        assert box["left"] >= 0
        assert max(tab.tab.evaluate(rights)) <= box["right"] <= size[0]
        assert [each for each in tab.violations() if "target-size" not in each] == []  # It covers buttons in part.
        close()
        sheet.wait_for(state="detached")

    settings.click()
    sheet.get_by_role("button", name="Keys").click()
    assert sheet.count() == 0
    heights = tab.tab.eval_on_selector_all(".keys kbd", "each => each.map((one) => one.getClientRects().length)")
    assert {*heights} == {1}
    assert tab.complaints == []
