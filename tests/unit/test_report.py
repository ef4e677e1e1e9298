"""The comparison of presets: rows that can be checked by hand, and a page that needs nothing else."""

import re
from html.parser import HTMLParser

import pytest

pytest.importorskip("leather", reason="no plots without the extra `cli`")

from services.simulator.report import comparison_page, comparison_table


def result(*took_ms, jain=0.5):
    """A result of jobs j0, j1 .. that all came at 1,000 ms and took so long; None: still there."""
    rows = [
        {"job": f"j{i}", "submit_ms": 1_000, "end_ms": None if took is None else 1_000 + took}
        for i, took in enumerate(took_ms)
    ]
    spread = {"mean": 2_000.0, "p50": 1, "p95": 2, "p99": 3}
    return {
        "jobs": len(rows), "rejected": [{"job": "x", "reason": "gang_too_wide"}], "makespan_ms": 1_234_567,
        "jct_ms": spread, "waiting_ms": spread, "jain": {"mean": jain, "min": 0.1}, "utilisation": {"cpu": 0.25},
        "placements": 7, "per_job": rows,
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


def test_the_page_loads_nothing_runs_nothing_and_is_the_same_every_time():
    results = {"drf": result(1_000), "largesse & <co>": result(900), **{f"p{i}": result(None) for i in range(9)}}

    page = comparison_page(results)

    assert page == comparison_page(results)
    assert page.count("<svg") == 4
    assert "largesse &amp; &lt;co&gt;" in page
    assert "<co>" not in page
    assert not re.search(r"<script|<link|<img|src=|href=|url\(|@import", page)


class Tags(HTMLParser):
    open: list[str]

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "path"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        if tag not in ("meta", "path"):
            assert self.open.pop() == tag


def test_every_element_of_the_page_is_closed():
    tags = Tags()
    tags.open = []

    tags.feed(comparison_page({"drf": result(1_000)}))

    assert tags.open == []
