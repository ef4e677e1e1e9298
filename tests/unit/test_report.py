"""The comparison of presets: rows that can be checked by hand, and a page that loads nothing."""

import re
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from itertools import pairwise

import plotly.graph_objects
import pytest
from hypothesis import strategies as st

from services.simulator.report import Inputs, charts, comparison_page, comparison_table
from services.simulator.report.jobs import ALIKE_MAX, LOSERS_MAX, losers_table, most_changed, running_tasks
from services.simulator.report.table import GROUPS_MAX, equal_presets, groups_table, rejections_table, seconds_text
from services.simulator.schedule import ShortSchedule, Span
from tests.strategies import for_all


def result(*took_ms, jain=0.5):
    """A result of jobs j0, j1 .. that all came at 1,000 ms and took so long; None: still there."""
    rows = [
        {
            "job": f"j{i}", "queue": f"q{i % 3}", "class": "small" if i % 2 else "large", "submit_ms": 1_000,
            "start_ms": 1_000, "end_ms": None if took is None else 1_000 + took, "tasks": 1, "outcome": "succeeded",
        }
        for i, took in enumerate(took_ms)
    ]  # fmt: skip
    spread = {"mean": 2_000.0, "p50": 1, "p95": 2, "p99": 3}
    return {
        "jobs": len(rows), "rejected": [{"job": "x", "reason": "gang_too_wide"}], "makespan_ms": 1_234_567,
        "jct_ms": spread, "waiting_ms": spread, "jain": {"mean": jain, "min": 0.1}, "utilisation": {"cpu": 0.25},
        "placements": 7, "per_job": rows, "tasks": 5, "seed": 42, "digest": "0123456789abcdef0123",
    }  # fmt: skip


def rows(**results):
    return {row[0]: row[1:] for row in comparison_table(results).rows}


def test_a_row_a_metric_and_a_column_a_preset():
    table = comparison_table({"drf": result(1_000), "largesse": result(1_000)})

    assert table.columns == ["metric", "drf", "largesse"]
    assert ["makespan, s", "1,234.6", "1,234.6"] in table.rows
    assert ["rejected", "1", "1"] in table.rows
    assert ["utilisation cpu", "0.250", "0.250"] in table.rows


def test_jobs_are_held_against_the_same_job_under_the_first_preset():
    said = rows(drf=result(1_000, 4_000, 1_000, 1_000), largesse=result(500, 2_000, 1_005, 2_000))

    assert said["median speed-up against drf"] == ["1.00", "1.00"]  # Of 0.5, 0.995, 2 and 2 the lower middle one.
    assert said["jobs faster against drf"] == ["0", "2"]
    assert said["jobs slower against drf"] == ["0", "1"]


def test_jobs_that_never_ended_are_no_part_of_it():
    said = rows(drf=result(1_000, None), largesse=result(None, 1_000))

    assert said["median speed-up against drf"] == ["1.00", "-"]


def test_jobs_that_outages_left_unfinished_and_copies_have_rows_where_there_are_any():
    interrupted = result(1_000) | {"outages": {"node_failures": 2, "attempts_lost": 15, "unfinished": ["a", "b"]}}
    copied = result(1_000) | {"copies": {"started": 7, "won": 3, "in_vain": {}}}
    found = rows(drf=interrupted, largesse=copied)

    assert found["unfinished jobs"] == ["2", "-"]
    assert (found["node failures"], found["attempts lost"]) == (["2", "-"], ["15", "-"])
    assert (found["copies started"], found["copies won"]) == (["-", "7"], ["-", "3"])
    assert not {"unfinished jobs", "copies won"} & {*rows(drf=result(1_000))}


def rejected(*pairs):
    return result(1_000) | {"rejected": [{"job": job, "reason": reason} for job, reason in pairs]}


