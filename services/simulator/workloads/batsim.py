"""Batsim workloads: jobs with profiles that say what each does, in one JSON document.

A job is a gang of one-core tasks, as many as the hosts (`res`) it asks for. A delay lasts as it says; computation lasts
its operations over the --flops of a host, of the busiest host where they differ; sequences are added up. Time to
communicate is not known without a network and is left out. As in Batsim, a job is cut at its walltime, its estimate.
Jobs with other profiles (storage, MPI traces, Python hooks) are left out.
"""

from collections.abc import Iterator
from fractions import Fraction

from schemas.edge.base import DURATION_MS_MAX, TASKS_MAX
from schemas.quantities import QUANTITY_MAX, quantity_texts
from services.simulator.workloads.elements import foreign_row
from services.simulator.workloads.files import Damaged, read_bytes
from services.simulator.workloads.source import Leave, Line, Option, Row, milliseconds, nearest, require, unheard
from services.simulator.workloads.when import Names

OPTIONS = (
    Option("flops", int, 100_000_000, "operations a second of a host; the default is that of Batsim's small platforms"),
    Option("compress", Fraction, Fraction(1), "divides submit times: a heavier load"),
    Option("gang", bool, True, "all tasks of a job start together"),
)

_DELAYS = ("delay", "DelayProfile")
_TOTALS = ("parallel_homogeneous_total", "msg_par_hg_tot")
_ALIKE = ("parallel_homogeneous", "msg_par_hg", "ptask_homogeneous", "ParallelTaskHomogeneousProfile", *_TOTALS)
_PARALLEL = ("parallel", "msg_par", "ptask", "ParallelTaskProfile")
_SEQUENCES = ("composed", "SequentialCompositionProfile")
_SPREAD = ("DefinedAmountsSpreadUniformly", "defined_amount_spread_uniformly")
_DEPTH_MAX = 16


class _Unknown(Exception):
    """A profile whose length cannot be told, and why."""


def convert(
    path: str,
    *,
    flops: int = 100_000_000,
    compress: Fraction = Fraction(1),
    gang: bool = True,
    leave: Leave = unheard,
) -> Iterator[Line]:
    """Workload lines in the document's order. Raises ValueError for a wrong option, Damaged for a damaged document."""
    require("flops", flops >= 1, "at least 1", flops)
    require("compress", compress > 0, "above 0", compress)

    def lines() -> Iterator[Line]:
        document = foreign_row(read_bytes(path), path)
        profiles = document.row("profiles")
        names = Names()
        for row in document.rows("jobs"):
            tasks = row.whole("res", 1)
            if tasks > TASKS_MAX:
                leave(f"more than {TASKS_MAX:,} hosts")
                continue
            try:
                seconds = _seconds(row.where, profiles, _text(row, "profile"), tasks, flops, leave)
            except _Unknown as unknown:
                leave(str(unknown))
                continue
            stage: Line = {"stage": "run", "after": [], "tasks": tasks, "demand": quantity_texts({"cpu": 1000})}
            limit_s = _limit_s(row)
            if limit_s is not None:
                stage["estimate_ms"] = max(1, nearest(limit_s * 1000))
                if limit_s < seconds:
                    leave("beyond the walltime, as Batsim kills the job there", "end")
                    seconds = limit_s
            submit_ms = int(row.number("subtime") * 1000 / compress)
            if submit_ms > QUANTITY_MAX or seconds * 1000 > DURATION_MS_MAX:
                leave("submitted after, or longer than, a workload can say")
                continue
            yield {
                "job": names.of(_text(row, "id")),
                "submit_ms": submit_ms,
                "stages": [stage | {"duration_ms": milliseconds(seconds), "gang": gang}],
            }

    return lines()


def _text(row: Row, name: str) -> str:
    """A text; older documents have numbers in its place."""
    value = row.value(name)
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else row.text(name)


def _limit_s(row: Row) -> Fraction | None:
    """None where there is none: it lacks, or is -1."""
    limit_s = row.number("walltime", -1) if "walltime" in row else Fraction(-1)
    return limit_s if limit_s > 0 else None


def _seconds(where: str, profiles: Row, name: str, tasks: int, flops: int, leave: Leave, depth: int = 0) -> Fraction:
    """How long a profile lasts on a number of hosts. Raises _Unknown, and Damaged where there is no such profile."""
    if name not in profiles:
        raise Damaged(where, "profile", f"there is no profile {name[:40]}")
    profile = profiles.row(name)
    kind = profile.text("type")
    if depth > _DEPTH_MAX:
        raise Damaged(profile.where, "seq", f"is nested deeper than {_DEPTH_MAX}, or contains itself")
    if kind in _DELAYS:
        return profile.number("delay")
    if kind in _SEQUENCES:
        parts = [
            _seconds(profile.where, profiles, part, tasks, flops, leave, depth + 1) for part in profile.texts("seq")
        ]
        repeat = profile.whole("repeat") if "repeat" in profile else profile.whole("nb") if "nb" in profile else 1
        return repeat * sum(parts, Fraction(0))
    if kind not in (*_ALIKE, *_PARALLEL):
        raise _Unknown(f"profiles of type {kind[:40]}, whose length is not known")
    if _communicates(profile):
        leave("its length depends on the network", "communication")
    if "cpu" not in profile:
        return Fraction(0)
    if kind in _PARALLEL:
        return max(profile.numbers("cpu"), default=Fraction(0)) / flops
    total = kind in _TOTALS or ("generation_strategy" in profile and profile.text("generation_strategy") in _SPREAD)
    return profile.number("cpu") / flops / (tasks if total else 1)


def _communicates(profile: Row) -> bool:
    if "com" not in profile:
        return False
    if isinstance(profile.value("com"), list):
        return any(profile.numbers("com"))
    return profile.number("com") > 0
