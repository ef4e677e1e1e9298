"""The page of a comparison: one HTML file with tables, charts and the library that draws them; it loads nothing."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from typing import Any

import plotly.io
from plotly.offline import get_plotlyjs

from schemas.wording import plural
from services.simulator.class_history import ClassHistory
from services.simulator.report import charts
from services.simulator.report.axes import Figure
from services.simulator.report.classes import (
    about_means,
    forecasts_against_reality,
    held_against_pools,
    pools_over_time,
    scores_table,
)
from services.simulator.report.jobs import LOSERS_MAX, losers_table, most_changed, running_tasks
from services.simulator.report.table import (
    NOTICED_PERCENT,
    RESERVATIONS_MAX,
    GroupKey,
    Table,
    comparison_table,
    equal_presets,
    groups_table,
    rejections_table,
    reservations_table,
)
from services.simulator.report.usage import about_means as about_means_of_usage
from services.simulator.report.usage import kinds_of, leftover_over_time, used_over_time
from services.simulator.result import SimulationResult
from services.simulator.schedule import ShortSchedule
from services.simulator.usage_history import UsageHistory

GANTT_SPANS_MAX = 2_000
"""Of a run with more attempts, or more spans of held room, the Gantt chart has a sample: it would be unreadable."""
_CONFIG: dict[str, Any] = {
    "responsive": True,
    "displaylogo": False,
    "plotlyServerURL": "",
    # Named one by one: among plotly's own is one that uploads the chart.
    "modeBarButtons": [["zoom2d", "pan2d", "resetScale2d", "toImage"]],
}
DIGEST_SHOWN = 16  # Hexadecimal digits of a digest in a table; all of them on hovering.


@dataclass(frozen=True, slots=True)
class Inputs:
    """What was compared. `version`: of Largesse. `workload`, `cluster`: names of the files. `capacity`: of all nodes,
    as texts. `settings`: knobs set for this run. `schedules`: by preset, of runs short enough for a Gantt chart.
    `classes`: by preset, what happened to the classes of jobs; empty histories are not shown. `usage`: by preset, what
    was used of the cell. `remarks`: what to keep in mind, as sentences without a full stop.
    """

    version: str
    workload: str
    cluster: str
    nodes: int
    capacity: dict[str, str]
    settings: list[str] = field(default_factory=list)
    schedules: dict[str, ShortSchedule] = field(default_factory=dict)
    classes: dict[str, ClassHistory] = field(default_factory=dict)
    usage: dict[str, UsageHistory] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)


def comparison_page(results: dict[str, SimulationResult], inputs: Inputs) -> str:
    """One HTML document. The same results and inputs give the same bytes, with one release of plotly."""
    groups = equal_presets(results)
    title = "Comparison of " + ", ".join(results)
    body = "".join(
        (
            f"<h1>{escape(title)}</h1>\n",
            _inputs(results, inputs),
            _equal(groups),
            "<h2>Results</h2>\n",
            _table(comparison_table(results)),
            *(f"<p class=note>{escape(remark)}.</p>\n" for remark in inputs.remarks),
            *(f"<p class=note>{escape(text)}</p>\n" for text in _about_results(results)),
            *_rejections(results),
            *_groups(results),
            *_charts(results, groups),
            *_usage(results, groups, inputs),
            *_reservations(results),
            *_losers(results, groups),
            *_one_job(results, groups, inputs),
            *_classes(results, inputs),
            *_gantts(results, groups, inputs),
        )
    )
    return _PAGE.format(title=escape(title), policy=_POLICY, style=_STYLE, script=get_plotlyjs(), body=body)


def _inputs(results: dict[str, SimulationResult], inputs: Inputs) -> str:
    first = next(iter(results.values()))
    capacity = ", ".join(f"{amount} {kind}" for kind, amount in inputs.capacity.items())
    rows = [
        ("workload", f"{inputs.workload}: {plural(first['jobs'], 'job')}, {plural(first['tasks'], 'task')}"),
        ("cluster", f"{inputs.cluster}: {plural(inputs.nodes, 'node')} with {capacity}"),
        ("seed", str(first["seed"])),
        ("settings", ", ".join(inputs.settings) or "none beside those of the cluster file"),
        ("version", f"Largesse {inputs.version}"),
    ]
    message = "".join(f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in rows)
    digests = "".join(
        f'<li>{escape(preset)}: <code title="{escape(result["digest"])}">'
        f"{escape(result['digest'][:DIGEST_SHOWN])}</code></li>"
        for preset, result in results.items()
    )
    return f"<dl>{message}<dt>digest</dt><dd><ul>{digests}</ul></dd></dl>\n"


def _equal(groups: list[list[str]]) -> str:
    return "".join(
        f"<p class=equal>Equal: under {escape(' and '.join(group))} every job starts and ends at the same time."
        " The charts show them as one.</p>\n"
        for group in groups
        if len(group) > 1
    )


def _about_results(results: dict[str, SimulationResult]) -> list[str]:
    baseline = (
        f"The first preset, {next(iter(results))}, is the baseline. Speed-up: its completion time divided by this"
        f" preset's, the median over all jobs. Faster and slower: by more than {NOTICED_PERCENT} %."
    )
    donated = [_ABOUT_DONATED] if any("leftover" in result for result in results.values()) else []
    return [baseline, _ABOUT_MAKESPAN, *donated, _ABOUT_JAIN]


_ABOUT_MAKESPAN = (
    "Makespan: from the first submission to the last end; utilisation is that over the makespan. The time axis of the"
    " charts begins at 0, the start of the run."
)
_ABOUT_DONATED = (
    "Donated, received and waited: parts of the cell over the makespan. What a job does not need now counts as donated"
    " even where nobody takes it, so jobs in a nearly idle cell donate much. Waited is what jobs were entitled to and"
    " did not hold while tasks that had to start found no room."
)
_ABOUT_JAIN = (
    "Jain's index: in windows of 60 s, over the n jobs that are present for at least half of it, (sum x)² / (n sum x²),"
    " where x = min(1, got / min(equal, could)): got is what a job held, could what it could have held with all that it"
    " had runnable, as the largest part of any resource, and equal the cell divided by the jobs present. Weights of"
    " queues are not taken into account."
)


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in table.columns)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>\n" for row in table.rows)
    return f"<div class=wide><table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>\n"


def _rejections(results: dict[str, SimulationResult]) -> Iterator[str]:
    table = rejections_table(results)
    if table.rows:
        yield "<h2>Rejected jobs</h2>\n" + _table(table)


def _groups(results: dict[str, SimulationResult]) -> Iterator[str]:
    titles: dict[GroupKey, str] = {"queue": "By queue", "class": "By class"}
    for key, title in titles.items():
        note = "Completion times in seconds, long ones as days and hours: mean and 95th percentile."
        yield f"<h2>{title}</h2>\n<p class=note>{note}</p>\n"
        table = groups_table(results, key)
        presets = "".join(f"<th colspan=2 class=preset>{escape(preset)}</th>" for preset in results)
        parts = "<th>mean</th><th>p95</th>" * len(results)
        head = f"<tr><th rowspan=2>{key}</th><th rowspan=2>jobs</th>{presets}</tr><tr>{parts}</tr>"
        body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>\n" for row in table.rows)
        yield f"<div class=wide><table class=groups><thead>{head}</thead><tbody>\n{body}</tbody></table></div>\n"


def _charts(results: dict[str, SimulationResult], groups: list[list[str]]) -> Iterator[str]:
    yield _figure("distribution", "Completion times", charts.distribution(results, groups))
    baseline = charts.label(groups[0])
    if len(groups) == 1:
        if len(results) > 1:
            yield "<h2>Differences</h2>\n<p class=note>None: all presets made the same schedule.</p>\n"
        return
    yield _figure("differences", f"Differences from {baseline}", charts.differences(results, groups))
    yield _figure("ratios", f"Each job's completion time relative to {baseline}", charts.ratios(results, groups))


def _usage(results: dict[str, SimulationResult], groups: list[list[str]], inputs: Inputs) -> Iterator[str]:
    kept = {preset: inputs.usage[preset] for preset in results if preset in inputs.usage}
    kinds = kinds_of(kept)
    if not kinds:
        return
    yield f"<h2>Utilisation over time</h2>\n<p class=note>{escape(_ABOUT_USE + about_means_of_usage(kept))}</p>\n"
    for number, kind in enumerate(kinds):
        yield _figure(f"use-{number}", kind, used_over_time(kind, kept, groups), level=3)
    if any(history.leftover.values for history in kept.values()):
        yield f"<h2>Leftover, donated and used</h2>\n<p class=note>{escape(_ABOUT_LEFTOVER)}</p>\n"
        for number, kind in enumerate(kinds):
            yield _figure(f"leftover-{number}", kind, leftover_over_time(kind, kept, groups), level=3)


_ABOUT_USE = "The part of each resource that running tasks hold."
_ABOUT_LEFTOVER = (
    "Under presets that plan jobs: what jobs were entitled to and left to others (donated), and what jobs held beyond"
    " what they were entitled to (received), added up from the start of the run; 10 s of the cell is all of its"
    " resource for 10 s. An account is published when its job is planned again: lines rise in steps. Jobs may also"
    " receive what nobody was entitled to, and what is donated may find nobody who can use it."
)


def _reservations(results: dict[str, SimulationResult]) -> Iterator[str]:
    table = reservations_table(results)
    if table.rows:
        yield f"<h2>Reservations</h2>\n<p class=note>{escape(_ABOUT_RESERVATIONS)}</p>\n" + _table(table)


_ABOUT_RESERVATIONS = (
    "In time: all jobs that ran under it succeeded by the end of its outermost window; late: not all of them did."
    f" Accepted: no job ran under it, or it has no window. At most {RESERVATIONS_MAX}, those that were not kept first."
)


def _losers(results: dict[str, SimulationResult], groups: list[list[str]]) -> Iterator[str]:
    """Of presets that are equal, the first stands for all."""
    table = losers_table({charts.label(group): results[group[0]] for group in groups})
    if table.rows:
        yield "<h2>Jobs that lost</h2>\n"
        about = f"Jobs that took longer than under {next(iter(results))}, of each preset at most {LOSERS_MAX}."
        yield f"<p class=note>{escape(about)}</p>\n" + _table(table)


def _one_job(results: dict[str, SimulationResult], groups: list[list[str]], inputs: Inputs) -> Iterator[str]:
    job = most_changed(results)
    if job is not None and sum(schedule.whole for schedule in inputs.schedules.values()) > 1:
        figure = running_tasks(job, inputs.schedules, groups)
        yield _figure("one-job", f"Tasks of {job}, the job that changed most", figure)


def _classes(results: dict[str, SimulationResult], inputs: Inputs) -> Iterator[str]:
    """Of each preset with pools; of equal ones, too: they may differ in their pools."""
    kept = {preset: inputs.classes[preset] for preset in results if preset in inputs.classes}
    if not any(history.has_pools for history in kept.values()):
        return
    yield f"<h2>Pools of classes</h2>\n<p class=note>{escape(_ABOUT_POOLS)}</p>\n"
    for number, (preset, history) in enumerate(kept.items()):
        if not history.has_pools:
            continue
        yield _figure(f"pools-{number}", f"{preset}: size of the pools", pools_over_time(history), level=3)
        title = f"{preset}: what classes hold, and their pools"
        yield _figure(f"held-{number}", title, held_against_pools(history), level=3)
        yield f"<p class=note>{escape(_ABOUT_HELD + about_means(history))}</p>\n"
        if not history.forecasts.times_ms:
            yield f"<p class=note>{escape(preset)}: no forecast was noted while tasks ran.</p>\n"
            continue
        title = f"{preset}: forecast and what came back within {history.horizon_s} s"
        yield _figure(f"forecasts-{number}", title, forecasts_against_reality(history), level=3)
        yield f"<p class=note>{escape(_ABOUT_FORECASTS)}</p>\n" + _table(scores_table(history))


_ABOUT_POOLS = (
    "Presets with pools by class of job (DRESS): how the pools moved, and how good the forecasts behind it were."
)
_ABOUT_HELD = "As a dominant share. A class that holds more than its pool has borrowed what others could not use."
_ABOUT_FORECASTS = (
    "At the time of each forecast: what tasks that ran then were forecast to give back, by the forecaster in use, and"
    " what they gave back. The table has the mean absolute error of each forecaster by horizon, as a part of the cell,"
    " where later forecasts count more."
)


def _gantts(results: dict[str, SimulationResult], groups: list[list[str]], inputs: Inputs) -> Iterator[str]:
    kept = {group[0]: inputs.schedules[group[0]] for group in groups if group[0] in inputs.schedules}
    if not kept:
        return
    yield "<h2>Schedules</h2>\n"
    by = "job" if charts.is_small(next(iter(results.values()))) else "queue"
    yield f"<p class=note>Each bar is an attempt of a task on its node, in the colour of its {by}.</p>\n"
    end_ms = max((span.end_ms for schedule in kept.values() for span in schedule.spans), default=0)
    for number, group in enumerate(groups):
        schedule = kept.get(group[0])
        if schedule is None:
            continue
        figure = charts.gantt(schedule.spans, charts.colours_by(results[group[0]]), end_ms)
        yield _figure(f"gantt-{number}", charts.label(group), figure, level=3)
        if not schedule.whole:
            yield f"<p class=note>{escape(_sampled(schedule))}</p>\n"


def _sampled(schedule: ShortSchedule) -> str:
    """What of a long run its Gantt chart has."""
    parts = []
    if schedule.one_in > 1:
        parts.append(f"one in {schedule.one_in:,} of {plural(schedule.attempts, 'attempt')}")
    if schedule.held_one_in > 1:
        parts.append(f"one in {schedule.held_one_in:,} of {plural(schedule.held_spans, 'span')} of held room")
    return (
        f"A sample: {' and '.join(parts)}, in the order in which they ended, so that at most"
        f" {schedule.spans_max:,} of each are drawn. What looks idle may be in use."
    )


def _figure(name: str, title: str, figure: Figure, level: int = 2) -> str:
    drawn = plotly.io.to_html(
        figure,
        config=_CONFIG,
        include_plotlyjs=False,
        full_html=False,
        validate=False,  # A test does: here it would take as long as the simulation.
        default_height=f"{figure['layout']['height']}px",
        div_id=name,  # Else it is drawn by chance, and no two pages are the same.
    )
    return f'<h{level}>{escape(title)}</h{level}>\n<figure aria-label="{escape(title)}">{drawn}</figure>\n'


_STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; max-width: 68rem; margin: 2rem auto;
  padding: 0 1rem; color: #1d2126; background: #fff; }
h1 { font-size: 1.6rem; line-height: 1.25; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.5rem 0 .5rem; }
h3 { font-size: 1rem; margin: 1.5rem 0 .25rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1rem; }
dt { color: #5b636d; }
dd { margin: 0; overflow-wrap: anywhere; }
dd ul { margin: 0; padding: 0; list-style: none; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .8rem; text-align: right; border-bottom: 1px solid #e3e6ea; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; background: #fff; }
.groups tr:nth-child(2) th:first-child { text-align: right; position: static; }
.groups .preset { text-align: center; }
.note { color: #5b636d; margin: .5rem 0; }
.equal { background: #eef4fb; border-left: 4px solid #0072b2; padding: .5rem .8rem; }
figure { margin: .5rem 0 0; }
@media (max-width: 40rem) {
  dl { grid-template-columns: 1fr; gap: 0; }
  dd { margin-bottom: .5rem; }
  th, td { padding: .25rem .5rem; }
}
@media print { figure, tr { break-inside: avoid; } }
"""

_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:;"
    " base-uri 'none'; form-action 'none'"
)
"""What a browser lets the page do: draw, and reach nothing."""

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title}</title>
<style>{style}</style>
<script>{script}</script>
</head>
<body>
<noscript><p>The charts are drawn by a script inside this page; the tables need none.</p></noscript>
{body}</body>
</html>
"""