def test_reasons_of_rejections_have_a_row_with_their_count_and_first_job():
    wide, lost = ("w", "gang_too_wide"), ("l0", "unknown_queue")
    most = rejected(wide, lost, ("l1", "unknown_queue"))
    results = {"drf": most, "x": rejected(lost), "y": most}

    assert rejections_table({"drf": most, "y": most}).rows == [
        ["gang_too_wide", "1", "w", "all presets"],
        ["unknown_queue", "2", "l0", "all presets"],
    ]
    assert rejections_table(results).rows == [
        ["gang_too_wide", "1", "w", "drf, y"],
        ["unknown_queue", "2", "l0", "drf, y"],
        ["unknown_queue", "1", "l0", "x"],
    ]
    assert "<td>unknown_queue</td><td>2</td><td>l0</td>" in page_of(results)
    assert "Rejected jobs" not in page_of({"drf": rejected()})


def test_presets_with_the_same_times_of_every_job_are_equal():
    results = {"drf": result(1, 2), "a": result(1, 3), "hdrf": result(1, 2), "b": result(1, 3), "c": result(1)}

    assert equal_presets(results) == [["drf", "hdrf"], ["a", "b"], ["c"]]


def test_groups_have_the_mean_and_the_95th_percentile_of_each_preset():
    table = groups_table({"drf": result(1_000, 2_000, 3_000, 5_000), "x": result(1_000, None, 3_000, 1_000)}, "queue")

    assert table.columns == ["queue", "jobs", "drf mean", "drf p95", "x mean", "x p95"]
    assert table.rows == [
        ["q0", "2", "3.0", "5.0", "1.0", "1.0"],
        ["q1", "1", "2.0", "2.0", "-", "-"],
        ["q2", "1", "3.0", "3.0", "3.0", "3.0"],
    ]


@pytest.mark.parametrize("beyond", [0, 1, 7])
def test_queues_beyond_the_limit_are_one_row(beyond):
    one = result(*[1_000] * (GROUPS_MAX + beyond))
    for i, row in enumerate(one["per_job"]):
        row["queue"] = f"q{i}"

    rows = groups_table({"drf": one}, "queue").rows

    assert len(rows) == GROUPS_MAX + bool(beyond)
    assert sum(int(row[1]) for row in rows) == GROUPS_MAX + beyond
    assert (f"({beyond} others)" in [row[0] for row in rows]) == bool(beyond)


SPANS = [Span("n-0", 0, 1_000, "required", "j0", "s", 0, 1, "succeeded"), Span("n-0", 500, 900, "headroom")]


def page_of(results, spans=SPANS, spans_max=10):
    schedules = {preset: ShortSchedule(spans_max) for preset in results}
    for kept in schedules.values():
        for span in spans:
            kept._keep(span)
    inputs = Inputs("0.1.0 (release)", "w<1>.jsonl", "c.json", 8, {"cpu": "80"}, ["headroom=off"], schedules)
    return comparison_page(results, inputs)


def figures_of(page):
    return re.findall(r'<div id="([^"]+)" class="plotly-graph-div"', page)


def test_the_page_names_what_was_compared():
    page = unescape(page_of({"drf": result(1_000), "x": result(900)}))

    for text in (
        "w<1>.jsonl",
        "c.json",
        "8 nodes",
        "80 cpu",
        "42",
        "headroom=off",
        "0.1.0 (release)",
        "0123456789abcdef",
    ):
        assert text in page.partition("</script>")[2]


@pytest.mark.parametrize("planned", [False, True])
def test_the_page_says_what_its_measures_mean(planned):
    gave = {"leftover": {"donated": {"cpu": 0.5}, "received": {"cpu": 0.1}}} if planned else {}
    page = page_of({"drf": result(1_000), "x": result(900) | gave})

    assert "Makespan: from the first submission to the last end" in page
    assert "Weights of queues are not taken into account." in page
    assert ("counts as donated even where nobody takes it" in page) == planned


def test_the_page_is_the_same_every_time():
    results = {"drf": result(1_000), "x": result(900)}

    assert page_of(results) == page_of(results)


