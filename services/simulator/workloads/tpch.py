"""TPC-H queries as graphs of stages with measured task durations (Decima): any sizes, as many jobs as wanted.

Reads `tpch_<size>` files (one task list a stage, s) and `raw` ones (every run, ms); a folder stands for all in it.
Tasks may be coalesced (fewer, longer ones of the same work) and then stretched (every duration times a constant).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from schemas.quantities import Vector, quantity_texts
from services.simulator.workloads.draws import arrivals_ms, below
from services.simulator.workloads.files import Damaged
from services.simulator.workloads.source import (
    Leave,
    Line,
    Option,
    Row,
    json_rows,
    milliseconds,
    nearest,
    require,
    unheard,
)
from services.simulator.workloads.tpch_demands import Demands, drawn_demand, read_demands, stage_class

OPTIONS = (
    Option("demands", str, "", "file of demands by query and stage; without it one core a task"),
    Option("demand_seed", str, "", "draws the demands by the file's rule instead; carbyne-v1 gives the file's own"),
    Option("sizes", str, "", "only these sizes, like 2g,50g"),
    Option("queries", str, "", "only these queries, like 1,3,5-9"),
    Option("jobs", int, 0, "jobs, each a random query and size; 0: every query of every size once"),
    Option("mean_gap_ms", int, 0, "Poisson arrivals with this mean gap; 0: all at once"),
    Option(
        "coalesce_ms", int, 0, "makes a stage of work W into ceil(W / this) tasks, never more than it has; 0: leaves it"
    ),
    Option("stretch", Fraction, Fraction(1), "multiplies every duration"),
    Option("executors", int, 2, "raw files: takes the run with the most executors up to this many"),
    Option("warm", bool, False, "raw files: a fresh executor's task lasts as long as the median of the later ones"),
    Option("seed", int, 0, "of the choice of jobs and of the arrivals"),
)

QUERIES = 22


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of a query: its parents' ids and its tasks' measured durations."""

    id: int
    parents: list[int]
    durations_ms: list[int]


@dataclass(frozen=True, slots=True)
class Query:
    """One query at one size."""

    number: int
    size: str
    stages: list[Stage]


def convert(
    path: str,
    *,
    demands: str = "",
    demand_seed: str = "",
    sizes: str = "",
    queries: str = "",
    jobs: int = 0,
    mean_gap_ms: int = 0,
    coalesce_ms: int = 0,
    stretch: Fraction = Fraction(1),
    executors: int = 2,
    warm: bool = False,
    seed: int = 0,
    leave: Leave = unheard,
) -> Iterator[Line]:
    """Workload lines in order of arrival. Raises ValueError for a wrong option and Damaged for a damaged trace."""
    require("jobs", jobs >= 0, "at least 0", jobs)
    require("mean_gap_ms", mean_gap_ms >= 0, "at least 0", mean_gap_ms)
    require("coalesce_ms", coalesce_ms >= 0, "at least 0", coalesce_ms)
    require("stretch", stretch > 0, "above 0", stretch)
    require("executors", executors >= 1, "at least 1", executors)
    require("demand_seed", not (demands and demand_seed), "left out: demands come from a file", demand_seed)
    numbers = _numbers(queries)
    wanted = [size for size in sizes.split(",") if size]
    found = []
    for file in _files(path):
        for query in _read(file, executors, warm):
            if query.number not in numbers:
                leave("of a query that is not asked for (--queries)")
            elif wanted and query.size not in wanted:
                leave("of a size that is not asked for (--sizes)")
            else:
                found.append(query)
    if not found:
        raise ValueError(f"{path}: has no query of the wanted sizes and numbers")
    table = read_demands(demands) if demands else None
    asked = {id(query): _demands(query, table, demands, demand_seed) for query in found}

    def lines() -> Iterator[Line]:
        chosen = [found[below(len(found), seed, "tpch.query", str(i))] for i in range(jobs)] if jobs else found
        for i, at_ms in enumerate(arrivals_ms(mean_gap_ms, len(chosen), seed, "tpch.gap")):
            query = chosen[i]
            name = f"q{query.number}-{query.size}"
            stages = [
                {
                    "stage": f"s{stage.id}",
                    "after": [f"s{parent}" for parent in stage.parents],
                    "demand": quantity_texts(asked[id(query)][stage.id]),
                    "durations_ms": [
                        max(1, nearest(ms * stretch)) for ms in coalesced(stage.durations_ms, coalesce_ms)
                    ],
                }
                for stage in query.stages
            ]
            yield {"job": f"{i:05}-{name}" if jobs else name, "submit_ms": at_ms, "stages": stages}

    return lines()


