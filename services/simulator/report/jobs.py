"""Single jobs in a comparison: who lost by how much, and how one job ran under each preset."""

from collections.abc import Sequence
from itertools import groupby

from services.simulator.report.axes import Figure
from services.simulator.report.charts import figure_of, label, line_of
from services.simulator.report.table import MS_A_SECOND, NOTICED_PERCENT, Table, seconds_text, took_ms
from services.simulator.result import SimulationResult
from services.simulator.schedule import ShortSchedule, Span

LOSERS_MAX = 40
"""Jobs that are listed of each preset: those that lost most."""
ALIKE_MAX = 3
"""Of more jobs of a class and a queue that lost by the same factor, to two decimals, the first stands for all."""
SMALL_FACTOR = 0.095


def losers_table(results: dict[str, SimulationResult]) -> Table:
    """Jobs that took longer than under the first preset, by class and queue, those that lost most first."""
    base, *others = results
    former = {row["job"]: took_ms(row) for row in results[base]["per_job"] if row["end_ms"] is not None}
    rows = []
    for preset in others:
        lost = [
            (former[row["job"]] / took_ms(row), row)
            for row in results[preset]["per_job"]
            if row["end_ms"] is not None
            and 100 * took_ms(row) > (100 + NOTICED_PERCENT) * former.get(row["job"], took_ms(row))
        ]
        worst = sorted(lost, key=lambda each: (each[0], each[1]["job"]))[:LOSERS_MAX]
        ranked = sorted(worst, key=lambda each: (each[1]["class"] or "-", each[1]["queue"], each[0]))
        for alike, same in groupby(ranked, lambda each: (each[1]["class"] or "-", each[1]["queue"], f"{each[0]:.2f}")):
            listed = list(same)
            for factor, row in listed if len(listed) <= ALIKE_MAX else listed[:1]:
                times = [seconds_text(took / MS_A_SECOND) for took in (former[row["job"]], took_ms(row))]
                rows.append([preset, row["class"] or "-", row["queue"], row["job"], *times, factor_text(factor)])
            if len(listed) > ALIKE_MAX:
                rows.append([preset, *alike[:2], f"({len(listed) - 1:,} more like it)", "", "", ""])
        if len(lost) > len(worst):
            rows.append([preset, f"({len(lost) - len(worst):,} others)", "", "", "", "", ""])
    return Table(["preset", "class", "queue", "job", f"under {base}, s", "here, s", "speed-up"], rows)


def factor_text(factor: float) -> str:
    """A speed-up with two digits that count, also where it is far below 1."""
    return f"{factor:.2f}" if factor >= SMALL_FACTOR else f"{factor:.2g}"


def most_changed(results: dict[str, SimulationResult]) -> str | None:
    """The job whose completion time differs most, as a factor, from the first preset to another; None without one."""
    base, *others = results
    former = {row["job"]: took_ms(row) for row in results[base]["per_job"] if row["end_ms"] is not None}
    best: tuple[float, str] | None = None
    for preset in others:
        for row in results[preset]["per_job"]:
            if row["end_ms"] is not None and row["job"] in former:
                factor = former[row["job"]] / took_ms(row)
                rank = -max(factor, 1 / factor), row["job"]
                best = rank if best is None or rank < best else best
    return best[1] if best is not None and best[0] < -1 else None


def running_tasks(job: str, schedules: dict[str, ShortSchedule], groups: Sequence[Sequence[str]]) -> Figure:
    """How many tasks of a job run over time under each preset (CARBYNE, figure 8)."""
    traces = []
    for i, group in enumerate(groups):
        schedule = schedules.get(group[0])
        if schedule is not None and schedule.whole:
            times, counts = _steps([span for span in schedule.spans if span.job == job])
            traces.append(line_of(label(group), times, counts, i, "%{x:,.3~f} s: %{y} tasks"))
    return figure_of(traces, xaxis={"title": {"text": "time, s"}}, yaxis={"title": {"text": f"running tasks of {job}"}})


def _steps(spans: Sequence[Span]) -> tuple[list[float], list[float]]:
    moves: dict[int, int] = {}
    for span in spans:
        moves[span.start_ms] = moves.get(span.start_ms, 0) + 1
        moves[span.end_ms] = moves.get(span.end_ms, 0) - 1
    times, counts, running = [0.0], [0.0], 0
    for at_ms, move in sorted(moves.items()):
        running += move
        times.append(at_ms / MS_A_SECOND)
        counts.append(running)
    return times, counts
