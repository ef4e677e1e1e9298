"""The charts of a comparison, as figures for plotly: plain dictionaries of traces and a layout.

Presets that made the same schedule are one trace (`groups`: the presets, those that are equal together).
"""

import math
from collections.abc import Sequence
from html import escape

from services.simulator.report.axes import Figure, log_axis, log_ticks, quantiles
from services.simulator.report.table import COMPLETION, JAIN, MAKESPAN, MS_A_SECOND, WAITING, Metric, took_ms
from services.simulator.result import SimulationResult
from services.simulator.schedule import Span

SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x")
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#6b4c9a", "#4a4a4a")
"""Taken in turn; they differ for colour-blind readers, too (Okabe and Ito)."""
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")  # Lines that overlap stay visible, also in black and white.

LANE_PX, GANTT_HEIGHT_LEAST_PX, GANTT_HEIGHT_MOST_PX = 9, 260, 1_400
HELD = "held"

_GRID = "#e3e6ea"
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"


def label(group: Sequence[str]) -> str:
    """The name of presets that are equal: `hdrf = largesse`."""
    return " = ".join(group)


def distribution(results: dict[str, SimulationResult], groups: Sequence[Sequence[str]]) -> Figure:
    """Share of jobs that took no longer than a time, which has a logarithmic axis."""
    traces: list[Figure] = []
    for i, group in enumerate(groups):
        ended = sorted(took_ms(row) for row in results[group[0]]["per_job"] if row["end_ms"] is not None)
        times, shares = quantiles([took / MS_A_SECOND for took in ended])
        traces.append(line_of(label(group), times, shares, i, "%{x:,.3~f} s: %{y:.1f} % of jobs"))
    axis = log_axis("completion time, s", [x for trace in traces for x in trace["x"]])
    return figure_of(traces, xaxis=axis, yaxis={"title": {"text": "jobs that took no longer, %"}, "range": [0, 101]})


def ratios(results: dict[str, SimulationResult], groups: Sequence[Sequence[str]]) -> Figure:
    """Each job's completion time divided by its time under the first preset: share of jobs up to each ratio."""
    base = {row["job"]: took_ms(row) for row in results[groups[0][0]]["per_job"] if row["end_ms"] is not None}
    traces: list[Figure] = []
    for i, group in enumerate(groups[1:], start=1):
        rows = results[group[0]]["per_job"]
        both = sorted(
            took_ms(row) / base[row["job"]] for row in rows if row["end_ms"] is not None and row["job"] in base
        )
        factors, shares = quantiles(both)
        traces.append(line_of(label(group), factors, shares, i, "x %{x:,.3~f}: %{y:.1f} % of jobs"))
    title = f"completion time relative to {label(groups[0])}"
    axis = log_axis(title, [1, *(x for trace in traces for x in trace["x"])])
    figure = figure_of(traces, xaxis=axis, yaxis={"title": {"text": "jobs up to this ratio, %"}, "range": [0, 101]})
    figure["layout"]["shapes"] = [_line_at_x(1)]
    figure["layout"]["annotations"] = [
        _note(0, "left", "◄ sooner"),
        _note(1, "right", "later ►"),
    ]
    return figure


_COMPARED = (COMPLETION, Metric("completion p95, s", ("jct_ms", "p95"), MS_A_SECOND, 1), WAITING, MAKESPAN, JAIN)


