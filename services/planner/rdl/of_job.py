"""A request for the capacity that a job needs, from its graph and the estimates of its stages.

Each stage is an atom, or `any` of some. A part of a lease in which no whole task fits is of no use to it, so each atom
says how many units run how many tasks one after another: all tasks at once, half as many units for twice as long, etc.
Where that makes too many atoms there are fewer to choose from, in the end one with twice the work of the tasks, of
which any leases hold them all.

Stages that wait for each other become `order`, those that do not become `all`, exactly as far as the graph is
series-parallel. What is not goes level by level: a stage is one level behind the last of those that it waits for, and
no level begins before the one before it is over.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from schemas.jobs import JobSpec, Stage
from schemas.quantities import quantity_texts
from services.planner.planning.read_rdl import DEPTH_MAX

PARTS_DEPTH_MAX = DEPTH_MAX - 1
"""The window is a level of a request, too, and `any` one inside `all` and `order`."""
CHOICES_MAX = 200
"""Atoms of a request beyond one a stage."""
APART_PERCENT = (25, 50, 100, 300)
"""How much longer each atom of a stage may last than the next, the first for which there are few enough."""


@dataclass(slots=True)
class _Part:
    """An expression of the request; `stage`: of an atom."""

    op: str
    of: list["_Part"] = field(default_factory=list)
    stage: int = -1

    @property
    def depth(self) -> int:
        """Levels of brackets."""
        return 1 + max([part.depth for part in self.of], default=0)


def request_text(job: JobSpec, begin: str, end: str, margin_percent: int = 0) -> str:
    """RDL as text for all stages of a job in the window from `begin` to `end`, times as the language has them.

    Estimates are lengthened by `margin_percent`. Raises ValueError, which names the field of the job, where a stage has
    no estimate.
    """
    for at, stage in enumerate(job.stages):
        if not stage.estimate_ms:
            raise ValueError(
                f'stages[{at}].estimate_ms: is missing: write how long a task of "{stage.stage}" takes, in milliseconds'
            )
    parts = _parts(_ancestors(job.stages), list(range(len(job.stages))))
    if parts.depth >= PARTS_DEPTH_MAX:  # `_parts` goes no deeper than that.
        parts = _levels(_ancestors(job.stages), list(range(len(job.stages))))
    atoms = _all_atoms(job.stages, margin_percent)
    lines = [_Line(f"window({begin}, {end},"), *_lines(parts, job.stages, atoms, 1)]
    lines[-1].code += ")"
    return "".join([f"{line.code}  # {line.comment}\n" if line.comment else f"{line.code}\n" for line in lines])


# ---------------------------------------------------------------- the graph
def _ancestors(stages: Sequence[Stage]) -> list[int]:
    """By position, all stages that have to end before a stage begins, a bit each."""
    position = {stage.stage: at for at, stage in enumerate(stages)}
    found: list[int | None] = [None] * len(stages)
    for first in range(len(stages)):
        ahead = [first]
        while ahead:
            before = [position[name] for name in stages[ahead[-1]].after]
            open_ones = [at for at in before if found[at] is None]
            if open_ones:
                ahead += open_ones
                continue
            bits = 0
            for at in before:
                bits |= 1 << at | (found[at] or 0)
            found[ahead.pop()] = bits
    return [bits or 0 for bits in found]


def _parts(ancestors: Sequence[int], stages: list[int], depth: int = 1) -> _Part:
    """What these stages, in the order of the job, come to, at this depth of brackets."""
    if len(stages) == 1:
        return _Part("atom", stage=stages[0])
    if depth >= PARTS_DEPTH_MAX:
        return _levels(ancestors, stages)
    for op, split in (("all", _side_by_side(ancestors, stages)), ("order", _one_after_another(ancestors, stages))):
        if len(split) > 1:
            return _Part(op, [_parts(ancestors, part, depth + 1) for part in split])
    return _levels(ancestors, stages)


def _side_by_side(ancestors: Sequence[int], stages: list[int]) -> list[list[int]]:
    """Sets of stages none of which waits for a stage of another."""
    within = sum([1 << at for at in stages])
    found: list[int] = []  # A bit for each stage of a set.
    for at in stages:
        mine, apart = (ancestors[at] | 1 << at) & within, list[int]()
        for other in found:
            if other & mine:
                mine |= other
            else:
                apart.append(other)
        found = [*apart, mine]
    found.sort(key=lambda bits: bits & -bits)
    return [[at for at in stages if bits >> at & 1] for bits in found]


def _one_after_another(ancestors: Sequence[int], stages: list[int]) -> list[list[int]]:
    """Sets of stages each of which waits for all stages of the sets before."""
    within = sum([1 << at for at in stages])
    ranked = sorted(stages, key=lambda at: ((ancestors[at] & within).bit_count(), at))
    common, waits_for = within, [0] * len(ranked)
    for place in range(len(ranked) - 1, -1, -1):
        common &= ancestors[ranked[place]]
        waits_for[place] = common
    found, before = list[list[int]](), 0
    for place, at in enumerate(ranked):
        if before & waits_for[place] == before:
            found.append([])
        found[-1].append(at)
        before |= 1 << at
    return [sorted(part) for part in found]


def _levels(ancestors: Sequence[int], stages: list[int]) -> _Part:
    depths: dict[int, int] = {}
    within = sum([1 << at for at in stages])
    for at in sorted(stages, key=lambda at: ((ancestors[at] & within).bit_count(), at)):
        depths[at] = 1 + max([depth for other, depth in depths.items() if ancestors[at] >> other & 1], default=0)
    found: list[_Part] = []
    for depth in range(1, max(depths.values()) + 1):
        atoms = [_Part("atom", stage=at) for at in stages if depths[at] == depth]
        found.append(atoms[0] if len(atoms) == 1 else _Part("all", atoms))
    return found[0] if len(found) == 1 else _Part("order", found)


# ---------------------------------------------------------------- the text
@dataclass(slots=True)
class _Line:
    code: str
    comment: str = ""


def _lines(part: _Part, stages: Sequence[Stage], atoms: Sequence[Sequence[str]], depth: int) -> list[_Line]:
    indent = "    " * depth
    if part.op == "atom":
        name, choice = stages[part.stage].stage, atoms[part.stage]
        if len(choice) == 1:
            return [_Line(indent + choice[0], name)]
        found = [_Line(f"{indent}any(", name), *[_Line(f"{indent}    {atom},") for atom in choice]]
    else:
        found = [_Line(f"{indent}{part.op}(")]
        for each in part.of:
            found += _lines(each, stages, atoms, depth + 1)
            found[-1].code += ","
    found[-1].code = found[-1].code.removesuffix(",") + ")"
    return found


# ---------------------------------------------------------------- the atoms
def _all_atoms(stages: Sequence[Stage], margin_percent: int) -> list[list[str]]:
    """By stage, the atoms of which one is needed, the narrowest first: as many as fit into the request."""
    for apart_percent in APART_PERCENT:
        shapes = [_shapes(stage, margin_percent, apart_percent) for stage in stages]
        if sum(map(len, shapes)) - len(stages) <= CHOICES_MAX:
            break
    else:
        shapes = [[_any_shape(stage, margin_percent)] for stage in stages]
    return [[_atom(stage, *shape) for shape in of_stage] for stage, of_stage in zip(stages, shapes, strict=True)]


def _shapes(stage: Stage, margin_percent: int, apart_percent: int) -> list[tuple[int, int, int, int]]:
    """As (least units, most, seconds of a lease, unit-seconds): units that all begin together, on each of which so many
    tasks run one after another; most tasks a unit first. Each lasts at most so much longer than the one behind it as
    `apart_percent` says, or by one task.
    """
    lasts_s, units = _lasts_s(stage, margin_percent), stage.tasks
    if stage.gang:
        return [(units, units, lasts_s, units * lasts_s)]
    found: list[tuple[int, int, int, int]] = []
    in_a_row = -(-stage.tasks // stage.width)
    while units > 1:
        units = -(-stage.tasks // in_a_row)  # No more than have a task.
        each = -(-stage.tasks // units)
        if not found or units < found[-1][0]:
            found.append((units, units, each * lasts_s, units * each * lasts_s))
        in_a_row = max(in_a_row + 1, in_a_row * (100 + apart_percent) // 100)
    return found[::-1] or [(1, 1, lasts_s, lasts_s)]


def _any_shape(stage: Stage, margin_percent: int) -> tuple[int, int, int, int]:
    """The same of units that begin and end when they like: a lease holds more than half of the tasks that its length is
    estimated for.
    """
    lasts_s = _lasts_s(stage, margin_percent)
    if stage.gang or stage.tasks == 1:
        return stage.tasks, stage.tasks, lasts_s, stage.tasks * lasts_s
    return 1, stage.width, lasts_s, 2 * stage.tasks * lasts_s


def _lasts_s(stage: Stage, margin_percent: int) -> int:
    """What a task is given, in whole seconds."""
    return -(-stage.estimate_ms * (100 + margin_percent) // 100_000)


def _atom(stage: Stage, least: int, most: int, lease_s: int, work_s: int) -> str:
    amounts = ", ".join([f"{text} {resource}" for resource, text in quantity_texts(stage.demand).items()])
    return f'atom(b="{amounts}", g={least}, h={most}, l={_duration(lease_s)}, w={_duration(work_s)})'


def _duration(seconds: int) -> str:
    for unit, suffix in ((3_600, "h"), (60, "m")):
        if seconds % unit == 0:
            return f"{seconds // unit}{suffix}"
    return f"{seconds}s"
