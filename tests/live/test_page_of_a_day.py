"""The page over a recorded log of many hours: what is shown of a moment is of that moment."""

import httpx
import pytest

from tests.browser import needs_chromium
from tests.day_log import MIN_MS, SHORT_MIN, day_log
from tests.page_reader import NARROW, readers
from tests.viewed_log import viewed

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
    with viewed(day_log(tmp_path_factory.mktemp("day"))) as where:
        yield where


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
    shown = tab.tab.get_attribute(".when .is-shown", "datetime")
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
        lambda: tab.tab.mouse.click(8, size[1] - 20),
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


def test_a_queue_below_its_guarantee_is_drawn_so_wherever_it_is_shown(reader):
    tab = reader()
    for view in ("overview", "queues", "queues/ads"):
        tab.open(f"{view}?at={SHORT}")
        bars = tab.tab.get_by_role("img", name=" of the cell")
        looks = {
            bar.get_attribute("aria-label"): bar.locator("rect").evaluate_all(
                "each => each.filter((one) => one.getAttribute('width') > 0).map((one) => one.className.baseVal)"
            )
            for bar in bars.all()
        }
        short = [label for label in looks if "below its guarantee" in label]
        assert [looks[label] for label in short] == [["ground", "bad", "lack"]]
        if view != "queues/ads":
            borrowed = [each for label, each in looks.items() if "borrowed" in label]
            assert borrowed == [["ground", "held", "mid"]]

    marks = "['.bar line.fair', '.legend i.fair'].every((each) => document.querySelector(each))"
    tab.open(f"queues?at={SHORT}")
    assert tab.tab.evaluate(marks)


def test_what_cannot_be_pressed_looks_so_and_says_why(reader):
    tab = reader()
    look = "each => ['backgroundColor', 'borderTopStyle', 'color'].map((name) => getComputedStyle(each)[name])"
    for view, names in (("jobs/nightly", ("Hold", "Cancel")), ("submit", ("Try it", "Submit"))):
        tab.open(f"{view}?at={SHORT}")
        buttons = [tab.tab.locator("main").get_by_role("button", name=name, exact=True) for name in names]
        assert all(button.is_disabled() for button in buttons)
        looks = {tuple(button.evaluate(look)) for button in buttons}
        assert len(looks) == 1
        assert next(iter(looks))[1] == "dashed"
        assert "Nothing can be changed: this is a recorded log, not a cell." in tab.text()


def test_a_job_says_what_its_tasks_ask_for_and_why_it_waits_once(reader, url):
    why = httpx.get(f"{url}/v1/jobs/nightly/why", params={"at": SHORT}, timeout=GUARD_S).json()
    text = why["reasons"][0]["text"]
    nodes = why["reasons"][0]["numbers"]["named_nodes"]
    tab = reader()
    tab.open(f"jobs/nightly?at={SHORT}")
    stages = tab.tab.get_by_role("region", name="Stages").inner_text()

    assert "gang of 2" in stages
    assert "6 cores, 2 GiB memory" in stages
    assert "on nodes with zone=b" in stages
    plain = text.partition(";")[0]
    assert tab.text().count(plain) == 1
    assert plain not in stages
    linked = tab.tab.locator(".reasons > li").first.locator("p a")
    assert nodes
    assert sorted(linked.all_inner_texts()) == sorted(nodes)
    assert "T0" not in tab.tab.locator(".reasons").inner_text()
    started = tab.tab.get_by_text("It starts at the earliest").locator("time").all_inner_texts()
    assert len(started) >= 1
    assert tab.complaints == []
    assert tab.violations() == []


def test_a_job_that_runs_says_what_its_other_tasks_wait_for(reader):
    tab = reader()
    tab.open(f"jobs/long?at={SHORT}")
    assert "its other tasks wait: no node has room" in tab.text(".reasons")
    assert "Its further tasks start at the earliest at " in tab.text()
    tab.open(f"jobs?state=running&at={SHORT}")
    row = tab.tab.get_by_role("row", name="long")
    assert "its other tasks wait: no node has room" in row.inner_text()


def test_a_record_that_a_view_names_leads_to_the_record(reader):
    tab = reader()
    tab.open(f"queues/ads?at={SHORT}")
    tab.tab.locator(".reasons").get_by_role("link", name="record").first.click()
    tab.until("location.hash.includes('from=')")
    tab.settled()
    assert tab.tab.locator(".records tbody tr").count() == 1

    tab.open(f"jobs/nightly?at={SHORT}")
    admitted = tab.tab.get_by_role("row", name="JobAdmitted").get_by_role("link").first
    seq = admitted.inner_text()
    admitted.click()
    tab.until("location.hash.startsWith('#/log')")
    tab.settled()
    assert tab.tab.locator(".records tbody tr").count() == 1
    assert seq in tab.text(".records")


def test_a_job_of_later_is_said_to_be_one(reader, url):
    tab = reader()
    tab.tab.goto(f"{url}/#/jobs/nightly?at={at_ms(60 * MIN_MS)}")
    tab.tab.get_by_text("it was submitted later, at 06:50:00").wait_for()


def test_numbers_of_a_reason_have_units_and_long_lists_are_folded(reader):
    tab = reader()
    tab.open(f"jobs/nightly?at={SHORT}")
    tab.tab.get_by_text("Numbers", exact=True).first.click()
    numbers = tab.tab.get_by_role("group", name="Numbers of gang_no_room")
    for folded in numbers.locator("details > summary").all():
        folded.click()
    said = numbers.inner_text()

    assert "32 GiB" in said
    assert "8 cores" in said
    assert "%" in said
    assert "0.3333" not in said
    assert numbers.locator("details").count() >= 1


