"""When most is promised: several leases reduced to the most that hold at one time, by kind of unit."""

from dataclasses import replace

from schemas import PlanStep


def most_of_each(steps: list[PlanStep], from_ms: int) -> list[PlanStep]:
    """Of each kind of unit the most that holds at a time, from `from_ms` on, as if all kinds did so at once."""
    of: dict[tuple[tuple[str, int], ...], list[PlanStep]] = {}
    for step in steps:
        if step.to_ms > from_ms:
            of.setdefault(tuple(step.unit.items()), []).append(step)
    found: list[PlanStep] = []
    for alike in of.values():
        if len(alike) == 1:
            found += alike
            continue
        spans = [(max(step.from_ms, from_ms), step.to_ms, step.units, "") for step in alike]
        units = most_at_a_time(spans, {})[1].get("", 0)
        usage = {kind: units * amount for kind, amount in alike[0].unit.items()}
        found.append(replace(alike[0], units=units, usage=usage))
    return found


def most_at_a_time(spans: list[tuple[int, int, int, str]], limits: dict[str, int]) -> tuple[int, dict[str, int]]:
    """The first time at which most units are promised, and how many to whom. `spans`: from when until when how many are
    promised to which reservation; of one in `limits` no more than its limit counts.
    """
    changes = [
        (at_ms, sign * units, name) for begin, end, units, name in spans for at_ms, sign in ((begin, 1), (end, -1))
    ]
    levels: dict[str, int] = {}
    best_ms, most, total = 0, 0, 0
    for at_ms, units, name in sorted(changes):  # What ends at a time makes room for what begins.
        before = levels.get(name, 0)
        levels[name] = before + units
        limit = limits.get(name)
        total += units if limit is None else min(limit, before + units) - min(limit, before)
        if total > most:
            best_ms, most = at_ms, total
    found: dict[str, int] = {}
    for begin, end, units, name in spans:
        if begin <= best_ms < end:
            found[name] = found.get(name, 0) + units
    counted = {name: min(units, limits.get(name, units)) for name, units in found.items()}
    return best_ms, {name: units for name, units in counted.items() if units}
