"""`largesse simulate` and `largesse compare`: a workload on a cluster in virtual time, under one policy or several."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from json import dumps
from pathlib import Path
from typing import Any, cast

from largesse.lifecycle.queue_policy import ignored_of_max
from largesse.lifecycle.queue_rules import listed as names_of
from largesse.lifecycle.queue_rules import named as queue_named
from largesse.log.export import ExportWriter
from largesse.release import VERSION
from schemas import JobRejected
from schemas.edge.read import Cluster, Malformed, knob_of_text
from schemas.policy import KnobValue
from schemas.presets import Preset
from schemas.quantities import quantity_texts
from schemas.queue_tree import walk
from schemas.queues import Queue
from schemas.wording import placed, plural
from services.cli.documents import read_cluster_of
from services.cli.ending import Refused, Wrong, note
from services.cli.progress import progress_of
from services.cli.shipping import commit_text
from services.cli.show import in_blocks, listed, percent, rendered, span, table
from services.simulator.class_history import ClassHistory
from services.simulator.drive import Arrival
from services.simulator.outages import Outage, read_outages
from services.simulator.reservations import of_series, outcome_of, outcomes_legend, outcomes_text
from services.simulator.result import RESULTS, ReservationRow, SimulationResult
from services.simulator.run import Options, check, simulate, total_capacity
from services.simulator.schedule import ScheduleWriter, ShortSchedule
from services.simulator.usage_history import UsageHistory
from services.simulator.workloads.files import Damaged
from services.simulator.workloads.workload_file import read_workload

Jobs = list[tuple[int, Arrival]]

REPORT = "index.html"
REJECTED_SHOWN_MAX = 10
SERIES_SHOWN_MAX = 20


@dataclass(slots=True)
class Asked:
    """What the command line says of a run. `settings`: texts like `round_gap_ms=1000`."""

    workload: str
    cluster: str
    settings: list[str]
    seed: int | None = None
    outages: str | None = None
    reservations: str | None = None


@dataclass(slots=True)
class Inputs:
    """What a run is made of."""

    jobs: Jobs
    cluster: Cluster
    outages: list[Outage]


def inputs_of(asked: Asked) -> Inputs:
    """All files, read whole before anything starts. Raises Wrong, which names file and line, and the field."""
    if asked.workload == asked.cluster == "-":
        raise Wrong("--cluster: standard input is the workload already")
    if asked.outages == "-" and "-" in (asked.workload, asked.cluster):
        raise Wrong("--outages: standard input is another file already")
    if asked.reservations == "-" and "-" in (asked.workload, asked.cluster, asked.outages):
        raise Wrong("--reservations: standard input is another file already")
    try:
        cluster, _ = read_cluster_of(asked.cluster)
        outages = read_outages(asked.outages, cluster, asked.seed or 0) if asked.outages is not None else []
        return Inputs(list(read_workload(asked.workload, note, asked.reservations)), cluster, outages)
    except Damaged as fault:
        raise Wrong(str(fault)) from None
    except OSError as error:
        raise Wrong(f"{error.filename}: {error.strerror}") from None


def values_of(asked: Asked, preset: str | None, option_of_preset: str = "--preset") -> dict[str, KnobValue]:
    """Knobs that override the cluster file's. Raises Wrong that names the option."""
    given = [(option_of_preset, f"preset={preset}")] if preset is not None else []
    if asked.seed is not None:
        given.append(("--seed", f"seed={asked.seed}"))
    given += [("--set", setting) for setting in asked.settings]
    values: dict[str, KnobValue] = {}
    for option, setting in given:
        try:
            name, value = knob_of_text(setting)
        except Malformed as fault:
            place, reason = f"{option}: {fault.field}", fault.reason
            if option == "--presets":  # One of several: it stands first, and need not be said again.
                place, reason = f'{option}: "{preset}"', reason.replace(f'; is "{preset}"', "", 1)
            elif option != "--set":  # It names the knob.
                place = option
            raise Wrong(f"{place}: {reason}" if fault.field else f"{option}: {fault}") from None
        if name in values:
            raise Wrong(f"{option}: {name} is given twice: remove one of them")
        values[name] = value
    return values


