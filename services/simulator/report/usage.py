"""How full the cell was under each preset, and what its jobs gave away and received."""

from collections.abc import Iterator, Mapping, Sequence

from services.simulator.report.axes import Figure
from services.simulator.report.charts import figure_of, label, line_of
from services.simulator.report.table import MS_A_SECOND
from services.simulator.steps import Steps
from services.simulator.usage_history import UsageHistory

KINDS_MAX = 8
"""So many kinds of resource have a chart, in order of their names."""

_PERCENT = 100


def kinds_of(histories: Mapping[str, UsageHistory]) -> list[str]:
    """The kinds of resource that are drawn."""
    return sorted({kind: True for history in histories.values() for kind in history.kinds})[:KINDS_MAX]


def used_over_time(kind: str, histories: Mapping[str, UsageHistory], groups: Sequence[Sequence[str]]) -> Figure:
    """The part of a kind's capacity that tasks hold: a line a preset, up to the end of the longest run."""
    end_ms = max((history.end_ms for history in histories.values()), default=0)
    lines: list[Figure] = []
    for i, group in enumerate(groups):
        history = histories.get(group[0])
        if history is not None and kind in history.kinds:
            x, y = _points(history.used, history.kinds.index(kind), history.end_ms, _PERCENT)
            lines.append(line_of(label(group), x, y, i, "%{x:,.3~f} s: %{y:.1f} %"))
    return figure_of(
        lines,
        xaxis={"title": {"text": "time, s"}, "range": [0, end_ms / MS_A_SECOND or 1]},
        yaxis={"title": {"text": "in use, %"}, "range": [0, 105]},
        height=300,
    )


def leftover_over_time(kind: str, histories: Mapping[str, UsageHistory], groups: Sequence[Sequence[str]]) -> Figure:
    """What jobs have donated and received of a kind up to a time, in seconds of the whole cell: two lines a preset."""
    end_ms = max((history.end_ms for history in histories.values()), default=0)
    lines: list[Figure] = []
    for i, group in enumerate(groups):
        # Presets whose schedules are equal need not have given away the same: not all of them keep accounts.
        for preset in group:
            history = histories.get(preset)
            if history is not None and kind in history.kinds and history.leftover.values:
                lines += _accounts(preset, history, kind, i)
    return figure_of(
        lines,
        xaxis={"title": {"text": "time, s"}, "range": [0, end_ms / MS_A_SECOND or 1]},
        yaxis={"title": {"text": "seconds of the cell"}, "rangemode": "tozero"},
        height=300,
    )


def _accounts(preset: str, history: UsageHistory, kind: str, colour: int) -> Iterator[Figure]:
    at, count = history.kinds.index(kind), len(history.kinds)
    for shift, what, dash in ((0, "donated", "solid"), (count, "received", "dot")):
        x, y = _points(history.leftover, at + shift, history.end_ms, 1)
        line = line_of(f"{preset}: {what}", x, y, colour, "%{x:,.3~f} s: %{y:,.1f} s of the cell")
        line["line"]["dash"] = dash
        yield line


def about_means(histories: Mapping[str, UsageHistory]) -> str:
    """Over how long the values of the charts are means; empty where they are exact."""
    longest_ms = max((history.used.mean_ms for history in histories.values()), default=0)
    return f" Lines show means over up to {longest_ms / MS_A_SECOND:,.3g} s." if longest_ms else ""


def _points(series: Steps, at: int, end_ms: int, factor: int) -> tuple[list[float], list[float]]:
    """One value of a series; the last point lasts until `end_ms`."""
    times = [round(time / MS_A_SECOND, 3) for time in series.times_ms]
    values = [round(factor * each[at], 3) for each in series.values]
    if values and end_ms > series.times_ms[-1]:
        times.append(end_ms / MS_A_SECOND)
        values.append(values[-1])
    return times, values