def differences(results: dict[str, SimulationResult], groups: Sequence[Sequence[str]]) -> Figure:
    """The main figures of each preset divided by the first preset's; those of 0 are left out."""
    base = results[groups[0][0]]
    compared = [metric for metric in _COMPARED if metric.of(base)]
    names = [metric.name.removesuffix(", s") for metric in compared]
    traces: list[Figure] = []
    for i, group in enumerate(groups[1:], start=1):
        factors = [metric.of(results[group[0]]) / metric.of(base) for metric in compared]
        shown = [(name, factor) for name, factor in zip(names, factors, strict=True) if factor]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers+text",
                "orientation": "h",
                "name": label(group),
                "y": [name for name, _ in shown],
                "x": [round(factor, 6) for _, factor in shown],
                "text": [f" {_times(factor)} " for _, factor in shown],
                "textposition": ["middle left" if factor < 1 else "middle right" for _, factor in shown],
                "cliponaxis": False,
                "marker": {"color": COLOURS[i % len(COLOURS)], "size": 10, "symbol": SYMBOLS[i % len(SYMBOLS)]},
                "hovertemplate": "%{y}: %{text}<extra>" + escape(label(group)) + "</extra>",
            }
        )
    # Room for the texts at both ends.
    most = max((max(x, 1 / x) for trace in traces for x in trace["x"]), default=1)
    reach = max(0.1, math.log10(most)) * 1.4
    figure = figure_of(
        traces,
        xaxis={
            "type": "log",
            "title": {"text": f"relative to {label(groups[0])}"},
            "range": [-reach, reach],
            **log_ticks(10**-reach, 10**reach),
        },
        yaxis={"autorange": "reversed", "automargin": True, "type": "category", "categoryarray": names},
        height=130 + len(compared) * (16 + 20 * len(traces)),
    )
    figure["layout"]["scattermode"] = "group"
    figure["layout"]["shapes"] = [_line_at_x(1)]
    return figure


def _times(factor: float) -> str:
    """`+4.4 %`, or from twice as much on `x 12.6`."""
    return f"{100 * (factor - 1):+.1f} %" if 0.5 < factor < 2 else f"x {factor:,.3g}"


def is_small(result: SimulationResult) -> bool:
    """Whether the run has so few jobs that each can have a colour of its own."""
    return len(result["per_job"]) <= len(COLOURS)


def colours_by(result: SimulationResult) -> dict[str, str]:
    """Job -> what gives it its colour in a Gantt chart: of a small run the job itself, else its queue."""
    small = is_small(result)
    return {row["job"]: row["job"] if small else row["queue"] for row in result["per_job"]}


def gantt(spans: Sequence[Span], name_of: dict[str, str], end_ms: int) -> Figure:
    """Attempts by node, as many lanes a node as run there at a time, and room held.

    `name_of`: job -> what its attempts are coloured by, the job or its queue. `end_ms`: where the time axis ends,
    so that charts of several presets can be compared.
    """
    lanes, nodes = lanes_of(spans)
    names = sorted(set(name_of.values()), key=_natural)
    colours = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)} | {HELD: "#9aa0a6"}
    by_name: dict[str, list[tuple[Span, int]]] = {}
    for span, lane in zip(spans, lanes, strict=True):
        by_name.setdefault(HELD if span.job is None else name_of[span.job], []).append((span, lane))
    traces = [_bars(name, by_name[name], colours[name]) for name in [*names, HELD] if name in by_name]
    total = sum(count for _, count in nodes)
    starts = [sum(count for _, count in nodes[:i]) for i in range(len(nodes))]
    height = min(GANTT_HEIGHT_MOST_PX, max(GANTT_HEIGHT_LEAST_PX, 120 + LANE_PX * total))
    axis = {
        "tickvals": [start + (count - 1) / 2 for start, (_, count) in zip(starts, nodes, strict=True)],
        "ticktext": [escape(node) for node, _ in nodes],
        "range": [total - 0.5, -0.5],
        "showgrid": False,
        "zeroline": False,
        "automargin": True,
    }
    figure = figure_of(
        traces,
        xaxis={"title": {"text": "time, s"}, "range": [0, end_ms / MS_A_SECOND or 1], "zeroline": False},
        yaxis=axis,
        height=height,
    )
    figure["layout"]["barmode"] = "overlay"
    figure["layout"]["bargap"] = 0
    figure["layout"]["hovermode"] = "closest"
    figure["layout"]["shapes"] = [_line_at_y(start - 0.5) for start in starts[1:]]
    return figure


