"""Pools, holdings and forecasts of classes in a simulated run, by hand-checked figures; and their charts."""

import json
import re
from itertools import pairwise

import plotly.graph_objects
import pytest
from hypothesis import strategies as st

from schemas.edge.read import read_cluster, read_workload_line
from services.estimator.scores import SAMPLES_MAX
from services.simulator.class_history import ClassHistory
from services.simulator.report import Inputs, classes, comparison_page
from services.simulator.run import Options, simulate
from services.simulator.steps import POINTS_MAX, Steps
from tests.strategies import for_all

CLUSTER = {"nodes": [{"name": "n", "capacity": {"cpu": "10"}}]}


def line(job, at_ms, tasks, lasts_ms, estimate_ms=None):
    stage = {"stage": "s", "tasks": tasks, "duration_ms": lasts_ms, "demand": {"cpu": "1"}}
    if estimate_ms is not None:
        stage["estimate_ms"] = estimate_ms
    return {"job": job, "queue": "q", "user": "u", "submit_ms": at_ms, "stages": [stage]}


STORY = (
    line("wide", 0, 8, 20_000, estimate_ms=15_000),
    line("little-1", 6_000, 1, 30_000),
    line("little-2", 12_000, 1, 30_000),
)
"""Nobody waits: a large job of 8 cores, told to take 5 s less than it does, and two small ones of a core."""

KNOBS = {"preset": "dress", "round_gap_ms": 100, "theta_permille": 400}

CROWD = [
    line(f"j{i}", i * 2_000, 2 + i % 3 if i % 3 else 25, 4_000 + 1_500 * (i % 5), estimate_ms=5_000) for i in range(16)
]


def watched(lines, **knobs):
    """A run's history, its result, and the bodies of its log by type."""
    history, log = ClassHistory(), {}

    def note(topic, header, content):
        record = json.loads(content)
        if topic == "cluster.log":
            log.setdefault(record["type"], []).append(record)

    jobs = [read_workload_line(each) for each in lines]
    result = simulate(jobs, read_cluster(CLUSTER), Options({**KNOBS, **knobs}, listener=note, classes=history))
    return history, result, log


def points(series):
    return list(zip(series.times_ms, series.values, strict=True))


def test_what_a_class_holds_is_the_room_of_its_running_tasks():
    history, _, _ = watched(STORY)

    assert history.classes == ["small", "large"]
    assert points(history.held) == [
        (0, [0.0, 0.8]),
        (6_000, [0.1, 0.8]),
        (12_000, [0.2, 0.8]),
        (20_000, [0.2, 0.0]),
        (36_000, [0.1, 0.0]),
        (42_000, [0.0, 0.0]),
    ]
    assert history.end_ms == 42_000


def test_forecasts_stand_beside_what_came_back_within_the_horizon():
    history, _, _ = watched(STORY)

    assert history.horizon_s == 10
    assert points(history.forecasts) == [
        (100, [0.0, 0.0, 0.0, 0.0]),
        (6_000, [0.0, 0.8, 0.0, 0.0]),  # By 16 s nothing has come back, though by its estimate it should.
        (12_000, [0.0, 0.8, 0.0, 0.8]),
        (20_000, [0.0, 0.0, 0.0, 0.0]),
        (36_000, [0.1, 0.0, 0.1, 0.0]),  # The run ends before the horizon does.
    ]


def test_pools_are_those_that_openings_say():
    history, _, log = watched(CROWD)

    said = {record["time"]: record["body"]["pools_ppm"] for record in log["RoundOpened"]}
    moved = [(at, pools) for at, pools in said.items() if pools]
    kept = [moved[0]] + [after for before, after in pairwise(moved) if before[1] != after[1]]

    assert len(kept) > 2
    assert points(history.pools) == [(at, [pool / 1_000_000 for pool in pools]) for at, pools in kept]


