"""Reads a request as somebody wrote it: RDL as text, or as YAML or JSON.

YAML and JSON have the fields of the JSON form (`op`, `of`, `s`, `e`, `b`, `g`, `h`, `l`, `w`); each value may also be
written as in the text form. All scalars are read as text: plain YAML would make 600 of the time 10:00.
"""

from typing import Any

import yaml

from services.planner.rdl.faults import Spot
from services.planner.rdl.parts import TEXT_MAX, Builder, Call, Value, bad
from services.planner.rdl.text import read_text
from services.planner.rdl.times import Clock

_NODES_MAX = 20_000  # Of a YAML document, with what aliases repeat.


def read_document(document: str, known: Clock) -> dict[str, Any]:
    """RDL as `planning/read_rdl.py` reads it: seconds of the plan, quantities as text. Raises BadDocument."""
    return read_located(document, known)[0]


def read_located(document: str, known: Clock) -> tuple[dict[str, Any], dict[str, Spot]]:
    """The same, and where its parts stand in the document, by their paths: `rdl.of[1].b.cpu`. Raises BadDocument."""
    if len(document) > TEXT_MAX:
        bad(Spot(1, 1), f"the request is too long: at most {TEXT_MAX} characters, has {len(document)}")
    if not any(line.strip() and not line.strip().startswith("#") for line in document.splitlines()):
        bad(Spot(1, 1), "is empty: write a request, like window(10:00, 12:00, atom(...))")
    call = _Yaml().call(_composed(document)) if _is_yaml(document) else read_text(document)
    builder = Builder(known)
    return builder.build(call), builder.spots


def _is_yaml(document: str) -> bool:
    """Text begins with an operator and a bracket; YAML and JSON with a key or a brace."""
    for line in document.splitlines():
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            return stripped.startswith(("{", "---")) or (":" in stripped and "(" not in stripped.partition(":")[0])
    return False


def _composed(document: str) -> yaml.Node:
    try:
        node = yaml.compose(document, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        spot = Spot(mark.line + 1, mark.column + 1) if mark else Spot(1, 1)
        bad(spot, f"is neither YAML nor JSON: {error.problem or error.context}")
    except (yaml.YAMLError, RecursionError) as error:
        bad(Spot(1, 1), f"is neither YAML nor JSON: {str(error).splitlines()[0]}")
    if node is None:
        bad(Spot(1, 1), "is empty: write a request")
    return node


class _Yaml:
    def __init__(self) -> None:
        self.nodes_left = _NODES_MAX

    def call(self, node: yaml.Node) -> Call:
        """An object with `op`."""
        spot = _spot(node)
        self.nodes_left -= 1
        if self.nodes_left < 0:
            bad(spot, f"the request is too large: at most {_NODES_MAX} objects and values")
        if not isinstance(node, yaml.MappingNode):
            bad(spot, "has to be an object with op, like {op: atom, ...}")
        fields: dict[str, yaml.Node] = {}
        for key, value in node.value:
            name = self.value(key).text
            if name in fields:
                bad(_spot(key), f"names {name} twice")
            fields[name] = value
        if "op" not in fields:
            bad(spot, "has no op: atom, window, all, any, order or order_no_gap")
        made = Call(self.value(fields.pop("op")).text, spot)
        for name, value in fields.items():
            if name == "of" and made.operator != "atom":
                held = value.value if isinstance(value, yaml.SequenceNode) else [value]
                made.listed += [self.call(each) for each in held]
            elif name == "b" and isinstance(value, yaml.MappingNode):
                made.amounts = self.amounts(value)
            else:
                made.named[name] = self.value(value)
        return made

    def amounts(self, node: yaml.MappingNode) -> dict[str, Value]:
        """`b` by resource."""
        found: dict[str, Value] = {}
        for key, amount in node.value:
            name = self.value(key).text
            if name in found:
                bad(_spot(key), f"b: names {name} twice")
            found[name] = self.value(amount)
        return found

    def value(self, node: yaml.Node) -> Value:
        """A scalar as it is written."""
        self.nodes_left -= 1
        if not isinstance(node, yaml.ScalarNode):
            bad(_spot(node), "has to be a single value")
        return Value(node.value.strip(), _spot(node))


def _spot(node: yaml.Node) -> Spot:
    return Spot(node.start_mark.line + 1, node.start_mark.column + 1)
