"""The parts of a request in whatever form it was written, checked one by one: each fault is reported with its place.

Text and YAML are both read into calls with named arguments; from there on they are alike. The result is RDL as
`services/planner/planning/read_rdl.py` reads it: seconds, and quantities as text.
"""

import re
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, NoReturn

from schemas.quantities import RESOURCE_NAME, parse_quantity
from services.planner.planning.read_rdl import ATOMS_MAX, DEPTH_MAX, KINDS, SECONDS_MAX, UNITS_MAX, WORK_MAX
from services.planner.rdl.faults import BadDocument, Spot
from services.planner.rdl.times import Clock, duration_s, time_s

TEXT_MAX = 256 * 1024  # Characters of a document.
OPERATORS = ("atom", "window", *KINDS)
ATOM_FIELDS = ("b", "g", "h", "l", "w")

_ONE_AMOUNT = re.compile(
    r"(?P<amount>[\d.]+[A-Za-z]*)(?:\s+(?P<resource>[a-z]\S*))?|(?P<name>[a-z]\w*)\s*=\s*(?P<value>\S+)"
)

_RUN_TOGETHER = re.compile(r"(?P<number>[\d.]+)(?P<resource>[a-z][a-z0-9_-]+)")


@dataclass(slots=True)
class Value:
    """A word or text, as written."""

    text: str
    spot: Spot


@dataclass(slots=True)
class Call:
    """An operator with arguments: `named` by field, `listed` in order. `amounts`: `b` by resource, where written so."""

    operator: str
    spot: Spot
    named: dict[str, Value] = field(default_factory=dict)
    listed: "list[Value | Call]" = field(default_factory=list)
    amounts: dict[str, Value] = field(default_factory=dict)


def _named(amount: str) -> str:
    """What somebody who wrote an amount without a resource may have meant: `1cpu` is one CPU, `2GB` memory."""
    if found := _RUN_TOGETHER.fullmatch(amount):
        return f"{found['number']} {found['resource']}"
    return f"{amount[:-1]} memory" if amount.endswith("B") else f"{amount} cpu"