def coalesced(durations_ms: list[int], target_ms: int) -> list[int]:
    """The same work in min(n, ceil(work / target)) tasks of nearly one length, longer ones first; 0: as they are."""
    if not target_ms:
        return durations_ms
    work_ms = sum(durations_ms)
    tasks = min(len(durations_ms), max(1, -(-work_ms // target_ms)))
    length_ms, longer = divmod(work_ms, tasks)
    return [length_ms + 1] * longer + [length_ms] * (tasks - longer)


def _numbers(queries: str) -> set[int]:
    if not queries:
        return set(range(1, QUERIES + 1))
    numbers: set[int] = set()
    for part in queries.split(","):
        first, _, last = part.partition("-")
        require("queries", first.isdecimal() and (last or first).isdecimal(), "numbers and spans like 1,3,5-9", queries)
        span = range(int(first), min(int(last or first), QUERIES) + 1)
        require("queries", len(span) > 0 and span.start >= 1, f"between 1 and {QUERIES}", queries)
        numbers.update(span)
    return numbers


def _files(path: str) -> list[str]:
    folder = Path(path)
    if not folder.is_dir():
        return [path]
    files = [file for file in folder.iterdir() if file.name.startswith("tpch_") and ".jsonl" in file.name]
    if not files:
        raise ValueError(f"{path}: holds no file tpch_<size>.jsonl or .jsonl.gz")
    return [str(file) for file in sorted(files, key=lambda file: (len(file.name), file.name))]


def _read(path: str, executors: int, warm: bool) -> Iterator[Query]:
    for row in json_rows(path):
        stages: list[Stage] = []
        for stage in row.rows("stages"):
            known = {earlier.id for earlier in stages}
            number = stage.whole("id")
            parents = stage.wholes("parents")
            if number in known or not known.issuperset(parents):
                raise Damaged(stage.where, "parents", "has to name earlier stages, and an id has to be new")
            stages.append(Stage(number, parents, _durations(stage, executors, warm)))
        yield Query(row.whole("query", 1), row.text("size"), stages)


def _durations(stage: Row, executors: int, warm: bool) -> list[int]:
    if "exec" not in stage:
        return _some([milliseconds(seconds) for seconds in stage.numbers("tasks")], stage, "tasks")
    runs = stage.row("exec")
    fitting = [key for key in runs.names() if key.isdecimal() and int(key) <= executors]
    if not fitting:
        raise Damaged(stage.where, "exec", f"has no run with {executors} executors or fewer: raise `executors`")
    run = runs.row(max(fitting, key=int))
    first, rest, fresh = (run.wholes(part) for part in ("first", "rest", "fresh"))
    if warm and rest:
        first = _warmed(first, fresh, _median(rest))
    return _some([max(1, ms) for ms in first + rest], run, "first")


def _some(durations_ms: list[int], row: Row, field: str) -> list[int]:
    if not durations_ms:
        raise Damaged(row.where, field, "may not be empty: a stage has tasks")
    return durations_ms


def _median(values: list[int]) -> int:
    ranked, of = sorted(values), len(values)
    return (ranked[(of - 1) // 2] + ranked[of // 2] + 1) // 2


def _warmed(first: list[int], fresh: list[int], usual_ms: int) -> list[int]:
    left = list(fresh)
    warmed = []
    for ms in first:
        if ms in left:
            left.remove(ms)
            ms = usual_ms
        warmed.append(ms)
    return warmed


def _demands(query: Query, table: Demands | None, path: str, seed: str) -> dict[int, Vector]:
    parents = {stage.id: stage.parents for stage in query.stages}
    asked: dict[int, Vector] = {}
    for stage in query.stages:
        if table is not None:
            if (query.number, stage.id) not in table:
                raise ValueError(f"{path}: has no demand for query {query.number}, stage {stage.id}")
            asked[stage.id] = table[query.number, stage.id]
        else:
            asked[stage.id] = (
                drawn_demand(seed, query.number, stage.id, stage_class(stage.id, parents)) if seed else {"cpu": 1000}
            )
    return asked
