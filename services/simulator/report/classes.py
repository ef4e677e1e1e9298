"""Classes of jobs in a comparison: their pools, what they held, and how good the forecasts for them were."""

from services.simulator.class_history import ClassHistory
from services.simulator.report.axes import Figure
from services.simulator.report.charts import figure_of, line_of
from services.simulator.report.table import MS_A_SECOND, Table
from services.simulator.steps import Steps

_PERCENT = 100
_HOVER = "%{x:,.3~f} s: %{y:.1f} % of the cell"


def pools_over_time(history: ClassHistory) -> Figure:
    """The size of each class's pool (the reserve ratio of DRESS, algorithm 3)."""
    lines = [_line(history.pools, at, name, at, history.end_ms) for at, name in enumerate(history.classes)]
    return _figure(lines, history)


def held_against_pools(history: ClassHistory) -> Figure:
    """What tasks of each class hold, and the pool of the class."""
    lines: list[Figure] = []
    for at, name in enumerate(history.classes):
        lines.append(_line(history.held, at, f"{name}: held", at, history.end_ms))
        lines.append(_line(history.pools, at, f"{name}: pool", at, history.end_ms, "dot"))
    return _figure(lines, history)


def forecasts_against_reality(history: ClassHistory) -> Figure:
    """By the time of the forecast: what running tasks of each class were to give back, and what they gave back."""
    lines: list[Figure] = []
    end_ms = history.forecasts.times_ms[-1]  # A forecast stands for itself: it does not last.
    for at, name in enumerate(history.classes):
        lines.append(_line(history.forecasts, len(history.classes) + at, f"{name}: came back", at, end_ms))
        lines.append(_line(history.forecasts, at, f"{name}: forecast", at, end_ms, "dot"))
    return _figure(lines, history)


def scores_table(history: ClassHistory) -> Table:
    """Mean absolute error of each forecaster by horizon, and for which part of the time it was used."""
    columns = ["forecaster", *(f"{horizon} s" for horizon in history.horizons_s), "used"]
    used_ms = sum(score.used_ms for score in history.scores)
    rows = []
    for score in history.scores:
        errors = [
            f"{_PERCENT * error:.2f} %" if samples else "-"
            for error, samples in zip(score.errors, score.samples, strict=True)
        ]
        used = f"{_PERCENT * score.used_ms / used_ms:.0f} % of the time" if used_ms else "-"
        rows.append([score.forecaster, *errors, used])
    return Table(columns, rows)


def about_means(history: ClassHistory) -> str:
    """Over how long the values of the charts are means; empty where they are exact."""
    longest_ms = max(series.mean_ms for series in (history.pools, history.held, history.forecasts))
    return f" Lines show means over up to {longest_ms / MS_A_SECOND:,.3g} s." if longest_ms else ""


def _line(series: Steps, at: int, name: str, colour: int, end_ms: int, dash: str = "solid") -> Figure:
    """One value of a series; the last point lasts until `end_ms`."""
    times = [round(time / MS_A_SECOND, 3) for time in series.times_ms]
    parts = [round(_PERCENT * values[at], 3) for values in series.values]
    if parts and end_ms > series.times_ms[-1]:
        times.append(end_ms / MS_A_SECOND)
        parts.append(parts[-1])
    line = line_of(name, times, parts, colour, _HOVER)
    line["line"]["dash"] = dash
    return line


def _figure(lines: list[Figure], history: ClassHistory) -> Figure:
    return figure_of(
        lines,
        xaxis={"title": {"text": "time, s"}, "range": [0, history.end_ms / MS_A_SECOND or 1]},
        yaxis={"title": {"text": "% of the cell"}, "rangemode": "tozero"},
        height=340,
    )