def test_the_chart_shows_what_the_score_is_made_of():
    history, _, log = watched(CROWD)
    used = {record["body"]["forecaster"] for record in log["Releases"]}
    assert used == {"durations"}
    score = next(score for score in history.scores if score.forecaster == "durations")
    count = score.samples[history.horizons_s.index(10)]
    assert 3 < count < SAMPLES_MAX

    errors = [
        (abs(small - small_came) + abs(large - large_came)) / 2
        for small, large, small_came, large_came in history.forecasts.values[:count]
    ]

    assert sum(errors) / count == pytest.approx(score.errors[history.horizons_s.index(10)], abs=2e-6)
    assert len(history.forecasts.values) > count  # The horizon of 30 s of the others was not over.


def test_forecasters_share_the_time_since_the_first_forecast():
    history, _, log = watched(CROWD)

    assert sum(score.used_ms for score in history.scores) == history.end_ms - log["Releases"][0]["time"]


@pytest.mark.parametrize("knobs", [{"preset": "capacity"}, {"classes": "off"}])
def test_a_run_without_pools_has_no_history(knobs):
    history, _, _ = watched(CROWD, **knobs)

    assert history == ClassHistory()
    assert not history.has_pools


def test_any_preset_with_classes_has_a_history():
    history, _, _ = watched(STORY, preset="hdrf", classes="on")

    assert history.has_pools


def test_who_watches_changes_nothing():
    jobs = [read_workload_line(each) for each in CROWD]

    unseen = simulate(jobs, read_cluster(CLUSTER), Options(dict(KNOBS)))

    assert unseen["digest"] == watched(CROWD)[1]["digest"]


# ---------------------------------------------------------------- series
@for_all(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 9)), min_size=1, max_size=60), st.integers(4, 12))
def test_a_long_series_is_thinned_out_and_keeps_its_area(moves, points_max):
    series, now, area, value = Steps(points_max), 0, 0, 0
    for passed_ms, after in moves:
        area += value * passed_ms
        now, value = now + passed_ms, after
        series.put(now, [float(after)])

        assert len(series.times_ms) <= points_max
        assert series.times_ms == sorted(set(series.times_ms))

    assert series.times_ms[-1] == now
    ends = zip(series.times_ms, series.times_ms[1:], series.values, strict=False)
    assert sum((until - since) * values[0] for since, until, values in ends) == pytest.approx(area)
    assert (series.mean_ms == 0) == (len(moves) <= points_max)


@for_all(
    st.lists(st.tuples(st.integers(1, 50), st.integers(0, 9)), min_size=1, max_size=60),
    st.integers(4, 12),
    st.integers(0, 500),
)
def test_a_long_series_that_is_closed_has_means_over_equal_intervals_to_its_end(moves, points_max, lasts_ms):
    series, now, area, value = Steps(points_max), 0, 0, 0
    for passed_ms, after in moves:
        area += value * passed_ms
        now, value = now + passed_ms, after
        series.put(now, [float(after)])
    series.close(end_ms := now + lasts_ms)

    if len(moves) <= points_max:
        assert (series.mean_ms, series.times_ms[-1], len(series.times_ms)) == (0, now, len(moves))
        return
    assert len(series.times_ms) <= points_max
    assert (series.times_ms[-1], series.values[-1]) == (end_ms, [float(value)])
    lengths_ms = [until_ms - from_ms for from_ms, until_ms in pairwise(series.times_ms)]
    assert set(lengths_ms[:-1]) <= {series.mean_ms}
    assert lengths_ms[-1] <= series.mean_ms
    means = sum(length_ms * values[0] for length_ms, values in zip(lengths_ms, series.values, strict=False))
    assert means == pytest.approx(area + value * lasts_ms)


def test_a_later_word_about_the_same_moment_counts():
    series = Steps()
    series.put(0, [1.0])
    series.put(0, [2.0])

    assert points(series) == [(0, [2.0])]


