"""The graph of a job's stages, checked as people wrote it."""

from collections.abc import Iterable

from schemas.edge.base import KEY_SHOWN_MAX, Malformed, shown
from schemas.edge.cycles import find_cycle
from schemas.jobs import Stage
from schemas.wording import nearest

CYCLE_SHOWN_MAX = 8


def check_graph(stages: list[Stage]) -> None:
    """Names are unique, stages come after others that there are, and none waits for itself. Raises Malformed."""
    position: dict[str, int] = {}
    for i, stage in enumerate(stages):
        if (first := position.setdefault(stage.stage, i)) != i:
            raise Malformed(f"stages[{i}].stage", f"{shown(stage.stage)} is the name of stages[{first}] already")
    backwards = False
    for i, stage in enumerate(stages):
        if not stage.after:
            continue
        if len(set(stage.after)) < len(stage.after):
            twice = next(k for k, name in enumerate(stage.after) if name in stage.after[:k])
            raise Malformed(f"stages[{i}].after[{twice}]", f"{shown(stage.after[twice])} is named twice")
        for k, name in enumerate(stage.after):
            if name not in position:
                raise Malformed(f"stages[{i}].after[{k}]", no_stage(name, position))
            backwards = backwards or position[name] >= i
    # Stages that name only earlier ones cannot wait for each other in a circle.
    if backwards and (cycle := find_cycle({stage.stage: stage.after for stage in stages})):
        names = [name[:KEY_SHOWN_MAX] for name in cycle]
        if len(names) > CYCLE_SHOWN_MAX:
            names = [*names[: CYCLE_SHOWN_MAX - 2], "...", names[-1]]
        raise Malformed(f"stages[{position[cycle[0]]}].after", f"stages wait for each other: {' -> '.join(names)}")


def no_stage(name: str, position: Iterable[str]) -> str:
    """That there is no such stage, and which one was meant most likely."""
    close = nearest(name, position)
    return f'there is no stage {shown(name)}; did you mean "{close}"?' if close else f"there is no stage {shown(name)}"