def run_one(
    inputs: Inputs,
    values: dict[str, KnobValue],
    schedule: str | ShortSchedule | None = None,
    log: str | None = None,
    refused: list[JobRejected] | None = None,
    classes: ClassHistory | None = None,
    usage: UsageHistory | None = None,
) -> SimulationResult:
    """simulate's JSON result. `schedule`: a file, or where to keep a short one in memory. `refused` gets the first jobs
    that were, `classes` what happened to the classes of jobs, `usage` what was used of the cell. Raises Wrong where a
    file cannot be written, or knobs contradict each other.
    """

    if values.get("reservation_solver_ms", inputs.cluster.values.get("reservation_solver_ms")):
        note("simulations run without the solver of reservation_solver_ms: plans stay as they were first made")

    def refuse(body: JobRejected) -> None:
        if refused is not None and len(refused) < REJECTED_SHOWN_MAX:
            refused.append(body)

    with ExitStack() as files, progress_of(str(values.get("preset", "")) or "simulating", "jobs") as progress:
        options = Options(values, progress=progress, refused=refuse, classes=classes, usage=usage)
        options.outages = inputs.outages
        if isinstance(schedule, ShortSchedule):
            options.schedule = schedule
        elif schedule is not None:
            with _writing("--schedule"):
                options.schedule = files.enter_context(ScheduleWriter(schedule))
        if log is not None:
            with _writing("--log"):
                options.listener = files.enter_context(ExportWriter(log))
        try:
            return simulate(inputs.jobs, inputs.cluster, options)
        except Malformed as fault:
            raise _contradiction(fault) from None


def _contradiction(fault: Malformed) -> Wrong:
    """Each file and option is right by itself, and not together."""
    return Wrong(f"--cluster: {fault}" if fault.field == "queues" else f"--set, with the cluster's policy: {fault}")


def check_new(log: str) -> None:
    """Raises Wrong where the log's file is there already."""
    if Path(log).is_file():
        raise Wrong(f"--log: {log} already exists; --force overwrites it")


def check_admitted(*results: SimulationResult) -> None:
    """Raises Refused where not one job of any run was admitted: the figures are those of an empty cluster."""
    if all(map(_admitted_none, results)):
        reasons = Counter(each["reason"] for each in results[0]["rejected"])
        text = ", ".join(f"{reason} ({count:,})" for reason, count in reasons.most_common())
        raise Refused(f"nothing was admitted: every job was refused: {text}")


def _admitted_none(result: SimulationResult) -> bool:
    return bool(len(result["rejected"]) == result["jobs"])


def _nothing_to_show(result: SimulationResult) -> bool:
    """Figures would be those of an empty cluster, and nobody asked for a reservation either."""
    return _admitted_none(result) and not result.get("reservations")


