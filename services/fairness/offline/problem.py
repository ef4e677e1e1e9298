"""One problem for `solve`, read and checked: a fault is named with its path, what should stand there and what does.

Numbers, whole or decimal, are read exactly; inside, a kind is counted in units so fine that every number is whole.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import lcm
from typing import NoReturn

from services.fairness.tree import DEPTH_MAX, TreeNode

KINDS = ("hdrf", "drf", "hdrf-order", "drf-order", "hdrf-next", "hdrf-churn", "hdrf-attributed-share", "drf-share")
POLICIES = ("hdrf", "drf", "naive", "collapsed", "fair", "fifo", "srtf", "priority")
ORDERS = ("hdrf", "naive", "fair", "fifo", "srtf", "priority")
MODES = ("whole", "fluid")

RATIO_DIGITS = 12
"""Of each part of a weight that is a fraction."""
NUMBER_MAX = 10**18
"""Quantities, weights and tasks. Greater than any cell counts; what is endless is written null."""

_FIELDS = {
    "input": ("capacity", "tree", "policy", "mode", "events", "nodes"),
    "inner node": ("name", "weight", "children", "policy", "priority"),
    "leaf": ("name", "weight", "demand", "tasks", "allocated", "usage", "priority"),
}
_ALLOCATING = ("hdrf", "drf", "hdrf-churn")  # Here what leaves hold says nothing; they must say what they ask for.
_MISSING = object()


class BadProblem(Exception):
    """What is wrong with the input, where, and what should be there."""


@dataclass(slots=True)
class Problem:
    """A problem in whole units: `units[j]` of them make one of the input's kind `kinds[j]`."""

    kind: str
    policy: str
    mode: str
    kinds: list[str]
    units: list[int]
    capacity: list[int]
    root: TreeNode  # Leaves with `tasks` as asked for in all, and `held`.
    allocated: dict[str, Fraction]  # Leaf -> tasks it holds.
    groups: list[str]  # Inner nodes, those without any leaf too.
    events: list[dict[str, Fraction]] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)  # What was passed over.


def read(raw: object) -> Problem:
    """A problem from parsed JSON whose decimals are Fractions. Raises BadProblem."""
    if not isinstance(raw, dict):
        _wrong("the problem", 'must be an object {"kind", "input"}', raw)
    kind = _one_of("kind", raw.get("kind", _MISSING), KINDS)
    given = raw.get("input", _MISSING)
    if not isinstance(given, dict):
        _wrong("input", 'must be an object {"capacity", "tree"}', given)
    return _Reader(kind, given).read()


