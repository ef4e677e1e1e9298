"""Several presets over one workload, side by side: a table as plain data, and a page of HTML that needs nothing else.

Takes results as `largesse simulate` prints them. The first preset is the one that the others are held against.
"""

from dataclasses import dataclass
from html import escape
from itertools import cycle
from typing import Any

import leather

Result = dict[str, Any]

_NOTICED_PERCENT = 1  # A completion time that changed by less is neither faster nor slower.
_CHART_WIDTH, _CHART_HEIGHT = 760, 300
_COLOURS = ("#1f5fa8", "#d1495b", "#2e8b57", "#c77c11", "#6a4c93", "#4a4a4a")  # Taken in turn.
_MS_A_SECOND = 1_000


@dataclass(frozen=True, slots=True)
class Table:
    """Texts, ready to print: a row a metric, its name with its unit first and then one column a preset."""

    columns: list[str]
    rows: list[list[str]]


@dataclass(frozen=True, slots=True)
class _Metric:
    """Where a number stands in a result, what it is divided by, and how it is shown."""

    name: str
    path: tuple[str, ...]
    over: int = 1
    digits: int = 0

    def of(self, result: Result) -> float:
        value: Any = result
        for step in self.path:
            value = value.get(step, 0)
        return (len(value) if isinstance(value, list) else value) / self.over

    def shown(self, result: Result) -> str:
        return f"{self.of(result):,.{self.digits}f}"


_COMPLETION = _Metric("completion mean, s", ("jct_ms", "mean"), _MS_A_SECOND, 1)
_MAKESPAN = _Metric("makespan, s", ("makespan_ms",), _MS_A_SECOND, 1)
_JAIN = _Metric("Jain's index mean", ("jain", "mean"), 1, 3)

_METRICS = (
    _Metric("jobs", ("jobs",)),
    _Metric("rejected", ("rejected",)),
    _MAKESPAN,
    _COMPLETION,
    *(_Metric(f"completion {part}, s", ("jct_ms", part), _MS_A_SECOND, 1) for part in ("p50", "p95", "p99")),
    _Metric("waiting mean, s", ("waiting_ms", "mean"), _MS_A_SECOND, 1),
    _JAIN,
    _Metric("Jain's index min", ("jain", "min"), 1, 3),
)


def comparison_table(results: dict[str, Result]) -> Table:
    """The table of results by preset, at least one."""
    name, base = next(iter(results.items()))
    used = [_Metric(f"utilisation {kind}", ("utilisation", kind), 1, 3) for kind in base["utilisation"]]
    metrics = (*_METRICS, *used, _Metric("placements", ("placements",)))
    rows = [[metric.name, *(metric.shown(result) for result in results.values())] for metric in metrics]
    against = [_against(base, result) for result in results.values()]
    for title, texts in zip(("median speed-up", "jobs faster", "jobs slower"), zip(*against, strict=True), strict=True):
        rows.append([f"{title} against {name}", *texts])
    return Table(["metric", *results], rows)


def comparison_page(results: dict[str, Result]) -> str:
    """One HTML document with the table and the plots inside: no script, nothing to load."""
    table = comparison_table(results)
    head = "".join(f"<th>{escape(column)}</th>" for column in table.columns)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>\n" for row in table.rows)
    charts = [_distribution(results), *(_bars(metric, results) for metric in (_COMPLETION, _MAKESPAN, _JAIN))]
    figures = "".join(f"<figure>{chart}</figure>\n" for chart in charts)
    return _PAGE.format(presets=escape(", ".join(results)), head=head, body=body, figures=figures)


def _against(base: Result, result: Result) -> tuple[str, str, str]:
    """Median over jobs of the former completion time over this one; how many jobs became faster, how many slower."""
    former = {row["job"]: _took_ms(row) for row in base["per_job"] if row["end_ms"] is not None}
    pairs = [
        (former[row["job"]], _took_ms(row))
        for row in result["per_job"]
        if row["end_ms"] is not None and row["job"] in former
    ]
    if not pairs:
        return "-", "-", "-"
    factors = sorted(before / after for before, after in pairs)
    faster = sum(100 * after < (100 - _NOTICED_PERCENT) * before for before, after in pairs)
    slower = sum(100 * after > (100 + _NOTICED_PERCENT) * before for before, after in pairs)
    return f"{factors[(len(factors) - 1) // 2]:.2f}", f"{faster:,}", f"{slower:,}"


def _took_ms(row: dict[str, Any]) -> int:
    return max(1, int(row["end_ms"] - row["submit_ms"]))


def _distribution(results: dict[str, Result]) -> str:
    """Completion times by the percent of jobs that took no longer, without the last percent: it would hide the rest."""
    chart = leather.Chart("Completion time, s, and the percent of jobs that took no longer")
    most = 0.0
    for (preset, result), colour in zip(results.items(), cycle(_COLOURS), strict=False):
        ranked = sorted(_took_ms(row) for row in result["per_job"] if row["end_ms"] is not None) or [0]
        points = [(ranked[-(-percent * len(ranked) // 100) - 1] / _MS_A_SECOND, percent) for percent in range(1, 100)]
        most = max(most, points[-1][0])
        chart.add_line(points, name=preset, stroke_color=colour, width=2)
    chart.add_x_scale(0, most or 1)
    chart.add_y_scale(0, 100)
    return _svg(chart)


def _bars(metric: _Metric, results: dict[str, Result]) -> str:
    chart = leather.Chart(metric.name)
    values = [(metric.of(result), preset) for preset, result in results.items()]
    chart.add_bars(values, fill_color=_COLOURS[0])
    chart.add_x_scale(0, max(value for value, _ in values) or 1)
    return _svg(chart)


def _svg(chart: leather.Chart) -> str:
    return str(chart.to_svg(width=_CHART_WIDTH, height=_CHART_HEIGHT))


_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Largesse: {presets}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; }}
th, td {{ padding: .2rem .9rem; text-align: right; border-bottom: 1px solid #ddd; }}
th:first-child, td:first-child {{ text-align: left; }}
figure {{ margin: 2rem 0; overflow-x: auto; }}
svg text {{ font-family: system-ui, sans-serif; }}
</style>
</head>
<body>
<h1>{presets}</h1>
<table><thead><tr>{head}</tr></thead><tbody>
{body}</tbody></table>
{figures}</body>
</html>
"""
