"""Figures of several runs of one workload, as texts: by metric, by queue and by class, a column a preset.

Takes results as `largesse simulate` prints them. The first preset is the baseline.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from services.simulator.reservations import OUTCOMES, of_series, outcome_of, outcomes_text
from services.simulator.result import JobRow, SimulationResult

GroupKey = Literal["queue", "class"]

NOTICED_PERCENT = 1  # A completion time that changed by less is neither faster nor slower.
GROUPS_MAX = 40
"""So many queues are listed one by one, those with the most jobs; the others are one row."""
RESERVATIONS_MAX = 100
"""So many reservations are listed one by one."""
SERIES_MAX = 20
"""So many recurring reservations have a row among the metrics."""
MS_A_SECOND = 1_000


LONG_S = 48 * 3_600
"""Seconds from which a time is shown in days and hours."""


def seconds_text(seconds: float) -> str:
    """Seconds with a tenth; a long time as days and hours, `35 d 6 h`, rounded to the hour."""
    if seconds < LONG_S:
        return f"{seconds:,.1f}"
    days, hours = divmod(round(seconds / 3_600), 24)
    return f"{days:,} d {hours} h"


@dataclass(frozen=True, slots=True)
class Table:
    """Texts, ready to print. The first column names the row."""

    columns: list[str]
    rows: list[list[str]]


@dataclass(frozen=True, slots=True)
class Metric:
    """Where a number is in a result, what it is divided by, and how many decimals are shown."""

    name: str
    path: tuple[str, ...]
    over: int = 1
    digits: int = 0

    def of(self, result: SimulationResult) -> float:
        value: Any = result
        for step in self.path:
            value = value.get(step, 0) if isinstance(value, dict) else 0
        return (len(value) if isinstance(value, list) else value) / self.over

    def shown(self, result: SimulationResult) -> str:
        """A dash where the result has no such section."""
        if self.over == MS_A_SECOND and self.path[0] in result:
            return seconds_text(self.of(result))
        return f"{self.of(result):,.{self.digits}f}" if self.path[0] in result else "-"


_PARTS = ("p50", "p95", "p99")
COMPLETION = Metric("completion mean, s", ("jct_ms", "mean"), MS_A_SECOND, 1)
MAKESPAN = Metric("makespan, s", ("makespan_ms",), MS_A_SECOND, 1)
WAITING = Metric("waiting mean, s", ("waiting_ms", "mean"), MS_A_SECOND, 1)
JAIN = Metric("Jain's index mean", ("jain", "mean"), 1, 3)

_METRICS = (
    Metric("jobs", ("jobs",)),
    Metric("rejected", ("rejected",)),
    MAKESPAN,
    COMPLETION,
    *(Metric(f"completion {part}, s", ("jct_ms", part), MS_A_SECOND, 1) for part in _PARTS),
    WAITING,
    JAIN,
    Metric("Jain's index min", ("jain", "min"), 1, 3),
)

_OUTAGES = (
    Metric("unfinished jobs", ("outages", "unfinished")),
    Metric("node failures", ("outages", "node_failures")),
    Metric("attempts lost", ("outages", "attempts_lost")),
)
"""Beside completion times, in which unfinished jobs do not count."""
_COPIES = (Metric("copies started", ("copies", "started")), Metric("copies won", ("copies", "won")))


def comparison_table(results: dict[str, SimulationResult]) -> Table:
    """The table of results by preset, at least one."""
    name, base = next(iter(results.items()))
    used = [Metric(f"utilisation {kind}", ("utilisation", kind), 1, 3) for kind in base["utilisation"]]
    gave = []
    if any("leftover" in result for result in results.values()):
        whats = ("donated", "received", "waited")
        gave = [
            Metric(f"{what} {kind}", ("leftover", what, kind), 1, 3) for what in whats for kind in base["utilisation"]
        ]
    more = [metric for metric in (*_OUTAGES, *_COPIES) if any(metric.path[0] in result for result in results.values())]
    metrics = (*_METRICS, *more, *used, *gave, Metric("placements", ("placements",)))
    rows = [[metric.name, *(metric.shown(result) for result in results.values())] for metric in metrics]
    against = [_against(base, result) for result in results.values()]
    for title, texts in zip(("median speed-up", "jobs faster", "jobs slower"), zip(*against, strict=True), strict=True):
        rows.append([f"{title} against {name}", *texts])
    if any("reservations" in result for result in results.values()):
        rows += _reservation_rows(results)
    return Table(["metric", *results], rows)


def _reservation_rows(results: dict[str, SimulationResult]) -> list[list[str]]:
    counts = [Counter(map(outcome_of, result.get("reservations", []))) for result in results.values()]
    each = [[f"reservations {outcome}", *(f"{count[outcome]:,}" for count in counts)] for outcome in OUTCOMES]
    rows = [["reservations", *(f"{count.total():,}" for count in counts)], *each]
    return rows + [[f"series {name}", *texts] for name, texts in _series_texts(results)][:SERIES_MAX]


def _series_texts(results: dict[str, SimulationResult]) -> list[tuple[str, list[str]]]:
    """What became of the occurrences of each series, by preset."""
    found = [of_series(result.get("reservations", [])) for result in results.values()]
    names = dict.fromkeys(name for of in found for name in of)
    return [(name, [outcomes_text(of.get(name, [])) for of in found]) for name in names]


def reservations_table(results: dict[str, SimulationResult]) -> Table:
    """What became of each reservation, by preset: of those that are not alike everywhere and in time first, at most
    RESERVATIONS_MAX. Occurrences of a series with which all is well stand together in one row."""
    # The same requests come in the same order under every preset; which are refused at once may differ.
    outcomes: dict[str, dict[str, list[str]]] = {}
    recurring: dict[str, bool] = {}
    for preset, result in results.items():
        for entry in result.get("reservations", []):
            outcome, reason = outcome_of(entry), entry["reason"]
            text = f"{outcome} ({reason})" if outcome == "refused" and reason != "refused" else outcome
            outcomes.setdefault(entry["reservation"], {}).setdefault(preset, []).append(text)
            if "series" in entry:
                recurring[entry["reservation"]] = True
    rows = [[name, *("; ".join(of.get(preset, ["-"])) for preset in results)] for name, of in outcomes.items()]
    rows = [row for row in rows if row[0] not in recurring or not {"in time", "accepted", "-"}.issuperset(row[1:])]
    rows += [[f"{name} (series)", *texts] for name, texts in _series_texts(results)]
    rows.sort(key=lambda row: set(row[1:]) == {"in time"})
    return Table(["reservation", *results], rows[:RESERVATIONS_MAX])


def rejections_table(results: dict[str, SimulationResult]) -> Table:
    """Why jobs were rejected: a row a reason with how many jobs and the first of them; where presets differ, a row for
    those that are alike."""
    presets_of: dict[tuple[str, int, str], list[str]] = {}
    for preset, result in results.items():
        jobs: dict[str, list[str]] = {}
        for entry in result["rejected"]:
            jobs.setdefault(entry["reason"], []).append(entry["job"])
        for reason, names in jobs.items():
            presets_of.setdefault((reason, len(names), names[0]), []).append(preset)
    rows = [
        [reason, f"{count:,}", first, "all presets" if len(presets) == len(results) else ", ".join(presets)]
        for (reason, count, first), presets in presets_of.items()
    ]
    return Table(["rejected", "jobs", "first job", "under"], rows)


def _against(base: SimulationResult, result: SimulationResult) -> tuple[str, str, str]:
    """Median over jobs of the former completion time over this one; how many jobs became faster, how many slower."""
    former = {row["job"]: took_ms(row) for row in base["per_job"] if row["end_ms"] is not None}
    pairs = [
        (former[row["job"]], took_ms(row))
        for row in result["per_job"]
        if row["end_ms"] is not None and row["job"] in former
    ]
    if not pairs:
        return "-", "-", "-"
    factors = sorted(before / after for before, after in pairs)
    faster = sum(100 * after < (100 - NOTICED_PERCENT) * before for before, after in pairs)
    slower = sum(100 * after > (100 + NOTICED_PERCENT) * before for before, after in pairs)
    return f"{factors[(len(factors) - 1) // 2]:.2f}", f"{faster:,}", f"{slower:,}"


def took_ms(row: JobRow) -> int:
    """Completion time of a job that has ended, at least 1 ms so that ratios and logarithms are defined."""
    assert row["end_ms"] is not None
    return max(1, row["end_ms"] - row["submit_ms"])


def equal_presets(results: dict[str, SimulationResult]) -> list[list[str]]:
    """The presets, those together under which every job starts and ends at the same time; in the order given."""
    alike: dict[tuple[tuple[Any, ...], ...], list[str]] = {}
    for preset, result in results.items():
        times = tuple((row["job"], row["start_ms"], row["end_ms"], row.get("outcome")) for row in result["per_job"])
        alike.setdefault(times, []).append(preset)
    return list(alike.values())


def groups_table(results: dict[str, SimulationResult], key: GroupKey) -> Table:
    """Completion times by queue or class (`key`), in seconds: a row a group, mean and 95th percentile by preset."""
    grouped = {preset: _by_group(result["per_job"], key) for preset, result in results.items()}
    counts: dict[str, int] = {}
    for row in next(iter(results.values()))["per_job"]:
        group = _group_of(row, key)
        counts[group] = counts.get(group, 0) + 1
    for groups in grouped.values():  # A preset may have admitted jobs that the first refused.
        for group in groups:
            counts.setdefault(group, 0)
    shown = sorted(sorted(counts, key=lambda group: (-counts[group], group))[:GROUPS_MAX])
    rows = [
        [group, f"{counts[group]:,}", *_mean_and_p95(groups.get(group, []) for groups in grouped.values())]
        for group in shown
    ]
    if len(counts) > len(shown):
        rest = [group for group in counts if group not in set(shown)]
        took = ([each for group in rest for each in groups.get(group, [])] for groups in grouped.values())
        jobs = sum(counts[group] for group in rest)
        rows.append([f"({len(rest):,} others)", f"{jobs:,}", *_mean_and_p95(took)])
    return Table([key, "jobs", *(f"{preset} {part}" for preset in results for part in ("mean", "p95"))], rows)


def _group_of(row: JobRow, key: GroupKey) -> str:
    return row["queue"] if key == "queue" else row["class"] or "-"


def _by_group(rows: list[JobRow], key: GroupKey) -> dict[str, list[int]]:
    took: dict[str, list[int]] = {}
    for row in rows:
        if row["end_ms"] is not None:
            took.setdefault(_group_of(row, key), []).append(took_ms(row))
    return took


def _mean_and_p95(groups: Iterable[list[int]]) -> list[str]:
    texts = []
    for took in groups:
        ranked = sorted(took)
        if not ranked:
            texts += ["-", "-"]
            continue
        p95 = ranked[-(-95 * len(ranked) // 100) - 1]
        texts += [seconds_text(each / MS_A_SECOND) for each in (sum(ranked) / len(ranked), p95)]
    return texts