def test_names_are_texts_and_no_html():
    odd = "</script><b onclick=x>"
    results = {"drf": result(1_000), "x": result(900)}
    for row in results["x"]["per_job"]:
        row["queue"] = odd

    page = page_of(results)

    assert odd not in page
    assert "&lt;b onclick=x&gt;" in page


def test_equal_presets_are_marked_and_drawn_once():
    page = page_of({"drf": result(1_000), "hdrf": result(1_000), "x": result(900)})

    assert "Equal: under drf and hdrf every job starts and ends at the same time." in page
    assert figures_of(page) == ["distribution", "differences", "ratios", "one-job", "gantt-0", "gantt-1"]
    assert '"name":"drf = hdrf"' in page


def test_where_all_are_equal_there_is_no_chart_of_differences():
    assert figures_of(page_of({"drf": result(1_000), "hdrf": result(1_000)})) == ["distribution", "gantt-0"]


ATTEMPT, HELD = SPANS


@pytest.mark.parametrize(
    ("attempts", "held", "what"),
    [
        pytest.param(2, 2, None, id="as many as are drawn, of both"),
        pytest.param(3, 1, "one in 2 of 3 attempts", id="held room is no attempt"),
        pytest.param(1, 3, "one in 2 of 3 spans of held room", id="too much held room"),
    ],
)
def test_of_a_long_run_a_sample_is_drawn_and_the_page_says_so(attempts, held, what):
    page = page_of({"drf": result(1_000)}, [ATTEMPT] * attempts + [HELD] * held, spans_max=2)

    assert "gantt-0" in figures_of(page)
    assert ("A sample:" in page) == (what is not None)
    assert what is None or f"A sample: {what}, in the order" in page


@for_all(st.lists(st.booleans(), max_size=40), st.integers(1, 6))
def test_a_sample_has_each_kind_in_even_steps_and_as_much_as_may_be_kept(kinds, spans_max):
    schedule = ShortSchedule(spans_max)
    for at, is_held in enumerate(kinds):
        span = HELD if is_held else ATTEMPT
        schedule._keep(replace(span, start_ms=at))

    for is_held, one_in in ((False, schedule.one_in), (True, schedule.held_one_in)):
        every = [at for at, kind in enumerate(kinds) if kind == is_held]
        kept = [span.start_ms for span in schedule.spans if (span.job is None) == is_held]
        assert kept == every[::one_in]
        assert len(kept) <= spans_max
        assert one_in == 1 or 2 * len(kept) >= spans_max


def test_presets_without_a_job_that_ended_can_be_compared():
    assert "gantt-0" in figures_of(page_of({f"p{i}": result(None, None) for i in range(9)}))


@pytest.mark.parametrize("took", [(1,), (1, 1), (5, 70, 900), tuple(range(1, 1_000)), (1, 10**9)])
def test_plotly_knows_every_field_of_the_figures(took):
    results = {"drf": result(*took), "x": result(*(each + 7 for each in took), jain=0)}
    groups = equal_presets(results)

    for figure in (
        charts.distribution(results, groups),
        charts.ratios(results, groups),
        charts.differences(results, groups),
        charts.gantt(SPANS, {"j0": "q0"}, 1_000),
        running_tasks("j0", {"drf": ShortSchedule(len(SPANS), len(SPANS), list(SPANS))}, groups),
    ):
        plotly.graph_objects.Figure(figure)  # Raises ValueError at an unknown field or value.


spans = st.lists(
    st.builds(
        lambda node, start, length: Span(f"n-{node}", start, start + length, "packed", "j", "s", 0, 1, "succeeded"),
        st.integers(0, 11),
        st.integers(0, 50),
        st.integers(1, 30),
    ),
    max_size=40,
)


