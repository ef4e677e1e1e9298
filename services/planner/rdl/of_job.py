"""A request for the capacity that a job needs, from its graph and the estimates of its stages.

Each stage is an atom. Stages that wait for each other become `order`, those that do not become `all`, exactly as far as
the graph is series-parallel. What is not goes level by level: a stage is one level behind the last of those that it
waits for, and no level begins before the one before it is over.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from schemas.jobs import JobSpec, Stage
from schemas.quantities import quantity_texts
from services.planner.planning.read_rdl import DEPTH_MAX


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
    if parts.depth >= DEPTH_MAX:  # The window is a level, too; `_parts` goes no deeper than that.
        parts = _levels(_ancestors(job.stages), list(range(len(job.stages))))
    lines = [_Line(f"window({begin}, {end},"), *_lines(parts, job.stages, margin_percent, 1)]
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
    """What these stages, in the order of the job, come to, inside so many levels of brackets."""
    if len(stages) == 1:
        return _Part("atom", stage=stages[0])
    if depth >= DEPTH_MAX:
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


def _lines(part: _Part, stages: Sequence[Stage], margin_percent: int, depth: int) -> list[_Line]:
    indent = "    " * depth
    if part.op == "atom":
        stage = stages[part.stage]
        return [_Line(indent + _atom(stage, margin_percent), stage.stage)]
    found = [_Line(f"{indent}{part.op}(")]
    for each in part.of:
        found += _lines(each, stages, margin_percent, depth + 1)
        found[-1].code += ","
    found[-1].code = found[-1].code.removesuffix(",") + ")"
    return found


def _atom(stage: Stage, margin_percent: int) -> str:
    amounts = ", ".join([f"{text} {resource}" for resource, text in quantity_texts(stage.demand).items()])
    lasts_s = -(-stage.estimate_ms * (100 + margin_percent) // 100_000)
    least = stage.tasks if stage.gang else 1
    work_s = stage.tasks * lasts_s
    return f'atom(b="{amounts}", g={least}, h={stage.width}, l={_duration(lasts_s)}, w={_duration(work_s)})'


def _duration(seconds: int) -> str:
    for unit, suffix in ((3_600, "h"), (60, "m")):
        if seconds % unit == 0:
            return f"{seconds // unit}{suffix}"
    return f"{seconds}s"