@contextmanager
def _writing(option: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Wrong(f"{option}: {error.filename}: {error.strerror}") from None


_MEASURES: list[tuple[str, Any]] = [
    ("makespan", lambda r: span(r["makespan_ms"])),
    ("completion, mean", lambda r: span(r["jct_ms"]["mean"])),
    ("  median", lambda r: span(r["jct_ms"]["p50"])),
    ("  p95", lambda r: span(r["jct_ms"]["p95"])),
    ("  p99", lambda r: span(r["jct_ms"]["p99"])),
    ("waiting, mean", lambda r: span(r["waiting_ms"]["mean"])),
    ("  p95", lambda r: span(r["waiting_ms"]["p95"])),
    ("Jain's index, mean", lambda r: f"{r['jain']['mean']:.3f}"),
    ("  lowest", lambda r: f"{r['jain']['min']:.3f}"),
]


_OF_ALL = ("makespan",)
"""Measures that mean something where no job has ended."""
_NONE = "-"


def summary(result: SimulationResult, refused: list[JobRejected]) -> str:
    """One run for a person. `refused`: the first jobs that were."""
    work = f"{plural(result['jobs'], 'job')}, {plural(result['tasks'], 'task')}"
    head = f"preset {result['preset']}: {work}, seed {result['seed']}\n"
    refusals = _rejections(len(result["rejected"]), refused)
    if _nothing_to_show(result):
        return head + refusals
    rows = [(name, measure(result)) for name, measure in _MEASURES]
    if unfinished := len(result.get("outages", {}).get("unfinished", ())):
        of = result["jobs"] - len(result["rejected"])
        rows = [(name, _NONE if unfinished == of and name not in _OF_ALL else said) for name, said in rows]
        rows.insert(
            0, ("unfinished", f"{unfinished:,} of {plural(of, 'job')}, which the times of completion leave out")
        )
    gave = result.get("leftover", {})
    rows += [
        *((name, _parts_text(parts)) for name, parts in (("utilisation", result["utilisation"]), *gave.items())),
        ("rounds", f"{result['rounds']:,}"),
        ("placements", f"{result['placements']:,} ({result['placements_per_s']:,.0f} a second)"),
        ("digest", result["digest"][:16]),
    ]
    if "outages" in result:
        rows.insert(len(rows) - 1, ("outages", _outages_text(**result["outages"])))
    if "copies" in result:
        copies = result["copies"]
        rows.insert(len(rows) - 1, ("copies", f"{copies['started']:,} of slow tasks, {copies['won']:,} ended first"))
    reservations = result.get("reservations", [])
    if reservations:
        series_rows = [(f"  {name}", outcomes_text(entries)) for name, entries in of_series(reservations).items()]
        rows[-1:-1] = [("reservations", outcomes_text(reservations)), *series_rows[:SERIES_SHOWN_MAX]]
    text = rendered(table(("", ""), rows))
    if reservations:
        text += "\nreservations:\n" + outcomes_legend(reservations)
    return f"{head}\n{text}{refusals}{_unkept(reservations)}"


def _parts_text(parts: dict[str, float]) -> str:
    return "  ".join(f"{resource} {percent(share)}" for resource, share in parts.items())


def _outages_text(node_failures: int, attempts_lost: int, unfinished: list[str]) -> str:
    text = f"{plural(node_failures, 'node failure')}, {plural(attempts_lost, 'attempt')} lost"
    return f"{text}, {plural(len(unfinished), 'job')} unfinished" if unfinished else text


def _unkept(reservations: list[ReservationRow]) -> str:
    """Reservations that were refused, broken or late, each with its reason."""
    found = [(each["reservation"], outcome_of(each), each["detail"]) for each in reservations]
    rows = [row for row in found if row[1] not in ("in time", "accepted")]
    if not rows:
        return ""
    more = len(rows) - REJECTED_SHOWN_MAX
    text = "\nreservations not kept:\n" + listed(("", "", ""), rows[:REJECTED_SHOWN_MAX], kinds="kkl")
    return text + (f"and {more:,} more, all in --json\n" if more > 0 else "")


def _rejections(count: int, refused: list[JobRejected]) -> str:
    if not refused:
        return ""
    rows = [(body.spec.job, f"{body.reason}: {placed(body.field, body.detail)}") for body in refused]
    more = count - len(rows)
    text = f"\n{plural(count, 'job')} refused:\n" + listed(("", ""), rows)
    return text + (f"and {more:,} more, all in --json\n" if more else "")


def comparison(results: dict[str, SimulationResult]) -> str:
    """Several runs side by side."""
    from services.simulator.report import comparison_table, rejections_table

    first = next(iter(results.values()))
    head = f"{plural(first['jobs'], 'job')}, {plural(first['tasks'], 'task')}, seed {first['seed']}\n\n"
    rejected = rejections_table(results)
    why = listed(rejected.columns, rejected.rows, kinds="krll") if rejected.rows else ""
    if all(map(_nothing_to_show, results.values())):
        return head + why
    drawn = comparison_table(results)
    return head + in_blocks(("", *drawn.columns[1:]), drawn.rows) + (f"\n{why}" if why else "")


def compare_presets(asked: Asked, presets: list[str], report: str | None) -> dict[str, SimulationResult]:
    """simulate's JSON results by preset, and a page about them in the folder `report`, which is made. Raises Wrong."""
    values = {name: values_of(asked, name, "--presets") for name in presets}
    inputs = inputs_of(asked)
    try:
        for name in presets:  # All of them before the first run.
            check(inputs.cluster, values[name])
    except Malformed as fault:
        raise _contradiction(fault) from None
    remarks = _ignored_limits(inputs.cluster.queues, presets)
    for remark in remarks:
        note(remark)
    if report is None:
        return {name: run_one(inputs, values[name]) for name in presets}
    from services.simulator.report import page as report_page

    page = Path(report, REPORT)
    with _writing("--report"):  # Before the runs: they may take long.
        page.parent.mkdir(parents=True, exist_ok=True)
    schedules = {name: ShortSchedule(report_page.GANTT_SPANS_MAX) for name in presets}
    classes = {name: ClassHistory() for name in presets}
    usage = {name: UsageHistory() for name in presets}
    results = {
        name: run_one(inputs, values[name], schedules[name], classes=classes[name], usage=usage[name])
        for name in presets
    }
    about = report_page.Inputs(
        f"{VERSION} ({commit_text() or 'release'})",
        _named(asked.workload),
        _named(asked.cluster),
        len(inputs.cluster.nodes),
        quantity_texts(total_capacity(inputs.cluster)),
        asked.settings,
        schedules,
        classes,
        usage,
        remarks,
    )
    former = ", replacing an earlier one" if page.exists() else ""
    with _writing("--report"):
        page.write_text(report_page.comparison_page(results, about), encoding="utf-8")
        page.with_name(RESULTS).write_text(dumps({"presets": results}) + "\n", encoding="utf-8")
    note(f"report in {page}{former}")
    return results


def _ignored_limits(tree: Queue | None, presets: list[str]) -> list[str]:
    """Presets under which a `max` of a queue does not hold. Others keep to it, and may look slower for it. What is
    larger than a `max` is refused under all of them, so that all have the same jobs."""
    limits = {path: queue.max for path, queue in walk(tree) if queue.max} if tree is not None else {}
    remarks = []
    for preset in dict.fromkeys(presets):
        ignored = [queue_named(path) for path, limit in limits.items() if ignored_of_max(cast(Preset, preset), limit)]
        if ignored:
            text = f"the max of {names_of(ignored)} does not hold under this preset; it only refuses what is larger"
            remarks.append(f"{preset}: {text}")
    return remarks


def _named(path: str) -> str:
    return "standard input" if path == "-" else Path(path).name
