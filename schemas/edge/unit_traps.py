"""Amounts that are valid and probably not what was meant."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from schemas.edge.base import (
    is_below_unit,
)
from schemas.edge.jobs import CORES_MEANT_MAX, MIB_MEANT_MAX, WARNINGS_MAX


def job_warnings(document: Mapping[str, Any]) -> list[str]:
    """What is allowed in a job spec and yet most likely not meant, at most WARNINGS_MAX lines."""
    warnings = []
    for i, stage in enumerate(document.get("stages", [])):
        for field in ("demand", "estimate_demand"):
            warnings += amount_warnings(f"stages[{i}].{field}", stage.get(field) or {})
    return warnings[:WARNINGS_MAX]


def amount_warnings(field: str, amounts: Mapping[str, object], *, cores_max: int = CORES_MEANT_MAX) -> list[str]:
    """Quantities that most likely were meant in another unit: more whole cores or GPUs than `cores_max` written as a
    bare number, or any with a suffix for bytes (`100Mi`), and less than 1 MiB.
    """
    return [
        f"{field}.{resource}: {trap}"
        for resource in ("cpu", "gpu", "memory", "disk")
        if (trap := _unit_trap(resource, amounts.get(resource), cores_max))
    ]


def _unit_trap(resource: str, amount: object, cores_max: int) -> str | None:
    if resource in ("cpu", "gpu"):
        if isinstance(amount, str) and amount.endswith("i"):
            units = "cores" if resource == "cpu" else "GPUs"
            return f'"{amount}" has a suffix for bytes; write {units}, like "2" or "500m"'
        if type(amount) is not int or amount <= cores_max:
            return None
        units = "cores" if resource == "cpu" else "GPUs"
        return f'{amount} is {amount} {units}; for {amount} thousandths write "{amount}m"'
    if not isinstance(amount, str) or not is_below_unit(resource, amount):
        return None
    number = amount.rstrip("mkMGTPKi")
    meant = number if 1 <= Fraction(number) < MIB_MEANT_MAX else "1"
    units = "without a suffix it is bytes, and m is a thousandth"
    return f'"{amount}" is less than 1 MiB ({units}); for {meant} MiB write "{meant}Mi"'
