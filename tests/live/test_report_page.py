"""The report of `largesse compare`, opened in a real browser that reaches no network."""

import json
import re

import pytest

from tests.browser import dom_of, needs_chromium
from tests.unit.cli_process import CLUSTER, WORKLOAD, largesse

pytestmark = [pytest.mark.slow, needs_chromium]


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """The page, and the results it was made of."""
    folder = tmp_path_factory.mktemp("report")
    inputs = ("--workload", WORKLOAD, "--cluster", CLUSTER)
    said = largesse("compare", "--presets", "drf,fifo,dress", *inputs, "--report", str(folder), "--json")
    assert said.code == 0, said.err
    return folder / "index.html", json.loads(said.out)["presets"]


@pytest.fixture(scope="module", params=[500, 1_200], ids=["narrow", "wide"])
def opened(request, compared, tmp_path_factory):
    page, _ = compared
    return dom_of(page, tmp_path_factory.mktemp("profile"), request.param)


def chart(dom, name):
    """The part of the document that was drawn for one chart."""
    return dom.partition(f'<div id="{name}"')[2].partition("</figure>")[0]


def test_every_chart_is_drawn(opened, compared):
    dom, _ = opened
    _, results = compared

    assert chart(dom, "distribution").count('class="trace scatter') == 3
    assert chart(dom, "ratios").count('class="trace scatter') == 2
    assert chart(dom, "differences").count('class="point"') >= 4
    for number, result in enumerate(results.values()):
        bars = chart(dom, f"gantt-{number}").count('class="point"')
        assert bars >= result["placements"]  # And spans of room that was held.


def test_charts_of_pools_are_drawn_for_the_preset_that_has_them(opened):
    dom, _ = opened

    for name, lines in (("pools-2", 2), ("held-2", 4), ("forecasts-2", 4)):
        assert chart(dom, name).count('class="trace scatter') == lines
    assert not re.search(r'id="(pools|held|forecasts)-[01]"', dom)


def test_no_chart_is_wider_than_the_window(opened, request):
    dom, _ = opened
    width = request.node.callspec.params["opened"]

    drawn = [int(found) for found in re.findall(r'<svg class="main-svg"[^>]* width="(\d+)"', dom)]

    assert drawn
    assert all(width // 2 < each <= width for each in drawn)


def test_the_browser_has_nothing_to_complain_about(opened):
    _, console = opened

    assert console == ""


def test_no_button_sends_the_chart_away(opened):
    dom, _ = opened

    buttons = set(re.findall(r'data-title="([^"]*)"', dom))

    assert buttons == {"Zoom", "Pan", "Reset axes", "Download plot as a PNG"}