def test_the_attempts_of_a_large_job_scroll_by_themselves(reader):
    tab = reader()
    tab.open(f"jobs/query-0?at={SHORT}")
    assert tab.tab.locator(".canvas.tall").count() == 0
    tab.open("jobs/long")
    box = tab.tab.locator(".canvas.tall")
    box.wait_for()
    assert box.evaluate("each => each.scrollHeight > each.clientHeight && each.clientHeight < 600")
    assert tab.violations() == []


def test_a_reservation_of_a_recorded_log_begins_at_its_end(reader):
    tab = reader()
    tab.open("reservations")
    end = tab.tab.get_attribute(".when .is-shown", "datetime")[:10]
    begins = tab.tab.get_by_role("region", name="Ask for a reservation").locator("input[type=datetime-local]").first
    assert begins.input_value()[:10] == end


def test_a_round_shows_shares_in_per_cent_and_folds_its_documents(reader):
    tab = reader()
    tab.open("log/rounds/60")
    tab.tab.get_by_role("heading", name="shares").first.wait_for()
    folded = tab.tab.locator(".decisions details")

    assert folded.count() >= 3
    assert not any(each.evaluate("one => one.open") for each in folded.all())
    assert "%" in tab.text(".decisions")
    assert "000000" not in tab.text(".decisions")
    assert (tab.complaints, tab.violations()) == ([], [])


def test_while_a_moment_is_read_no_number_of_another_is_shown(reader, url):
    tab, held = reader(), []
    tab.tab.route("**/v1/summary?at=*", lambda route: held.append(route))
    tab.tab.goto(f"{url}/#/queues?at={SHORT}")
    tab.until("document.querySelector('.which')?.innerText.includes('Reading')")

    assert "Reading 1970-01-01 07:05:00" in tab.text(".which")
    assert "record" not in tab.text(".which")
    assert "round" not in tab.text(".which")
    for route in held:
        route.continue_()
    tab.tab.unroute("**/v1/summary?at=*")
    tab.until("document.querySelector('.which').innerText.includes('round')")
    assert tab.complaints == []


def test_a_page_that_was_opened_while_the_log_was_read_says_the_end(reader, url):
    tab, refused = reader(), []

    def refuse_first(route):
        if len(refused) < 2:
            refused.append(route.request.url)
            route.fulfill(status=503, content_type="application/problem+json", body='{"detail": "reading the log"}')
        else:
            route.continue_()

    tab.tab.route("**/readyz", refuse_first)
    tab.open("queues")
    tab.until("document.querySelector('.tense')")

    assert len(refused) == 2
    assert tab.text(".tense").lower() == "the end"
    tab.tab.keyboard.press("ArrowLeft")
    tab.tab.get_by_role("button", name="To the end").wait_for()


def test_a_time_that_is_typed_stays_beside_the_record_before_it(reader):
    tab = reader()
    tab.open("queues")
    field = tab.tab.get_by_label("Go to a time")
    field.fill("1970-01-01T05:07:30")
    assert tab.tab.get_by_text("Enter goes there").is_visible()
    field.press("Enter")
    tab.until("document.querySelector('.which').innerText.includes('last record before')")

    asked, before = tab.tab.locator(".when time").all_inner_texts()
    assert asked == "1970-01-01 05:07:30"
    assert before < "05:07:30"
    assert field.input_value() == "1970-01-01T05:07:30"
    assert "record by record" in tab.text(".slide")
    assert tab.violations() == []


def test_charts_of_the_overview_begin_at_the_same_place_and_their_legend_tells_of_the_end(reader):
    tab = reader()
    tab.open(f"overview?at={SHORT}")
    tab.until("document.querySelectorAll('.u-over').length >= 3")
    lefts = "[...document.querySelectorAll('figure')].map((each) => each.querySelector('.u-over').getBoundingClientRect().left - each.getBoundingClientRect().left)"  # noqa: E501
    assert len({*tab.tab.evaluate(lefts)}) == 1
    tab.until("!document.querySelector('.u-legend').innerText.includes('–')")
    wide = "[...document.querySelectorAll('.halves > *')].map((each) => Math.round(each.getBoundingClientRect().top))"
    tops = tab.tab.evaluate(wide)
    assert tops.count(tops[-1]) == 2


def test_on_a_phone_the_content_begins_high_and_what_is_chosen_is_in_sight(reader):
    tab = reader("light", NARROW)
    for view in ("whatif", "log"):
        tab.open(f"{view}?at={SHORT}")
        assert tab.tab.evaluate("document.querySelector('main').getBoundingClientRect().top") < 0.3 * NARROW[1]
        box = tab.tab.locator(".views [aria-current]").bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= NARROW[0]
        assert not tab.too_wide()
    assert not tab.tab.get_by_label("From record").is_visible()
    tab.tab.get_by_text("Filters", exact=True).click()
    assert tab.tab.get_by_label("From record").is_visible()

    slider = tab.tab.get_by_role("slider", name="Record of the log")
    assert not slider.is_visible()
    tab.tab.get_by_role("button", name="Other moment").click()
    assert slider.is_visible()
    assert tab.violations() == []
    assert tab.complaints == []