def lanes_of(spans: Sequence[Span]) -> tuple[list[int], list[tuple[str, int]]]:
    """Each span's lane, where no two overlap, numbered over all nodes; and the nodes by name with their lanes' count.

    A span takes the first free lane of its node (interval partitioning, in order of starts): no node has more lanes
    than spans at a time.
    """
    busy: dict[str, list[int]] = {}  # By node: until when each of its lanes is taken.
    places: dict[int, tuple[str, int]] = {}
    for i in sorted(range(len(spans)), key=lambda i: (spans[i].start_ms, spans[i].end_ms, i)):
        span = spans[i]
        until = busy.setdefault(span.node, [])
        lane = next((lane for lane, end_ms in enumerate(until) if end_ms <= span.start_ms), len(until))
        if lane == len(until):
            until.append(0)
        until[lane] = span.end_ms
        places[i] = span.node, lane
    first, nodes = {}, []
    total = 0
    for node in sorted(busy, key=_natural):
        first[node] = total
        nodes.append((node, len(busy[node])))
        total += len(busy[node])
    return [first[places[i][0]] + places[i][1] for i in range(len(spans))], nodes


def _natural(name: str) -> tuple[str, int, str]:
    """`n-2` before `n-10`."""
    head = name.rstrip("0123456789")
    digits = name[len(head) :]
    return head, int(digits or 0), name


def _bars(name: str, placed: Sequence[tuple[Span, int]], colour: str) -> Figure:
    spans = [span for span, _ in placed]
    return {
        "type": "bar",
        "orientation": "h",
        "name": escape(name),
        "y": [lane for _, lane in placed],
        "base": [span.start_ms / MS_A_SECOND for span in spans],
        "x": [(span.end_ms - span.start_ms) / MS_A_SECOND for span in spans],
        "text": [_hover(span) for span in spans],
        "textposition": "none",
        "width": 0.86,
        "marker": {
            "color": colour,
            "line": {"width": 0.5, "color": "#fff"},
            "pattern": {"shape": "/" if name == HELD else ""},
        },
        "hovertemplate": "%{text}<extra></extra>",
    }


def _hover(span: Span) -> str:
    times = f"{span.start_ms / MS_A_SECOND:,.3f} to {span.end_ms / MS_A_SECOND:,.3f} s on {escape(span.node)}"
    if span.job is None:
        return f"room held: {escape(span.why)}<br>{times}"
    task = f"{escape(span.job)}/{escape(span.stage)}/{span.index}, attempt {span.attempt}"
    return f"{task}<br>{times}<br>{span.outcome}, {span.why}"


def line_of(name: str, x: list[float], y: list[float], i: int, hover: str) -> Figure:
    """A line of steps, in the i-th colour; `hover`: what is shown of a point."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": x,
        "y": y,
        "line": {"color": COLOURS[i % len(COLOURS)], "dash": DASHES[i % len(DASHES)], "width": 2, "shape": "hv"},
        "hovertemplate": hover,
    }


def figure_of(traces: list[Figure], xaxis: Figure, yaxis: Figure, height: int = 400) -> Figure:
    """Traces with the layout that all charts have."""
    common = {"gridcolor": _GRID, "linecolor": "#888", "ticks": "outside", "fixedrange": False}
    layout = {
        "height": height,
        "margin": {"l": 56, "r": 16, "t": 48, "b": 90},
        "font": {"family": _FONT, "size": 13, "color": "#1d2126"},
        "plot_bgcolor": "#fff",
        "paper_bgcolor": "#fff",
        "showlegend": True,
        "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": -58 / max(1, height - 138), "yanchor": "top"},
        "xaxis": common | {"automargin": True} | xaxis,
        "yaxis": common | yaxis,
        "hoverlabel": {"align": "left"},
    }
    return {"data": traces, "layout": layout}


def _line_at_x(x: float) -> Figure:
    return {
        "type": "line", "xref": "x", "yref": "paper", "x0": x, "x1": x, "y0": 0, "y1": 1,
        "line": {"color": "#555", "width": 1},
    }  # fmt: skip


def _line_at_y(y: float) -> Figure:
    return {
        "type": "line", "xref": "paper", "yref": "y", "x0": 0, "x1": 1, "y0": y, "y1": y,
        "line": {"color": "#c4c9d0", "width": 1},
    }  # fmt: skip


def _note(x: float, anchor: str, text: str) -> Figure:
    return {
        "xref": "paper", "yref": "paper", "x": x, "y": 1.0, "xanchor": anchor, "yanchor": "bottom", "text": text,
        "showarrow": False, "font": {"size": 12, "color": "#555"},
    }  # fmt: skip