# ---------------------------------------------------------------- charts
def named(figure):
    return {trace["name"]: list(zip(trace["x"], trace["y"], strict=True)) for trace in figure["data"]}


def test_charts_have_a_line_a_class_that_lasts_to_the_end():
    history, _, _ = watched(STORY)

    pools = named(classes.pools_over_time(history))
    assert list(pools) == ["small", "large"]
    assert all(line[-1][0] == 42 for line in pools.values())

    held = named(classes.held_against_pools(history))
    assert list(held) == ["small: held", "small: pool", "large: held", "large: pool"]
    assert held["large: held"][:4] == [(0, 80), (6, 80), (12, 80), (20, 0)]

    forecasts = named(classes.forecasts_against_reality(history))
    assert forecasts["large: forecast"][1:3] == [(6, 80), (12, 80)]
    assert forecasts["large: came back"][1:3] == [(6, 0), (12, 80)]


def test_plotly_knows_every_field_of_the_charts():
    history, _, _ = watched(STORY)

    for draw in (classes.pools_over_time, classes.held_against_pools, classes.forecasts_against_reality):
        plotly.graph_objects.Figure(draw(history))  # Raises ValueError at an unknown field or value.


def test_the_table_has_the_errors_of_each_forecaster_and_how_long_it_was_used():
    history, _, _ = watched(CROWD)

    table = classes.scores_table(history)

    assert table.columns == ["forecaster", "1 s", "5 s", "10 s", "30 s", "used"]
    assert [row[0] for row in table.rows] == ["ramp", "durations"]
    assert [row[-1] for row in table.rows] == ["0 % of the time", "100 % of the time"]
    error = history.scores[1].errors[2]
    assert table.rows[1][3] == f"{100 * error:.2f} %"


def test_where_no_horizon_is_over_the_table_has_no_figures():
    history, _, _ = watched([line("wide", 0, 8, 3_000), line("little", 1_000, 1, 3_000)])

    assert [row[1:5] for row in classes.scores_table(history).rows] == [["-"] * 4] * 2


def charts_of(runs):
    """The charts of classes on the page about several runs: name -> (history, result, log)."""
    inputs = Inputs("0.1.0", "w", "c", 1, {"cpu": "10"}, classes={name: run[0] for name, run in runs.items()})
    page = comparison_page({name: run[1] for name, run in runs.items()}, inputs)
    found = re.findall(r'<div id="((?:pools|held|forecasts)-[0-9]+)" class="plotly-graph-div"', page)
    return found, page.partition("</script>")[2]


def test_the_page_shows_presets_with_pools_alone():
    found, page = charts_of({"capacity": watched(CROWD, preset="capacity"), "dress": watched(CROWD)})

    assert found == ["pools-1", "held-1", "forecasts-1"]
    assert "Pools of classes" in page
    assert "<td>durations</td>" in page


def test_the_page_of_presets_without_pools_does_not_mention_any():
    found, page = charts_of({"capacity": watched(CROWD, preset="capacity"), "fifo": watched(CROWD, preset="fifo")})

    assert found == []
    assert "Pools of classes" not in page


def test_equal_presets_each_have_their_pools():
    found, _ = charts_of({"dress": watched(STORY), "capacity": watched(STORY, preset="capacity", classes="on")})

    assert [name for name in found if name.startswith("pools")] == ["pools-0", "pools-1"]


@pytest.mark.slow
def test_a_run_of_thousands_of_rounds_is_drawn_with_some_hundred_points():
    history, _, log = watched([line(f"j{i}", i * 1_000, 1 + i % 2, 900) for i in range(1_500)])
    assert len(log["RoundOpened"]) > 3 * POINTS_MAX

    for draw in (classes.pools_over_time, classes.held_against_pools, classes.forecasts_against_reality):
        assert all(len(trace["x"]) <= POINTS_MAX + 1 for trace in draw(history)["data"])
    assert history.held.mean_ms > 0
    assert "means over" in classes.about_means(history)
