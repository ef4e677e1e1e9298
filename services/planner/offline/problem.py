"""Reads one problem for `solve`, from parsed JSON whose decimals are Fractions: a fault is named with its path.

Numbers are exact. Inside, a resource is counted in units so fine that every amount is whole.
"""

from collections.abc import Iterator
from fractions import Fraction
from math import lcm
from typing import Any, NoReturn

from services.planner.planning.limits import UserLimits
from services.planner.planning.profile import AMOUNT_MAX
from services.planner.planning.read_rdl import SECONDS_MAX, STEPS_MAX, BadRdl, Grid, Number, read_amount

KINDS = ("reservation", "reservation-policy", "rdl-validation", "order-no-gap-check", "capacity-profile", "replan")

OPERATIONS_MAX = 20_000  # In a sequence, and reservations that exist.
ENTRIES_MAX = 100_000  # Of all profiles together.

Run = tuple[int, int, list[int]]
"""First step, step after the last, amounts by resource."""

Raw = dict[str, Any]


class BadProblem(Exception):
    """What is wrong with the input, where, and what should be there."""


class Problem:
    """`input` of a problem, with what most kinds need read on demand."""

    def __init__(self, raw: Any) -> None:
        """Raises BadProblem."""
        if not isinstance(raw, dict):
            bad("the problem", 'has to be an object {"kind", "input"}')
        if raw.get("kind") not in KINDS:
            bad("kind", f"has to be one of {', '.join(KINDS)}, is {shown(raw.get('kind'))}")
        self.kind: str = raw["kind"]
        self.input = record(raw, "input", "")
        self.entries = 0

    def grid(self, capacity: str = "capacity") -> Grid:
        """Steps, and resources with the capacity that a field of the input gives."""
        step = number(self.input, "step_s", least=Fraction(1, 1000), default=1)
        horizon = number(self.input, "horizon_s", least=0, default=STEPS_MAX * step)
        if horizon // step > STEPS_MAX:
            bad("input.horizon_s", f"has more than {STEPS_MAX} steps: take longer steps")
        given = record(self.input, capacity, "input")
        names = sorted(given)
        amounts = [amount(name, given[name], f"input.{capacity}.{name}") for name in names]
        units = dict.fromkeys(names, 1)
        for name, value in _amounts(self.input):
            if name in units and isinstance(value, Fraction):
                units[name] = lcm(units[name], value.denominator)
        scale = [units[name] for name in names]
        whole = [int(value * unit // 1) for value, unit in zip(amounts, scale, strict=True)]
        for name, value in zip(names, whole, strict=True):
            if value > AMOUNT_MAX:
                bad(f"input.{capacity}.{name}", f"has too many digits: at most {AMOUNT_MAX} of its smallest unit")
        positions = {name: i for i, name in enumerate(names)}
        return Grid(step, grid_down(horizon, step), positions, whole, scale)

    def user_limits(self, grid: Grid) -> UserLimits:
        """The limits by user; none where the input has none."""
        given = self.input.get("user_quota")
        if given is None:
            return UserLimits()
        if not isinstance(given, dict):
            bad("input.user_quota", "has to be an object")
        share = {}
        for field in ("max_instant_share", "max_average_share"):
            if given.get(field) is not None:
                share[field] = Fraction(number(given, field, least=0, path="input.user_quota"))
        window = number(given, "window_s", least=grid.step_s, default=max(grid.step_s, grid.seconds(grid.horizon)))
        return UserLimits(share.get("max_instant_share"), share.get("max_average_share"), max(1, grid.up(window)))

    def profile(self, raw: Any, path: str, grid: Grid, *, past: bool = False) -> list[Run]:
        """The runs of a profile: entries with "from", "to" and "usage". What lies before step 0 is cut, unless
        `past`."""
        if not isinstance(raw, list):
            bad(path, 'has to be a list of {"from", "to", "usage"}')
        self.entries += len(raw)
        if self.entries > ENTRIES_MAX:
            bad(path, f"has too many entries: at most {ENTRIES_MAX} in a problem")
        found = []
        for i, each in enumerate(raw):
            at = f"{path}[{i}]"
            if not isinstance(each, dict):
                bad(at, 'has to be an object with "from", "to" and "usage"')
            first = number(each, "from", least=-SECONDS_MAX, path=at)
            last = number(each, "to", least=first, path=at)
            usage = record(each, "usage", at)
            amounts = [0] * len(grid.resources)
            for name, value in usage.items():
                exact = amount(name, value, f"{at}.usage.{name}")
                if name in grid.resources:
                    position = grid.resources[name]
                    amounts[position] = -int(-exact * grid.units[position] // 1)
                elif exact:
                    bad(f"{at}.usage.{name}", f"the cell has none of it: it has {', '.join(grid.resources)}")
            begin = grid.down(first)
            found.append((begin if past else max(0, begin), grid.up(last), amounts))
        return found


def grid_down(seconds: Number, step: Number) -> int:
    """Whole steps in a number of seconds."""
    return int(seconds // step)


def number(raw: Raw, field: str, *, least: Number = 0, default: Number | None = None, path: str = "input") -> Number:
    """A number of an object. Raises BadProblem."""
    value = raw.get(field)
    if value is None and default is not None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | Fraction) or not least <= value <= SECONDS_MAX:
        bad(f"{path}.{field}", f"has to be a number from {least} to {SECONDS_MAX}, is {shown(value)}")
    return value


def amount(resource: str, value: Any, path: str) -> Number:
    """An amount of a resource. Raises BadProblem."""
    try:
        return read_amount(resource, value, path, round_up=False)
    except BadRdl as fault:
        bad(fault.field, fault.reason)


def record(raw: Raw, field: str, path: str) -> Raw:
    """An object inside an object. Raises BadProblem."""
    value = raw.get(field)
    if not isinstance(value, dict):
        bad(f"{path}.{field}".lstrip("."), f"has to be an object, is {shown(value)}")
    return value


def text(raw: Raw, field: str, path: str) -> str:
    """A name, or a number that serves as one. Raises BadProblem."""
    value = raw.get(field)
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        bad(f"{path}.{field}", f"has to be a text, is {shown(value)}")
    return str(value)


def listed(
    raw: Raw, field: str, *, default: bool = False, path: str = "input", most: int = OPERATIONS_MAX
) -> list[Any]:
    """A list; empty where it is missing and that is allowed. Raises BadProblem."""
    value = raw.get(field)
    if value is None and default:
        return []
    if not isinstance(value, list):
        bad(f"{path}.{field}", f"has to be a list, is {shown(value)}")
    if len(value) > most:
        bad(f"{path}.{field}", f"is too long: at most {most}")
    return value


def bad(field: str, reason: str) -> NoReturn:
    """Raises BadProblem."""
    raise BadProblem(f"{field}: {reason}")


def shown(value: Any) -> str:
    """A value for an error message."""
    return "missing" if value is None else str(value)[:40]


def _amounts(raw: Any) -> Iterator[tuple[str, Any]]:
    """Everything in a problem that may be an amount: what is below a key. Iterative, as requests may be deep."""
    todo = [raw]
    while todo:
        each = todo.pop()
        if isinstance(each, dict):
            yield from each.items()
            todo.extend(each.values())
        elif isinstance(each, list):
            todo.extend(each)