class _Reader:
    """Reads one `input`."""

    def __init__(self, kind: str, given: dict[str, object]) -> None:
        self.kind = kind
        self.given = given
        self.remarks: list[str] = []
        self.paths: dict[str, str] = {}  # Name -> where it was first met.
        self.amounts: dict[str, list[Fraction]] = {}  # Kind -> all that is said of it.
        self.vectors: list[tuple[TreeNode, str, dict[str, Fraction]]] = []  # TreeNode, field, what to make whole there.
        self.allocated: dict[str, Fraction] = {}
        self.groups: list[str] = []

    def read(self) -> Problem:
        self.known("input", "input", self.given)
        policy = "drf" if self.kind.startswith("drf") else self.given.get("policy", "hdrf")
        policy = _one_of("input.policy", policy, POLICIES)
        mode = _one_of("input.mode", self.given.get("mode", "whole"), MODES)
        capacity = self.vector("input.capacity", self.given.get("capacity", _MISSING))
        order = policy if policy in ORDERS else "hdrf"
        names: list[str] = []
        if self.kind == "drf-share":
            root, names = self.nodes(mode)
        else:
            root = self.node("input.tree", self.given.get("tree", _MISSING), order, mode, 1)
        kinds, units = self.make_whole(capacity)
        events = self.events(mode) if self.kind == "hdrf-churn" else []
        whole = [int(capacity.get(kind, Fraction(0)) * unit) for kind, unit in zip(kinds, units, strict=True)]
        problem = Problem(self.kind, policy, mode, kinds, units, whole, root, self.allocated, self.groups)
        problem.events, problem.nodes, problem.remarks = events, names, self.remarks
        return problem

    def known(self, path: str, what: str, given: Mapping[str, object]) -> None:
        """Say which fields are passed over: a slip of the pen should not go unseen."""
        for name in given:
            if name not in _FIELDS[what]:
                self.remarks.append(f"{path}.{name}: ignored, the fields here are {', '.join(_FIELDS[what])}")

    def vector(self, path: str, given: object) -> dict[str, Fraction]:
        if not isinstance(given, dict):
            _wrong(path, 'must be an object like {"cpu": 4, "memory": 16}', given)
        found = {kind: _number(f"{path}.{kind}", amount) for kind, amount in given.items()}
        for kind, amount in found.items():
            self.amounts.setdefault(kind, []).append(amount)
        return found

    def node(self, path: str, given: object, order: str, mode: str, depth: int) -> TreeNode:
        """A NODE of the contract and all below it; `order` is what its children follow unless it names another."""
        if not isinstance(given, dict):
            _wrong(
                path, 'must be an object: {"name", "children"}, {"name", "demand", "tasks"} or {"name", "usage"}', given
            )
        if depth > DEPTH_MAX:
            raise BadProblem(f"{path}: the tree may have {DEPTH_MAX} levels at most")
        name = given.get("name", _MISSING)
        if not isinstance(name, str) or not name:
            _wrong(f"{path}.name", "must be a text of at least one character", name)
        if name in self.paths:
            raise BadProblem(f'{path}.name: "{name}" is also the name of {self.paths[name]}; names must be unique')
        self.paths[name] = path
        weight = _weight(f"{path}.weight", given.get("weight", 1))
        if weight == 0:
            _wrong(f"{path}.weight", "must be greater than 0", weight)
        node = TreeNode(name, weight, tasks=0, order=order)
        node.rank = -_whole(f"{path}.priority", given.get("priority", 0), least=None)
        if "children" in given:
            self.inner(path, given, node, mode, depth)
        else:
            self.leaf(path, given, node, mode)
        return node

    def inner(self, path: str, given: dict[str, object], node: TreeNode, mode: str, depth: int) -> None:
        self.known(path, "inner node", given)
        self.groups.append(node.name)
        node.order = _one_of(f"{path}.policy", given.get("policy", node.order), ORDERS)
        if not isinstance(given["children"], list):
            _wrong(f"{path}.children", "must be a list of nodes", given["children"])
        for at, child in enumerate(given["children"]):
            node.children.append(self.node(f"{path}.children[{at}]", child, node.order, mode, depth + 1))
        if not node.children:
            self.vectors.append((node, "demand", {}))  # An empty group: nothing to give.
            self.allocated[node.name] = Fraction(0)

    def leaf(self, path: str, given: dict[str, object], node: TreeNode, mode: str) -> None:
        self.known(path, "leaf", given)
        if "demand" not in given and "usage" not in given:
            needs = 'must have "children", a "demand" with "tasks", or a "usage"'
            unknown = [f'"{name}"' for name in given if name not in _FIELDS["leaf"]]
            if unknown:  # Probably one of those, misspelt.
                fields = ", ".join(_FIELDS["leaf"])
                raise BadProblem(f"{path}: {needs}; has {', '.join(unknown)}, but the fields here are {fields}")
            _wrong(path, needs, given)
        if "demand" not in given and self.kind in _ALLOCATING:
            _wrong(f"{path}.demand", 'must be an object like {"cpu": 1, "memory": 2}', _MISSING)
        tasks = given.get("tasks")
        node.tasks = None if tasks is None else _whole(f"{path}.tasks", tasks)
        allocated = _number(f"{path}.allocated", given.get("allocated", 0))
        if mode == "whole" and allocated.denominator != 1:
            _wrong(f"{path}.allocated", 'must be whole tasks, or "mode" must be "fluid"', allocated)
        demand = self.vector(f"{path}.demand", given["demand"]) if "demand" in given else None
        usage = self.vector(f"{path}.usage", given["usage"]) if "usage" in given else {}
        self.allocated[node.name] = allocated
        if demand is not None:
            self.vectors.append((node, "demand", demand))
        for kind, amount in (demand or {}).items():
            usage[kind] = usage.get(kind, Fraction(0)) + amount * allocated
            self.amounts[kind].append(usage[kind])
        self.vectors.append((node, "held", usage))

    def nodes(self, mode: str) -> tuple[TreeNode, list[str]]:
        """The nodes of `drf-share`: NODEs, or names in a tree."""
        given = self.given.get("nodes", _MISSING)
        if isinstance(given, dict):
            given = [{"name": name, **node} if isinstance(node, dict) else node for name, node in given.items()]
        if not isinstance(given, list) or not given:
            _wrong("input.nodes", 'must be a list of nodes like {"name", "weight", "usage"}', given)
        if "tree" in self.given:
            root = self.node("input.tree", self.given["tree"], "hdrf", mode, 1)
            for at, name in enumerate(given):
                if not isinstance(name, str) or name not in self.paths:
                    _wrong(f"input.nodes[{at}]", "must be the name of a node in input.tree", name)
            return root, list(given)
        children = [self.node(f"input.nodes[{at}]", node, "hdrf", mode, 2) for at, node in enumerate(given)]
        return TreeNode("", children=children), [child.name for child in children]

    def make_whole(self, capacity: dict[str, Fraction]) -> tuple[list[str], list[int]]:
        """Count each kind in units so fine that all amounts are whole, and fill in the nodes."""
        kinds = list(capacity) + sorted(kind for kind in self.amounts if kind not in capacity)
        for kind in kinds[len(capacity) :]:
            self.remarks.append(f'input.capacity: has no "{kind}", which a node asks for or holds: taken as 0')
        units = [lcm(*[amount.denominator for amount in self.amounts[kind]]) for kind in kinds]
        for node, name, amounts in self.vectors:
            whole = tuple(int(amounts.get(kind, Fraction(0)) * unit) for kind, unit in zip(kinds, units, strict=True))
            setattr(node, name, whole)
        return kinds, units

    def events(self, mode: str) -> list[dict[str, Fraction]]:
        given = self.given.get("events", _MISSING)
        if not isinstance(given, list):
            _wrong("input.events", 'must be a list like [{"finish": {"a": 1}}]', given)
        found = []
        for at, event in enumerate(given):
            path = f"input.events[{at}].finish"
            finish = event.get("finish", _MISSING) if isinstance(event, dict) else _MISSING
            if not isinstance(finish, dict):
                _wrong(path, 'must be an object like {"a": 1}', finish)
            for name in finish:
                if name not in self.allocated:
                    raise BadProblem(f'{path}: "{name}" is the name of no leaf of input.tree')
            read_tasks = _whole if mode == "whole" else _number
            found.append({name: Fraction(read_tasks(f"{path}.{name}", tasks)) for name, tasks in finish.items()})
        return found