class Builder:
    """Turns calls into RDL. `spots`: where each part stands, by its path in the RDL (`rdl.of[1].b.cpu`)."""

    def __init__(self, known: Clock) -> None:
        self.known = known
        self.atoms_left = ATOMS_MAX
        self.spots: dict[str, Spot] = {}

    def build(self, call: Call, depth: int = 1, path: str = "rdl") -> dict[str, Any]:
        """RDL as parsed from JSON. Raises BadDocument."""
        self.spots[path] = call.spot
        if depth > DEPTH_MAX:
            bad(call.spot, f"is nested too deep: at most {DEPTH_MAX} levels")
        if call.operator == "atom":
            return self.atom(call, path)
        if call.operator == "window":
            return self.window(call, depth, path)
        if call.operator not in KINDS:
            bad(call.spot, f'"{call.operator}" is no operator: {", ".join(OPERATORS)}{meant(call.operator, OPERATORS)}')
        for each in (*call.named.values(), *(each for each in call.listed if isinstance(each, Value))):
            bad(each.spot, f"{call.operator} holds requests only, like {call.operator}(atom(...), atom(...))")
        if not call.listed:
            bad(call.spot, f"{call.operator} has to hold at least one request")
        held = [each for each in call.listed if isinstance(each, Call)]
        return {
            "op": call.operator,
            "of": [self.build(each, depth + 1, f"{path}.of[{i}]") for i, each in enumerate(held)],
        }

    def window(self, call: Call, depth: int, path: str) -> dict[str, Any]:
        """Its times, and the one request that it holds."""
        _known(call, ("s", "e"))
        times = [each for each in call.listed if isinstance(each, Value)]
        held = [each for each in call.listed if isinstance(each, Call)]
        for name, value in zip([name for name in ("s", "e") if name not in call.named], times, strict=False):
            call.named[name] = value
        if len(held) != 1 or len(times) > 2 or len(call.named) != 2:
            lacks = [f"no {name}" for name in ("s", "e") if name not in call.named]
            lacks += [] if len(held) == 1 else [f"{len(held)} requests" if held else "no request"]
            text = f"this one has {' and '.join(lacks)}" if lacks else "this one has a third value"
            needs = "window needs a start s, an end e and one request: window(10:00, 12:00, atom(...))"
            bad(call.spot, f"{needs}; {text}")
        begin = self.time(call.named["s"])
        written = call.named["s"].text
        end = self.time(call.named["e"], begin if ":" in written else None, written)
        if end <= begin:
            bad(
                call.named["e"].spot, f"the window ends {begin - end} s before it starts: it has to end after its start"
            )
        return {"op": "window", "s": begin, "e": end, "of": self.build(held[0], depth + 1, f"{path}.of")}

    def atom(self, call: Call, path: str) -> dict[str, Any]:
        """Its five fields, named or in the order b, g, h, l, w."""
        self.atoms_left -= 1
        if self.atoms_left < 0:
            bad(call.spot, f"is one atom too many: a request has at most {ATOMS_MAX}")
        _known(call, ATOM_FIELDS)
        free = [name for name in ATOM_FIELDS if name not in call.named and not (name == "b" and call.amounts)]
        for each in call.listed:
            if isinstance(each, Call):
                bad(each.spot, "an atom holds no other request: put them side by side in all, any or order")
            if not free:
                bad(each.spot, f"is one value too many: an atom has {', '.join(ATOM_FIELDS)}")
            call.named[free.pop(0)] = each
        if free:
            bad(call.spot, f'atom has no {free[0]}: write atom(b="1 cpu, 2Gi", g=1, h=20, l=5m, w=200m)')
        self.spots |= {f"{path}.{name}": value.spot for name, value in call.named.items()}
        least, most = self.units("g", call.named["g"]), self.units("h", call.named["h"])
        if least > most:
            bad(call.named["g"].spot, f"g is {least}, more than h, the most units in parallel ({most})")
        return {
            "op": "atom",
            "b": self.amounts(call, path),
            "g": least,
            "h": most,
            "l": self.length("l", call.named["l"], SECONDS_MAX),
            "w": self.length("w", call.named["w"], WORK_MAX),
        }

    def amounts(self, call: Call, path: str) -> dict[str, str]:
        """One unit: "1 cpu, 2Gi", or by resource."""
        given = dict(call.amounts)
        if not given:
            text = call.named["b"]
            for part in text.text.split(","):
                found = _ONE_AMOUNT.fullmatch(part.strip())
                if not found:
                    bad(text.spot, f'b: "{part.strip()}" is no amount: write b="1 cpu, 2Gi" or b="cpu=1, memory=2Gi"')
                amount = found["amount"] or found["value"]
                resource = found["resource"] or found["name"]
                if not resource and not amount.endswith("i"):
                    only = "only bytes like 2Gi are memory of themselves"
                    bad(text.spot, f'b: "{amount}" of what? Write b="{_named(amount)}"; {only}')
                resource = resource or "memory"
                if resource in given:
                    bad(text.spot, f"b: names {resource} twice")
                given[resource] = Value(amount, text.spot)
        for resource, value in given.items():
            self.spots[f"{path}.b.{resource}"] = value.spot
            if not RESOURCE_NAME.fullmatch(resource):
                bad(value.spot, f'b: "{resource}" is no resource name: lower-case letters, digits, "_", "-"')
            try:
                parse_quantity(resource, value.text, round_up=True)
            except ValueError as error:
                bad(value.spot, f"b: {resource}: {error}")
        return {resource: value.text for resource, value in given.items()}

    def units(self, name: str, value: Value) -> int:
        """A count of units, for the field of that name."""
        if not re.fullmatch(r"\d{1,8}", value.text) or not 1 <= int(value.text) <= UNITS_MAX:
            bad(value.spot, f'{name}: "{value.text}" is no whole number of units from 1 to {UNITS_MAX}')
        return int(value.text)

    def length(self, name: str, value: Value, most: int) -> int:
        """A duration of at least a second, for the field of that name."""
        try:
            seconds = duration_s(value.text)
        except ValueError as error:
            bad(value.spot, f"{name}: {error}")
        if not 1 <= seconds <= most:
            bad(value.spot, f'{name}: "{value.text}" has to be from 1 to {most} seconds')
        return seconds

    def time(self, value: Value, after_s: int | None = None, after: str = "") -> int:
        """Seconds from the plan's beginning."""
        try:
            return time_s(value.text, self.known, after_s, after)
        except (ValueError, OverflowError) as error:
            bad(value.spot, str(error))


def _known(call: Call, fields: tuple[str, ...]) -> None:
    for name, value in call.named.items():
        if name not in fields:
            bad(value.spot, f'{call.operator} has no "{name}": it has {", ".join(fields)}{meant(name, fields)}')


def meant(word: str, words: tuple[str, ...]) -> str:
    """A question after the nearest of the words, if one is near."""
    near = get_close_matches(word.lower(), words, 1)
    return f'; did you mean "{near[0]}"?' if near else ""


def bad(spot: Spot, reason: str) -> NoReturn:
    """Raises BadDocument."""
    raise BadDocument(spot, reason)
