"""The importers by name, and the form in which their lines are written: what `largesse import` needs to know."""

import json
from collections.abc import Callable, Iterator
from typing import Protocol

from services.simulator.workloads import (
    alibaba_dag,
    batsim,
    borg2019,
    facebook,
    helios,
    kubernetes,
    openb,
    philly,
    sacct,
    sbatch,
    spark,
    swf,
    tpch,
    wfcommons,
)
from services.simulator.workloads.source import Line, Option


class Importer(Protocol):
    """A module that reads one public trace format."""

    @property
    def OPTIONS(self) -> tuple[Option, ...]:  # noqa: N802 - as a module's constant is named
        """What a user may set, in the order of a help page."""

    @property
    def convert(self) -> Callable[..., Iterator[Line]]:
        """From a path, and options by name, to workload lines; `leave` is told of each job that is left out, and why.

        Raises ValueError (Damaged) and OSError.
        """


IMPORTERS: dict[str, Importer] = {
    "tpch": tpch,
    "facebook": facebook,
    "swf": swf,
    "alibaba-dag": alibaba_dag,
    "openb": openb,
    "wfcommons": wfcommons,
    "borg2019": borg2019,
    "philly": philly,
    "helios": helios,
    "sacct": sacct,
    "kubernetes": kubernetes,
    "batsim": batsim,
    "spark": spark,
    "sbatch": sbatch,
}


def summary_of(name: str) -> str:
    """What an importer reads, in a sentence."""
    return (IMPORTERS[name].__doc__ or "").splitlines()[0]


def tasks_of(line: Line) -> int:
    """How many tasks a workload line has."""
    return sum(
        len(stage["durations_ms"]) if "durations_ms" in stage else stage.get("tasks", 1) for stage in line["stages"]
    )


def encode_line(line: dict[str, object]) -> str:
    """A workload line as it is written, without the line's end: the same line always gives the same text."""
    return json.dumps(line, separators=(",", ":"))