def _one_of(path: str, given: object, choices: tuple[str, ...]) -> str:
    if not isinstance(given, str) or given not in choices:
        _wrong(path, f"must be one of {', '.join(choices)}", given)
    return given


def _exact(given: object) -> Fraction | None:
    """A number as it was written; None for what is none."""
    if isinstance(given, bool) or not isinstance(given, int | float | Fraction):
        return None
    if not -NUMBER_MAX <= given <= NUMBER_MAX:  # Nor is what is not a number.
        return None
    return Fraction(repr(given)) if isinstance(given, float) else Fraction(given)


def _number(path: str, given: object) -> Fraction:
    exact = _exact(given)
    if exact is None or exact < 0:
        _wrong(path, "must be a number from 0 to 10^18", given)
    return exact


def _weight(path: str, given: object) -> Fraction:
    """A number, or a fraction as a text like `1/3`."""
    above, slash, below = given.partition("/") if isinstance(given, str) else ("", "", "")
    if slash and all(part.isascii() and part.isdecimal() and len(part) <= RATIO_DIGITS for part in (above, below)):
        return Fraction(int(above), int(below)) if int(below) else _number(path, given)
    return _number(path, given)


def _whole(path: str, given: object, least: int | None = 0) -> int:
    exact = _exact(given)
    if exact is None or exact.denominator != 1 or (least is not None and exact < least):
        _wrong(
            path, "must be a whole number" if least is None else f"must be a whole number of at least {least}", given
        )
    return int(exact)


def _wrong(path: str, should: str, given: object) -> NoReturn:
    raise BadProblem(f"{path}: {should}, {_shown(given)}")


def _shown(given: object) -> str:
    if given is _MISSING:
        return "is missing"
    if isinstance(given, Fraction):
        return f"is {given.numerator if given.denominator == 1 else float(given)}"
    if isinstance(given, dict):
        return "is an object"
    if isinstance(given, list):
        return "is a list" if given else "is an empty list"
    return (
        f"is {given!r}"[:60].replace("'", '"').replace("None", "null").replace("True", "true").replace("False", "false")
    )