@for_all(spans)
def test_lanes_never_overlap_and_are_as_many_as_run_at_a_time(drawn):
    lanes, nodes = charts.lanes_of(drawn)

    assert [node for node, _ in nodes] == sorted({span.node for span in drawn}, key=lambda name: int(name[2:]))
    by_lane = {}
    for span, lane in zip(drawn, lanes, strict=True):
        by_lane.setdefault(lane, []).append(span)
    for together in by_lane.values():
        together.sort(key=lambda span: span.start_ms)
        assert len({span.node for span in together}) == 1
        assert all(a.end_ms <= b.start_ms for a, b in pairwise(together))
    for node, count in nodes:
        here = [span for span in drawn if span.node == node]
        assert count == max(sum(a.start_ms <= b.start_ms < a.end_ms for a in here) for b in here)


class Tags(HTMLParser):
    open: list[str]

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        if tag not in ("meta", "br"):
            assert self.open.pop() == tag


def test_every_element_of_the_page_is_closed():
    tags = Tags()
    tags.open = []

    tags.feed(page_of({"drf": result(1_000), "x": result(1)}))

    assert tags.open == []


# ---------------------------------------------------------------- single jobs
def test_jobs_that_lost_are_listed_by_class_and_queue_with_what_they_lost():
    table = losers_table({"drf": result(1_000, 1_000, 1_000, 1_000), "x": result(900, 2_000, 1_250, 1_005)})

    assert table.rows == [
        ["x", "large", "q2", "j2", "1.0", "1.2", "0.80"],
        ["x", "small", "q1", "j1", "1.0", "2.0", "0.50"],
    ]


@pytest.mark.parametrize(("jobs", "rows"), [(6 * ALIKE_MAX, 6 * ALIKE_MAX), (6 * ALIKE_MAX + 6, 12)])
def test_of_many_jobs_of_a_queue_that_lost_alike_one_stands_for_all(jobs, rows):
    found = losers_table({"drf": result(*[1_000] * jobs), "x": result(*[1_000_000] * jobs)}).rows

    assert len(found) == rows
    assert {row[-1] for row in found if row[4]} == {"0.001"}, "a factor keeps digits that count"
    assert {row[3] for row in found if not row[4]} == ({f"({ALIKE_MAX} more like it)"} if rows == 12 else set())


def test_of_many_jobs_that_lost_those_are_listed_that_lost_most():
    slower = range(2_000, 2_000 + 10 * (LOSERS_MAX + 3), 10)
    table = losers_table({"drf": result(*[1_000] * len(slower)), "x": result(*slower)})

    assert len(table.rows) == LOSERS_MAX + 1
    assert table.rows[-1][:2] == ["x", "(3 others)"]
    assert "j0" not in [row[3] for row in table.rows]


def test_where_nobody_lost_nothing_is_listed():
    assert "Jobs that lost" not in page_of({"drf": result(1_000), "x": result(900)})
    assert "Jobs that lost" in page_of({"drf": result(1_000), "x": result(1_100)})


def test_jobs_that_lost_are_listed_once_for_presets_that_are_equal():
    page = page_of({"drf": result(1_000), "x": result(1_100), "y": result(1_100)})

    assert page.count("<td>j0</td>") == 1
    assert "<td>x = y</td>" in page


def test_the_job_that_changed_most_is_shown_over_time():
    assert most_changed({"drf": result(1_000, 1_000), "x": result(900, 400)}) == "j1"
    assert most_changed({"drf": result(1_000), "x": result(1_000)}) is None

    spans = [
        Span("n", 0, 2_000, "required", "j0"),
        Span("n", 1_000, 3_000, "optional", "j0"),
        Span("n", 0, 9, "", "j1"),
    ]
    (trace,) = running_tasks("j0", {"x": ShortSchedule(3, 3, spans)}, [["x"]])["data"]
    assert list(zip(trace["x"], trace["y"], strict=True)) == [(0, 0), (0, 1), (1, 2), (2, 1), (3, 0)]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.04, "0.0"), (172_799.94, "172,799.9"), (172_800, "2 d 0 h"), (3_048_579.5, "35 d 7 h")]
)
def test_long_times_are_days_and_hours(seconds, text):
    assert seconds_text(seconds) == text
