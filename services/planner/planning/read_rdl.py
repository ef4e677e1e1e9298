"""Reads a request in RDL, as parsed from JSON, onto the grid of steps, and says what could never be met.

    {"op": "atom", "b": {resource: amount}, "g", "h", "l", "w"}            l in seconds, w in unit-seconds
    {"op": "window", "s", "e", "of": RDL}                                  seconds, [s, e)
    {"op": "all" | "any" | "order" | "order_no_gap", "of": [RDL, ...]}

A request has at most ATOMS_MAX atoms and DEPTH_MAX levels. Planning costs in proportion to its atoms.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Any, NoReturn

from schemas.quantities import parse_quantity, quantity_text
from services.planner.planning.profile import AMOUNT_MAX
from services.planner.planning.request import Atom, Group, GroupKind, Node, bounds, fastest, inside

ATOMS_MAX = 1_000
DEPTH_MAX = 12
UNITS_MAX = 10_000_000  # Of g and h.
STEPS_MAX = 10**9  # In a horizon.
SECONDS_MAX = 10**12
WORK_MAX = 10**16

Number = int | Fraction

KINDS: dict[str, GroupKind] = {"all": "all", "any": "any", "order": "order", "order_no_gap": "order_no_gap"}
_FIELDS = {"atom": ("b", "g", "h", "l", "w"), "window": ("s", "e", "of")}


class BadRdl(Exception):
    """A request that is malformed, or could never be met: where, and why."""

    def __init__(self, field: str, reason: str) -> None:
        self.field = field
        self.reason = reason
        super().__init__(f"{field}: {reason}")


@dataclass(slots=True)
class Grid:
    """Steps of `step_s` seconds, and resources: their positions, capacities, and units that make one of the input's.
    `as_quantities`: messages show amounts as people write them; else as numbers of the input."""

    step_s: Number
    horizon: int
    resources: dict[str, int]
    capacity: list[int]
    units: list[int]
    as_quantities: bool = False

    def shown(self, resource: str, amount: int) -> str:
        """An amount of a resource, for a message."""
        exact = Fraction(amount, self.units[self.resources[resource]])
        return quantity_text(resource, int(exact)) if self.as_quantities else str(exact)

    def up(self, seconds: Number) -> int:
        """The first step that begins no earlier."""
        return -int(-seconds // self.step_s)

    def down(self, seconds: Number) -> int:
        """The last step boundary that is no later."""
        return int(seconds // self.step_s)

    def seconds(self, step: int) -> Number:
        """When a step begins."""
        return step * self.step_s


@dataclass(slots=True)
class Windowed:
    """A request without its outermost window, and that window in steps: the whole horizon where it has none."""

    body: Node
    begin: int
    end: int

    def node(self) -> Node:
        """The request inside its window."""
        return inside(self.body, self.begin, self.end)


def read_rdl(raw: Any, grid: Grid, path: str = "rdl") -> Windowed:
    """A request on the grid. Raises BadRdl for what is malformed, not for what finds no room."""
    reader = _Reader(grid)
    begin, end = 0, grid.horizon
    if isinstance(raw, dict) and raw.get("op") == "window":
        begin, end = reader.window(raw, path)
        raw, path = raw["of"], f"{path}.of"
    return Windowed(reader.read(raw, path, "", 0, grid.horizon, 2), begin, end)


def check(request: Windowed, grid: Grid, now_s: Number = 0) -> None:
    """Raises BadRdl, with its reason, where a request could not be met by an empty cell from `now_s` on."""
    now = grid.up(now_s)
    if request.end <= now:
        _bad("rdl.e", f"the window ends at {grid.seconds(request.end)} s, and it is {now_s} s already")
    fault = _fault(inside(request.body, max(now, request.begin), min(grid.horizon, request.end)), grid)
    if fault:
        _bad("rdl", fault)


class _Reader:
    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.atoms_left = ATOMS_MAX

    def read(self, raw: Any, path: str, name: str, begin: int, end: int, depth: int) -> Node:
        """`name`: the child indexes on the way."""
        if depth > DEPTH_MAX + 1:
            _bad(path, f"is nested too deep: at most {DEPTH_MAX} levels")
        if not isinstance(raw, dict):
            _bad(path, 'has to be an object with "op"')
        op = raw.get("op")
        if op == "window":
            first, last = self.window(raw, path)
            return self.read(raw["of"], f"{path}.of", name, max(begin, first), min(end, last), depth + 1)
        if op == "atom":
            return self.atom(raw, path, name or "0", begin, end)
        if op not in KINDS:
            _bad(f"{path}.op", f"has to be atom, window, {', '.join(KINDS)}, is {_shown(op)}")
        _known(raw, path, ("of",))
        of = raw.get("of")
        if not isinstance(of, list) or not of:
            _bad(f"{path}.of", f"has to be a list of at least one request for {op}")
        dot = f"{name}." if name else ""
        return Group(
            KINDS[op],
            [self.read(each, f"{path}.of[{i}]", f"{dot}{i}", begin, end, depth + 1) for i, each in enumerate(of)],
        )

    def window(self, raw: dict[str, Any], path: str) -> tuple[int, int]:
        _known(raw, path, _FIELDS["window"])
        begin, end = _number(raw, path, "s", 0, SECONDS_MAX), _number(raw, path, "e", 0, SECONDS_MAX)
        if begin >= end:
            _bad(f"{path}.e", f"is {end}: a window has to end after its start ({begin})")
        if "of" not in raw:
            _bad(f"{path}.of", "is missing: a window holds a request")
        return min(self.grid.up(begin), self.grid.horizon), min(self.grid.down(end), self.grid.horizon)

    def atom(self, raw: dict[str, Any], path: str, name: str, begin: int, end: int) -> Atom:
        _known(raw, path, _FIELDS["atom"])
        self.atoms_left -= 1
        if self.atoms_left < 0:
            _bad(path, f"is one atom too many: a request has at most {ATOMS_MAX}")
        least, most = _units(raw, path, "g"), _units(raw, path, "h")
        if least > most:
            _bad(f"{path}.g", f"is {least}, more than h, the most units in parallel ({most})")
        lease, work = _number(raw, path, "l", 1, SECONDS_MAX), _number(raw, path, "w", 1, WORK_MAX)
        step = self.grid.step_s
        unit = self.unit(raw.get("b"), f"{path}.b")
        return Atom(name, unit, least, most // least, -int(-lease // step), -int(-work // (least * step)), begin, end)

    def unit(self, raw: Any, path: str) -> tuple[int, ...]:
        if not isinstance(raw, dict) or not raw:
            _bad(path, 'has to name at least one resource, like {"cpu": 1}')
        grid = self.grid
        found = [0] * len(grid.resources)
        for resource, value in raw.items():
            amount = read_amount(resource, value, f"{path}.{resource}", round_up=True)
            if resource not in grid.resources:
                if amount:
                    _bad(f"{path}.{resource}", f"the cell has none of it: it has {', '.join(grid.resources)}")
                continue
            i = grid.resources[resource]
            found[i] = ceil(amount * grid.units[i])
        if not any(found):
            _bad(path, "has to ask for something")
        return tuple(found)


def read_amount(resource: str, value: Any, path: str, *, round_up: bool) -> Number:
    """A number as it stands, or a quantity as text ("500m", "2Gi") in base units. Raises BadRdl."""
    if type(value) is int and 0 <= value <= AMOUNT_MAX:  # By far the most common case.
        return value
    if isinstance(value, str):
        try:
            return parse_quantity(resource, value, round_up=round_up)
        except ValueError as error:
            _bad(path, str(error))
    if isinstance(value, bool) or not isinstance(value, int | Fraction) or not 0 <= value <= AMOUNT_MAX:
        _bad(path, f"has to be a number from 0 to {AMOUNT_MAX}, is {_shown(value)}")
    return value


def _fault(node: Node, grid: Grid) -> str:
    """Why an empty cell could not meet a request; empty if it could, as far as times and sizes tell."""
    if isinstance(node, Atom):
        return _atom_fault(node, grid)
    faults = [_fault(branch, grid) for branch in node.of]
    if node.kind == "any":
        return "" if "" in faults else f"no branch of an any can be met: {faults[0]}"
    for fault in faults:
        if fault:
            return fault
    begin, end = bounds(node)
    if end - begin < fastest(node):
        return _too_short(f"{node.kind} of {len(node.of)}", begin, end, fastest(node), grid)
    return ""


def _atom_fault(atom: Atom, grid: Grid) -> str:
    for resource, i in grid.resources.items():
        if atom.unit[i] * atom.gang <= grid.capacity[i]:
            continue
        have = grid.shown(resource, grid.capacity[i])
        if atom.unit[i] > grid.capacity[i]:
            need = grid.shown(resource, atom.unit[i])
            return f"a unit of atom {atom.path} asks for {need} of {resource}, the cell has {have}"
        need = grid.shown(resource, atom.unit[i] * atom.gang)
        return (
            f"the least parallel units of atom {atom.path} (g = {atom.gang}) ask for {need} of {resource}"
            f" together, the cell has {have}"
        )
    wide = min(
        [atom.gangs_most]
        + [have // (need * atom.gang) for need, have in zip(atom.unit, grid.capacity, strict=True) if need]
    )
    steps = max(atom.lease, -(-atom.work // wide))
    if atom.end - atom.begin < steps:
        return _too_short(f"atom {atom.path}", atom.begin, atom.end, steps, grid)
    return ""


def _too_short(what: str, begin: int, end: int, steps: int, grid: Grid) -> str:
    have, need = grid.seconds(max(0, end - begin)), grid.seconds(steps)
    return f"the window of {what} is too short: {have} s in whole steps, and it takes at least {need} s"


def _known(raw: Mapping[str, Any], path: str, fields: tuple[str, ...]) -> None:
    for key in raw:
        if key not in fields and key != "op":
            _bad(f"{path}.{key}", f"is unknown: {raw['op']} has {', '.join(fields)}")


def _number(raw: Mapping[str, Any], path: str, field: str, least: int, most: int) -> Number:
    value = raw.get(field)
    if type(value) is int and least <= value <= most:  # By far the most common case.
        return value
    if isinstance(value, bool) or not isinstance(value, int | Fraction) or not least <= value <= most:
        _bad(f"{path}.{field}", f"has to be a number from {least} to {most}, is {_shown(value)}")
    return value


def _units(raw: Mapping[str, Any], path: str, field: str) -> int:
    value = _number(raw, path, field, 1, UNITS_MAX)
    if int(value) != value:
        _bad(f"{path}.{field}", f"has to be a whole number of units, is {_shown(value)}")
    return int(value)


def _shown(value: Any) -> str:
    return "missing" if value is None else str(value)[:40]


def _bad(field: str, reason: str) -> NoReturn:
    raise BadRdl(field, reason)
